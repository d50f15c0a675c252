//! The system calls of fencepost. All unsafe code of the product is in this crate, each block with its reason.
//!
//! This file has the calls that every system shares. What differs is in one file per system, `linux.rs` and
//! `macos.rs`, with the same functions. [`darwin`] reads the bytes that macOS returns; it is compiled and tested on
//! every system.
#![allow(unsafe_code)]

pub mod darwin;
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "macos.rs")]
mod system;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
use nix::unistd::{ForkResult, Pid, fork};

pub use system::{
    BOOT_CLOCK, HOST_NAME_STAYS, LOOK, boot_id, flush, flush_file_system, free_bytes, give_back_code, give_back_heap,
    group_members, is_provided_by_cloud, is_single_threaded, machine_id, namespaces, process, processes,
    processes_with_group, share_one_heap, uid_of,
};

/// Forks. Returns the child's pid in the parent, `None` in the child.
///
/// The caller ensures that the process has one thread.
pub fn split() -> io::Result<Option<Pid>> {
    // SAFETY: with a single thread no other thread holds a lock at this moment, so the child may allocate and lock.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// Exits without flushing what the parent had buffered before the fork.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes any number, and nothing after it runs.
    unsafe { libc::_exit(code) }
}

/// A program to execute: candidate paths, arguments and environment, ready for the kernel.
#[derive(Debug)]
pub struct Image {
    /// Tried in this order.
    pub paths: Vec<CString>,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
}

/// Starts the program in a new process, which first calls `settle` with all signals blocked.
///
/// The new process shares our memory until it executes the program: copying the memory would take longer than most of a
/// wrapper's work. So `settle` must neither allocate nor lock, and its errors are numbers.
///
/// The caller ensures that the process has one thread.
pub fn start(image: &Image, settle: &mut dyn FnMut() -> io::Result<()>) -> io::Result<Pid> {
    let argv = pointers(image.argv.iter());
    // A script without a `#!` line is run by the system's shell.
    let shell = [c"/bin/sh", c""].into_iter().chain(image.argv.iter().skip(1).map(CString::as_c_str));
    let shell = pointers(shell);
    let (paths, env) = (pointers(image.paths.iter()), pointers(image.env.iter()));
    let mut errand = Errand { paths, argv, shell, env, settle, errno: 0 };
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = system::beside(&mut errand);
    before.thread_set_mask()?;
    let pid = started?;
    if errand.errno == 0 {
        return Ok(pid);
    }
    wait_for(pid);
    Err(io::Error::from_raw_os_error(errand.errno))
}

/// The work of the new process, and its error.
struct Errand<'a> {
    paths: Vec<*const libc::c_char>,
    argv: Vec<*const libc::c_char>,
    shell: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    settle: &'a mut dyn FnMut() -> io::Result<()>,
    errno: i32,
}

fn pointers<S: AsRef<CStr>>(texts: impl Iterator<Item = S>) -> Vec<*const libc::c_char> {
    texts.map(|text| text.as_ref().as_ptr()).chain([std::ptr::null()]).collect()
}

impl Errand<'_> {
    /// Executes the program. Returns the error number if that fails.
    fn run(&mut self) -> i32 {
        if let Err(error) = (self.settle)() {
            return error.raw_os_error().unwrap_or(libc::EINVAL);
        }
        let mut refused = libc::ENOENT;
        for at in 0..self.paths.len() - 1 {
            let path = self.paths[at];
            // SAFETY: the texts outlive this process's use of them, and both lists end with a null.
            unsafe { libc::execve(path, self.argv.as_ptr(), self.env.as_ptr()) };
            match Errno::last_raw() {
                libc::ENOEXEC => {
                    self.shell[1] = path;
                    // SAFETY: as above; the shell's path is its own first argument.
                    unsafe { libc::execve(self.shell[0], self.shell.as_ptr(), self.env.as_ptr()) };
                    return Errno::last_raw();
                }
                libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
                libc::EACCES => refused = libc::EACCES,
                other => return other,
            }
        }
        refused
    }
}

/// Sets a variable of this process's environment.
///
/// The caller ensures that the process has one thread.
pub fn set_variable(name: &str, value: &str) {
    // SAFETY: with a single thread nothing else reads the environment at this moment.
    unsafe { std::env::set_var(name, value) };
}

/// Ignores the signal. Returns whether it was ignored before.
pub fn ignore(signal: Signal) -> io::Result<bool> {
    dispose(signal, SigHandler::SigIgn)
}

