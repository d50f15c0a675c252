//! What fencepost says to people. It speaks on standard error, so that the command's own output stays byte-exact.

use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fencepost_core::ledger::Status;
use fencepost_core::record::{Holder, Record};
use fencepost_core::register::{Fate, StoreError};
use fencepost_core::run::{Event, Finish, Kept, Why};
use fencepost_core::slot::NotNow;
use fencepost_core::time::Wall;
use fencepost_guard::clock;
use fencepost_guard::drive::Note;
use serde_json::json;

use crate::args::Global;
use crate::backlog::{Backlog, PATIENCE};
use crate::duration;
use crate::exit::{Code, Failure};
use crate::show;

/// How much is said. Off a terminal only what is wrong, because cron mails whatever is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Voice {
    Nothing,
    Troubles,
    Everything,
}

impl Voice {
    pub fn of(global: &Global) -> Self {
        match (global.quiet, global.verbose || std::io::stderr().is_terminal()) {
            (true, _) => Self::Nothing,
            (false, true) => Self::Everything,
            (false, false) => Self::Troubles,
        }
    }

    /// Says a sentence about something wrong. Parts of it may be foreign, so it stays on one line.
    fn trouble(self, text: &str) {
        if self >= Self::Troubles {
            say(&show::flat(text));
        }
    }

    fn remark(self, text: &str) {
        if self >= Self::Everything {
            say(&show::flat(text));
        }
    }

    /// Says what happened, if it is worth saying.
    pub fn note(self, job: &str, note: &Note) {
        match note {
            Note::Spawned { .. } => {}
            Note::LeftOvers(processes) => self.trouble(&format!(
                "{job} ended and left {} running: {}. They are being ended; --leave-children leaves them alone.",
                count(processes.len(), "process", "processes"),
                processes.join(", ")
            )),
            Note::Untrusted(lines) => self.trouble(&format!(
                "{job}: what the job wrote about itself is not trusted in part: {}.",
                lines.join("; ")
            )),
            Note::Event(event) => self.event(job, event),
        }
    }

    fn event(self, job: &str, event: &Event) {
        match event {
            Event::Claimed { took_over: Some(from), .. } => {
                self.remark(&format!("{job}: the run before ({}) did not end properly: {}.", from.run, from.note));
            }
            Event::Claimed { slot, .. } if *slot > clock::now().wall => self.trouble(&format!(
                "{job} takes the slot {} before its time, which will not run again then.",
                show::second(*slot)
            )),
            Event::Claimed { .. } | Event::Renewed { .. } => {}
            Event::Waiting { record, .. } => {
                let Some(Holder { host, by_hand, .. }) = record.lease.as_ref().map(|lease| &lease.holder) else { return };
                let whose = if *by_hand { "by hand" } else { "by a run" };
                self.remark(&format!("{job} is held {whose} on {host}; waiting."));
            }
            Event::AskedToStop { .. } => self.remark(&format!("{job}: asked the run that is going to stop; waiting.")),
            Event::Early { slot, wait } => self.remark(&format!(
                "{job} is early: it waits {} for its slot {}.",
                duration::show(*wait),
                show::second(*slot)
            )),
            Event::RenewalFailed { error } => self.trouble(&format!(
                "{job}: the lease could not be renewed: {error} Trying again until the deadline, then the job is stopped."
            )),
            Event::Stopping(why) => self.trouble(&format!("{job} is being {}.", why.note())),
            Event::Frozen => self.trouble(&format!(
                "{job}: woke past the deadline of its lease. The job is stopped until it is known whose lease it is."
            )),
            Event::Thawed => self.trouble(&format!("{job}: the lease is still ours; the job goes on.")),
            Event::CompletionFailed { error } => {
                self.trouble(&format!("{job}: its end could not be recorded yet: {error} Trying again."));
            }
            Event::Observed { status, reason } => {
                self.trouble(&format!("{job}: observing only; it would have been {status}: {reason}"));
            }
            Event::Missed { missed } => self.trouble(&format!(
                "{job} missed {} that nothing will run for any more, the last at {}.",
                count(usize::try_from(missed.count).unwrap_or(usize::MAX), "slot", "slots"),
                show::second(missed.to)
            )),
            Event::Stuck { count } => self.trouble(&format!(
                "{job} is ok, but has left the very same bytes {count} times in a row. Is it stuck?"
            )),
            Event::WithoutLease { error } => self.trouble(&format!(
                "{job}: running WITHOUT a lease, as --on-store-error run asks: {error} Nothing keeps another run away."
            )),
        }
    }

