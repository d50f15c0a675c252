//! Turns the end of a run into its summary: exit code, status, reason and message. No other code matches on `Finish`.

use std::time::Duration;

use fencepost_core::contract::{Breach, Judgement};
use fencepost_core::lease::Refusal;
use fencepost_core::ledger::{Barred, EndedBy, Status};
use fencepost_core::name::Job;
use fencepost_core::record::Record;
use fencepost_core::register::{Fate, StoreError, Trouble};
use fencepost_core::run::{Exit, Finish, Kept, NotSpawned, StopCause};
use fencepost_core::said::Published;
use fencepost_core::skips::Skip;
use fencepost_core::slot::NotNow;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;

use crate::exit_code::Code;
use crate::summary::{Summary, Weight};
use crate::text;
use crate::vocabulary::ReasonCode;

/// What a run was asked to do, as far as its end depends on it.
#[derive(Clone, Copy, Debug)]
pub struct RunContext<'a> {
    pub job: &'a Job,
    /// The exit code of a skip.
    pub skip_exit: u8,
    pub now: Wall,
    /// The job's zone.
    pub zone: &'a Zone,
}

impl RunContext<'_> {
    pub fn summary(&self, finish: Finish) -> Summary {
        match finish {
            Finish::Ended { exit, judgement, escaped } => Summary { escaped, ..self.judged(exit, &judgement) },
            Finish::WithoutLease { exit, judgement, escaped } => {
                Summary { escaped, recorded: Kept::NoLease, ..self.judged(exit, &judgement) }
            }
            Finish::Barred { halt: true, barred, recorded } => self.halted(&barred, recorded),
            Finish::Barred { halt: false, barred, recorded } => self.barred(&barred, recorded),
            Finish::Fenced { exit, refused, recorded, escaped } => {
                Summary { escaped, ..self.fenced(exit, refused, recorded) }
            }
            Finish::Stopped { why, started, exit, recorded, escaped } => {
                Summary { escaped, exit_code: exit.map(Exit::code), ..self.stopped(&why, started, recorded) }
            }
            Finish::NotSpawned(failure) => self.not_spawned(&failure),
            Finish::Held { record, remaining } => self.held(record, remaining),
            Finish::NotNow(why) => self.not_now(why),
            Finish::Nested => self.not_run(ReasonCode::Nested, self.nested()),
            Finish::StoreFailed(error) => {
                let message = format!("{} was not run: {error}", self.job);
                Summary { error: Some(error), ..self.not_run(ReasonCode::StoreFailed, message) }
            }
            Finish::Refused(refusal) => {
                let message = format!("{} was not run: {refusal}", self.job);
                Summary { refusal: Some(Box::new(refusal)), ..self.not_run(ReasonCode::Refused, message) }
            }
            Finish::Unrecorded { exit, error, escaped } => Summary { escaped, ..self.unrecorded(exit, error) },
            Finish::Interrupted(signal) => self.interrupted(signal),
            Finish::GivenUp { recorded } => self.given_up(recorded),
        }
    }

    /// The command ended by itself, and its exit, its report and its artifacts were judged.
    fn judged(&self, exit: Exit, judgement: &Judgement) -> Summary {
        let job = self.job;
        let Judgement { status, ended_by, note, breach, .. } = judgement;
        let code = Code::of_judgement(exit.code(), judgement);
        let message = match (status, note) {
            (Status::Ok | Status::Empty, _) => None,
            (_, Some(note)) if breach.is_some() && exit.code() == 0 => {
                Some(format!("{job} failed: {note}. It exited 0, but did not do what it declares."))
            }
            (_, Some(note)) => Some(format!("{job} failed: {note}.")),
            (_, None) if breach.is_some() => Some(format!("{job} failed: it said nothing else.")),
            // One line also if the command printed nothing: cron mails only what is printed.
            (_, None) => Some(format!("{job} failed (exit {}).", code.0)),
        };
        Summary {
            message,
            reason: breach.map(|breach| match breach {
                Breach::NoOutput => ReasonCode::NoOutput,
                Breach::OtherContent => ReasonCode::DigestMismatch,
            }),
            exit_code: Some(exit.code()),
            signal: signal_of(exit),
            started: true,
            ..Summary::new(*status, code.0, *ended_by)
        }
    }

    fn halted(&self, barred: &[Barred], recorded: Kept) -> Summary {
        let (job, kept) = (self.job, kept(self.job, &recorded));
        let message =
            format!("{job} was halted, nothing was run: {}{kept} Details: fencepost why {job}", reasons(barred));
        Summary { recorded, ..self.by_fencepost(Status::Halted, Code::HALTED.under_run(), ReasonCode::Halted, message) }
    }

    fn barred(&self, barred: &[Barred], recorded: Kept) -> Summary {
        let message = format!("{} skipped, there is nothing to do: {}", self.job, reasons(barred));
        let skip = self.by_fencepost(Status::SkippedBarrier, Code(self.skip_exit), ReasonCode::Barred, message);
        Summary { weight: Weight::Remark, recorded, ..skip }
    }

    fn fenced(&self, exit: Option<Exit>, refused: Box<Published>, recorded: Kept) -> Summary {
        let message = format!(
            "{} was fenced off: its write to {} was refused: {}. That write did not land.",
            self.job,
            refused.resource,
            refused.refused.as_deref().unwrap_or_default()
        );
        Summary {
            recorded,
            exit_code: exit.map(Exit::code),
            started: true,
            refused: Some(refused),
            ..self.by_fencepost(Status::Fenced, Code::FENCED.under_run(), ReasonCode::Fenced, message)
        }
    }

    fn stopped(&self, why: &StopCause, started: bool, recorded: Kept) -> Summary {
        let (code, reason) = match why {
            StopCause::Timeout => (Code::TIMED_OUT, ReasonCode::Timeout),
            StopCause::KeeperDied => (Code::FAILED, ReasonCode::KeeperDied),
            _ => (Code::LOST.under_run(), ReasonCode::Lost),
        };
        let message = match started {
            true => stopped(self.job, why, &recorded),
            false => unstarted(self.job, why, &recorded),
        };
        let note = Some(why.note());
        Summary { recorded, started, note, ..self.by_fencepost(why.status(), code, reason, message) }
    }

    fn not_spawned(&self, failure: &NotSpawned) -> Summary {
        let (code, reason) = match failure.not_found {
            true => (Code::NOT_FOUND, ReasonCode::NotFound),
            false => (Code::CANNOT_EXECUTE, ReasonCode::CannotExecute),
        };
        self.by_fencepost(Status::Error, code, reason, format!("{}: {}", self.job, failure.text))
    }

    /// Another run holds the lease. For an item of work that is not the same as done.
    fn held(&self, record: Box<Record>, remaining: Option<Duration>) -> Summary {
        let holder = record.lease.as_ref().map(|lease| text::holder(lease, remaining, self.now));
        let message = format!("{} skipped: it is held by {}.", self.job, holder.unwrap_or_default());
        let code = if self.job.is_once() { Code::HELD } else { Code(self.skip_exit) };
        Summary {
            weight: Weight::Remark,
            recorded: Kept::NoLease,
            skip: Some(Skip::Overlap(record.token)),
            refusal: Some(Box::new(Refusal::Held { record, remaining })),
            ..self.by_fencepost(Status::SkippedOverlap, code, ReasonCode::Held, message)
        }
    }

    /// There is no slot to run.
    fn not_now(&self, why: NotNow) -> Summary {
        let (reason, code) = self.reason_not_now(&why);
        let (weight, message) = self.words_not_now(&why);
        let (slot, exit_code) = match &why {
            NotNow::Duplicate { slot, exit_code, .. } => (Some(*slot), *exit_code),
            NotNow::Failed { slot, exit_code, .. } => (Some(*slot), Some(*exit_code)),
            NotNow::Lost { slot } => (Some(*slot), None),
            _ => (None, None),
        };
        let summary = Summary {
            reason,
            message: Some(message),
            weight,
            recorded: Kept::NoLease,
            slot,
            exit_code,
            skip: Skip::of(why.status()),
            ..Summary::new(why.status(), code.0, EndedBy::Fencepost)
        };
        Summary { refusal: Some(Box::new(Refusal::NotNow { why, account: false })), ..summary }
    }

    fn reason_not_now(&self, why: &NotNow) -> (Option<ReasonCode>, Code) {
        let skip = Code(self.skip_exit);
        let (reason, code) = match why {
            // An item of work that is done replays the code it was done with.
            NotNow::Duplicate { state, exit_code, .. } => {
                let code = if self.job.is_once() { Code::of_child(exit_code.unwrap_or(0)) } else { skip };
                (if *state == Status::Running { ReasonCode::Running } else { ReasonCode::Done }, code)
            }
            NotNow::NotDue { .. } => (ReasonCode::NotDue, skip),
            NotNow::Paused { .. } => (ReasonCode::Paused, skip),
            NotNow::Early { .. } => return (None, skip),
            NotNow::Lost { .. } => (ReasonCode::Unknown, Code::UNKNOWN.under_run()),
            NotNow::Failed { exit_code, .. } => (ReasonCode::Failed, Code::of_child(*exit_code)),
            NotNow::TooOld { .. } => (ReasonCode::TooOld, Code::FAILED),
            NotNow::OtherParameters => (ReasonCode::OtherParameters, Code::FAILED),
        };
        (Some(reason), code)
    }

    fn words_not_now(&self, why: &NotNow) -> (Weight, String) {
        let job = self.job;
        let text = format!("{job}: nothing was run: {}", why.words());
        match why {
            // `once` prints this itself, after it has asked the command that verifies the effect.
            NotNow::Lost { .. } if job.is_once() => (
                Weight::Silent,
                format!(
                    "{}: nothing was run: {} Look whether the effect is there, then say --on-unknown retry, or let a \
                     command look: --on-unknown verify=CMD.",
                    job.name,
                    why.words()
                ),
            ),
            NotNow::Lost { .. } => (
                Weight::Trouble,
                format!(
                    "{text} Look what became of it, then run it again by --again, or let such slots be repeated by \
                     --on-lost rerun."
                ),
            ),
            NotNow::OtherParameters => (Weight::Trouble, text),
            NotNow::TooOld { .. } => (Weight::Trouble, format!("{text} If it is to run all the same, say --again.")),
            NotNow::Paused { until, .. } => {
                let end = until.map_or_else(String::new, |until| {
                    format!(" It resumes by itself at {}.", text::second_in(until, self.zone))
                });
                (Weight::Remark, format!("{text}{end} Let it go on: fencepost resume {job}"))
            }
            NotNow::NotDue { next, .. } => (Weight::Remark, format!("{text}{}", self.next_slot(*next))),
            NotNow::Duplicate { slot, state, .. } if !job.is_once() && *state != Status::Running => {
                (Weight::Remark, format!("{text}{}", self.repeats(*slot)))
            }
            NotNow::Duplicate { .. } | NotNow::Early { .. } => (Weight::Remark, text),
            // Off a terminal it is not printed: cron would mail it at each trigger.
            NotNow::Failed { slot, .. } => (Weight::Remark, format!("{text}{}", self.repeats(*slot))),
        }
    }

    /// Which slot it is, and how to repeat it.
    fn repeats(&self, slot: Wall) -> String {
        let slot = text::second_in(slot, self.zone);
        format!(" It is the slot {slot}. The same command with --again repeats it.")
    }

    /// When the next slot is, and how to run it at once.
    fn next_slot(&self, next: Option<Wall>) -> String {
        let Some(next) = next else { return String::new() };
        let name = &self.job.name;
        format!(
            " The next slot is {}. To run it at once, repeat the command with --now, as in: fencepost run {name} --now",
            text::second_in(next, self.zone)
        )
    }

    /// The command ended, but the store did not confirm the record of it.
    fn unrecorded(&self, exit: Exit, error: StoreError) -> Summary {
        let message = format!("{} ended with exit code {}.{}", self.job, exit.code(), not_recorded(self.job, &error));
        Summary {
            reason: Some(ReasonCode::Unrecorded),
            message: Some(message),
            recorded: Kept::Failed(error),
            exit_code: Some(exit.code()),
            signal: signal_of(exit),
            started: true,
            ..Summary::new(Status::Error, Code::FAILED.0, EndedBy::Child)
        }
    }

    fn interrupted(&self, signal: i32) -> Summary {
        let message = format!("{}: interrupted by signal {signal}; nothing was run.", self.job);
        let summary = self.by_fencepost(Status::Error, Code::of_signal(signal), ReasonCode::Interrupted, message);
        Summary { weight: Weight::Remark, recorded: Kept::NoLease, signal: Some(signal), ..summary }
    }

    /// A program gave up its claim. A lease that it had got and that could not be released is a failure.
    fn given_up(&self, recorded: Kept) -> Summary {
        let text = format!("{}: the program gave up its claim before it was granted. Nothing was run.", self.job);
        let (weight, reason, message) = match &recorded {
            Kept::Failed(error) => {
                (Weight::Trouble, ReasonCode::Unrecorded, format!("{text}{}", not_recorded(self.job, error)))
            }
            Kept::Recorded | Kept::NoLease => (Weight::Remark, ReasonCode::Cancelled, text),
        };
        Summary { weight, recorded, ..self.by_fencepost(Status::Error, Code::FAILED, reason, message) }
    }

    fn nested(&self) -> String {
        format!(
            "{} was started from inside its own run, which holds the lease: it would wait for itself. Nothing was run. \
             Give the inner command another job name, or call it without fencepost.",
            self.job
        )
    }

    /// fencepost failed before it had a lease.
    fn not_run(&self, reason: ReasonCode, message: String) -> Summary {
        Summary { recorded: Kept::NoLease, ..self.by_fencepost(Status::Error, Code::FAILED, reason, message) }
    }

    fn by_fencepost(&self, status: Status, code: Code, reason: ReasonCode, message: String) -> Summary {
        Summary { reason: Some(reason), message: Some(message), ..Summary::new(status, code.0, EndedBy::Fencepost) }
    }
}

