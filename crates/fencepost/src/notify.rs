//! Tells others how a run went, without the run waiting for it: a process of its own does that, which outlives the run.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

use fencepost_core::ledger::{Status, cut};
use fencepost_core::name::Job;
use fencepost_core::run::{Event, Finish};
use fencepost_core::slot::NotNow;
use fencepost_core::time::Wall;
use fencepost_core::token::RunId;
use fencepost_guard::clock;
use nix::libc::O_NOFOLLOW;
use serde::{Deserialize, Serialize};

use crate::args::Global;
use crate::command::run::again;
use crate::config::{Notice, Notify};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::{self, Voice};
use crate::settings::Settings;
use crate::show;

/// The most bytes of a message. All of them fit into a pipe that nobody reads yet.
const MESSAGE_BYTES_MAX: usize = 8 * 1024;

const LOG_MODE: u32 = 0o600;

/// The most bytes of the file that says which notifications failed.
const LOG_BYTES_MAX: u64 = 256 * 1024;

/// What the notifier has to know. It goes through a pipe, for it holds secrets.
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
    pub on_error: Option<Way>,
    pub on_halt: Option<Way>,
    pub on_recovered: Option<Way>,
    /// After how many skips in a row, and how.
    pub on_skips: Option<(u64, Way)>,
}

/// How a notification is delivered.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    Command(Vec<String>),
    Url(String),
}

/// What happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    Started,
    /// A run before ended without a word.
    TookOver {
        run: RunId,
        note: String,
    },
    Ended(Ended),
    /// It is tried again: how that goes is told later.
    Retrying,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ended {
    pub status: Status,
    pub code: u8,
    pub message: String,
    pub slot: Option<Wall>,
    /// How often the slot was tried before by this trigger.
    pub retries: u32,
    /// How many triggers in a row the run that is going has turned away.
    pub in_a_row: Option<u64>,
}

/// The run's side of it.
#[derive(Debug)]
pub struct Teller {
    brief: Brief,
    voice: Voice,
    pipe: Option<ChildStdin>,
}

impl Teller {
    /// Nothing, if nobody wants to hear of this job.
    pub fn of(global: &Global, settings: &Settings, place: &Place, job: &Job, run: RunId) -> Option<Self> {
        let notify = &settings.keys.notify;
        if *notify == Notify::default() {
            return None;
        }
        let config = place.config.as_ref();
        let brief = Brief {
            job: job.to_string(),
            run,
            store: place.store.clone(),
            password: place.password().ok().flatten().map(|secret| secret.reveal().to_string()),
            shown_store: place.shown_store(),
            state: place.state.clone(),
            config: config.map(|config| config.path.clone()),
            directory: config.map(|config| config.directory.clone()),
            environment: settings.keys.environment.clone(),
            zone: settings.zone.name().to_string(),
            host: place.host.name.clone(),
            verbose: global.verbose,
            ping: notify.ping.clone(),
            on_error: notify.on_error.as_ref().map(Way::of),
            on_halt: notify.on_halt.as_ref().map(Way::of),
            on_recovered: notify.on_recovered.as_ref().map(Way::of),
            on_skips: notify.on_skips.as_ref().and_then(|on| {
                let way = on.notify.as_ref().or(notify.on_error.as_ref()).map(Way::of);
                way.map(|way| (u64::from(on.count), way))
            }),
        };
        Some(Self { brief, voice: Voice::of(global), pipe: None })
    }

    /// Something happened while it runs.
    pub fn note(&mut self, event: &Event) {
        let Event::Claimed { took_over, .. } = event else { return };
        if let Some(from) = took_over.as_ref().filter(|_| self.brief.on_error.is_some()) {
            self.tell(&News::TookOver { run: from.run, note: from.note.clone() });
        }
        if self.brief.ping.is_some() {
            self.tell(&News::Started);
        }
    }

    /// It has ended, and its lease is released.
    pub fn end(&mut self, finish: &Finish, mut ended: Ended) {
        // The failure of a slot was told when it happened.
        let is_news = !matches!(finish, Finish::Interrupted(_) | Finish::NotNow(NotNow::Failed { .. }));
        if !is_news || !self.brief.wants(ended.status) {
            return self.hang_up();
        }
        let job = &self.brief.job;
        let said = report::sentence(job, finish, clock::now().wall);
        let message = said.unwrap_or_else(|| match ended.status {
            Status::Ok | Status::Empty => format!("{job} is {}.", ended.status),
            status => format!("{job} ended: {status}, exit code {}.", ended.code),
        });
        ended.message = cut(&message, MESSAGE_BYTES_MAX);
        self.tell(&News::Ended(ended));
        self.hang_up();
    }

