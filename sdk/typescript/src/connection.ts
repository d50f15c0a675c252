// One process `fencepost session`: requests go to its standard input, answers and events come from its standard output.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import type { Socket } from "node:net";
import { binaryPath, placesSearched, version } from "./binary.js";
import { errorOf, FencepostError, LeaseLostError, ProgramError, StoreError } from "./errors.js";
import type { Lease } from "./lease.js";
import { unknownOption } from "./options.js";
import type { SessionEventLine, SessionReply, SessionRequestLine } from "./protocol.js";
import { Watch } from "./watch.js";
import { decode, encode, LineBuffer } from "./wire.js";

/** The version of the protocol that this package speaks. */
const PROTOCOL = 1;

/** The exit code of work that had no effect. */
const NO_EFFECT = 1;

/** How long output may still come after the session has exited. */
const DRAIN_MS = 1000;

/** How much of the session's standard error an error quotes. */
const STDERR_CHARACTERS_MAX = 2000;

/** How much of a program's version an error quotes. */
const VERSION_CHARACTERS_MAX = 100;

type Distributed<T, K extends PropertyKey> = T extends unknown ? Omit<T, K> : never;

/** A request without its id. */
type Request = Distributed<SessionRequestLine, "id">;
export type ClaimOf = Extract<Request, { request: "claim" | "once" }>;
type Reply = Exclude<SessionReply, { answer: "error" }>;
type ReplyTo<A extends Reply["answer"]> = Extract<Reply, { answer: A }>;

export interface ConnectionOptions {
  /** The program (default: FENCEPOST_BIN, the one in this package, or the one on PATH). */
  binary?: string | undefined;
  /** The store (default: FENCEPOST_STORE, the configuration's, or the embedded one). */
  store?: string | undefined;
  /** The configuration (default: FENCEPOST_CONFIG, or the nearest fencepost.toml). */
  config?: string | undefined;
  /** Variables of the session's environment, besides those of this process. */
  env?: Record<string, string> | undefined;
}

/** What comes back for a request: an answer, or that none will come. */
type Outcome = SessionReply | NoReply;

/** The session has ended. */
interface NoReply {
  answer: "none";
  wasSent: boolean;
}

export class Connection {
  readonly #path: string;
  readonly #child: ChildProcess;
  readonly #calls = new Map<number, (outcome: Outcome) => void>();
  readonly #leases = new Map<number, Lease>();
  readonly #watch: Watch;
  /** Resolves when the session has ended. */
  readonly closed: Promise<void>;
  #lastId = 0;
  #stderr = "";
  #end: string | undefined;

