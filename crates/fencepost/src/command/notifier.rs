//! The notifier: reports how a run went. The run starts it in its own session and does not wait for it.

use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::name::Job;
use fencepost_core::record::Record;
use fencepost_core::token::RunId;
use fencepost_guard::call::{RequestBody, call};
use fencepost_guard::transact::look;
use fencepost_store::{Secret, Store};
use fencepost_view::answer::RunAnswer;
use fencepost_view::archive::whole;
use fencepost_view::event::{RunEnd, RunEvent};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, setsid};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::config::{EXCERPT_VARIABLE, host_only};
use crate::exit::{Code, Failure};
use crate::notify::{Brief, News, Way, log, open_log};
use crate::password;
use crate::place;
use crate::report;
use crate::show;

/// Timeout of a call to a URL.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

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

impl Notifier {
    fn tell(&self, news: &News) {
        match &news.event {
            RunEvent::Claimed { took_over, .. } => {
                if let (Some(before), Some(way)) = (took_over, &self.brief.on_error) {
                    let known = self.known();
                    let message = format!("A run of {} did not end properly: {}.", self.brief.job, before.reason);
                    self.deliver(Some(way), "error", &message, known.as_ref(), before.run, Status::Lost, None);
                }
                self.ping("/start", "");
            }
            RunEvent::Ended(_) if news.is_retried => self.ping("/log", "It failed and is tried again."),
            RunEvent::Ended(end) => self.ended(end, news),
            _ => {}
        }
    }

    fn ended(&self, end: &RunEnd, news: &News) {
        let Brief { on_error, on_halt, on_recovered, on_skips, run, .. } = &self.brief;
        let (status, message) = (end.status, end.message.as_deref().unwrap_or_default());
        let deliver =
            |way: Option<&Way>, event: &str, message: &str, known: Option<&NotifiedRecord>, in_a_row: Option<u64>| {
                self.deliver(way, event, message, known, *run, status, in_a_row);
            };
        match status {
            Status::Ok | Status::Empty => {
                self.ping("", "");
                let known = on_recovered.as_ref().and_then(|_| self.known());
                if let Some(before) = known.as_ref().and_then(|known| recovered(&known.record, *run, news.retries)) {
                    let message = format!("{} works again: {status} after {before}.", self.brief.job);
                    deliver(on_recovered.as_ref(), "recovered", &message, known.as_ref(), None);
                }
            }
            Status::SkippedOverlap | Status::SkippedBarrier => {
                self.ping("/log", message);
                let Some((count, way)) = on_skips else { return };
                let known = self.known();
                let in_a_row = match status {
                    Status::SkippedOverlap => news.in_a_row,
                    _ => known.as_ref().and_then(|known| known.record.ledger.streak()).map(|(_, count)| count),
                };
                if in_a_row == Some(*count) {
                    let message = format!("{count} skips in a row: {message}");
                    deliver(Some(way), "skips", &message, known.as_ref(), in_a_row);
                }
            }
            _ => {
                self.ping("/fail", message);
                let (way, event) = match status {
                    Status::Halted => (on_halt, "halted"),
                    _ => (on_error, "error"),
                };
                if way.is_some() {
                    deliver(way.as_ref(), event, message, self.known().as_ref(), None);
                }
            }
        }
    }

    /// Reads the job's record. An unavailable store is no error: it may be the reason for the notification.
    fn known(&self) -> Option<NotifiedRecord> {
        let job = Job::parse(&self.brief.job).ok()?;
        let password = self.brief.password.clone().map(Secret::new);
        let store = place::handle(&self.brief.store, password, &self.brief.state).open_to_read().ok()?;
        let (record, _) = look(store.as_ref(), &job).ok()?;
        Some(NotifiedRecord { record: record?, store })
    }

    fn ping(&self, suffix: &str, text: &str) {
        let Some(base) = &self.brief.ping else { return };
        let (path, query) = base.split_once('?').map_or((base.as_str(), ""), |(path, query)| (path, query));
        let mark = if query.is_empty() { "" } else { "?" };
        let url = format!("{}{suffix}{mark}{query}", path.trim_end_matches('/'));
        let body = RequestBody { content_type: "text/plain; charset=utf-8", bytes: text.as_bytes() };
        let told = call(&url, (!text.is_empty()).then_some(body), CALL_TIMEOUT);
        self.judge(&format!("ping {}", host_only(base)), told);
    }

