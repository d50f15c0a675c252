//! The demo's sandbox: one temporary directory, the environment of its processes, and the signals that end it early.

use std::cell::RefCell;
use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fencepost_guard::signals::Signals;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::mkdtemp;

use super::actor::Actor;
use super::incident::Incident;
use super::narrator::Narrator;
use super::{DemoError, Side};

/// The temporary directory. Dropping it removes the directory unless it is kept.
#[derive(Debug)]
pub struct Sandbox {
    directory: PathBuf,
    signals: RefCell<Signals>,
    /// Whether the directory is kept or already removed.
    is_settled: bool,
}

impl Sandbox {
    pub fn create() -> Result<Self, DemoError> {
        // Signals are handled first: from here on, a signal still removes the directory.
        let signals = Signals::of_daemon().map_err(failed("Cannot listen for signals"))?;
        let parent = std::env::temp_dir();
        let no_place = |error: std::io::Error| {
            let parent = parent.display();
            DemoError::Failed(format!("{parent}: {error}. Set TMPDIR to a directory on a local disk."))
        };
        let place = parent.canonicalize().map_err(no_place)?.join("fencepost-demo-XXXXXX");
        let directory = mkdtemp(&place).map_err(|error| no_place(error.into()))?;
        let sandbox = Self { directory, signals: RefCell::new(signals), is_settled: false };
        sandbox.install_binary()?;
        Ok(sandbox)
    }

    /// Makes this binary available to the scripts as `fencepost`.
    fn install_binary(&self) -> Result<(), DemoError> {
        let binary = std::env::current_exe().map_err(failed("Cannot find this program"))?;
        let bin = self.directory.join("bin");
        fs::create_dir(&bin).map_err(failed(bin.display()))?;
        std::os::unix::fs::symlink(binary, bin.join("fencepost")).map_err(failed(bin.display()))
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Creates an empty directory for one side of an incident and writes its scripts.
    pub fn scenery<'a>(
        &'a self,
        narrator: &'a Narrator,
        incident: &Incident,
        side: Side,
    ) -> Result<Scenery<'a>, DemoError> {
        let name = match side {
            Side::Without => "without",
            Side::With => "with",
        };
        let directory = self.directory.join(format!("{}-{}", incident.number, incident.name)).join(name);
        fs::create_dir_all(&directory).map_err(failed(directory.display()))?;
        let scenery = Scenery { sandbox: self, narrator, directory, side };
        for (name, text) in incident.scripts {
            scenery.write(name, text)?;
        }
        Ok(scenery)
    }

    /// Waits until `fd` is readable, a child has ended, or the timeout. Returns at once if a signal asks the demo to
    /// stop.
    pub fn wait(&self, fd: Option<BorrowedFd<'_>>, time: Duration) -> Result<(), DemoError> {
        let mut signals = self.signals.borrow_mut();
        {
            let mut fds = vec![PollFd::new(signals.fd(), PollFlags::POLLIN)];
            fds.extend(fd.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
            let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(DemoError::Failed(format!("poll: {error}"))),
            }
        }
        signals.pending();
        signals.asked_to_end().map_or(Ok(()), |signal| Err(DemoError::Interrupted(signal)))
    }

    /// Sleeps for `time`.
    pub fn pause(&self, time: Duration) -> Result<(), DemoError> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.wait(None, left)?;
        }
    }

    /// Removes the directory, or returns its path if it is kept.
    pub fn close(mut self, keep: bool) -> Result<Option<String>, DemoError> {
        self.is_settled = keep;
        self.remove()?;
        Ok(keep.then(|| self.directory.display().to_string()))
    }

    fn remove(&mut self) -> Result<(), DemoError> {
        if std::mem::replace(&mut self.is_settled, true) {
            return Ok(());
        }
        fs::remove_dir_all(&self.directory).map_err(failed(self.directory.display()))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// One side of an incident: its directory, its processes, and its narrator.
#[derive(Debug)]
pub struct Scenery<'a> {
    pub sandbox: &'a Sandbox,
    pub narrator: &'a Narrator,
    pub directory: PathBuf,
    pub side: Side,
}

impl Scenery<'_> {
    /// Returns the command, prefixed with `fencepost …` on the guarded side.
    pub fn guarded(&self, guard: &str, command: &str) -> String {
        match self.side {
            Side::Without => command.to_string(),
            Side::With => format!("{guard} {command}"),
        }
    }

    pub fn is_guarded(&self) -> bool {
        self.side == Side::With
    }

    /// Shows the next step.
    pub fn tell(&self, text: &str) -> Result<(), DemoError> {
        self.narrator.step(self.sandbox, text)
    }

    /// Shows a command and starts it. `who` names its process where several run at once.
    pub fn start(&self, who: &'static str, line: &str) -> Result<Actor<'_>, DemoError> {
        self.start_on("state", who, line)
    }

    /// Starts a command on its own machine. For `fencepost`, a machine is a state directory.
    pub fn start_on(&self, state: &str, who: &'static str, line: &str) -> Result<Actor<'_>, DemoError> {
        self.narrator.command(self.sandbox, line)?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("exec {line}")).current_dir(&self.directory);
        self.equip(&mut command, state);
        Actor::start(self, who, command)
    }

    /// Shows a command, runs it and returns its exit code.
    pub fn run(&self, line: &str) -> Result<i32, DemoError> {
        self.start("", line)?.end()
    }

    /// Sets the environment of a process: its own state directory, no configuration, and no variables of a run that the
    /// demo itself may be part of.
    fn equip(&self, command: &mut Command, state: &str) {
        let ours = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"FENCEPOST_");
        for (name, _) in std::env::vars_os().filter(|(name, _)| ours(name)) {
            command.env_remove(name);
        }
        let bin = self.sandbox.path().join("bin");
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let path = std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path)));
        command.env("PATH", path.unwrap_or_default());
        command.env("LC_ALL", "C");
        command.env("FENCEPOST_CONFIG", "");
        command.env("FENCEPOST_STATE_DIR", self.directory.join(state));
    }

    pub fn write(&self, name: &str, text: &str) -> Result<(), DemoError> {
        let path = self.directory.join(name);
        fs::write(&path, text).map_err(failed(path.display()))
    }

    pub fn remove(&self, name: &str) -> Result<(), DemoError> {
        let path = self.directory.join(name);
        fs::remove_file(&path).map_err(failed(path.display()))
    }

    /// Reads the lines of a file. A missing file has none.
    pub fn lines(&self, name: &str) -> Result<Vec<String>, DemoError> {
        let path = self.directory.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.lines().map(str::to_string).collect()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(failed(path.display())(error)),
        }
    }
}

/// Adds what was attempted to an I/O error.
pub fn failed(about: impl Display) -> impl Fn(std::io::Error) -> DemoError {
    move |error| DemoError::Failed(format!("{about}: {error}"))
}
