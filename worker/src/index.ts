// The front: who may come in, what is asked, and how the answer is written down. The protocol is
// docs/stores/http-protocol.md. A request refused here has not reached the object and has changed nothing.

import type { Clock, Entry, Env, Outcome } from "./store";

export { FencepostStore } from "./store";

const VALUE_BYTES_MAX = 64 * 1024;
const SCAN_KEYS_MAX = 1000;
const KEY_BYTES_MAX = 1024;
const TOKEN_CHARS_MIN = 20;

/** `/v1/…` is the store called `default`, `/NAME/v1/…` the one of that name. */
const PLACE = /^(?:\/([a-z0-9][a-z0-9-]{0,62}))?\/v1\/(about|keys)(?:\/(.+))?$/;
const KEY = /^[a-z0-9=_-]{1,255}(?:\/[a-z0-9=_-]{1,255})+$/;
const VERSION = /^(?:[0-9a-f]{2}){1,64}$/;
const REQUEST = /^[0-9a-f]{1,64}$/;

type Fate = "not-done" | "unknown";

const ABOUT = {
  protocol: 1,
  server: "fencepost-worker 0.1.0",
  declares: [
    {
      name: "durability",
      standing: "sound",
      detail: "A Durable Object answers when its write is stored in several data centres.",
    },
    {
      name: "replication",
      standing: "sound",
      detail: "One object is the store. A restore to an earlier point in time takes acknowledged swaps back.",
    },
    {
      name: "clock",
      standing: "weak",
      detail:
        "Leases are judged by the wall clock of the machine that runs the object. One that is set forward ends them " +
        "early; the fence refuses the late writes.",
    },
  ],
};

class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly fate: Fate = "not-done",
    readonly headers: Record<string, string> = {},
  ) {
    super(message);
  }
}

export default {
  async fetch(request, env): Promise<Response> {
    let response: Response;
    try {
      await admit(request, env);
      response = await answer(request, env);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      const { status, code, message, fate, headers } = error;
      response = Response.json({ error: { code, message, fate } }, { status, headers });
      response.headers.set("Fencepost-Answer", "error");
    }
    const id = request.headers.get("Fencepost-Request") ?? "";
    if (REQUEST.test(id)) response.headers.set("Fencepost-Request", id);
    response.headers.set("Cache-Control", "no-store, no-transform");
    return response;
  },
} satisfies ExportedHandler<Env>;

/** Compares digests in constant time, with every secret, so that the time tells nothing about any of them. */
async function admit(request: Request, env: Env): Promise<void> {
  if ((env.FENCEPOST_TOKEN ?? "").length < TOKEN_CHARS_MIN) {
    const message = `The worker has no FENCEPOST_TOKEN of at least ${TOKEN_CHARS_MIN} characters: wrangler secret put FENCEPOST_TOKEN`;
    throw new Refusal(500, "not_configured", message);
  }
  const given = await digest(/^Bearer +(\S+)$/i.exec(request.headers.get("Authorization") ?? "")?.[1] ?? "");
  let admitted = false;
  for (const secret of [env.FENCEPOST_TOKEN, env.FENCEPOST_TOKEN_OLD]) {
    const equal = crypto.subtle.timingSafeEqual(given, await digest(secret ?? ""));
    admitted = (equal && (secret ?? "").length >= TOKEN_CHARS_MIN) || admitted;
  }
  if (admitted) return;
  throw new Refusal(401, "unauthorized", "The bearer token is missing or wrong.", "not-done", {
    "WWW-Authenticate": "Bearer",
  });
}

async function digest(text: string): Promise<ArrayBuffer> {
  return crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
}

async function answer(request: Request, env: Env): Promise<Response> {
  const url = new URL(request.url);
  const [, store = "default", what, key] = PLACE.exec(url.pathname) ?? [];
  const verb = `${request.method} ${what}${key === undefined ? "" : "/key"}`;
  const object = env.STORE.get(env.STORE.idFromName(store));
  switch (verb) {
    case "GET about": {
      const response = Response.json(ABOUT);
      response.headers.set("Fencepost-Answer", "about");
      return response;
    }
    case "GET keys": {
      const { prefix, after, limit } = listing(url.searchParams);
      return written(await reached("not-done", object.scan(prefix, after, limit)));
    }
    case "GET keys/key":
      return written(await reached("not-done", object.read(sound(key))));
    case "POST keys/key": {
      const { version, value } = await change(request);
      return written(await reached("unknown", object.swap(sound(key), version, value)));
    }
  }
  if (what === undefined) throw new Refusal(404, "no_such_place", "There are /v1/keys and /v1/about.");
  throw new Refusal(405, "method_not_allowed", "A key is read by GET and swapped by POST; keys are listed by GET.");
}

