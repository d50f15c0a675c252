//! Sessions of an agent that no `run` wraps: desktop tasks and automations.
//!
//! The first prompt claims the job's slot by a `fencepost run` in the background. Its command is this program as
//! `__session`: it waits for the end of the session or of the agent's process. So a session is a run like any other, with
//! its barrier, contract and notifications. Its lease carries no process evidence: children of the agent may outlive it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_core::name::Name;
use fencepost_core::token::RunId;
use fencepost_guard::host::{self, Host};
use fencepost_guard::registry;
use fencepost_guard::spawned_run::SpawnedRun;
use fencepost_guard::state::state_directory;
use fencepost_view::event::{EventLine, RunEvent};
use nix::libc::{O_NOFOLLOW, SIGKILL, SIGTERM};
use nix::unistd::getppid;
use serde::{Deserialize, Serialize};

use super::agent::{HookEvent, HookInput};
use super::{HookAnswer, under_run};
use crate::args::Global;
use crate::args::hook::{Agent, HookOptions};
use crate::exit::{Code, Failure};
use crate::inside::{self, Inside};

/// How long a claim may take. Agents give a hook ten seconds.
const CLAIM_PATIENCE: Duration = Duration::from_secs(8);

/// How long the end of a session waits for its outcome to be recorded.
const END_PATIENCE: Duration = Duration::from_secs(3);

/// How often the waiting process looks at its session.
const LOOK: Duration = Duration::from_millis(200);

const PAUSE: Duration = Duration::from_millis(10);

/// Names of processes between an agent and its hook.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "busybox"];

/// The most bytes of a session's file.
const SESSION_BYTES_MAX: u64 = 64 << 10;

/// What is known of one session.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Session {
    /// Its first prompt did not match: a person is at work.
    is_person: bool,
    /// The run that holds the lease for it.
    run: Option<RunId>,
    /// The mark of the agent's process.
    pub agent: Option<String>,
    /// No turn is under way: the end of the agent's process is the end of its work.
    is_idle: bool,
    /// The agent said that it has ended.
    is_over: bool,
}

/// The file of a session. Hooks of one session take turns: a lock beside it is held while it is open. It is replaced
/// whole, so that the run reads it without the lock.
#[derive(Debug)]
struct SessionFile<'a> {
    path: &'a Path,
    session: Session,
    _lock: File,
}

impl<'a> SessionFile<'a> {
    fn open(path: &'a Path) -> io::Result<Self> {
        let lock = private(&lock_of(path))?;
        lock.lock()?;
        let session = match read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Session::default(),
            session => session?,
        };
        Ok(Self { path, session, _lock: lock })
    }

    fn save(&self) -> io::Result<()> {
        let draft = self.path.with_extension("new");
        let mut file = private(&draft)?;
        file.set_len(0)?;
        file.write_all(&serde_json::to_vec(&self.session)?)?;
        std::fs::rename(&draft, self.path)
    }
}

/// Opens a file that only its owner may read, and makes it if it is missing.
fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(O_NOFOLLOW).open(path)
}

fn lock_of(path: &Path) -> PathBuf {
    path.with_extension("lock")
}

/// Removes what is kept of a session.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_file(lock_of(path));
}

/// Reads what is known of a session.
pub fn read(path: &Path) -> io::Result<Session> {
    let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW).open(path)?;
    let mut bytes = Vec::new();
    file.take(SESSION_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// The answer for a session with a job.
pub(super) fn answer(
    global: &Global,
    options: &HookOptions,
    job: &Name,
    input: &Result<HookInput, String>,
) -> Result<HookAnswer, Failure> {
    let Ok(HookInput { event, session: Some(id) }) = input else {
        // It is unknown whose session it is: maybe a person's.
        return Ok(HookAnswer::Pass);
    };
    let path = path_of(options.agent, id)?;
    let failed = |error: io::Error| Failure::Other(format!("Cannot keep {}: {error}", path.display()));
    let host = Host::this();
    if matches!(event, HookEvent::Prompt(_)) {
        prune(&host, path.parent().unwrap_or(&path));
    }
    let mut file = SessionFile::open(&path).map_err(failed)?;
    let desk = SessionDesk { global, options, job, path: &path, host: &host };
    let answer = desk.answer(&mut file, event, input);
    if *event == HookEvent::SessionEnd {
        remove(&path);
        return Ok(answer);
    }
    file.save().map_err(failed)?;
    Ok(answer)
}

struct SessionDesk<'a> {
    global: &'a Global,
    options: &'a HookOptions,
    job: &'a Name,
    path: &'a Path,
    host: &'a Host,
}

