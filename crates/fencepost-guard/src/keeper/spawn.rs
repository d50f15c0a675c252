//! How the keeper starts the job, and what it makes of itself before and after.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, close, dup2_stdin, dup2_stdout, getpid, setpgid, tcsetpgrp};

use super::protocol::{Report, Spawn, SpawnStep};
use super::tree;
use crate::sys;

/// What whoever started the wrapper had set for it, and the job is to find unchanged.
#[derive(Clone, Debug)]
pub(super) struct Inherited {
    pub(super) mask: SigSet,
    pub(super) ignored: Vec<Signal>,
}

impl Inherited {
    /// Makes this process one that nothing but its orders and KILL moves.
    ///
    /// In a process group of its own it also outlives whoever kills the wrapper's whole group, as `timeout -s KILL`
    /// does, and is not stopped with it.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
        for signal in UNMOVED_BY {
            if sys::ignore(signal)? {
                self.ignored.push(signal);
            }
        }
        tree::become_subreaper()?;
        tree::name_process(c"fencepost-keep");
        Ok(SigSet::empty().thread_set_mask()?)
    }

    /// In the forked child: the signals as the wrapper found them.
    fn restore(&self) -> io::Result<()> {
        for signal in UNMOVED_BY {
            // Every Rust program starts with SIGPIPE ignored, so that what the wrapper found is not known.
            if signal == Signal::SIGPIPE || !self.ignored.contains(&signal) {
                sys::restore_default(signal)?;
            }
        }
        if self.ignored.contains(&Signal::SIGCHLD) {
            sys::ignore(Signal::SIGCHLD)?;
        }
        Ok(self.mask.thread_set_mask()?)
    }
}

/// Starts the job in a process group of its own, and returns its pid; or the report of why not.
pub(super) fn spawn(job: &Spawn, inherited: &Inherited) -> Result<Pid, Report> {
    let mut command = prepare(job).map_err(|(step, error)| not_spawned(step, &error))?;
    let (keeper, foreground, inherited) = (getpid(), job.foreground, inherited.clone());
    sys::before_exec(&mut command, move || {
        tree::die_with_parent(keeper)?;
        if foreground {
            // SIGTTOU is still ignored here. Without the terminal the job still runs, as it would in the background.
            let _ = tcsetpgrp(sys::stdin(), getpid());
        }
        inherited.restore()
    });
    let child = command.spawn().map_err(|error| not_spawned(SpawnStep::Command, &error))?;
    Ok(Pid::from_raw(child.id().cast_signed()))
}

/// Lets go of everything that the job inherited, so that whoever reads the job's output sees it end.
///
/// Standard error stays for the one line that only the keeper can write.
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

fn prepare(job: &Spawn) -> Result<Command, (SpawnStep, io::Error)> {
    let (program, arguments) =
        job.argv.split_first().ok_or_else(|| (SpawnStep::Command, io::Error::from_raw_os_error(nix::libc::ENOENT)))?;
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    for (name, value) in &job.env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(directory) = &job.cwd {
        // Otherwise a missing directory and a missing command would fail alike.
        fs::metadata(Path::new(directory).join(".")).map_err(|error| (SpawnStep::Directory, error))?;
        command.current_dir(directory);
    }
    if job.more_to_come {
        command.stdin(Stdio::null());
    }
    if let Some(path) = &job.stdout {
        command.stdout(append(path)?);
    }
    if let Some(path) = &job.stderr {
        command.stderr(append(path)?);
    }
    Ok(command)
}

fn append(path: &OsStr) -> Result<Stdio, (SpawnStep, io::Error)> {
    let file: io::Result<File> = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    file.map(Stdio::from).map_err(|error| (SpawnStep::Output, error))
}

fn not_spawned(step: SpawnStep, error: &io::Error) -> Report {
    Report::NotSpawned { step, errno: error.raw_os_error().unwrap_or(0), text: error.to_string() }
}

/// Signals that mean the wrapper or the job, and reach the keeper by accident.
const UNMOVED_BY: [Signal; 11] = [
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
];