/// Restores the signal's default action. Returns whether it was ignored before.
pub fn restore_default(signal: Signal) -> io::Result<bool> {
    dispose(signal, SigHandler::SigDfl)
}

/// Whether the signal is ignored: `nohup` and a shell's background jobs ignore some.
pub fn is_ignored(signal: i32) -> bool {
    Signal::try_from(signal).is_ok_and(|signal| {
        dispose(signal, SigHandler::SigDfl).is_ok_and(|ignored| {
            if ignored {
                let _ = dispose(signal, SigHandler::SigIgn);
            }
            ignored
        })
    })
}

/// Duplicates a descriptor.
pub fn duplicate(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: `fcntl` refuses a number that is not open. The descriptor it returns is new and owned here.
    unsafe {
        match libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) {
            -1 => Err(io::Error::last_os_error()),
            new => Ok(OwnedFd::from_raw_fd(new)),
        }
    }
}

/// Runs a function while the signal has its default action, then restores the previous action.
pub fn with_default<T>(signal: i32, act: impl FnOnce() -> T) -> T {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action is the kernel's own.
    let before = Signal::try_from(signal).and_then(|signal| unsafe { sigaction(signal, &default) });
    let done = act();
    if let (Ok(before), Ok(signal)) = (before, Signal::try_from(signal)) {
        // SAFETY: this restores the action that was installed a moment ago.
        let _ = unsafe { sigaction(signal, &before) };
    }
    done
}

/// Makes a store call that hits a bus error hang instead of ending the process.
///
/// A memory-mapped file, such as SQLite's index, reports a failing or read-only disk as SIGBUS and not as an error
/// code. A hung call is what the deadline handles: the job is terminated in order, and the lease ends. On the thread
/// that calls this function the process ends, because no other thread would continue.
pub fn hang_on_bus_error() -> io::Result<()> {
    FIRST_THREAD.store(this_thread(), Ordering::Relaxed);
    let action = SigAction::new(SigHandler::Handler(on_bus_error), SaFlags::SA_ONSTACK, SigSet::empty());
    // SAFETY: the handler makes calls that are allowed in one only, and never returns into what failed.
    unsafe { sigaction(Signal::SIGBUS, &action) }?;
    Ok(())
}

static FIRST_THREAD: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_bus_error(_: libc::c_int) {
    if this_thread() == FIRST_THREAD.load(Ordering::Relaxed) {
        const SENTENCE: &[u8] =
            b"fencepost: a file of the store can no longer be read or written (bus error), and what was \
            being recorded may be missing. See whether its disk is full or gone, then what fencepost status says.\n";
        // SAFETY: the buffer is static and its length its own.
        unsafe { libc::write(libc::STDERR_FILENO, SENTENCE.as_ptr().cast(), SENTENCE.len()) };
        exit_now(125);
    }
    loop {
        // SAFETY: `pause` takes nothing and touches nothing.
        unsafe { libc::pause() };
    }
}

fn this_thread() -> usize {
    // SAFETY: `pthread_self` takes nothing and always succeeds.
    unsafe { libc::pthread_self() as usize }
}

/// Sends a signal by number, because real-time signals have no name in `nix`. A negative pid is a group.
pub fn send(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: `kill` takes any two numbers and touches no memory of ours.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A state change of a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Exited(i32),
    Killed(i32),
    Stopped(i32),
    Continued,
}

/// Returns the next state change of any child without blocking: `Ok(None)` if there is none, `ECHILD` if there are no
/// children.
///
/// Decodes the raw status, because `nix` loses the status of a process that a real-time signal killed.
pub fn next_change() -> io::Result<Option<(Pid, Change)>> {
    let mut status = 0;
    // SAFETY: `status` lives across the call, which writes nothing else.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some((Pid::from_raw(pid), decode(status)))),
    }
}

/// Returns the next state change of one child without blocking. An ended child stays a zombie, so its pid and its
/// process group keep their numbers until [`reap`].
pub fn peek_change(pid: Pid) -> io::Result<Option<Change>> {
    // The other order fails: the kernel does not count a zombie among the children that can stop.
    match wait_status(pid, libc::WEXITED | libc::WNOWAIT | libc::WNOHANG)? {
        Some(change) => Ok(Some(change)),
        None => match wait_status(pid, libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG) {
            // It ended since.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            change => change,
        },
    }
}

/// Waits until this child has ended, and leaves it a zombie: its pid is not reused.
pub fn wait_until_ended(pid: Pid) {
    while wait_status(pid, libc::WEXITED | libc::WNOWAIT).is_err_and(|error| error.kind() == io::ErrorKind::Interrupted)
    {
    }
}

