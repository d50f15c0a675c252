/**
 * Fenced requests with `fetch`: the server checks the token, in the same transaction as the write (docs/publish/http.md).
 *
 * ```ts
 * import { fencedFetch } from "fencepost/http";
 *
 * await fencedFetch(run, "https://api.example.org/report", { body: JSON.stringify(report) });
 * ```
 *
 * @module
 */
import { createHash, randomUUID } from "node:crypto";
import { StaleTokenError } from "./errors.js";
import type { ReasonCode } from "./protocol.js";
import type { GrantedRun } from "./run.js";

export interface FenceOptions {
  /** What the server knows the target as (default: the URL). */
  resource?: string | undefined;
  /** How often one token may write (default: many). */
  mode?: "many" | "once" | undefined;
  /** The operation's name: it has one idempotency key in every run of a slot. */
  op?: string | undefined;
  /** Take the resource over from another store or job, as a person decided. */
  adopt?: boolean | undefined;
}

export interface FencedInit extends Omit<RequestInit, "body" | "redirect"> {
  /** The payload: its digest is one of the headers. */
  body?: string | Uint8Array | undefined;
  fence?: FenceOptions | undefined;
}

/** How a problem's type ends, and the reason that it stands for. */
const REFUSALS: Record<string, ReasonCode> = {
  "stale-token": "stale",
  "spent-token": "spent",
  "other-run": "other_run",
  "other-lineage": "other_lineage",
};

/**
 * Sends a request with the headers of the fence: a PUT, unless `method` says otherwise. A refusal of the fence throws
 * `StaleTokenError`; every other answer is returned. Redirects are not followed. The loss of the lease aborts it, and so does the caller's signal; a
 * request to stop does not.
 */
export async function fencedFetch(run: GrantedRun, url: string | URL, init: FencedInit = {}): Promise<Response> {
  const { fence, headers, body = "", signal, ...rest } = init;
  const all = new Headers(headers);
  for (const [name, value] of Object.entries(fenceHeaders(run, url, body, fence))) all.set(name, value);
  const response = await fetch(url, {
    method: "PUT",
    ...rest,
    signal: AbortSignal.any([run.lostSignal, ...(signal ? [signal] : [])]),
    headers: all,
    body,
    redirect: "manual",
  });
  if (response.status === 412) await refuse(response);
  return response;
}

/** Whether the server checked the token: `atomic`, or `gated` for one that knows nothing of it and is not fenced. */
export function levelOf(response: Response): "atomic" | "gated" {
  return response.headers.get("Fencepost-Fence") === "accepted" ? "atomic" : "gated";
}

/** The headers of a write. The idempotency key of a write without an operation's name is new each time, in mode `many`. */
export function fenceHeaders(
  run: GrantedRun,
  url: string | URL,
  body: string | Uint8Array,
  { resource = String(url), mode = "many", op, adopt }: FenceOptions = {},
): Record<string, string> {
  const digest = `sha256:${createHash("sha256").update(body).digest("hex")}`;
  return {
    "Idempotency-Key": idempotencyKey(run, digest, mode, op),
    "Fencepost-Resource": encoded(resource),
    "Fencepost-Store": run.store,
    "Fencepost-Job": run.job,
    "Fencepost-Token": String(run.token),
    "Fencepost-Run": run.id,
    "Fencepost-Host": encoded(run.host),
    "Fencepost-Mode": mode,
    "Fencepost-Digest": digest,
    ...(op === undefined ? {} : { "Fencepost-Op": encoded(op) }),
    ...(adopt ? { "Fencepost-Adopt": "1" } : {}),
  };
}

function idempotencyKey(run: GrantedRun, digest: string, mode: "many" | "once", op: string | undefined): string {
  if (op !== undefined) return `"${run.job}/${run.slot}/${encoded(op, "/")}"`;
  const write = `${run.job}/${run.token}/${digest}`;
  return mode === "once" ? `"${write}"` : `"${write}/${randomUUID().replaceAll("-", "")}"`;
}

/** A text as visible ASCII: everything else, the per cent sign, quotes, backslashes and `also` are percent-encoded. */
function encoded(text: string, also = ""): string {
  const isPlain = (byte: number) => byte >= 0x21 && byte <= 0x7e && !`%"\\${also}`.includes(String.fromCharCode(byte));
  const hex = (byte: number) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  return Array.from(new TextEncoder().encode(text), (byte) =>
    isPlain(byte) ? String.fromCharCode(byte) : hex(byte),
  ).join("");
}

/** Throws if the fence is what refused. A 412 may have another cause, such as `If-Match`. */
async function refuse(response: Response): Promise<void> {
  const seen = response.headers.get("Fencepost-Seen");
  const problem = response.headers.get("Content-Type")?.startsWith("application/problem+json")
    ? ((await response
        .clone()
        .json()
        .catch(() => ({}))) as { type?: unknown; detail?: unknown })
    : {};
  const type = typeof problem.type === "string" ? problem.type : "";
  if (!type.startsWith("urn:fencepost:") && seen === null) return;
  const reason = REFUSALS[type.replace("urn:fencepost:", "")] ?? "stale";
  const why = typeof problem.detail === "string" ? problem.detail : `the server has seen token ${seen}`;
  throw new StaleTokenError(`${response.url} refused the write: ${why}. Nothing was changed.`, { reason });
}
