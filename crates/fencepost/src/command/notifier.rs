//! The notifier: reports how a run went. The run starts it in its own session and does not wait for it.

mod drift;

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::name::Job;
use fencepost_core::record::Record;
use fencepost_core::time::{Wall, millis};
use fencepost_core::token::RunId;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_guard::transact::look;
use fencepost_store::{Secret, Store};
use fencepost_view::answer::{MissedRange, NotificationAnswer, NotificationEvent, NotifiedRun, RunAnswer};
use fencepost_view::archive::whole;
use fencepost_view::event::{RunEnd, RunEvent};
use fencepost_view::notice::{EndedRun, Recovery, Telling, TroubleSince, UnrecordedTrouble};
use fencepost_view::output::quoted;
use fencepost_view::text;
use fencepost_view::time::LocalTime;
use jiff::Timestamp;
use nix::unistd::setsid;
use serde::de::DeserializeOwned;

use crate::config::{Recipient, host_only};
use crate::deliver;
use crate::exit::{Code, Failure};
use crate::file;
use crate::notify::{Brief, News, log};
use crate::place;
use crate::report;
use crate::show;

pub use self::drift::tell_drift;

pub fn run() -> Result<Code, Failure> {
    let _ = setsid();
    let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
    let brief: Brief = parsed(lines.next()).ok_or_else(|| {
        Failure::Usage("This verb is for `run`, which calls it by itself to tell others how it went.".to_string())
    })?;
    let notifier = Notifier { brief };
    let (mut started, mut ended) = (false, false);
    for line in lines {
        let Some(news) = parsed::<News>(Some(line)) else { continue };
        started |= matches!(news.event, RunEvent::Claimed { .. });
        ended |= matches!(news.event, RunEvent::Ended(_));
        notifier.tell(&news);
    }
    if started && !ended {
        notifier.ping("/fail", "fencepost was killed before it could say how the run went.");
    }
    Ok(Code::DONE)
}

fn parsed<T: DeserializeOwned>(line: Option<String>) -> Option<T> {
    serde_json::from_str(&line?).ok()
}

struct Notifier {
    brief: Brief,
}

/// A failure to tell about.
struct ToldFailure<'a> {
    event: NotificationEvent,
    recipients: &'a [Recipient],
    run: RunId,
    status: Status,
    retries: u32,
    message: &'a str,
    last_output: &'a [String],
}

impl Notifier {
    fn tell(&self, news: &News) {
        match &news.event {
            RunEvent::Claimed { took_over, .. } => {
                if let Some(before) = took_over {
                    let message = format!("A run of {} did not end properly: {}.", self.brief.job, before.reason);
                    self.failed(&ToldFailure {
                        event: NotificationEvent::Error,
                        recipients: &self.brief.on_error,
                        run: before.run,
                        status: Status::Lost,
                        retries: 0,
                        message: &message,
                        last_output: &[],
                    });
                }
                self.ping("/start", "");
            }
            RunEvent::Missed { slot_from, slot_to, count } => self.missed(slot_from, slot_to, *count),
            RunEvent::Ended(_) if news.is_retried => self.ping("/log", "It failed and is tried again."),
            RunEvent::Ended(end) => {
                self.ended(end, news);
                self.look_for_drift();
            }
            _ => {}
        }
    }

    fn ended(&self, end: &RunEnd, news: &News) {
        let (status, message) = (end.status, end.message.as_deref().unwrap_or_default());
        match status {
            Status::Ok | Status::Empty => {
                self.ping("", "");
                self.recovered(status, news.retries);
            }
            Status::SkippedOverlap | Status::SkippedBarrier => {
                self.ping("/log", message);
                self.skipped(status, message, news.in_a_row);
            }
            _ => {
                self.ping("/fail", &[message, &end.last_output.join("\n")].join("\n\n"));
                let (recipients, event) = match status {
                    Status::Halted => (&self.brief.on_halt, NotificationEvent::Halted),
                    _ => (&self.brief.on_error, NotificationEvent::Error),
                };
                let (run, last_output, retries) = (self.brief.run, end.last_output.as_slice(), news.retries);
                self.failed(&ToldFailure { event, recipients, run, status, retries, message, last_output });
            }
        }
    }

