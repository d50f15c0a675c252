// How work ended, or why it did not begin.
import type { HaltedReply, ReasonCode, ReleasedReply, SkippedReply, Status, Time } from "./protocol.js";

/** The work did not begin. */
export interface NotGrantedResult {
  readonly granted: false;
  /** `halted`, or which skip: `skipped_overlap`, `skipped_duplicate`, … */
  readonly status: Status;
  readonly reason: ReasonCode;
  readonly message: string;
  /** The slot that is the reason. */
  readonly slot?: Time | undefined;
  /** Of an item of work that is done: the exit code it was done with. */
  readonly exitCode?: number | undefined;
}

/** The work has ended, and that is recorded. */
export interface EndedResult<T = undefined> {
  readonly granted: true;
  /** How the run ended, as it is recorded: it may be another word than the program said. */
  readonly status: Status;
  /** Why it did not end as the program said. */
  readonly reason: ReasonCode | null;
  readonly message: string | null;
  readonly slot: Time;
  /** What the function returned. */
  readonly value: T;
}

export type Result<T = undefined> = EndedResult<T> | NotGrantedResult;

/** The result of a claim that was not granted. */
export function resultOf(
  reply: (SkippedReply & { answer: "skipped" }) | (HaltedReply & { answer: "halted" }),
): NotGrantedResult {
  const { reason, message } = reply;
  if (reply.answer === "halted") return { granted: false, status: "halted", reason, message };
  const { status, slot, exitCode } = reply;
  return { granted: false, status, reason, message, slot, exitCode };
}

/** The result of a release. */
export function endOf<T>({ status, reason, message }: ReleasedReply, slot: Time, value: T): EndedResult<T> {
  return { granted: true, status, reason, message, slot, value };
}