    /// Says how it ended, if that needs saying.
    pub fn finish(self, job: &str, finish: &Finish, now: Wall) {
        match ending(job, finish, now) {
            Some((from, text)) if self >= from => say(&show::flat(&text)),
            _ => {}
        }
        if let Some(escaped) = escaped(finish) {
            self.trouble(&format!(
                "{job}: could not be ended: {}. Its lease is not released and ends by itself. End the process by hand.",
                escaped.join(", ")
            ));
        }
    }

    /// Says something about what is wrong, in as many lines as it has.
    pub fn warn(self, text: &str) {
        if self >= Self::Troubles {
            say(text);
        }
    }

    pub fn tell(self, text: &str) {
        if self >= Self::Everything {
            say(text);
        }
    }
}

/// Says why a command was not carried out: JSON on standard output for programs, a sentence for people.
pub fn failure(global: &Global, code: Code, failure: &Failure) {
    if global.json {
        error_json(code, failure.reason(), failure.message());
    }
    if !global.quiet {
        say(failure.message());
    }
}

/// A failure as programs read it. Its code is the exit code.
pub fn error_json(code: Code, reason: &str, message: &str) {
    show::json(&json!({ "v": 1, "error": { "code": code.0, "reason": reason, "message": message } }));
}

/// A run that fencepost did not let come to its own end, as programs read it.
pub fn finish_json(code: Code, job: &str, finish: &Finish, now: Wall) {
    if let (Some(reason), Some((_, message))) = (failure_reason(finish), ending(job, finish, now)) {
        error_json(code, reason, &message);
    }
}

/// The word that programs branch on, of a run that failed by more than its own exit code.
fn failure_reason(finish: &Finish) -> Option<&'static str> {
    Some(match finish {
        Finish::Ended { judgement, .. } | Finish::WithoutLease { judgement, .. } if judgement.breaks_contract => {
            "no_output"
        }
        Finish::Ended { .. } | Finish::WithoutLease { .. } | Finish::Held { .. } => return None,
        Finish::Barred { halt: false, .. } => return None,
        Finish::NotNow(NotNow::Lost { .. }) => "unknown",
        Finish::NotNow(NotNow::Failed { .. }) => "failed",
        Finish::NotNow(NotNow::TooOld { .. }) => "too_old",
        Finish::NotNow(NotNow::OtherParameters) => "other_parameters",
        Finish::NotNow(_) => return None,
        Finish::Barred { halt: true, .. } => "halted",
        Finish::Fenced { .. } => "fenced",
        Finish::Stopped { why: Why::Timeout, .. } => "timeout",
        Finish::Stopped { why: Why::KeeperDied, .. } => "keeper_died",
        Finish::Stopped { .. } => "lost",
        Finish::NotSpawned(failure) if failure.not_found => "not_found",
        Finish::NotSpawned(_) => "cannot_execute",
        Finish::Nested => "nested",
        Finish::StoreFailed(_) => "store_failed",
        Finish::Refused(_) => "refused",
        Finish::Unrecorded { .. } => "unrecorded",
        Finish::Interrupted(_) => "interrupted",
    })
}

/// Why a run came to nothing, or failed by more than its own exit code: a word for programs, a sentence for people.
pub fn reason_and_words(job: &str, finish: &Finish, now: Wall) -> Option<(&'static str, String)> {
    let reason = match finish {
        Finish::Held { .. } => "held",
        Finish::NotNow(NotNow::Duplicate { state: Status::Running, .. }) => "running",
        Finish::NotNow(NotNow::Duplicate { .. }) => "done",
        Finish::NotNow(NotNow::NotDue { .. }) => "not_due",
        Finish::NotNow(NotNow::Paused { .. }) => "paused",
        Finish::Barred { halt: false, .. } => "barred",
        other => failure_reason(other)?,
    };
    ending(job, finish, now).map(|(_, words)| (reason, words))
}