    /// Tells a failure, if its streak begins or was last told long ago.
    fn failed(&self, failure: &ToldFailure<'_>) {
        let ToldFailure { event, recipients, run, status, retries, message, last_output } = *failure;
        if recipients.is_empty() {
            return;
        }
        let (known, now, remind) = (self.known(), clock::now().wall, Some(self.brief.remind));
        let recorded = known.as_ref().filter(|known| known.record.ledger.of_run(run).is_some());
        let telling = match recorded {
            Some(known) => {
                self.forget_unrecorded();
                EndedRun { ledger: &known.record.ledger, run, retries, now }.failure(status, remind, self.configured())
            }
            None => self.note_unrecorded(now, remind),
        };
        let since = match telling {
            Telling::Silent => return,
            Telling::First => None,
            Telling::Reminder(since) => Some(since),
        };
        let zone = text::zone(&self.brief.zone);
        let lasting = since.map(|since| format!(" It has been failing {}.", lasting(since, now, &zone)));
        let text = format!("{message}{}{}", lasting.unwrap_or_default(), quoted(last_output));
        let notification = NotificationAnswer {
            reminder: since.is_some(),
            since: since.map(|since| LocalTime::new(since.at, &zone)),
            last_output: last_output.to_vec(),
            ..self.brief.notification(event, text, self.about(known.as_ref(), run, status))
        };
        self.deliver(recipients, &notification);
    }

    /// When the recipients were last written down.
    fn configured(&self) -> Wall {
        let path = self.brief.config.as_deref();
        path.and_then(crate::command::overdue::changed_at).unwrap_or_default()
    }

    /// Tells that a job works again after a streak that was told.
    fn recovered(&self, status: Status, retries: u32) {
        let (run, now) = (self.brief.run, clock::now().wall);
        let unrecorded = self.forget_unrecorded();
        if self.brief.on_recovered.is_empty() {
            return;
        }
        let known = self.known();
        let recovery = known
            .as_ref()
            .and_then(|known| EndedRun { ledger: &known.record.ledger, run, retries, now }.recovery())
            .or_else(|| {
                let since = unrecorded?.trouble();
                Some(Recovery { before: Status::Error, since, down: now.since(since.at) })
            });
        let Some(Recovery { before, since, down }) = recovery else { return };
        let more = if since.is_exact { "" } else { "more than " };
        let text = format!(
            "{} works again: {status} after {before}. It was down for {more}{}.",
            self.brief.job,
            text::length(coarse(down))
        );
        let notification = NotificationAnswer {
            since: Some(LocalTime::new(since.at, &text::zone(&self.brief.zone))),
            down_ms: Some(millis(down)),
            ..self.brief.notification(NotificationEvent::Recovered, text, self.about(known.as_ref(), run, status))
        };
        self.deliver(&self.brief.on_recovered, &notification);
    }

    fn skipped(&self, status: Status, message: &str, in_a_row: Option<u64>) {
        let Some((count, recipients)) = &self.brief.on_skips else { return };
        let known = self.known();
        let in_a_row = match status {
            Status::SkippedOverlap => in_a_row,
            _ => known.as_ref().and_then(|known| known.record.ledger.streak()).map(|(_, count)| count),
        };
        if in_a_row != Some(*count) {
            return;
        }
        let text = format!("{count} skips in a row: {message}");
        let about = self.about(known.as_ref(), self.brief.run, status);
        let notification =
            NotificationAnswer { in_a_row, ..self.brief.notification(NotificationEvent::Skips, text, about) };
        self.deliver(recipients, &notification);
    }

    /// Tells which slots passed without a run. A range is recorded once, so one host tells it.
    fn missed(&self, from: &str, to: &str, count: u64) {
        let zone = text::zone(&self.brief.zone);
        let moment = |text: &str| {
            let at = text.parse::<Timestamp>().map_or(Wall(0), |at| Wall(at.as_millisecond()));
            LocalTime::new(at, &zone)
        };
        let (slot_from, slot_to) = (moment(from), moment(to));
        let shown = |slot: &LocalTime| text::second_in(slot.at, &slot.zone);
        let slots = match count {
            1 => format!("the slot {}", shown(&slot_to)),
            _ => format!("{count} slots, from {} to {}", shown(&slot_from), shown(&slot_to)),
        };
        let text = format!("{} missed {slots}: no machine ran it in time, and it is not caught up.", self.brief.job);
        let run = NotifiedRun::Unrecorded(self.brief.unrecorded_run(self.brief.run, Some(Status::Missed)));
        let notification = NotificationAnswer {
            missed: Some(MissedRange { count, slot_from, slot_to }),
            ..self.brief.notification(NotificationEvent::Missed, text, run)
        };
        self.deliver(&self.brief.on_missed, &notification);
    }