impl SessionDesk<'_> {
    fn answer(&self, file: &mut SessionFile<'_>, event: &HookEvent, input: &Result<HookInput, String>) -> HookAnswer {
        if self.is_stale(&file.session) {
            // The agent resumed an earlier session in another process.
            file.session = Session::default();
        }
        let is_first = file.session.run.is_none() && !file.session.is_person;
        match event {
            HookEvent::Prompt(prompt) if is_first => {
                if self.options.match_prompt.as_ref().is_some_and(|pattern| !pattern.is_match(prompt)) {
                    file.session = Session { is_person: true, agent: agent_mark(self.host), ..Session::default() };
                    return HookAnswer::Pass;
                }
                return self.claim(file);
            }
            HookEvent::Prompt(_) => file.session.is_idle = false,
            // The agent has no event for prompts, or its hook was installed in the middle of a session.
            HookEvent::Tool(_) if is_first && self.options.match_prompt.is_none() => {
                if let refusal @ HookAnswer::Refuse(_) = self.claim(file) {
                    return refusal;
                }
            }
            HookEvent::SessionEnd => return self.end(file),
            _ => {}
        }
        let Some(run) = file.session.run else { return HookAnswer::Pass };
        let Some(inside) = Inside::of_run(run) else { return self.after_its_end(event) };
        let answer = under_run(self.global, input, &inside);
        if matches!(event, HookEvent::Stop { .. }) && answer == HookAnswer::Pass {
            file.session.is_idle = true;
        }
        answer
    }

    /// Whether the session's agent has ended.
    fn is_stale(&self, session: &Session) -> bool {
        session.agent.as_ref().is_some_and(|mark| self.host.has_ended(mark) == Some(true))
    }

    /// Claims the slot: starts a run in the background, and waits until it has begun or ended.
    fn claim(&self, file: &mut SessionFile<'_>) -> HookAnswer {
        let blocked = |why: &str| {
            HookAnswer::Refuse(format!(
                "fencepost did not let this session of {} begin: {}. Do not do its work in another way.",
                self.job,
                why.trim_end_matches('.')
            ))
        };
        file.session.agent = agent_mark(self.host);
        file.session.is_idle = !self.options.agent.tells_stop();
        file.session.is_over = false;
        if let Err(error) = file.save() {
            return blocked(&format!("{} cannot be written: {error}", self.path.display()));
        }
        match self.begin() {
            Ok(run) => {
                file.session.run = Some(run);
                HookAnswer::Pass
            }
            Err(why) => blocked(&why),
        }
    }

    fn begin(&self) -> Result<RunId, String> {
        let errors = self.path.with_extension("err");
        let failed = |error: io::Error| format!("its run cannot be started: {error}");
        let told = private(&errors).map_err(failed)?;
        told.set_len(0).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        if let Some(config) = &self.global.config {
            command.arg("--config").arg(config);
        }
        if let Some(store) = &self.global.store {
            command.arg("--store").arg(store);
        }
        command.arg("run").arg(self.job.as_str()).arg("--session").arg(self.path);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(told);
        inside::forget_run(&mut command);
        let events = |command: &mut Command, fd| {
            command.arg("--events").arg(format!("fd:{fd}"));
        };
        let mut run = SpawnedRun::start(command, events).map_err(failed)?;
        let result = wait_for_start(&mut run);
        let said = std::fs::read_to_string(&errors).unwrap_or_default();
        let _ = std::fs::remove_file(&errors);
        result.map_err(|why| why.unwrap_or_else(|| said.lines().next().unwrap_or("its run ended").to_string()))
    }

    /// The session ends: its run records the outcome and releases.
    fn end(&self, file: &mut SessionFile<'_>) -> HookAnswer {
        file.session.is_over = true;
        let is_saved = file.save().is_ok();
        let give_up = Instant::now() + END_PATIENCE;
        let is_going = || file.session.run.is_some_and(|run| registry::of_id(run).is_some());
        while is_saved && is_going() && Instant::now() < give_up {
            std::thread::sleep(PAUSE);
        }
        HookAnswer::Pass
    }

    /// The run of the session has ended before the session.
    fn after_its_end(&self, event: &HookEvent) -> HookAnswer {
        match event {
            HookEvent::Tool(call) if call.writes(&[]) => HookAnswer::Refuse(format!(
                "fencepost refused {}: the run of {} that this session held has ended; its lease is lost or its time is \
                 over. Write nothing more, in no other way either. Say in a few words what is left undone, and stop. A \
                 person can see what happened by: fencepost why {}",
                call.name, self.job, self.job
            )),
            _ => HookAnswer::Pass,
        }
    }
}