fn wait_status(pid: Pid, kinds: libc::c_int) -> io::Result<Option<Change>> {
    // SAFETY: zero is a value of every field. The kernel leaves it so if there is nothing to report.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let id = libc::id_t::try_from(pid.as_raw()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `info` lives across the call, which writes nothing else.
    if unsafe { libc::waitid(libc::P_PID, id, &raw mut info, kinds) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `waitid` fills in the fields of SIGCHLD, or leaves the zeros.
    let (found, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok((found != 0).then_some(match info.si_code {
        libc::CLD_EXITED => Change::Exited(status),
        libc::CLD_STOPPED => Change::Stopped(status),
        libc::CLD_CONTINUED => Change::Continued,
        _ => Change::Killed(status),
    }))
}

/// Reaps this child if it has ended. Does not wait.
pub fn reap(pid: Pid) {
    let mut status = 0;
    // SAFETY: `status` lives across the call, which writes nothing else.
    unsafe { libc::waitpid(pid.as_raw(), &raw mut status, libc::WNOHANG) };
}

/// Waits until this child has ended. Returns `None` if it is not a child of this process.
pub fn wait_for(pid: Pid) -> Option<Change> {
    let mut status = 0;
    loop {
        // SAFETY: `status` lives across the call, which writes nothing else.
        match unsafe { libc::waitpid(pid.as_raw(), &raw mut status, 0) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return None,
            _ => return Some(decode(status)),
        }
    }
}

/// Standard input, borrowed without setting up its buffer.
pub fn stdin() -> BorrowedFd<'static> {
    // SAFETY: the number is not -1, and no code in this crate closes it. If the process was started without it, calls
    // fail with `EBADF`.
    unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) }
}

/// A process as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEntry {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub state: ProcessState,
    pub name: String,
    /// A number that tells this process from an earlier or later one with the same pid: the start time on Linux, the
    /// kernel's unique id on macOS.
    pub mark: u64,
    /// The mark of the process that forked this one, also after that process has ended. Linux does not keep it.
    pub parent_mark: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    Running,
    Stopped,
    /// In uninterruptible sleep: signals stay pending.
    Deep,
    /// A zombie.
    Dead,
}

/// Becomes readable when a process has ended.
#[derive(Debug)]
pub struct ExitWatch(OwnedFd);

impl ExitWatch {
    /// Fails with ESRCH if there is no such process.
    pub fn of(pid: i32) -> io::Result<Self> {
        system::exit_descriptor(pid).map(Self)
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Tells when watched processes fork or end, where the system can: a caller looks at intervals too.
#[derive(Debug, Default)]
pub struct ProcessAlarm(Option<OwnedFd>);

impl ProcessAlarm {
    pub fn watch(&mut self, pid: i32) {
        if self.0.is_none() {
            self.0 = system::alarm();
        }
        if let Some(alarm) = &self.0 {
            system::add_to_alarm(alarm, pid);
        }
    }

    /// Becomes readable.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }

    /// Forgets what was told.
    pub fn clear(&self) {
        if let Some(alarm) = &self.0 {
            system::clear_alarm(alarm);
        }
    }
}

/// Keeps a Mac from going to sleep while this exists and the lid is open. Other systems do nothing.
///
/// The system releases it if this process dies.
#[derive(Debug)]
pub struct Awake(u32);

impl Awake {
    pub fn hold(reason: &str) -> io::Result<Self> {
        // Tests see a failure and a success that no other system than macOS has. Release builds do not read it.
        #[cfg(debug_assertions)]
        match std::env::var("FENCEPOST_TEST_AWAKE").as_deref() {
            Ok("fail") => return Err(io::Error::other("a test made it fail")),
            Ok(file) => std::fs::write(file, reason)?,
            Err(_) => {}
        }
        system::hold_awake(reason).map(Self)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        system::release_awake(self.0);
    }
}

fn dispose(signal: Signal, handler: SigHandler) -> io::Result<bool> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: both actions are the kernel's own; no handler of ours is installed that could run at a bad moment.
    let before = unsafe { sigaction(signal, &action) }?;
    Ok(matches!(before.handler(), SigHandler::SigIgn))
}

fn decode(status: i32) -> Change {
    if libc::WIFEXITED(status) {
        Change::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSTOPPED(status) {
        Change::Stopped(libc::WSTOPSIG(status))
    } else if libc::WIFCONTINUED(status) {
        Change::Continued
    } else {
        Change::Killed(libc::WTERMSIG(status))
    }
}