fn signal_of(exit: Exit) -> Option<i32> {
    match exit {
        Exit::Signal(signal) => Some(signal),
        Exit::Code(_) => None,
    }
}

/// What each upstream said that kept the job from working.
fn reasons(barred: &[Barred]) -> String {
    barred.iter().map(|barred| barred.reason.as_str()).collect::<Vec<_>>().join(" ")
}

/// What the store knows of a run that fencepost ended, if it does not know everything.
fn kept(job: &Job, recorded: &Kept) -> String {
    match recorded {
        Kept::Recorded => String::new(),
        Kept::NoLease => " It held no lease, so nothing is recorded of it.".to_string(),
        Kept::Failed(error) => not_recorded(job, error),
    }
}

/// Whether the end of a run is recorded, after the store failed.
fn not_recorded(job: &Job, error: &StoreError) -> String {
    match error.fate {
        Fate::NotDone if matches!(error.trouble, Trouble::Corrupt | Trouble::Refused) => {
            format!(" That could not be recorded: {} Until that is settled the next run is refused too.", error.detail)
        }
        Fate::NotDone => format!(
            " That could not be recorded: {} When this store answers again, the lease ends by itself, and the next run \
             records this one as lost.",
            error.detail
        ),
        Fate::Unknown => format!(
            " It is not known whether that was recorded: {} If not, the lease ends by itself and the next run records \
             this one as lost. Look: fencepost runs {job}",
            error.detail
        ),
    }
}