/// Waits for the first event that tells. Without a reason the run said why on its standard error.
fn wait_for_start(run: &mut SpawnedRun) -> Result<RunId, Option<String>> {
    let give_up = Instant::now() + CLAIM_PATIENCE;
    loop {
        let ended = run.ended();
        for line in run.lines() {
            match serde_json::from_str(&line) {
                Ok(EventLine { run, event: RunEvent::Spawned { .. }, .. }) => return Ok(run),
                Ok(EventLine { event: RunEvent::Ended(end), .. }) => {
                    return Err(end.message.or_else(|| end.reason.map(|reason| reason.as_str().to_string())));
                }
                _ => {}
            }
        }
        if ended.is_some() {
            return Err(None);
        }
        if Instant::now() >= give_up {
            run.signal(SIGTERM);
            return Err(Some("the store or an upstream did not answer in time".to_string()));
        }
        std::thread::sleep(PAUSE);
    }
}

/// The file of a session.
fn path_of(agent: Agent, id: &str) -> Result<PathBuf, Failure> {
    let is_plain =
        !id.is_empty() && id.len() <= 128 && id.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !is_plain || id.starts_with('.') {
        return Err(Failure::Usage("The session's id is no plain word. Nothing was claimed.".to_string()));
    }
    let directory = state_directory()?.join("sessions");
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| {
        Failure::Other(format!("Cannot make the directory of sessions {}: {error}", directory.display()))
    })?;
    Ok(directory.join(format!("{}-{id}.json", agent.word())))
}

/// Removes the files of sessions whose agents have ended and whose runs are over.
fn prune(host: &Host, directory: &Path) {
    let paths = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "json")) {
        let Ok(session) = read(&path) else { continue };
        let has_ended = session.agent.as_ref().is_some_and(|mark| host.has_ended(mark) == Some(true));
        if has_ended && session.run.is_none_or(|run| registry::of_id(run).is_none()) {
            remove(&path);
        }
    }
}

/// The mark of the agent's process: the nearest ancestor that is no shell.
fn agent_mark(host: &Host) -> Option<String> {
    let parent = getppid().as_raw();
    let mut pid = parent;
    while host::name(pid).is_some_and(|name| SHELLS.contains(&name.as_str())) {
        match host::parent(pid) {
            Some(above) if above > 1 => pid = above,
            _ => {
                pid = parent;
                break;
            }
        }
    }
    host.mark(host::process(pid)?)
}

/// `__session`: waits until the session has ended. If its agent dies in the middle of a turn, ends the wrapper without a
/// release: what the agent left running may still write, so that the lease has to run out.
pub fn wait(path: &Path) -> Result<Code, Failure> {
    let host = Host::this();
    loop {
        let session = match read(path) {
            // The hook removes it at the end of the session.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Code::DONE),
            Err(error) => {
                let place = path.display();
                return Err(Failure::Other(format!("The session's file {place} cannot be read: {error}")));
            }
            Ok(session) if session.is_over => return Ok(Code::DONE),
            Ok(session) => session,
        };
        if session.agent.as_ref().is_some_and(|mark| host.has_ended(mark) == Some(true)) {
            if session.is_idle {
                return Ok(Code::DONE);
            }
            let wrapper = host::parent(getppid().as_raw());
            wrapper.iter().for_each(|wrapper| drop(fencepost_sys::send(*wrapper, SIGKILL)));
            return Ok(Code::LOST);
        }
        std::thread::sleep(LOOK);
    }
}
