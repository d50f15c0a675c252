// The verbs, on one session.
import { type ClaimOf, Connection, type ConnectionOptions } from "./connection.js";
import { endError, notGranted } from "./errors.js";
import { Lease } from "./lease.js";
import type { ClaimRequest, OnceRequest, OutcomeWord, RecordRequest } from "./protocol.js";
import { type NotGrantedResult, type Result, resultOf } from "./result.js";
import { type Gate, type GateOptions, GrantedRun, NotGrantedRun, type Run } from "./run.js";
import { contentOf } from "./wire.js";

/** The exit code of an item of work that failed without an effect: the next call tries again. */
const FAILED_WITHOUT_EFFECT = 1;

/** An exit code that leaves it open whether an item of work had its effect. */
const EFFECT_UNKNOWN = 255;

/** A record keeps this much of a note. */
const NOTE_BYTES_MAX = 8 * 1024;

interface ClaimOptions {
  /** Throw `SkippedError` or `HaltedError` where the work may not begin, in place of a result. */
  onSkip?: "throw" | "return" | undefined;
  /**
   * Gives up a claim that waits: it rejects with the signal's reason. Nothing is recorded, unless the claim had the lease and
   * waited for its upstreams: then a run that did not start is. It has no effect on a run that is granted.
   */
  signal?: AbortSignal | undefined;
}

/** The terms of a run, as in fencepost.toml. They take precedence over it. */
export type RunOptions = Omit<ClaimRequest, "job"> & ClaimOptions;

/** The terms of an item of work that is done once. */
export type OnceOptions = Omit<OnceRequest, "key"> &
  ClaimOptions & {
    /** Errors that say that the work had no effect: the next call tries again. Every other error leaves that unknown. */
    noEffect?: (new (...args: never[]) => Error)[] | undefined;
  };

export type RecordOptions = Omit<RecordRequest, "claim" | "job" | "outcome">;

/** What is done under a lease. */
export type Work<T> = (run: GrantedRun) => T | Promise<T>;

/** Holds leases by a child process, which starts with the first request and ends with this process. */
export class Session {
  readonly #options: ConnectionOptions;
  #connection: Promise<Connection> | undefined;

  constructor(options: ConnectionOptions = {}) {
    this.#options = options;
  }

  /**
   * Claims a job. The run holds its lease, renewed, until `close`. State the outcome before (`ok`, `empty`, `error`): a run that
   * is closed without one ends as an error, because a block that is left does not tell whether it failed.
   */
  run(job: string, options: RunOptions & { onSkip: "throw" }): Promise<GrantedRun>;
  run(job: string, options?: RunOptions): Promise<Run>;
  async run(job: string, { onSkip, signal, ...terms }: RunOptions = {}): Promise<Run> {
    const claimed = await this.#claim({ request: "claim", job, mustRecord: true, ...terms }, signal);
    return claimed instanceof GrantedRun ? claimed : new NotGrantedRun(refused(claimed, onSkip));
  }

  /**
   * Runs a function under the lease of a job, and records how it ended. An error of it is recorded and thrown again. A run that
   * did not end as the function said throws too: a write was refused, a file of `produces` is missing, the lease was lost.
   */
  job<T>(name: string, work: Work<T>): Promise<Result<T>>;
  job<T>(name: string, options: RunOptions, work: Work<T>): Promise<Result<T>>;
  async job<T>(name: string, ...rest: [Work<T>] | [RunOptions, Work<T>]): Promise<Result<T>> {
    const [{ onSkip, signal, ...terms }, work] = rest.length === 1 ? [{} as RunOptions, rest[0]] : rest;
    const run = await this.#claim({ request: "claim", job: name, ...terms }, signal);
    return run instanceof GrantedRun ? await perform(run, work, () => ({})) : refused(run, onSkip);
  }

  /** Does an item of work once, over all machines. If it is done already, the result says so. */
  once<T>(key: string, work: Work<T>): Promise<Result<T>>;
  once<T>(key: string, options: OnceOptions, work: Work<T>): Promise<Result<T>>;
  async once<T>(key: string, ...rest: [Work<T>] | [OnceOptions, Work<T>]): Promise<Result<T>> {
    const [{ onSkip, signal, noEffect = [], ...terms }, work] = rest.length === 1 ? [{} as OnceOptions, rest[0]] : rest;
    const run = await this.#claim({ request: "once", key, ...terms }, signal);
    if (!(run instanceof GrantedRun)) return refused(run, onSkip);
    return await perform(run, work, (error) => {
      const isHarmless = noEffect.some((Class) => error instanceof Class);
      return { exitCode: isHarmless ? FAILED_WITHOUT_EFFECT : EFFECT_UNKNOWN };
    });
  }

  /** Asks whether upstreams are good: `decision` is `proceed`, `skip` or `halt`. */
  async gate(upstreams: string | string[], options: GateOptions = {}): Promise<Gate> {
    const connection = await this.#connect();
    return contentOf(await connection.call({ request: "gate", upstreams: [upstreams].flat(), ...options }, "gated"));
  }

  /** Records the outcome of a job that ran elsewhere. */
  async record(job: string, outcome: OutcomeWord, options: RecordOptions = {}): Promise<void> {
    const connection = await this.#connect();
    await connection.call({ request: "record", job, outcome, ...options }, "recorded");
  }

  /** Ends the child process. Leases that are not closed end by their ttl. */
  async close(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    await (await connection?.catch(() => undefined))?.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** The connection; a new one if the last has ended. */
  #connect(): Promise<Connection> {
    this.#connection ??= this.#start();
    return this.#connection;
  }

  #start(): Promise<Connection> {
    const started = Connection.start(this.#options);
    const forget = () => {
      if (this.#connection === started) this.#connection = undefined;
    };
    started.then((connection) => connection.closed).then(forget, forget);
    return started;
  }

  async #claim(request: ClaimOf, signal?: AbortSignal): Promise<GrantedRun | NotGrantedResult> {
    const connection = await this.#connect();
    const lease = new Lease();
    const { id, reply } = await connection.claim(request, lease, signal);
    return reply.answer === "granted" ? new GrantedRun(connection, id, lease, reply) : resultOf(reply);
  }
}

function refused(result: NotGrantedResult, onSkip: ClaimOptions["onSkip"]): NotGrantedResult {
  if (onSkip === "throw") throw notGranted(result);
  return result;
}

/** Does the work, and ends the run as it ended. */
async function perform<T>(
  run: GrantedRun,
  work: Work<T>,
  exitOf: (error: unknown) => { exitCode?: number },
): Promise<Result<T>> {
  let value: T;
  try {
    value = await work(run);
  } catch (error) {
    // The error of the work is the one to tell. A lease that was lost is recorded as lost by the store.
    await run.end({ outcome: "error", note: lastLine(error), ...exitOf(error) }).catch(() => {});
    throw error;
  }
  const result = await run.end({});
  const error = endError(result);
  if (error !== undefined) throw error;
  return { ...result, value };
}

/** The last line of an error, for the ledger. It fits into a request and into a record. */
function lastLine(error: unknown): string {
  const line = textOf(error).trimEnd().split("\n").at(-1) ?? "";
  // A character that is cut in two is left out.
  return new TextDecoder().decode(Buffer.from(line).subarray(0, NOTE_BYTES_MAX), { stream: true });
}

function textOf(error: unknown): string {
  try {
    return String(error);
  } catch {
    return "an error without a text";
  }
}