fn unstarted(job: &Job, why: &StopCause, recorded: &Kept) -> String {
    let why = match why {
        StopCause::KeeperDied => "its keeper process died before it could be started".to_string(),
        StopCause::Taken { .. } => "lease lost: it had passed on before the command could be started".to_string(),
        other => format!("lease lost: {}", other.note_unstarted()),
    };
    format!("{job}: {why}. Nothing was run.{}", kept(job, recorded))
}

fn stopped(job: &Job, why: &StopCause, recorded: &Kept) -> String {
    let kept = kept(job, recorded);
    let (what, next) = match why {
        StopCause::Deadline => (
            "lease lost: it could not be renewed in time, so the job was stopped before the lease could pass on".into(),
            " Check the store, then run it again.",
        ),
        StopCause::Taken { record } => (taken(record.as_deref()), ""),
        StopCause::WokeLate => (
            "lease lost: it woke past its deadline and could not confirm its lease, so the job was stopped".into(),
            " Check the store, then run it again.",
        ),
        StopCause::Timeout => {
            ("it ran longer than its timeout and was stopped".into(), " Raise --timeout if it needs longer.")
        }
        StopCause::Replaced(asked) => (
            format!("lease lost: run {} on {} asked it to stop and hand over, so it was stopped", asked.by, asked.host),
            "",
        ),
        StopCause::KeeperDied => ("its keeper process died or did not answer, so it was stopped".into(), ""),
    };
    format!("{job}: {what}.{kept}{next}")
}

fn taken(record: Option<&Record>) -> String {
    match record.and_then(|record| record.lease.as_ref().map(|lease| (record.token, lease))) {
        Some((token, lease)) => format!(
            "lease lost: it had passed to run {} on {} (token {token}), so the job was stopped",
            lease.run, lease.holder.host
        ),
        None => "lease lost: it had passed on, or was taken away, so the job was stopped".to_string(),
    }
}
