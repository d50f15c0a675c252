//! Turns failures and ends into answers.

use fencepost_core::ledger::Status;
use fencepost_core::name::Job;
use fencepost_core::run::Kept;
use fencepost_core::zone::Zone;
use fencepost_view::ReasonCode;
use fencepost_view::session::{ErrorReply, HaltedReply, PublishedReply, ReleasedReply, SessionAnswer, SkippedReply};
use fencepost_view::summary::Summary;
use fencepost_view::text::clean;
use fencepost_view::time::LocalTime;

use crate::command::publish::PublishEnd;
use crate::exit::{Code, Failure};

/// A request that is wrong.
pub fn usage(message: &str) -> SessionAnswer {
    error(Code::USAGE, ReasonCode::Usage, message)
}

pub fn error(code: Code, reason: ReasonCode, message: &str) -> SessionAnswer {
    SessionAnswer::Error(ErrorReply::new(code.0, reason, clean(message)))
}

/// The lease is gone.
pub fn lost(why: &str) -> SessionAnswer {
    let message = format!("The lease is lost: {why}. Nothing was done.");
    error(Code::LOST, ReasonCode::Lost, &message)
}

pub fn failed(failure: &Failure) -> SessionAnswer {
    error(failure.code(false), failure.reason(), failure.message())
}

/// A claim that was not granted.
pub fn not_granted(summary: &Summary, zone: &Zone) -> SessionAnswer {
    let message = clean(summary.message.as_deref().unwrap_or_default()).into_owned();
    match summary.reason {
        Some(reason) if reason.is_skip() => SessionAnswer::Skipped(SkippedReply {
            status: summary.status,
            reason,
            message,
            slot: summary.slot.map(|slot| LocalTime::new(slot, zone)),
            exit_code: summary.exit_code,
        }),
        Some(reason @ ReasonCode::Halted) => SessionAnswer::Halted(HaltedReply { reason, message }),
        reason => error(Code(summary.code).by_hand(), reason.unwrap_or(ReasonCode::Failed), &message),
    }
}

/// A claim that the program gave up before it was granted.
pub fn cancelled(job: &Job) -> SessionAnswer {
    SessionAnswer::Skipped(SkippedReply {
        status: Status::SkippedOverlap,
        reason: ReasonCode::Cancelled,
        message: gave_up(job),
        slot: None,
        exit_code: None,
    })
}

/// The answer to the request that gave up a claim. If the store failed, a lease may be left until its ttl.
pub fn given_up(job: &Job, summary: &Summary) -> SessionAnswer {
    let is_unsure = matches!(summary.recorded, Kept::Failed(_)) || summary.is(ReasonCode::StoreFailed);
    if is_unsure {
        return released(summary);
    }
    let (status, reason) = (Status::SkippedOverlap, Some(ReasonCode::Cancelled));
    SessionAnswer::Released(ReleasedReply { status, reason, message: Some(gave_up(job)) })
}

fn gave_up(job: &Job) -> String {
    format!("{job}: the program gave up its claim before it was granted. Nothing was run.")
}

/// The end of work that the program has ended.
pub fn released(summary: &Summary) -> SessionAnswer {
    let message = summary.message.as_ref().map(|message| clean(message).into_owned());
    if summary.recorded.is_recorded() {
        return SessionAnswer::Released(ReleasedReply { status: summary.status, reason: summary.reason, message });
    }
    let reason = summary.reason.unwrap_or(ReasonCode::Unrecorded);
    error(Code(summary.code).by_hand(), reason, &message.unwrap_or_default())
}

pub fn published(end: PublishEnd) -> SessionAnswer {
    match end.answer.error {
        Some(detail) => error(end.code, detail.reason, &format!("{}: {}", end.answer.resource, detail.message)),
        None => SessionAnswer::Published(PublishedReply::new(end.answer, end.remarks)),
    }
}

#[cfg(test)]
mod tests {
    use fencepost_core::name::Name;
    use fencepost_core::register::{StoreError, Trouble};
    use fencepost_core::run::Finish;
    use fencepost_core::time::Wall;
    use fencepost_view::run_end::RunContext;

    use super::*;

    #[test]
    fn a_claim_that_was_given_up_says_so_if_a_lease_may_be_left() {
        let (job, zone) = (Job::shared(Name::new("j").unwrap()), Zone::utc());
        let context = RunContext { job: &job, skip_exit: 0, now: Wall(0), zone: &zone };
        let answer = |finish| given_up(&job, &context.summary(finish));
        let error = || StoreError::unknown(Trouble::Unavailable, "no answer");
        for recorded in [Kept::Recorded, Kept::NoLease] {
            let SessionAnswer::Released(released) = answer(Finish::GivenUp { recorded }) else { panic!("released") };
            assert_eq!(released.reason, Some(ReasonCode::Cancelled));
        }
        for (finish, reason) in [
            (Finish::GivenUp { recorded: Kept::Failed(error()) }, ReasonCode::Unrecorded),
            (Finish::StoreFailed(error()), ReasonCode::StoreFailed),
        ] {
            let SessionAnswer::Error(failed) = answer(finish) else { panic!("{reason}") };
            assert_eq!((failed.reason, failed.code), (reason, Code::FAILED.0));
            assert!(failed.message.contains("no answer"), "{}", failed.message);
        }
    }
}
