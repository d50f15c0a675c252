//! Starts the notifier, a process that tells others how a run went: the run does not wait for it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use fencepost_core::ledger::{Status, cut};
use fencepost_core::name::{Job, Key};
use fencepost_core::token::RunId;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_view::ReasonCode;
use fencepost_view::answer::{AnswerVersion, NotificationAnswer, NotificationEvent, NotifiedRun, UnrecordedRun};
use fencepost_view::event::{RunEnd, RunEvent};
use fencepost_view::summary::Summary;
use fencepost_view::text;
use nix::libc::O_NOFOLLOW;
use serde::{Deserialize, Serialize};

use crate::args::Global;
use crate::command::run::again;
use crate::config::{Notice, Recipient};
use crate::drift::DriftTerms;
use crate::options::{Given, JobOptions};
use crate::place::Place;
use crate::report::Voice;
use crate::settings::Settings;
use crate::show;

/// The most bytes of a message: it fits into the buffer of a pipe whose reader has not started.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

const LOG_MODE: u32 = 0o600;

/// The most bytes of the file that says which notifications failed.
const LOG_BYTES_MAX: u64 = 256 * 1024;

/// What the notifier has to know. It goes through a pipe, because it holds secrets.
#[derive(Clone, Serialize, Deserialize)]
pub struct Brief {
    pub job: String,
    pub run: RunId,
    pub store: String,
    /// The password of the store, which the notifier does not find by itself.
    pub password: Option<String>,
    pub shown_store: String,
    pub state: PathBuf,
    pub config: Option<PathBuf>,
    /// Where commands are run.
    pub directory: Option<PathBuf>,
    pub environment: BTreeMap<String, String>,
    pub zone: String,
    pub host: String,
    pub verbose: bool,
    pub ping: Option<String>,
    pub on_error: Vec<Recipient>,
    pub on_halt: Vec<Recipient>,
    pub on_recovered: Vec<Recipient>,
    pub on_missed: Vec<Recipient>,
    pub on_drift: Vec<Recipient>,
    /// What the job is compared with, for `on_drift`.
    pub drift: Option<DriftTerms>,
    /// After how many skips in a row, and how.
    pub on_skips: Option<(u64, Vec<Recipient>)>,
    /// After how long a failure streak is told again; zero: never.
    pub remind: Duration,
}

/// What the notifier is told: an event of the run, and what only the wrapper knows about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct News {
    pub event: RunEvent,
    /// The slot is tried again: the end of the last attempt is told later.
    pub is_retried: bool,
    /// How often this trigger tried the slot before.
    pub retries: u32,
    /// How many triggers in a row the run that is going has turned away.
    pub in_a_row: Option<u64>,
}

impl News {
    fn of(event: RunEvent) -> Self {
        Self { event, is_retried: false, retries: 0, in_a_row: None }
    }
}

/// The run's side: starts the notifier when there is something to tell, and writes to its pipe.
#[derive(Debug)]
pub struct Teller {
    brief: Brief,
    voice: Voice,
    pipe: Option<ChildStdin>,
}

impl Teller {
    /// `None` if the configuration asks for no notification about this job.
    pub fn of(global: &Global, settings: &Settings, place: &Place, job: &Job, run: RunId) -> Option<Self> {
        let options = &settings.options;
        if !options.notifies() {
            return None;
        }
        let brief = Brief::of(place, options, &settings.zone, job, run, global.verbose);
        Some(Self { brief, voice: Voice::of(global), pipe: None })
    }

    /// Tells that the run began, that it took over from one that died, or that it found slots missed.
    pub fn note(&mut self, event: &RunEvent) {
        let is_news = match event {
            RunEvent::Claimed { took_over, .. } => {
                self.brief.ping.is_some() || took_over.is_some() && !self.brief.on_error.is_empty()
            }
            RunEvent::Missed { .. } => !self.brief.on_missed.is_empty(),
            _ => false,
        };
        if is_news {
            self.tell(&News::of(event.clone()));
        }
    }

    /// Tells the end of the run. Its lease is released by then.
    pub fn end(&mut self, summary: &Summary, retries: u32, in_a_row: Option<u64>) {
        if is_news(summary) && self.brief.wants(summary.status) {
            let job = &self.brief.job;
            let message = summary.message.clone().unwrap_or_else(|| match summary.status {
                Status::Ok | Status::Empty => format!("{job} is {}.", summary.status),
                status => format!("{job} ended: {status}, exit code {}.", summary.code),
            });
            self.tell(&News { retries, in_a_row, ..News::of(ended(summary, &message)) });
        }
        self.hang_up();
    }

    /// Tells the notifier of this attempt that another one follows.
    pub fn retry(&mut self, summary: &Summary) {
        if self.pipe.is_some() {
            self.tell(&News { is_retried: true, ..News::of(ended(summary, "")) });
            self.hang_up();
        }
    }

