// Errors. Each has the exit code that the command line gives for the same failure, and a reason to branch on.
import type { ErrorReply, ReasonCode, Time } from "./protocol.js";
import type { EndedResult, NotGrantedResult } from "./result.js";

/** The words of this package, besides those of the session. docs/reference/reasons.md describes both. */
export type PackageReason =
  "already_applied" | "not_installed" | "not_permitted" | "program" | "replaced" | "session_ended";

export type Reason = ReasonCode | PackageReason;

/** What an error says besides its message. */
export interface ErrorDetails {
  code: number;
  reason: Reason;
  nextStep?: string | null;
  cause?: unknown;
}

/** Something failed: the base class of all errors of this package. */
export class FencepostError extends Error {
  /** The exit code of the command line for the same failure. */
  readonly code: number;
  /** Why, as one of the words of docs/reference/reasons.md. */
  readonly reason: Reason;
  /** What to do about it, if there is one answer. */
  readonly nextStep: string | null;

  constructor(message: string, { code, reason, nextStep = null, cause }: ErrorDetails) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    this.reason = reason;
    this.nextStep = nextStep;
  }
}

/** The lease is lost: another run may hold it. The program must not write any more. */
export class LeaseLostError extends FencepostError {
  constructor(message: string, details: Partial<ErrorDetails> = {}) {
    super(message, { code: 12, reason: "lost", ...details });
  }
}

/** A fenced write was refused: a newer token has written, or the token is not this run's. */
export class StaleTokenError extends FencepostError {
  constructor(message: string, details: Partial<ErrorDetails> = {}) {
    super(message, { code: 13, reason: "stale", ...details });
  }
}

/** An earlier attempt died between its effect and its record. Look whether it had its effect. */
export class UnknownOutcomeError extends FencepostError {
  /** The token of that attempt, for `retryAfter`. */
  readonly token: number | undefined;

  constructor(message: string, details: Partial<ErrorDetails> & { token?: number | undefined } = {}) {
    super(message, { code: 17, reason: "unknown", ...details });
    this.token = details.token;
  }
}

/** The store, or the session with it, failed. */
export class StoreError extends FencepostError {
  constructor(message: string, details: Partial<ErrorDetails> = {}) {
    super(message, { code: 125, reason: "store_failed", ...details });
  }
}

/** A request or the configuration is wrong. */
export class UsageError extends FencepostError {
  constructor(message: string, details: Partial<ErrorDetails> = {}) {
    super(message, { code: 2, reason: "usage", ...details });
  }
}

/** This very write was made before, under the same token: roll the transaction back, there is nothing to do. */
export class AlreadyAppliedError extends FencepostError {
  constructor(message: string, details: Partial<ErrorDetails> = {}) {
    super(message, { code: 0, reason: "already_applied", ...details });
  }
}

/** The program `fencepost` cannot be used by this package. */
export class ProgramError extends FencepostError {
  constructor(message: string, details: Partial<ErrorDetails> = {}) {
    super(message, { code: 125, reason: "program", ...details });
  }
}

/** There is no program for this platform. */
export class NotFoundError extends ProgramError {}

/** The program is asked to end its work: the reason of a run's signal. The lease is held until the instant `until`. */
export class StopRequestedError extends FencepostError {
  readonly until: Time;

  constructor(message: string, { until, isTimeout }: { until: Time; isTimeout: boolean }) {
    super(message, { code: isTimeout ? 124 : 12, reason: isTimeout ? "timeout" : "replaced" });
    this.until = until;
  }
}

/** The lease was not granted: the caller asked for an error (`onSkip: "throw"`), or used a run that was not granted. */
export class NotGrantedError extends FencepostError {
  readonly result: NotGrantedResult;

  constructor(result: NotGrantedResult, code: number) {
    super(result.message, { code, reason: result.reason });
    this.result = result;
  }
}

/** There is nothing to do: another run is at it, the slot is done, or an upstream had nothing. */
export class SkippedError extends NotGrantedError {
  constructor(result: NotGrantedResult) {
    super(result, 11);
  }
}

/** An upstream is not good, so the work must not begin. */
export class HaltedError extends NotGrantedError {
  constructor(result: NotGrantedResult) {
    super(result, 15);
  }
}

const BY_CODE = new Map([
  [2, UsageError],
  [12, LeaseLostError],
  [13, StaleTokenError],
  [17, UnknownOutcomeError],
  [125, StoreError],
]);

/** The error of an answer of the session. */
export function errorOf({ message, code, reason, nextStep, token }: ErrorReply): FencepostError {
  const Class = BY_CODE.get(code) ?? FencepostError;
  return new Class(message, { code, reason, nextStep, ...(token === undefined ? {} : { token }) });
}

/** The exit codes of runs that did not end as the program said, by their reason. */
const CODE_OF_END: Partial<Record<ReasonCode, number>> = { lost: 12, fenced: 13, no_output: 18, timeout: 124 };

/** The error of a run that did not end as the program said; undefined if it did. */
export function endError({ status, reason, message }: EndedResult): FencepostError | undefined {
  if (reason === null || status === "ok" || status === "empty") return undefined;
  const code = CODE_OF_END[reason] ?? 1;
  return errorOf({ code, reason, message: message ?? `The run ended as ${status}.`, nextStep: null });
}

/** The error of a claim that was not granted. */
export function notGranted(result: NotGrantedResult): NotGrantedError {
  return result.status === "halted" ? new HaltedError(result) : new SkippedError(result);
}
