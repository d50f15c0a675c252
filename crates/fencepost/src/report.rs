//! Messages for people. They go to standard error, which keeps the command's own output byte-exact.

use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fencepost_core::record::Holder;
use fencepost_core::run::Event;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_guard::drive::Note;
use fencepost_view::ReasonCode;
use fencepost_view::answer::ErrorAnswer;
use fencepost_view::summary::{Summary, Weight};

use crate::args::Global;
use crate::backlog::{Backlog, PATIENCE};
use crate::duration;
use crate::exit::{Code, Failure};
use crate::show;

/// How much is printed. Off a terminal only what is wrong, because cron mails everything that is printed.
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

    /// Says what happened, if it is worth saying. Times are in the job's zone.
    pub fn note(self, job: &str, note: &Note, zone: &Zone) {
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
            Note::Unregistered(message) => self.trouble(&format!("{job}: {message}")),
            Note::Event(event) => self.event(job, event, zone),
        }
    }

    fn event(self, job: &str, event: &Event, zone: &Zone) {
        match event {
            Event::Claimed { took_over: Some(from), .. } => {
                self.remark(&format!("{job}: the run before ({}) did not end properly: {}.", from.run, from.note));
            }
            Event::Claimed { slot, .. } if *slot > clock::now().wall => self.trouble(&format!(
                "{job} takes the slot {} before its time, which will not run again then.",
                show::second_in(*slot, zone)
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
                show::second_in(*slot, zone)
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
                show::second_in(missed.to, zone)
            )),
            Event::Stuck { count } => self.trouble(&format!(
                "{job} is ok, but has left the very same bytes {count} times in a row. Is it stuck?"
            )),
            Event::WithoutLease { error } => self.trouble(&format!(
                "{job}: running WITHOUT a lease, as --on-store-error run asks: {error} Nothing keeps another run away."
            )),
        }
    }

    /// Prints how a run ended, if its message is important enough for this voice.
    pub fn finish(self, job: &str, summary: &Summary) {
        match (summary.sentence(), summary.weight) {
            (Some(message), Weight::Trouble) => self.trouble(&message),
            (Some(message), Weight::Remark) => self.remark(&message),
            _ => {}
        }
        if !summary.escaped.is_empty() {
            self.trouble(&format!(
                "{job}: could not be ended: {}. Its lease is not released and ends by itself. End the process by hand.",
                summary.escaped.join(", ")
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
pub fn error_json(code: Code, reason: ReasonCode, message: &str) {
    show::json(&ErrorAnswer::new(code.0, reason, message));
}

/// A run that failed by more than its own exit code, as programs read it.
pub fn finish_json(summary: &Summary) {
    if let (Some(reason), Some(message)) = (summary.failure(), &summary.message) {
        error_json(Code(summary.code), reason, message);
    }
}

/// Messages that standard error has not taken yet.
static UNSAID: Mutex<Backlog> = Mutex::new(Backlog::new());

/// Prints a text on standard error, cleaned.
pub fn say(text: &str) {
    let _ = unsaid().put(&format!("fencepost: {}", show::clean(text)), &mut std::io::stderr());
}

/// Writes the buffered messages. Called before the program ends.
pub fn flush() {
    let _ = unsaid().pour(&mut std::io::stderr(), PATIENCE);
}

fn unsaid() -> MutexGuard<'static, Backlog> {
    UNSAID.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count(number: usize, one: &str, many: &str) -> String {
    let noun = if number == 1 { one } else { many };
    format!("{number} {noun}")
}

/// A rate as people read it.
pub fn percent(rate: f64) -> String {
    format!("{:.1} %", rate * 100.0)
}
