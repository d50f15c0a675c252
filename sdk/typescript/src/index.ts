/**
 * Leases, fenced writes, outcomes and gates for programs.
 *
 * ```ts
 * import * as fencepost from "fencepost";
 *
 * await fencepost.job("report", { ttl: "10m" }, async (run) => {
 *   await run.publishFile("report.html", await makeReport({ signal: run.signal }));
 * });
 * ```
 *
 * @module
 */
import { Session } from "./session.js";

export { binaryPath, version } from "./binary.js";
export type { ConnectionOptions as SessionOptions } from "./connection.js";
export {
  AlreadyAppliedError,
  FencepostError,
  HaltedError,
  LeaseLostError,
  NotFoundError,
  NotGrantedError,
  ProgramError,
  SkippedError,
  StaleTokenError,
  StopRequestedError,
  StoreError,
  UnknownOutcomeError,
  UsageError,
} from "./errors.js";
export type { Reason } from "./errors.js";
export type { Decision, GateUpstream, OutcomeWord, ReasonCode, Status, Time, Trigger } from "./protocol.js";
export type { EndedResult, NotGrantedResult, Result } from "./result.js";
export type {
  Gate,
  GateOptions,
  GrantedRun,
  NotGrantedRun,
  OutcomeOptions,
  Published,
  PublishKind,
  PublishOptions,
  Run,
} from "./run.js";
export { type OnceOptions, type RecordOptions, type RunOptions, Session, type Work } from "./session.js";

/** The session of this process. It starts with the first request. */
const session = new Session();

const verb = <Name extends keyof Session>(name: Name) => session[name].bind(session) as Session[Name];

/** Claims a job: see {@link Session.run}. */
export const run = verb("run");

/** Runs a function under the lease of a job: see {@link Session.job}. */
export const job = verb("job");

/** Does an item of work once: see {@link Session.once}. */
export const once = verb("once");

/** Asks whether upstreams are good: see {@link Session.gate}. */
export const gate = verb("gate");

/** Records the outcome of a job that ran elsewhere: see {@link Session.record}. */
export const record = verb("record");

/** Ends the child process of this session: see {@link Session.close}. The next request starts another. */
export const close = verb("close");
