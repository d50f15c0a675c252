//! Starts the job, and sets the keeper's own signals and descriptors before and after.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc::{EINVAL, ENOENT};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, chdir, close, dup2_stderr, dup2_stdin, dup2_stdout, getpid, setpgid, tcsetpgrp};

use super::control::ProcessControl;
use super::protocol::{Report, Spawn, SpawnStep};
use super::system::SystemControl;
use crate::sys::{self, Image};

/// Signal dispositions and settings that the wrapper inherited and the job must get unchanged.
#[derive(Clone, Debug)]
pub(super) struct Inherited {
    pub(super) mask: SigSet,
    pub(super) ignored: Vec<Signal>,
    /// Filled in before the job is known, while there is time.
    pub(super) env: BTreeMap<OsString, OsString>,
}

impl Inherited {
    /// Prepares this process: afterwards only its orders and KILL affect it.
    ///
    /// Its own process group also protects it from a signal to the wrapper's whole group, such as `timeout -s KILL`.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
        for signal in UNMOVED_BY {
            if sys::ignore(signal)? {
                self.ignored.push(signal);
            }
        }
        SystemControl::adopt_orphans()?;
        self.env = std::env::vars_os().collect();
        Ok(SigSet::empty().thread_set_mask()?)
    }

    /// Restores, in the child, the signals that the wrapper found. This is the last step, because they are no longer
    /// blocked after it.
    fn restore(&self) -> io::Result<()> {
        for signal in UNMOVED_BY {
            // The wrapper itself ignores these two from its start, so the setting that it found is unknown.
            if [Signal::SIGPIPE, Signal::SIGXFSZ].contains(&signal) || !self.ignored.contains(&signal) {
                sys::restore_default(signal)?;
            }
        }
        match self.ignored.contains(&Signal::SIGCHLD) {
            true => sys::ignore(Signal::SIGCHLD)?,
            false => sys::restore_default(Signal::SIGCHLD)?,
        };
        Ok(self.mask.thread_set_mask()?)
    }
}

/// Starts the job in its own process group, and returns its pid, or the report of the failure.
pub(super) fn spawn(job: &Spawn, inherited: &Inherited, control: &SystemControl) -> Result<Pid, Report> {
    let image = image(job, &inherited.env).map_err(|error| not_spawned(SpawnStep::Command, &error))?;
    let mut streams = Streams::open(job).map_err(|(step, error)| not_spawned(step, &error))?;
    let cwd = directory(job).map_err(|error| not_spawned(SpawnStep::Directory, &error))?;
    let keeper = getpid();
    let mut settle = || {
        setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
        streams.install()?;
        if let Some(directory) = &cwd {
            chdir(directory.as_c_str())?;
        }
        if !job.observed {
            control.tie(keeper)?;
        }
        if job.foreground {
            // SIGTTOU is still ignored here. Without the terminal the job still runs, as it would in the background.
            let _ = tcsetpgrp(sys::stdin(), getpid());
        }
        inherited.restore()
    };
    sys::start(&image, &mut settle).map_err(|error| not_spawned(SpawnStep::Command, &error))
}

/// Closes every descriptor that the job inherited: a reader of the job's output then sees its end.
///
/// Standard error stays open for the one line that only the keeper can write.
pub(super) fn let_go(keep: &[RawFd]) -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    drop(null);
    let open: Vec<RawFd> =
        fs::read_dir("/dev/fd")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    for fd in open {
        if fd > 2 && !keep.contains(&fd) {
            // The listing's own descriptor is among them, and is closed already.
            let _ = close(fd);
        }
    }
    Ok(())
}

/// The job's input and output, if they are not the wrapper's.
struct Streams {
    stdin: Option<File>,
    stdout: Option<File>,
    stderr: Option<File>,
}

impl Streams {
    fn open(job: &Spawn) -> Result<Self, (SpawnStep, io::Error)> {
        let append = |path: &OsString| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let outputs =
            || Ok((job.stdout.as_ref().map(append).transpose()?, job.stderr.as_ref().map(append).transpose()?));
        let (stdout, stderr) = match outputs() {
            // Without a file for its output, an observed job prints to the wrapper's output.
            Err(_) if job.observed => (None, None),
            opened => opened.map_err(|error| (SpawnStep::Output, error))?,
        };
        let stdin = job.more_to_come.then(|| File::open("/dev/null")).transpose();
        Ok(Self { stdin: stdin.map_err(|error| (SpawnStep::Command, error))?, stdout, stderr })
    }

    fn install(&mut self) -> io::Result<()> {
        self.stdin.as_ref().map(dup2_stdin).transpose()?;
        self.stdout.as_ref().map(dup2_stdout).transpose()?;
        self.stderr.as_ref().map(dup2_stderr).transpose()?;
        Ok(())
    }
}

/// Returns the directory in which the job starts, which must exist. Later, a missing directory and a missing command
/// would give the same error.
fn directory(job: &Spawn) -> io::Result<Option<CString>> {
    let Some(directory) = &job.cwd else { return Ok(None) };
    fs::metadata(Path::new(directory).join("."))?;
    text(directory).map(Some)
}

fn image(job: &Spawn, inherited: &BTreeMap<OsString, OsString>) -> io::Result<Image> {
    let program = job.argv.first().ok_or_else(|| io::Error::from_raw_os_error(ENOENT))?;
    let env = environment(job, inherited);
    let path = env.get(OsStr::new("PATH")).copied();
    Ok(Image {
        paths: places(program, path).map(|place| text(place.as_os_str())).collect::<io::Result<_>>()?,
        argv: job.argv.iter().map(|word| text(word)).collect::<io::Result<_>>()?,
        env: env.iter().map(|(name, value)| text(&variable(name, value))).collect::<io::Result<_>>()?,
    })
}

/// Merges the wrapper's environment with the job's variables, which take precedence.
fn environment<'a>(job: &'a Spawn, inherited: &'a BTreeMap<OsString, OsString>) -> BTreeMap<&'a OsStr, &'a OsStr> {
    let mut env: BTreeMap<&OsStr, &OsStr> =
        inherited.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())).collect();
    for (name, value) in &job.env {
        match value {
            Some(value) => env.insert(name, value),
            None => env.remove(name.as_os_str()),
        };
    }
    env
}

/// Lists the paths at which a shell would look for a program of this name.
fn places(program: &OsStr, path: Option<&OsStr>) -> Box<dyn Iterator<Item = PathBuf>> {
    if program.as_bytes().contains(&b'/') {
        return Box::new([PathBuf::from(program)].into_iter());
    }
    let directories: Vec<PathBuf> = std::env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin"))).collect();
    let program = program.to_os_string();
    Box::new(directories.into_iter().map(move |directory| directory.join(&program)))
}

fn variable(name: &OsStr, value: &OsStr) -> OsString {
    [name, OsStr::new("="), value].into_iter().collect()
}

fn text(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(EINVAL))
}

fn not_spawned(step: SpawnStep, error: &io::Error) -> Report {
    Report::NotSpawned { step, errno: error.raw_os_error().unwrap_or(0), text: error.to_string() }
}

/// Signals that are meant for the wrapper or the job, and reach the keeper by accident.
const UNMOVED_BY: [Signal; 12] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGPIPE,
    Signal::SIGALRM,
    Signal::SIGXFSZ,
];