    /// It will be tried again.
    pub fn retry(&mut self) {
        if self.pipe.is_some() {
            self.tell(&News::Retrying);
            self.hang_up();
        }
    }

    /// It came to nothing before it was begun.
    pub fn fail(&mut self, failure: &Failure, code: Code) {
        if !self.brief.wants(Status::Error) {
            return;
        }
        let message = cut(&format!("{} was not run: {}", self.brief.job, failure.message()), MESSAGE_BYTES_MAX);
        let ended = Ended { status: Status::Error, code: code.0, message, slot: None, retries: 0, in_a_row: None };
        self.tell(&News::Ended(ended));
        self.hang_up();
    }

    fn hang_up(&mut self) {
        self.pipe = None;
    }

    /// Hands news over. If whoever was to tell it is gone, another is sent.
    fn tell(&mut self, news: &News) {
        let handed = self.pipe.as_mut().is_some_and(|pipe| send(pipe, news).is_ok());
        if handed {
            return;
        }
        let begun = self.begin().and_then(|mut pipe| send(&mut pipe, news).map(|()| pipe));
        match begun {
            Ok(pipe) => self.pipe = Some(pipe),
            Err(error) => {
                log(&self.brief.state, &format!("{}: nobody could be told: {error}", self.brief.job));
                self.voice.tell(&format!("{}: nobody could be told: {error}", self.brief.job));
            }
        }
    }

    fn begin(&self) -> std::io::Result<ChildStdin> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("notifier").env_remove(again::VARIABLE).stdin(Stdio::piped()).stdout(Stdio::null());
        crate::password::keep_from(&mut command);
        // Whoever waits for the end of our output does not wait for this one, unless asked to hear of it.
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
    /// Whether anybody wants to hear of an end like this.
    fn wants(&self, status: Status) -> bool {
        let own = match status {
            Status::Ok | Status::Empty => self.on_recovered.is_some(),
            Status::Error | Status::Timeout | Status::Lost | Status::Fenced => self.on_error.is_some(),
            Status::Halted => self.on_halt.is_some(),
            Status::SkippedOverlap | Status::SkippedBarrier => self.on_skips.is_some(),
            Status::Missed | Status::SkippedDuplicate | Status::SkippedPaused | Status::Running => return false,
        };
        own || self.ping.is_some()
    }
}

impl Way {
    fn of(notice: &Notice) -> Self {
        match notice {
            Notice::Command(command) => Self::Command(command.clone().into()),
            Notice::Url(url) => Self::Url(url.clone()),
        }
    }

    /// For people: nobody sees the path of a webhook, or the arguments of a command.
    pub fn shown(&self) -> String {
        match self {
            Self::Command(argv) => argv.first().cloned().unwrap_or_default(),
            Self::Url(url) => crate::config::host_only(url),
        }
    }
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

/// Notes something for whoever looks why nobody was told. The oldest half goes when there is too much.
pub fn log(state: &Path, text: &str) {
    let path = log_path(state);
    if std::fs::metadata(&path).is_ok_and(|known| known.len() > LOG_BYTES_MAX) {
        let bytes = std::fs::read(&path).unwrap_or_default();
        let half = &bytes[bytes.len() / 2..];
        let start = half.iter().position(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let _ = crate::file::replace_private(&path, &String::from_utf8_lossy(&half[start..]));
    }
    let line = format!("{} {}\n", show::time(clock::now().wall), show::flat(text));
    if let Ok(mut file) = open_log(state) {
        let _ = file.write_all(line.as_bytes());
    }
}

/// Opens the log to append to it. Commands print into it what they like, so only its owner may read it.
pub fn open_log(state: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    let file = options.append(true).create(true).mode(LOG_MODE).custom_flags(O_NOFOLLOW).open(log_path(state))?;
    file.set_permissions(Permissions::from_mode(LOG_MODE))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brief_prints_no_secret() {
        let way = || Some(Way::Url("https://example.org/SECRET".into()));
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
            on_error: way(),
            on_halt: way(),
            on_recovered: way(),
            on_skips: way().map(|way| (3, way)),
        };
        let printed = format!("{brief:?}");
        assert!(printed.contains("article") && printed.contains("redis://***@example.org"), "{printed}");
        assert!(!printed.contains("SECRET"), "{printed}");
    }
}