/** Asks the object once. If it fails, its effect is unknown. */
async function reached(fate: Fate, call: Promise<Outcome>): Promise<Outcome> {
  try {
    return await call;
  } catch (error) {
    const message = `The store's object failed: ${error instanceof Error ? error.message : "no reason given"}`;
    throw new Refusal(503, "unavailable", message, fate);
  }
}

function sound(key = ""): string {
  if (KEY.test(key) && key.length <= KEY_BYTES_MAX) return key;
  throw new Refusal(400, "bad_request", "The path does not end in a key of fencepost.");
}

function listing(query: URLSearchParams): { prefix: string; after: string; limit: number } {
  const prefix = query.get("prefix") ?? "";
  const after = query.get("after") ?? "";
  const limit = query.get("limit") ?? String(SCAN_KEYS_MAX);
  if (prefix.length > KEY_BYTES_MAX || after.length > KEY_BYTES_MAX || !/^\d{1,9}$/.test(limit)) {
    throw new Refusal(400, "bad_request", "A listing has a prefix, an after and a limit: parts of keys, and a number.");
  }
  return { prefix, after, limit: Math.min(Number(limit), SCAN_KEYS_MAX) };
}

async function change(request: Request): Promise<{ version: string | null; value: ArrayBuffer | null }> {
  const expect = request.headers.get("Fencepost-Expect") ?? "";
  const makes = request.headers.get("Fencepost-New") ?? "";
  if (expect !== "none" && !VERSION.test(expect)) {
    throw new Refusal(400, "bad_request", "Fencepost-Expect is a version, or none.");
  }
  if (makes !== "none" && makes !== "value") {
    throw new Refusal(400, "bad_request", "Fencepost-New is value, or none for a removal.");
  }
  const body = await bounded(request);
  if (makes === "none" && body.byteLength > 0) {
    throw new Refusal(400, "bad_request", "A removal has no body.");
  }
  return { version: expect === "none" ? null : expect, value: makes === "none" ? null : body };
}

/** The whole body, of which no more is taken in than a value may have. */
async function bounded(request: Request): Promise<ArrayBuffer> {
  const tooLarge = new Refusal(413, "too_large", `A value has at most ${VALUE_BYTES_MAX} bytes.`);
  if (Number(request.headers.get("Content-Length") ?? 0) > VALUE_BYTES_MAX) throw tooLarge;
  const value = new Uint8Array(VALUE_BYTES_MAX);
  let length = 0;
  for await (const part of request.body ?? []) {
    if (length + part.byteLength > VALUE_BYTES_MAX) throw tooLarge;
    value.set(part, length);
    length += part.byteLength;
  }
  return value.buffer.slice(0, length);
}

function written(outcome: Outcome): Response {
  switch (outcome.kind) {
    case "busy":
      throw new Refusal(429, "too_many", "The store is asked too often.", "not-done", {
        "Retry-After": String(outcome.retryAfterS),
      });
    case "won":
      return stated("won", 200, outcome.clock, { version: outcome.version ?? "none", body: null });
    case "lost":
      return stated("lost", 409, outcome.clock, state(outcome.entry));
    case "read":
      if (outcome.entry === null) return stated("absent", 404, outcome.clock, state(null));
      return stated("entry", 200, outcome.clock, state(outcome.entry));
    case "keys":
      return stated("keys", 200, outcome.clock, { body: outcome.keys.map((key) => `${key}\n`).join("") });
  }
}

interface State {
  version?: string;
  body: ArrayBuffer | string | null;
}

function state(entry: Entry | null): State {
  return { version: entry?.version ?? "none", body: entry?.value ?? null };
}

function stated(word: string, status: number, clock: Clock, { version, body }: State): Response {
  const type = typeof body === "string" ? "text/plain; charset=utf-8" : "application/octet-stream";
  const response = new Response(body, { status, headers: { "Content-Type": type, "Fencepost-Answer": word } });
  response.headers.set("Fencepost-Clock", `wall=${clock.wall}; tick=${clock.tick}; era=${clock.era}`);
  if (version !== undefined) response.headers.set("Fencepost-Version", version);
  return response;
}