    /// Tells that the run failed before it began.
    pub fn fail(&mut self, summary: &Summary) {
        if self.brief.wants(summary.status) {
            let message = summary.message.as_deref().unwrap_or_default();
            let message = format!("{} was not run: {message}", self.brief.job);
            self.tell(&News::of(ended(summary, &message)));
            self.hang_up();
        }
    }

    fn hang_up(&mut self) {
        self.pipe = None;
    }

    /// Writes to the notifier, and starts another one if that is gone.
    fn tell(&mut self, news: &News) {
        let handed = self.pipe.as_mut().is_some_and(|pipe| send(pipe, news).is_ok());
        if handed {
            return;
        }
        let begun = self.begin().and_then(|mut pipe| send(&mut pipe, news).map(|()| pipe));
        match begun {
            Ok(pipe) => self.pipe = Some(pipe),
            Err(error) => {
                log(&self.brief, &format!("{}: the notifier could not be started: {error}", self.brief.job));
                self.voice.tell(&format!("{}: the notifier could not be started: {error}", self.brief.job));
            }
        }
    }

    fn begin(&self) -> std::io::Result<ChildStdin> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("notifier").env_remove(again::VARIABLE).stdin(Stdio::piped()).stdout(Stdio::null());
        crate::password::keep_from(&mut command);
        // A caller that waits for the end of our output must not wait for the notifier, unless -v asks for its messages.
        command.stderr(if self.brief.verbose { Stdio::inherit() } else { Stdio::null() });
        let mut child = command.process_group(0).spawn()?;
        let mut pipe = child.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        send(&mut pipe, &self.brief)?;
        Ok(pipe)
    }
}

/// Leaves out every field that may hold a secret: password, store URL, environment, commands and webhooks.
impl fmt::Debug for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brief")
            .field("job", &self.job)
            .field("run", &self.run)
            .field("store", &self.shown_store)
            .finish_non_exhaustive()
    }
}

impl Brief {
    pub fn of(place: &Place, options: &JobOptions, zone: &Zone, job: &Job, run: RunId, verbose: bool) -> Self {
        let config = place.config.as_ref();
        let recipients = |notice: Option<Notice>| notice.map(|Notice(all)| all).unwrap_or_default();
        Self {
            job: job.to_string(),
            run,
            store: place.store.clone(),
            password: place.password().ok().flatten().map(|secret| secret.reveal().to_string()),
            shown_store: place.shown_store(),
            state: place.state.clone(),
            config: config.map(|config| config.path.clone()),
            directory: config.map(|config| config.directory.clone()),
            environment: options.environment(),
            zone: zone.name().to_string(),
            host: place.host.name.clone(),
            verbose,
            ping: options.ping.value(),
            on_error: recipients(options.on_error.value()),
            on_halt: recipients(options.on_halt.value()),
            on_recovered: recipients(options.on_recovered.value()),
            on_missed: recipients(options.on_missed.value()),
            on_drift: recipients(options.on_drift.value()),
            drift: config
                .filter(|config| options.on_drift.is_some() && config.jobs.contains_key(&job.name))
                .map(|config| DriftTerms::of(config, &job.name, clock::now().wall)),
            on_skips: options.on_skips.value().and_then(|on| {
                let recipients = recipients(on.notify.or(options.on_error.value()));
                (!recipients.is_empty()).then_some((u64::from(on.count), recipients))
            }),
            remind: options.remind(),
        }
    }

    /// The recipients of each key.
    pub fn recipients(&self) -> impl Iterator<Item = (&'static str, &Vec<Recipient>)> {
        let own = [
            ("on_error", &self.on_error),
            ("on_halt", &self.on_halt),
            ("on_recovered", &self.on_recovered),
            ("on_missed", &self.on_missed),
            ("on_drift", &self.on_drift),
        ];
        own.into_iter().chain(self.on_skips.iter().map(|(_, recipients)| ("on_skips", recipients)))
    }

    /// Whether a notification is configured for this status.
    fn wants(&self, status: Status) -> bool {
        let own = match status {
            Status::Ok | Status::Empty => !self.on_recovered.is_empty() || self.unrecorded_path().exists(),
            Status::Error | Status::Timeout | Status::Lost | Status::Fenced => !self.on_error.is_empty(),
            Status::Halted => !self.on_halt.is_empty(),
            Status::SkippedOverlap | Status::SkippedBarrier => self.on_skips.is_some(),
            Status::Missed | Status::SkippedDuplicate | Status::SkippedPaused | Status::Running => return false,
        };
        let is_compared = status.is_of_a_run() && status != Status::SkippedBarrier && self.drift.is_some();
        own || is_compared || self.ping.is_some()
    }