    #[allow(clippy::too_many_arguments, reason = "each is one field of the notification")]
    fn deliver(
        &self,
        way: Option<&Way>,
        event: &str,
        message: &str,
        known: Option<&NotifiedRecord>,
        run: RunId,
        status: Status,
        in_a_row: Option<u64>,
    ) {
        let Some(way) = way else { return };
        let outcome = known.and_then(|known| known.outcome(run));
        let mut object = outcome.as_ref().map_or_else(
            || self.bare(run, status),
            |(record, outcome)| match serde_json::to_value(RunAnswer::ended(record, outcome)) {
                Ok(Value::Object(object)) => object,
                _ => Map::new(),
            },
        );
        object.insert("event".to_string(), json!(event));
        // The field that chat services display.
        object.insert("text".to_string(), json!(message));
        object.insert("in_a_row".to_string(), json!(in_a_row));
        object.insert("store".to_string(), json!(self.brief.shown_store));
        object.insert("config".to_string(), json!(self.brief.config));
        let told = match way {
            Way::Url(url) => {
                let bytes = Value::Object(object).to_string().into_bytes();
                call(url, Some(RequestBody { content_type: "application/json", bytes: &bytes }), CALL_TIMEOUT)
            }
            Way::Command(argv) => self.command(argv, &object),
        };
        self.judge(&format!("{event} by {}", way.shown()), told);
    }

    /// Builds the fields of a notification about a run without its record.
    fn bare(&self, run: RunId, status: Status) -> Map<String, Value> {
        let fields = json!({
            "v": 1, "job": self.brief.job, "status": status.as_str(), "run": run, "host": self.brief.host,
            "timezone": self.brief.zone,
        });
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    fn command(&self, argv: &[String], object: &Map<String, Value>) -> Result<(), String> {
        let (program, arguments) = argv.split_first().ok_or("it is empty")?;
        let out = || open_log(&self.brief.state).map_or_else(|_| Stdio::null(), Stdio::from);
        let mut command = Command::new(program);
        command.args(arguments).envs(&self.brief.environment).process_group(0);
        password::keep_from(&mut command);
        command.env_remove(EXCERPT_VARIABLE);
        command.stdin(Stdio::piped()).stdout(out()).stderr(out());
        for (name, key) in VARIABLES {
            match object.get(key) {
                None | Some(Value::Null) => command.env_remove(name),
                Some(Value::String(text)) => command.env(name, text.replace('\0', " ")),
                Some(other) => command.env(name, other.to_string()),
            };
        }
        if let Some(directory) = &self.brief.directory {
            command.current_dir(directory);
        }
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let text = Value::Object(object.clone()).to_string();
        if let Some(mut input) = child.stdin.take() {
            // A command that does not read its standard input must not block the notifier.
            std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
        }
        let begun = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("it ended with {status}")),
                Ok(None) if begun.elapsed() < COMMAND_TIMEOUT => std::thread::sleep(Duration::from_millis(20)),
                Ok(None) => {
                    let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
                    let _ = child.wait();
                    return Err(format!("it took longer than {} seconds", COMMAND_TIMEOUT.as_secs()));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn judge(&self, what: &str, told: Result<(), String>) {
        let Err(why) = told else { return };
        let text = format!("{} (run {}): {what} failed: {}", self.brief.job, self.brief.run, show::flat(&why));
        log(&self.brief.state, &text);
        if self.brief.verbose {
            report::say(&text);
        }
    }
}

/// The variables of a notification command, and the JSON fields they are filled from.
const VARIABLES: [(&str, &str); 10] = [
    ("FENCEPOST_JOB", "job"),
    ("FENCEPOST_RUN", "run"),
    ("FENCEPOST_EVENT", "event"),
    ("FENCEPOST_STATUS", "status"),
    ("FENCEPOST_SLOT", "slot"),
    ("FENCEPOST_DATE", "date"),
    ("FENCEPOST_TOKEN", "token"),
    ("FENCEPOST_EXIT_CODE", "exit_code"),
    ("FENCEPOST_MESSAGE", "text"),
    ("FENCEPOST_CONFIG", "config"),
];

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

/// Returns how the job ended before this successful run, if that was a failure. Failed attempts of the same trigger do
/// not count: no notification was sent for them.
fn recovered(record: &Record, run: RunId, retries: u32) -> Option<Status> {
    let ring = &record.ledger.ring;
    let at = ring.iter().rposition(|outcome| outcome.run == run && outcome.status.is_of_a_run())?;
    let slot = ring[at].slot;
    let mut retries = retries;
    let before = ring[..at]
        .iter()
        .rev()
        .filter(|outcome| outcome.status.is_of_a_run() && outcome.status != Status::SkippedBarrier);
    let before = before.skip_while(|outcome| {
        let is_retry = outcome.slot == slot && retries > 0;
        retries = retries.saturating_sub(1);
        is_retry
    });
    let status = before.map(|outcome| outcome.status).next()?;
    (!matches!(status, Status::Ok | Status::Empty)).then_some(status)
}
