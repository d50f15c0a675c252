// A run: a lease that was granted, or the reason why it was not.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { Connection } from "./connection.js";
import { type LeaseLostError, notGranted, UsageError } from "./errors.js";
import type { Lease } from "./lease.js";
import type {
  GatedReply,
  GateRequest,
  GrantedReply,
  OutcomeWord,
  PublishedReply,
  PublishRequest,
  ReleaseRequest,
  Time,
  Trigger,
} from "./protocol.js";
import { type EndedResult, endOf, type NotGrantedResult } from "./result.js";
import { contentOf } from "./wire.js";

/** Above this size, content goes to the session by a file. */
const DATA_CHARACTERS_MAX = 256 * 1024;

/** Options that are paths. The session may have another working directory than this process by now. */
const PATHS = ["path", "source", "from", "repo", "bearerFile"] as const;

export type Run = GrantedRun | NotGrantedRun;
export type PublishKind = "file" | "tree" | "git" | "http" | "sql" | "redis" | "s3";
export type PublishOptions = Omit<PublishRequest, "claim" | "kind" | "data"> & {
  /** The content. */
  data?: string | Uint8Array | undefined;
};
export type Published = PublishedReply;
export type GateOptions = Omit<GateRequest, "claim" | "upstreams">;
export type Gate = GatedReply;
export interface OutcomeOptions {
  /** Why, in words. */
  note?: string | undefined;
  /** Files that the work left. */
  artifacts?: string[] | undefined;
}

/** The lease is held: the work may be done. */
export class GrantedRun {
  readonly granted = true;
  /** The job's name. */
  readonly job: string;
  /** The id of this run. */
  readonly id: string;
  /** The fencing token, greater than that of every earlier grant. */
  readonly token: number;
  /** The slot that the work is for; of a job without slots, the time of the claim. */
  readonly slot: Time;
  /** The day of the slot in the job's zone. */
  readonly date: string;
  readonly timezone: string;
  readonly trigger: Trigger;
  readonly lateSeconds: number;
  /** The gap that this run covers, with `catchUpMode: "collapse"`. */
  readonly slotFrom: Time | undefined;
  readonly slotTo: Time | undefined;
  readonly slotCount: number | undefined;
  /** The idempotency key: the same for every attempt at one slot, on every machine. Hand it to providers. */
  readonly key: string;
  /** The identity of the store: with the job, the lineage of the token. */
  readonly store: string;
  readonly host: string;
  /** Where the pinned inputs of each upstream are. */
  readonly inputs: Readonly<Record<string, string>>;

  readonly #connection: Connection;
  readonly #claim: number;
  readonly #lease: Lease;
  #ending: Promise<EndedResult> | undefined;

  /** @internal */
  constructor(connection: Connection, claim: number, lease: Lease, granted: GrantedReply) {
    this.#connection = connection;
    this.#claim = claim;
    this.#lease = lease;
    this.job = granted.job;
    this.id = granted.run;
    this.token = granted.token;
    this.slot = granted.slot;
    this.date = granted.date;
    this.timezone = granted.timezone;
    this.trigger = granted.trigger;
    this.lateSeconds = granted.lateSeconds;
    this.slotFrom = granted.slotFrom;
    this.slotTo = granted.slotTo;
    this.slotCount = granted.slotCount;
    this.key = granted.key;
    this.store = granted.store;
    this.host = granted.host;
    this.inputs = granted.inputs;
  }

  /**
   * Fires when the lease is lost, or before that when the program is asked to stop. Its reason is the error that says which. It
   * fires once: after a request to stop, `lostSignal` and `lost` tell of the loss.
   */
  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  /** Fires when the lease is lost, and not when the program is asked to stop: for writes, which may go on in the grace. */
  get lostSignal(): AbortSignal {
    return this.#lease.lostSignal;
  }

  /** Why the lease is lost; undefined while it is held. */
  get lost(): LeaseLostError | undefined {
    return this.#lease.lost;
  }

  /** Writes a file under the token of this run. A newer run's write makes it fail with `StaleTokenError`. */
  publishFile(path: string, data: string | Uint8Array, options: PublishOptions = {}): Promise<Published> {
    return this.publish("file", { ...options, path, data });
  }