    /// Reads the job's record. An unavailable store is no error: it may be the reason for the notification.
    fn known(&self) -> Option<NotifiedRecord> {
        let job = Job::parse(&self.brief.job).ok()?;
        let password = self.brief.password.clone().map(Secret::new);
        let store = place::handle(&self.brief.store, password, &self.brief.state).open_to_read().ok()?;
        let (record, _) = look(store.as_ref(), &job).ok()?;
        Some(NotifiedRecord { record: record?, store })
    }

    /// The run as its record has it, or what is known without one.
    fn about(&self, known: Option<&NotifiedRecord>, run: RunId, status: Status) -> NotifiedRun {
        match known.and_then(|known| known.outcome(run)) {
            Some((record, outcome)) => NotifiedRun::Recorded(Box::new(RunAnswer::ended(record, &outcome))),
            None => NotifiedRun::Unrecorded(self.brief.unrecorded_run(run, Some(status))),
        }
    }

    /// Decides about a failure that no record holds, and keeps on this host that it was told.
    fn note_unrecorded(&self, now: Wall, remind: Option<Duration>) -> Telling {
        let path = self.brief.unrecorded_path();
        let known = std::fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok());
        let (telling, kept) = UnrecordedTrouble::next(known, now, remind);
        if telling != Telling::Silent && file::keep_note(&path, &kept).is_err() {
            log(&self.brief, &format!("{}: that it failed could not be noted", self.brief.job));
        }
        telling
    }

    /// Ends a streak of failures without a record, and returns it.
    fn forget_unrecorded(&self) -> Option<UnrecordedTrouble> {
        let path = self.brief.unrecorded_path();
        let known = std::fs::read_to_string(&path).ok()?;
        let _ = std::fs::remove_file(&path);
        serde_json::from_str(&known).ok()
    }

    fn ping(&self, suffix: &str, text: &str) {
        let Some(base) = &self.brief.ping else { return };
        self.judge(&format!("ping {}", host_only(base)), deliver::ping(base, suffix, text.trim_end()));
    }

    /// Sends a notification to all recipients at the same time: a slow one delays no other.
    fn deliver(&self, recipients: &[Recipient], notification: &NotificationAnswer) {
        std::thread::scope(|scope| {
            for recipient in recipients {
                scope.spawn(move || {
                    let told = recipient.deliver(&self.brief, notification);
                    self.judge(&format!("{} by {}", notification.event.as_str(), recipient.shown()), told);
                });
            }
        });
    }

    fn judge(&self, what: &str, told: Result<(), String>) {
        let Err(why) = told else { return };
        let text = format!("{} (run {}): {what} failed: {}", self.brief.job, self.brief.run, show::flat(&why));
        log(&self.brief, &text);
        if self.brief.verbose {
            report::say(&text);
        }
    }
}

/// Since when and how long a streak lasts.
fn lasting(since: TroubleSince, now: Wall, zone: &Zone) -> String {
    let length = text::length(coarse(now.since(since.at)));
    match since.is_exact {
        true => format!("since {} ({length})", text::second_in(since.at, zone)),
        false => format!("for more than {length}"),
    }
}

/// A length of time as exact as people need it: whole seconds, whole minutes from an hour on.
fn coarse(length: Duration) -> Duration {
    let unit = if length < Duration::from_secs(3600) { 1 } else { 60 };
    Duration::from_secs((length.as_secs() / unit * unit).max(1))
}

struct NotifiedRecord {
    record: Record,
    store: Arc<dyn Store>,
}

impl NotifiedRecord {
    fn outcome(&self, run: RunId) -> Option<(&Record, Outcome)> {
        let outcome = self.record.ledger.of_run(run)?;
        let whole = whole(self.store.as_ref(), &self.record.job, outcome).unwrap_or_else(|_| outcome.clone());
        Some((&self.record, whole))
    }
}