  private constructor(path: string, options: ConnectionOptions) {
    this.#path = path;
    this.#watch = new Watch({ ping: () => void this.#ping(), kill: () => this.#child.kill("SIGKILL") });
    // In the environment, because every user who lists processes sees a command line.
    const env = { ...process.env, ...options.env };
    if (options.store !== undefined) env["FENCEPOST_STORE"] = options.store;
    if (options.config !== undefined) env["FENCEPOST_CONFIG"] = options.config;
    this.#child = spawn(path, ["session"], { stdio: "pipe", env });
    this.closed = new Promise((resolve) => this.#listen(resolve));
    this.#hold(false);
  }

  /** Starts a session and checks that it speaks this version of the protocol. */
  static async start(options: ConnectionOptions): Promise<Connection> {
    const connection = new Connection(options.binary ?? binaryPath(), options);
    try {
      const { protocol, version: found } = await connection.call(
        { request: "hello", client: `npm/${version}` },
        "hello",
      );
      if (protocol !== PROTOCOL)
        throw connection.#misfit(`fencepost ${found} speaks version ${protocol} of the protocol`);
    } catch (error) {
      connection.#child.kill("SIGKILL");
      throw error instanceof ProgramError ? error : connection.#misfit(reasonOf(error));
    }
    return connection;
  }

  /** Asks, and checks which answer comes. */
  async call<A extends Reply["answer"]>(request: Request, ...answers: A[]): Promise<ReplyTo<A>> {
    const outcome = await this.#send(this.#newId(), request);
    return this.#expect(request, outcome, answers);
  }

  /**
   * Claims a lease, and tells it what becomes of it. Its id names it in later requests. The signal gives up a claim that waits:
   * the session cancels it, or releases a lease that it has just granted.
   */
  async claim(
    request: ClaimOf,
    lease: Lease,
    signal?: AbortSignal,
  ): Promise<{ id: number; reply: ReplyTo<"granted" | "skipped" | "halted"> }> {
    signal?.throwIfAborted();
    const id = this.#newId();
    // Before it is granted: the answer and a first event may come together.
    this.#leases.set(id, lease);
    const note = "the program gave up before it began";
    const giveUp = () =>
      void this.#send(this.#newId(), { request: "release", claim: id, outcome: "error", note, exitCode: NO_EFFECT });
    signal?.addEventListener("abort", giveUp, { once: true });
    let outcome: Outcome;
    try {
      outcome = await this.#send(id, request);
    } catch (error) {
      this.forget(id);
      throw error;
    } finally {
      // In the same step as the look at `aborted`: an abort before it has released the lease, and a later one has no effect.
      signal?.removeEventListener("abort", giveUp);
    }
    if (signal?.aborted) {
      this.forget(id);
      signal.throwIfAborted();
    }
    if (outcome.answer === "granted") lease.confirm(outcome.remainingMs);
    else this.forget(id);
    return { id, reply: this.#expect(request, outcome, ["granted", "skipped", "halted"]) };
  }

  /** The lease is released: it hears no more. */
  forget(claim: number): void {
    this.#leases.get(claim)?.end();
    this.#leases.delete(claim);
  }

  /** Ends the session. Leases that are not released end by their ttl. */
  async close(): Promise<void> {
    this.#hold(true);
    this.#child.stdin?.end();
    await this.closed;
  }

  #newId(): number {
    this.#lastId += 1;
    return this.#lastId;
  }

  /** Sends a request. The error that its answer may be is made by the caller, so that its stack names the program's own line. */
  async #send(id: number, request: Request): Promise<Outcome> {
    if (this.#end !== undefined) return { answer: "none", wasSent: false };
    const unknown = unknownOption(request);
    if (unknown !== undefined) throw unknown;
    const line = encode({ id, ...request });
    return await new Promise((resolve) => {
      this.#calls.set(id, resolve);
      this.#hold(true);
      this.#watch.start();
      this.#child.stdin?.write(line);
    });
  }

  /** The answer, if it is one of these. Otherwise throws. */
  #expect<A extends Reply["answer"]>(request: Request, outcome: Outcome, answers: A[]): ReplyTo<A> {
    if (outcome.answer === "none") throw this.#ended(request, outcome);
    if (outcome.answer === "error") throw errorOf(outcome);
    if (!answers.includes(outcome.answer as A)) {
      throw new StoreError(`The session answered ${request.request} by ${outcome.answer}. Its version does not fit.`);
    }
    return outcome as ReplyTo<A>;
  }