/// What people have not taken yet of what was said.
static UNSAID: Mutex<Backlog> = Mutex::new(Backlog::new());

/// Prints a text on standard error, cleaned.
pub fn say(text: &str) {
    let _ = unsaid().put(&format!("fencepost: {}", show::clean(text)), &mut std::io::stderr());
}

/// Says what is left to say. To be called before the program ends.
pub fn flush() {
    let _ = unsaid().pour(&mut std::io::stderr(), PATIENCE);
}

fn unsaid() -> MutexGuard<'static, Backlog> {
    UNSAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a run ended, in a sentence for others, if there is more to say than its exit code.
pub fn sentence(job: &str, finish: &Finish, now: Wall) -> Option<String> {
    ending(job, finish, now).map(|(_, text)| text)
}

/// How a run ended, in a sentence, and from which voice on it is said. The child's own end speaks for itself.
fn ending(job: &str, finish: &Finish, now: Wall) -> Option<(Voice, String)> {
    let trouble = |text: String| Some((Voice::Troubles, text));
    match finish {
        Finish::Held { record, remaining } => {
            let holder = record.lease.as_ref().map(|lease| show::holder(lease, *remaining, now));
            Some((Voice::Everything, format!("{job} skipped: it is held by {}.", holder.unwrap_or_default())))
        }
        Finish::Fenced { refused, .. } => trouble(format!(
            "{job} was fenced off: its write to {} was refused: {}. Whatever it did, that write did not land.",
            refused.resource,
            refused.refused.as_deref().unwrap_or_default()
        )),
        Finish::Stopped { why, started, recorded, .. } => trouble(stopped(job, why, *started, recorded)),
        Finish::NotSpawned(failure) => trouble(format!("{job}: {}", failure.text)),
        Finish::Nested => trouble(format!(
            "{job} was started from inside its own run, which holds the lease: it would wait for itself. Nothing was \
             run. Give the inner command another job name, or call it without fencepost."
        )),
        Finish::StoreFailed(error) => trouble(format!("{job} was not run: {error}")),
        Finish::Refused(refusal) => trouble(format!("{job} was not run: {refusal}")),
        Finish::Unrecorded { exit, error, .. } => {
            trouble(format!("{job} ended with exit code {}.{}", exit.code(), unrecorded(job, error)))
        }
        Finish::Interrupted(signal) => {
            Some((Voice::Everything, format!("{job}: interrupted by signal {signal}; nothing was run.")))
        }
        Finish::NotNow(why) => {
            let text = format!("{job}: nothing was run: {}", why.words());
            match why {
                // What is to be done about it is said by whoever asked for it.
                NotNow::Lost { .. } if job.starts_with("once=") => None,
                NotNow::Lost { .. } => trouble(format!(
                    "{text} Look what became of it, then run it again by --again, or let such slots be repeated by \
                     --on-lost rerun."
                )),
                NotNow::OtherParameters => trouble(text),
                NotNow::TooOld { .. } => trouble(format!("{text} If it is to run all the same, say --again.")),
                NotNow::Paused { .. } => {
                    Some((Voice::Everything, format!("{text} Let it go on: fencepost resume {job}")))
                }
                NotNow::NotDue { .. } => Some((Voice::Everything, format!("{job}: {}", why.words()))),
                NotNow::Duplicate { .. } | NotNow::Early { .. } => Some((Voice::Everything, text)),
                // Off a terminal it is not said: cron would mail it at each trigger.
                NotNow::Failed { slot, .. } => Some((
                    Voice::Everything,
                    format!("{text} It is the slot {}. The same command with --again repeats it.", show::second(*slot)),
                )),
            }
        }
        Finish::Barred { halt, barred, recorded } => {
            let reasons = barred.iter().map(|barred| barred.reason.as_str()).collect::<Vec<_>>().join(" ");
            match halt {
                true => trouble(format!("{job} was halted, nothing was run: {reasons}{}", kept(job, recorded))),
                false => Some((Voice::Everything, format!("{job} skipped, there is nothing to do: {reasons}"))),
            }
        }
        Finish::Ended { judgement, .. } | Finish::WithoutLease { judgement, .. } => {
            let note = judgement.note.as_deref().unwrap_or("it said nothing else");
            match judgement.status {
                Status::Ok | Status::Empty => None,
                _ if judgement.breaks_contract => trouble(format!("{job} failed: {note}.")),
                // One line also where the command printed nothing: cron mails only what is printed.
                _ => match &judgement.note {
                    Some(note) => trouble(format!("{job} failed: {note}.")),
                    None => trouble(format!("{job} failed (exit {}).", Code::of_run(finish, Code::DONE).0)),
                },
            }
        }
    }
}

