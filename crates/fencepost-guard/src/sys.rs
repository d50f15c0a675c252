//! The unsafe calls of this crate, each with the reason why it is sound.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
use nix::unistd::{ForkResult, Pid, fork};

/// Forks. Returns the child's pid in the parent, `None` in the child.
///
/// The caller ensures that the process has one thread.
pub(crate) fn split() -> io::Result<Option<Pid>> {
    // SAFETY: with a single thread no other thread holds a lock at this moment, so the child may allocate and lock.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

/// Exits without flushing what the parent had buffered before the fork.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes any number, and nothing after it runs.
    unsafe { libc::_exit(code) }
}

/// A program to execute: candidate paths, arguments and environment, ready for the kernel.
#[derive(Debug)]
pub(crate) struct Image {
    /// Tried in this order.
    pub(crate) paths: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
}

/// Starts the program in a new process, which first calls `settle` with all signals blocked.
///
/// The new process shares our memory until it executes the program: copying the memory would take longer than most of a
/// wrapper's work. So `settle` must neither allocate nor lock, and its errors are numbers.
///
/// The caller ensures that the process has one thread.
pub(crate) fn start(image: &Image, settle: &mut dyn FnMut() -> io::Result<()>) -> io::Result<Pid> {
    let argv = pointers(image.argv.iter());
    // A script without a `#!` line is run by the system's shell.
    let shell = [c"/bin/sh", c""].into_iter().chain(image.argv.iter().skip(1).map(CString::as_c_str));
    let shell = pointers(shell);
    let (paths, env) = (pointers(image.paths.iter()), pointers(image.env.iter()));
    let mut errand = Errand { paths, argv, shell, env, settle, errno: 0 };
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = beside(&mut errand);
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

/// Runs the errand in a process that shares our memory while we wait.
#[cfg(target_os = "linux")]
fn beside(errand: &mut Errand<'_>) -> io::Result<Pid> {
    extern "C" fn run(errand: *mut libc::c_void) -> libc::c_int {
        // SAFETY: it is the errand below, whose owner is suspended until this process is another program or gone.
        let errand = unsafe { &mut *errand.cast::<Errand<'_>>() };
        errand.errno = errand.run();
        exit_now(127)
    }
    // Uninitialised memory is enough: the stack is written before it is read.
    let mut stack = Vec::<u128>::with_capacity(STACK_BYTES / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end.cast();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the new process runs on a stack of its own, with signals blocked and thus no handler of ours, and this
    // one does not go on before it is done with our memory.
    let pid = unsafe { libc::clone(run, top, flags, std::ptr::from_mut(errand).cast()) };
    if pid == -1 { Err(io::Error::last_os_error()) } else { Ok(Pid::from_raw(pid)) }
}

/// Large enough: no function that runs there recurses.
#[cfg(target_os = "linux")]
const STACK_BYTES: usize = 64 * 1024;

/// Runs the errand in a forked copy of this process. Its error comes through a pipe, which closes when the program is
/// executed.
#[cfg(not(target_os = "linux"))]
fn beside(errand: &mut Errand<'_>) -> io::Result<Pid> {
    use std::io::{Read, Write};
    let (mut heard, mut told) = io::pipe()?;
    let Some(pid) = split()? else {
        let _ = told.write_all(&errand.run().to_ne_bytes());
        exit_now(127)
    };
    drop(told);
    let mut errno = [0; 4];
    if heard.read_exact(&mut errno).is_ok() {
        errand.errno = i32::from_ne_bytes(errno);
    }
    Ok(pid)
}

/// Ignores the signal. Returns whether it was ignored before.
pub(crate) fn ignore(signal: Signal) -> io::Result<bool> {
    dispose(signal, SigHandler::SigIgn)
}

/// Restores the signal's default action. Returns whether it was ignored before.
pub(crate) fn restore_default(signal: Signal) -> io::Result<bool> {
    dispose(signal, SigHandler::SigDfl)
}

/// Whether the signal is ignored: `nohup` and a shell's background jobs ignore some.
pub(crate) fn is_ignored(signal: i32) -> bool {
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
pub(crate) fn duplicate(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: `fcntl` refuses a number that is not open. The descriptor it returns is new and owned here.
    unsafe {
        match libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) {
            -1 => Err(io::Error::last_os_error()),
            new => Ok(OwnedFd::from_raw_fd(new)),
        }
    }
}

/// Runs a function while the signal has its default action, then restores the previous action.
pub(crate) fn with_default<T>(signal: i32, act: impl FnOnce() -> T) -> T {
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
pub(crate) fn hang_on_bus_error() -> io::Result<()> {
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
pub(crate) fn send(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: `kill` takes any two numbers and touches no memory of ours.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A state change of a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Exited(i32),
    Killed(i32),
    Stopped(i32),
    Continued,
}

/// Returns the next state change of any child without blocking: `Ok(None)` if there is none, `ECHILD` if there are no
/// children.
///
/// Decodes the raw status, because `nix` loses the status of a process that a real-time signal killed.
pub(crate) fn next_change() -> io::Result<Option<(Pid, Change)>> {
    let mut status = 0;
    // SAFETY: `status` lives across the call, which writes nothing else.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some((Pid::from_raw(pid), decode(status)))),
    }
}

/// Waits until this child has ended. Returns `None` if it is not a child of this process.
pub(crate) fn wait_for(pid: Pid) -> Option<Change> {
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
pub(crate) fn stdin() -> BorrowedFd<'static> {
    // SAFETY: the number is not -1, and no code in this crate closes it. If the process was started without it, calls
    // fail with `EBADF`.
    unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) }
}

/// Releases this program's code pages. The kernel has them in its page cache and maps them again when they are needed.
///
/// Starting up maps far more of them than waiting for a child needs, and they are most of a waiting process's memory.
#[cfg(target_os = "linux")]
pub(crate) fn give_back_code() {
    let here = give_back_code as fn() as usize;
    let Ok(mappings) = std::fs::read_to_string("/proc/self/maps") else { return };
    let Some(code) = mappings.lines().filter_map(code_range).find(|code| code.contains(&here)) else { return };
    // SAFETY: these pages hold code from a file and cannot be written, so that they come back as they were.
    unsafe { libc::madvise(code.start as *mut libc::c_void, code.len(), libc::MADV_DONTNEED) };
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn give_back_code() {}

/// The addresses of a mapping, if it is code: `55d0c0a00000-55d0c0f00000 r-xp …`.
#[cfg(target_os = "linux")]
fn code_range(mapping: &str) -> Option<std::ops::Range<usize>> {
    let (range, rest) = mapping.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    rest.starts_with("r-xp ").then_some(address(start)?..address(end)?)
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