  #listen(closed: () => void): void {
    const { stdin, stdout, stderr } = this.#child;
    const lines = new LineBuffer();
    stdout?.setEncoding("utf8").on("data", (chunk: string) => {
      this.#watch.heard();
      for (const line of lines.take(chunk)) this.#take(line);
    });
    stderr?.setEncoding("utf8").on("data", (chunk: string) => {
      this.#stderr = (this.#stderr + chunk).slice(-STDERR_CHARACTERS_MAX);
    });
    // A session that has ended says so by its exit.
    stdin?.on("error", () => {});
    const end = (how: string) => {
      this.#fail(how);
      closed();
    };
    this.#child.on("error", (error) => end(`cannot be executed: ${error.message}`));
    this.#child.on("exit", (code, signal) => {
      const how = signal === null ? `exited with ${code}` : `was ended by ${signal}`;
      // A child of the session may keep its output open.
      const drained = setTimeout(() => end(how), DRAIN_MS).unref();
      this.#child.on("close", () => {
        clearTimeout(drained);
        end(how);
      });
    });
  }

  #take(line: string): void {
    const message = parsed(line);
    if (message === undefined) return;
    if ("event" in message) {
      this.#leases.get(message.claim as number)?.hear(message);
      return;
    }
    if (message.id === null) {
      // It could not read a request, and it is not known which one waits in vain. The end of the session answers all.
      const why = message.answer === "error" ? `: ${message.message}` : "";
      this.#fail(`could not read a request${why}`.replace(/\.$/, ""));
      this.#child.kill("SIGKILL");
      return;
    }
    const resolve = this.#calls.get(message.id as number);
    this.#calls.delete(message.id as number);
    if (this.#calls.size === 0) this.#rest();
    resolve?.(message);
  }

  /** No request is open: the session keeps the program alive no longer. */
  #rest(): void {
    this.#watch.stop();
    this.#hold(false);
  }

  /** Whether the session keeps the event loop of this process alive. */
  #hold(isHeld: boolean): void {
    const { stdin, stdout, stderr } = this.#child;
    for (const part of [this.#child, stdin as Socket | null, stdout as Socket | null, stderr as Socket | null]) {
      if (isHeld) part?.ref();
      else part?.unref();
    }
  }

  async #ping(): Promise<void> {
    // The watch kills a session that does not answer.
    await this.#send(this.#newId(), { request: "hello" });
  }

  /** The session has ended: nothing renews its leases any more, and no request is answered. */
  #fail(how: string): void {
    if (this.#end !== undefined) return;
    this.#end = how;
    this.#rest();
    for (const lease of this.#leases.values()) lease.lose(this.#lost(how));
    for (const resolve of this.#calls.values()) resolve({ answer: "none", wasSent: true });
    this.#calls.clear();
  }

  #ended(request: Request, { wasSent }: NoReply): FencepostError {
    const how = this.#end ?? "has ended";
    if ("claim" in request && request.claim !== undefined) return this.#lost(how);
    const state = wasSent ? "The request may still have taken effect. Look by: fencepost status" : "Nothing was done.";
    return new StoreError(`The session ${how}${this.#quoted()}. ${state}`, { reason: "session_ended" });
  }

  #lost(how: string): LeaseLostError {
    return new LeaseLostError(
      `The session that held the lease ${how}${this.#quoted()}. The lease is not renewed any more, and ends by its ttl. ` +
        "A request that was not answered may still have taken effect.",
    );
  }

  #quoted(): string {
    const text = this.#stderr.trim();
    return text === "" ? "" : ` (${text})`;
  }

  /** The error about a program that is no session of this version. */
  #misfit(why: string): ProgramError {
    const { stdout } = spawnSync(this.#path, ["--version"], { encoding: "utf8", timeout: 5000 });
    const said = stdout?.trim().split("\n", 1)[0]?.slice(0, VERSION_CHARACTERS_MAX);
    return new ProgramError(
      `${this.#path} (${said || "its version is not known"}) cannot be used: ${why}. The npm package fencepost ${version} ` +
        `needs a program with version ${PROTOCOL} of the session protocol. Searched: ${placesSearched()}.`,
    );
  }
}

/** A line of the session, or undefined for what is none. */
function parsed(line: string): SessionReply | SessionEventLine | undefined {
  try {
    const message = decode(line);
    return typeof message === "object" && message !== null ? (message as SessionReply | SessionEventLine) : undefined;
  } catch {
    return undefined;
  }
}

function reasonOf(error: unknown): string {
  return error instanceof FencepostError ? error.message.replace(/\.$/, "") : String(error);
}
