//! The shell of fencepost: all code that touches the operating system.
//!
//! * [`clock`]: the only code that reads the clocks.
//! * [`host`]: this system, and whether a holder on it is dead.
//! * [`state`], [`trust`], [`password`]: the state directory of this user, whether a path may be trusted, the store's password.
//! * [`local`]: what this host remembers about jobs, beside the store.
//! * [`transact`]: single changes of a record.
//! * [`skip_queue`]: counts skips one at a time, which leaves the store free for the holder.
//! * [`retention`]: deletes the history of a job when it is old.
//! * [`spawned_run`]: a run that `up` started as a process, and the events it writes.
//! * [`drive`]: the loop that performs what a run decides.
//! * [`child`], [`hold`], [`program`]: the work that a lease guards: a command, a caller, or the program itself.
//! * [`artifact`], [`pin`]: files as a run finds and leaves them, and copies of what it reads.
//! * [`definition`]: scripts and prompts that a command names, by digest.
//! * [`upstream_check`]: looks at upstreams and files while the lease is renewed.
//! * [`once`]: an item of work that a program does once, itself.
//! * [`unguarded`]: a command without a lease.
//! * [`registry`]: by which commands inside a run find it without environment variables.
//! * [`report_file`]: the private file in which a job reports its outcome.
//! * `call`: webhook calls.
//! * [`publish`]: fenced writes, a module per target.
//! * [`keeper`]: the process that runs the job and ends it by its deadline, even if the wrapper dies.
//! * [`terminal`]: whether the job or the calling shell reads from the terminal.

pub mod artifact;
#[cfg(feature = "http")]
pub mod call;
pub mod child;
pub mod clock;
pub mod definition;
pub mod descriptor;
pub mod drive;
pub mod forget;
pub mod hold;
pub mod host;
pub mod keeper;
pub mod local;
pub mod once;
pub mod password;
pub mod pin;
pub mod program;
pub mod publish;
pub mod registry;
pub mod report_file;
pub mod retention;
pub mod run_state;
pub mod signals;
pub mod skip_queue;
pub mod spawned_run;
pub mod state;
pub mod terminal;
pub mod transact;
pub mod trust;
pub mod unguarded;
pub mod upstream_check;
pub mod waiting;

mod checks;
mod task;
mod without_keeper;
mod worker;

use fencepost_core::record::Record;
use fencepost_sys as sys;
use nix::libc::SIGCONT;
use nix::sys::signal::Signal;

/// Makes a write beyond the limit on file sizes (`ulimit -f`) an error, EFBIG, instead of the death of this process by
/// SIGXFSZ. A job gets the signal's default action back.
pub fn survive_file_size_limit() {
    // It can only fail for a signal that does not exist.
    let _ = sys::ignore(Signal::SIGXFSZ);
}

/// Sets a variable of this process's environment. The caller ensures that the process has one thread.
pub fn set_variable(name: &str, value: &str) {
    sys::set_variable(name, value);
}

/// Makes a holder on this host look at its record now instead of at its next renewal. A process that was not stopped
/// only takes notice of SIGCONT.
pub fn nudge(host: &host::Host, record: &Record) {
    let holder = record.lease.as_ref().map(|lease| &lease.holder);
    if let Some(pid) = holder.filter(|holder| host.knows_alive(holder)).and_then(|holder| holder.pid()) {
        let _ = sys::send(pid, SIGCONT);
    }
}