    /// The note about failures that no record holds ([`fencepost_view::notice::UnrecordedTrouble`]).
    pub fn unrecorded_path(&self) -> PathBuf {
        let key = Job::parse(&self.job).map(|job| Key::job(&job).as_str().replace('/', "_")).unwrap_or_default();
        self.state.join("notify").join(format!("{key}.json"))
    }

    /// What was told of the job's drift.
    pub fn drift_path(&self) -> PathBuf {
        self.unrecorded_path().with_extension("drift.json")
    }

    /// A notification without the fields that only some events have.
    pub fn notification(&self, event: NotificationEvent, text: String, run: NotifiedRun) -> NotificationAnswer {
        NotificationAnswer {
            text,
            event,
            run,
            reminder: false,
            since: None,
            down_ms: None,
            in_a_row: None,
            missed: None,
            drift: Vec::new(),
            last_output: Vec::new(),
            store: self.shown_store.clone(),
            config: self.config.as_ref().map(|config| config.display().to_string()),
        }
    }

    /// What is known of a run without its record.
    pub fn unrecorded_run(&self, run: RunId, status: Option<Status>) -> UnrecordedRun {
        UnrecordedRun {
            v: AnswerVersion,
            job: self.job.clone(),
            status,
            run: run.to_string(),
            host: self.host.clone(),
            timezone: self.zone.clone(),
        }
    }
}

/// The end of a run as an event, with a message that fits into the pipe.
/// Whether the end of a run may be told. An end on request is not, and the failure of a slot was told when it happened.
fn is_news(summary: &Summary) -> bool {
    let known = [ReasonCode::Interrupted, ReasonCode::Cancelled, ReasonCode::Failed];
    !summary.reason.is_some_and(|reason| known.contains(&reason))
}

fn ended(summary: &Summary, message: &str) -> RunEvent {
    let message = Some(cut(message, MESSAGE_BYTES_MAX));
    RunEvent::Ended(RunEnd { message, ..RunEnd::of(summary) })
}

fn send(pipe: &mut ChildStdin, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    pipe.write_all(line.as_bytes())
}

/// Where failed notifications are noted.
pub fn log_path(state: &Path) -> PathBuf {
    state.join("notify.log")
}

/// Appends a line to the log of failed notifications. Past the limit, the older half is removed.
pub fn log(brief: &Brief, text: &str) {
    let path = log_path(&brief.state);
    if std::fs::metadata(&path).is_ok_and(|known| known.len() > LOG_BYTES_MAX) {
        let bytes = std::fs::read(&path).unwrap_or_default();
        let half = &bytes[bytes.len() / 2..];
        let start = half.iter().position(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let _ = crate::file::replace_private(&path, &String::from_utf8_lossy(&half[start..]));
    }
    let now = show::second_in(clock::now().wall, &text::zone(&brief.zone));
    let line = format!("{now} {}\n", show::flat(text));
    if let Ok(mut file) = open_log(&brief.state) {
        let _ = file.write_all(line.as_bytes());
    }
}

/// Opens the log to append to it. Notification commands print into it, so only its owner may read it.
pub fn open_log(state: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    let file = options.append(true).create(true).mode(LOG_MODE).custom_flags(O_NOFOLLOW).open(log_path(state))?;
    file.set_permissions(Permissions::from_mode(LOG_MODE))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Service;

    #[test]
    fn a_run_that_was_ended_on_request_is_no_news() {
        let is_told = |reason| is_news(&Summary::failed(125, reason, ""));
        let silent = ReasonCode::ALL.iter().copied().filter(|reason| !is_told(*reason)).collect::<Vec<_>>();
        assert_eq!(silent, [ReasonCode::Failed, ReasonCode::Interrupted, ReasonCode::Cancelled]);
    }

    #[test]
    fn a_brief_prints_no_secret() {
        let recipients = || vec![Recipient::Service(Service::Webhook, "https://example.org/SECRET".into())];
        let brief = Brief {
            job: "article".into(),
            run: RunId(uuid::Uuid::from_u128(7)),
            store: "redis://:SECRET@example.org".into(),
            password: Some("SECRET".into()),
            shown_store: "redis://***@example.org".into(),
            state: PathBuf::from("/state"),
            config: None,
            directory: None,
            environment: BTreeMap::from([("API_KEY".into(), "SECRET".into())]),
            zone: "UTC".into(),
            host: "a".into(),
            verbose: false,
            ping: Some("https://example.org/SECRET".into()),
            on_error: recipients(),
            on_halt: recipients(),
            on_recovered: recipients(),
            on_missed: recipients(),
            on_drift: recipients(),
            drift: None,
            on_skips: Some((3, recipients())),
            remind: Duration::ZERO,
        };
        let printed = format!("{brief:?}");
        assert!(printed.contains("article") && printed.contains("redis://***@example.org"), "{printed}");
        assert!(!printed.contains("SECRET"), "{printed}");
    }
}