/// What the store knows of a run that did not come to its own end, where it does not know it all.
fn kept(job: &str, recorded: &Kept) -> String {
    match recorded {
        Kept::Recorded => String::new(),
        Kept::NoLease => " It held no lease, so nothing is recorded of it.".to_string(),
        Kept::Failed(error) => unrecorded(job, error),
    }
}

/// Whether the end of a run is recorded, after the store failed.
fn unrecorded(job: &str, error: &StoreError) -> String {
    match error.fate {
        Fate::NotDone => format!(
            " That could not be recorded: {} The lease ends by itself; the next run records this one as lost.",
            error.detail
        ),
        Fate::Unknown => format!(
            " It is not known whether that was recorded: {} If not, the lease ends by itself and the next run records \
             this one as lost. Look: fencepost runs {job}",
            error.detail
        ),
    }
}

fn unstarted(job: &str, why: &Why, recorded: &Kept) -> String {
    let why = match why {
        Why::KeeperDied => "its keeper process died before it could be started".to_string(),
        Why::Taken { .. } => "lease lost: it had passed on before the command could be started".to_string(),
        other => format!("lease lost: {}", other.note_unstarted()),
    };
    format!("{job}: {why}. Nothing was run.{}", kept(job, recorded))
}

fn stopped(job: &str, why: &Why, started: bool, recorded: &Kept) -> String {
    if !started {
        return unstarted(job, why, recorded);
    }
    let unrecorded = kept(job, recorded);
    let (what, next) = match why {
        Why::Deadline => (
            "lease lost: it could not be renewed in time, so the job was stopped before the lease could pass on".into(),
            " Check the store, then run it again.",
        ),
        Why::Taken { record } => (taken(record.as_deref()), ""),
        Why::WokeLate => (
            "lease lost: it woke past its deadline and could not confirm its lease, so the job was stopped".into(),
            " Check the store, then run it again.",
        ),
        Why::Timeout => {
            ("it ran longer than its timeout and was stopped".into(), " Raise --timeout if it needs longer.")
        }
        Why::Replaced(asked) => (
            format!("lease lost: run {} on {} asked it to stop and hand over, so it was stopped", asked.by, asked.host),
            "",
        ),
        Why::KeeperDied => ("its keeper process died or did not answer, so it was stopped".into(), ""),
    };
    format!("{job}: {what}.{unrecorded}{next}")
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

fn escaped(finish: &Finish) -> Option<&[String]> {
    match finish {
        Finish::Ended { escaped, .. }
        | Finish::Fenced { escaped, .. }
        | Finish::Stopped { escaped, .. }
        | Finish::Unrecorded { escaped, .. }
        | Finish::WithoutLease { escaped, .. } => {
            Some(escaped).filter(|escaped| !escaped.is_empty()).map(Vec::as_slice)
        }
        _ => None,
    }
}

fn count(number: usize, one: &str, many: &str) -> String {
    let noun = if number == 1 { one } else { many };
    format!("{number} {noun}")
}

/// A rate as people read it.
pub fn percent(rate: f64) -> String {
    format!("{:.1} %", rate * 100.0)
}

/// A length of time for a table cell.
pub fn length(length: std::time::Duration) -> String {
    duration::show(length)
}