  /** Writes to a target under the token of this run, as `fencepost publish KIND` does. */
  async publish(kind: PublishKind, options: PublishOptions): Promise<Published> {
    const { data, ...rest } = options;
    for (const name of PATHS) {
      const path = rest[name];
      if (path !== undefined) rest[name] = resolve(path);
    }
    const request = { request: "publish", claim: this.#claim, kind, ...rest } as const;
    const send = async (content: { data?: string; from?: string }) =>
      contentOf(await this.#connection.call({ ...request, ...content }, "published"));
    if (data === undefined) return await send({});
    if (rest.from !== undefined) throw new UsageError("A write takes either data or from. Nothing was sent.");
    if (typeof data === "string" && !data.isWellFormed())
      throw new UsageError("The content contains a lone surrogate, which no UTF-8 text has. Nothing was sent.");
    const isShortText = typeof data === "string" && data.length <= DATA_CHARACTERS_MAX;
    return isShortText ? await send({ data }) : await withFile(data, (from) => send({ from }));
  }

  /** The work did what it is for. */
  ok(note?: string, options: OutcomeOptions = {}): Promise<void> {
    return this.record("ok", { ...options, note: note ?? options.note });
  }

  /** There was nothing to do: downstream jobs skip. */
  empty(note?: string): Promise<void> {
    return this.record("empty", { note });
  }

  /** The work failed. */
  error(note?: string): Promise<void> {
    return this.record("error", { note });
  }

  /** States the outcome, which `close` records. The last one counts. */
  async record(outcome: OutcomeWord, options: OutcomeOptions = {}): Promise<void> {
    await this.#connection.call({ request: "record", claim: this.#claim, outcome, ...options }, "recorded");
  }

  /** Asks whether upstreams are good for this run's slot. */
  async gate(upstreams: string | string[], options: GateOptions = {}): Promise<Gate> {
    const request = { request: "gate", claim: this.#claim, upstreams: [upstreams].flat(), ...options } as const;
    return contentOf(await this.#connection.call(request, "gated"));
  }

  /**
   * Ends the run: records its outcome and releases the lease, in one step. A second call returns the same result. Rejects with
   * `LeaseLostError` if the lease was lost.
   */
  close(): Promise<EndedResult> {
    return this.end({});
  }

  /** @internal */
  end(how: Omit<ReleaseRequest, "claim">): Promise<EndedResult> {
    this.#ending ??= this.#release(how);
    return this.#ending;
  }

  async #release(how: Omit<ReleaseRequest, "claim">): Promise<EndedResult> {
    const release = (how: Omit<ReleaseRequest, "claim">) =>
      this.#connection.call({ request: "release", claim: this.#claim, ...how }, "released");
    try {
      const released = await release(how).catch((error: unknown) => {
        // Refused as it was written, and the lease is held still: the failure is recorded without its note.
        if (how.outcome !== "error" || !(error instanceof UsageError)) throw error;
        return release({ outcome: "error", exitCode: how.exitCode });
      });
      return endOf(released, this.slot, undefined);
    } finally {
      this.#connection.forget(this.#claim);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** The lease is not held: `result` says why. Any other use of it throws. */
export class NotGrantedRun {
  readonly granted = false;
  readonly result: NotGrantedResult;

  /** @internal */
  constructor(result: NotGrantedResult) {
    this.result = result;
  }

  /** There is nothing to release. */
  close(): Promise<NotGrantedResult> {
    return Promise.resolve(this.result);
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

/** What only a granted run has. The compiler refuses its use on a union; plain JavaScript gets an error. */
const GRANTED_ONLY: Record<Exclude<keyof GrantedRun, keyof NotGrantedRun>, true> = {
  job: true,
  id: true,
  token: true,
  slot: true,
  date: true,
  timezone: true,
  trigger: true,
  lateSeconds: true,
  slotFrom: true,
  slotTo: true,
  slotCount: true,
  key: true,
  store: true,
  host: true,
  inputs: true,
  signal: true,
  lostSignal: true,
  lost: true,
  publishFile: true,
  publish: true,
  ok: true,
  empty: true,
  error: true,
  record: true,
  gate: true,
  end: true,
};
for (const name of Object.keys(GRANTED_ONLY)) {
  Object.defineProperty(NotGrantedRun.prototype, name, {
    get(this: NotGrantedRun) {
      throw notGranted(this.result);
    },
  });
}

/** Hands content over in a file that only this user can read. */
async function withFile<T>(data: string | Uint8Array, use: (path: string) => Promise<T>): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), "fencepost-"));
  try {
    const path = join(directory, "content");
    await writeFile(path, data, { mode: 0o600 });
    return await use(path);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
