//! The calls of macOS. The layouts of their answers are in `darwin.rs`.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::statvfs::fstatvfs;
use nix::time::ClockId;
use nix::unistd::{Pid, fsync};

use super::{Errand, ProcessEntry, darwin, exit_now, split};

/// Opens an entry of a directory to inspect it, a symbolic link itself. It needs the permission to read.
pub const LOOK: OFlag = OFlag::from_bits_retain(libc::O_SYMLINK | libc::O_NONBLOCK);

/// macOS takes another host name from each network, unless the administrator has set one.
pub const HOST_NAME_STAYS: bool = false;

/// The clock for deadlines: `mach_continuous_time`. It runs through sleep and does not follow adjustments of the wall
/// clock, as `CLOCK_MONOTONIC` does here.
pub const BOOT_CLOCK: ClockId = ClockId::from_raw(libc::CLOCK_MONOTONIC_RAW);

unsafe extern "C" {
    fn pthread_is_threaded_np() -> c_int;
    fn sync_volume_np(path: *const c_char, flags: c_int) -> c_int;
}

#[link(name = "IOKit", kind = "framework")]
unsafe extern "C" {
    fn IOPMAssertionCreateWithName(kind: *const c_void, level: u32, name: *const c_void, id: *mut u32) -> c_int;
    fn IOPMAssertionRelease(id: u32) -> c_int;
}

#[link(name = "CoreFoundation", kind = "framework")]
unsafe extern "C" {
    fn CFStringCreateWithBytes(
        allocator: *const c_void,
        bytes: *const u8,
        length: isize,
        encoding: u32,
        is_external: u8,
    ) -> *const c_void;
    fn CFRelease(object: *const c_void);
}

/// Runs the errand in a forked copy of this process. Its error comes through a pipe, which closes when the program is
/// executed.
pub(super) fn beside(errand: &mut Errand<'_>) -> io::Result<Pid> {
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

/// macOS shares and drops code pages by itself.
pub fn give_back_code() {}

/// macOS has one heap for all threads.
pub fn share_one_heap() {}

/// macOS takes freed memory back when it needs it.
pub fn give_back_heap() {}

/// Whether this process has one thread.
pub fn is_single_threaded() -> bool {
    // SAFETY: the call takes nothing and reads a flag of the thread library.
    unsafe { pthread_is_threaded_np() == 0 }
}

/// All processes of the machine.
pub fn processes() -> io::Result<Vec<ProcessEntry>> {
    // SAFETY: `list` passes a buffer and its size in bytes, or a null of size 0.
    let pids = list(|buffer, bytes| unsafe { libc::proc_listallpids(buffer, bytes) })?;
    // A process that ends during the scan is not an error.
    Ok(pids.into_iter().filter_map(process).collect())
}

/// The processes of a process group.
pub fn group_members(group: i32) -> io::Result<Vec<ProcessEntry>> {
    // SAFETY: as above.
    let pids = list(|buffer, bytes| unsafe { libc::proc_listpgrppids(group, buffer, bytes) });
    // The call answers 0 for a group that does not exist, without an error that could be told apart.
    Ok(pids.unwrap_or_default().into_iter().filter_map(process).collect())
}

/// All processes of the machine, and once more those of a group: a process may be forked while all are listed.
pub fn processes_with_group(group: i32) -> io::Result<Vec<ProcessEntry>> {
    let mut all = processes()?;
    let seen: HashSet<i32> = all.iter().map(|entry| entry.pid).collect();
    all.extend(group_members(group)?.into_iter().filter(|entry| !seen.contains(&entry.pid)));
    Ok(all)
}

/// Calls with a buffer that has room for more pids than there are. The calls return a number of pids.
fn list(call: impl Fn(*mut c_void, c_int) -> c_int) -> io::Result<Vec<i32>> {
    let mut room = call(std::ptr::null_mut(), 0);
    loop {
        if room <= 0 {
            return Err(io::Error::last_os_error());
        }
        room += SPARE_PIDS;
        let mut pids = vec![0_i32; usize::try_from(room).unwrap_or(0)];
        let bytes = c_int::try_from(size_of_val(&pids[..])).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let found = call(pids.as_mut_ptr().cast(), bytes);
        if found < room {
            pids.truncate(usize::try_from(found).unwrap_or(0));
            pids.retain(|pid| *pid > 0);
            return Ok(pids);
        }
    }
}

/// Room for processes that start between the two calls.
const SPARE_PIDS: c_int = 64;

/// A process, also as a zombie; `None` if it does not exist.
pub fn process(pid: i32) -> Option<ProcessEntry> {
    let unique = info(pid, darwin::UNIQUE_INFO)?;
    let short = info(pid, darwin::SHORT_INFO)?;
    let entry = darwin::entry(&short, &unique);
    // The pid was not reused between the two calls.
    (info(pid, darwin::UNIQUE_INFO) == Some(unique)).then_some(entry)
}

/// The user of a process; 0 if it is gone.
pub fn uid_of(pid: i32) -> u32 {
    info(pid, darwin::SHORT_INFO).map_or(0, |short| darwin::uid(&short))
}

fn info<const BYTES: usize>(pid: i32, kind: c_int) -> Option<[u8; BYTES]> {
    /// Finds zombies too.
    const WITH_ZOMBIES: u64 = 1;
    let mut bytes = [0; BYTES];
    let size = c_int::try_from(BYTES).ok()?;
    // SAFETY: the buffer lives across the call and has the size that is passed.
    let read = unsafe { libc::proc_pidinfo(pid, kind, WITH_ZOMBIES, bytes.as_mut_ptr().cast(), size) };
    (read == size).then_some(bytes)
}

/// macOS has no namespaces: all processes of the machine see the same pids.
pub fn namespaces() -> Option<(String, String)> {
    Some(("none".to_string(), "none".to_string()))
}

/// The id of this machine; empty if it cannot be read.
pub fn machine_id() -> String {
    let mut id = [0; 16];
    let patience = libc::timespec { tv_sec: 5, tv_nsec: 0 };
    // SAFETY: both live across the call, which writes 16 bytes.
    match unsafe { libc::gethostuuid(id.as_mut_ptr(), &raw const patience) } {
        0 => darwin::uuid(&id),
        _ => String::new(),
    }
}

/// The id of this boot.
pub fn boot_id() -> Option<String> {
    let mut bytes = [0_u8; 64];
    let mut size = bytes.len();
    let name = c"kern.bootsessionuuid".as_ptr();
    // SAFETY: the buffer lives across the call and has the size that is passed; nothing is set.
    let read = unsafe { libc::sysctlbyname(name, bytes.as_mut_ptr().cast(), &raw mut size, std::ptr::null_mut(), 0) };
    (read == 0).then(|| darwin::text(&bytes[..size.min(bytes.len())]))
}

/// Writes a file or directory to the disk. `fsync` alone leaves it in the drive's cache. A network file system may not
/// know the stronger call; there `fsync` sends the data to the server.
pub fn flush(file: &File) -> io::Result<()> {
    let strong = fcntl(file, FcntlArg::F_FULLFSYNC).map(drop).map_err(|error| error as i32);
    darwin::flushed(strong, || Ok(fsync(file)?))
}

/// Writes the whole volume that contains a directory to the disk, and waits for it. `sync` need not wait.
pub fn flush_file_system(directory: &Path) -> io::Result<()> {
    const FULL: c_int = 1;
    const WAIT: c_int = 2;
    let path = c_path(directory)?;
    // SAFETY: the path lives across the call and ends with a NUL.
    let number = unsafe { sync_volume_np(path.as_ptr(), FULL | WAIT) };
    darwin::flushed(if number == 0 { Ok(()) } else { Err(number) }, || {
        nix::unistd::sync();
        flush(&File::open(directory)?)
    })
}

/// The bytes that a user may still write to the file system of an open file.
pub fn free_bytes(file: &File) -> io::Result<u64> {
    let found = fstatvfs(file)?;
    Ok(u64::from(found.blocks_available()).saturating_mul(found.fragment_size()))
}

/// Whether a cloud service copies the file to other machines: every file provider, iCloud's Documents and Desktop
/// included, sets an attribute.
pub fn is_provided_by_cloud(path: &Path) -> bool {
    has_attribute(path, c"com.apple.file-provider-domain-id")
}

fn has_attribute(path: &Path, name: &CStr) -> bool {
    let Ok(path) = c_path(path) else { return false };
    // SAFETY: both texts live across the call; with a null of size 0 it returns the attribute's size only.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0, 0, 0) >= 0 }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

pub(super) fn exit_descriptor(pid: i32) -> io::Result<OwnedFd> {
    let queue = queue()?;
    register(&queue, pid, libc::NOTE_EXIT)?;
    Ok(queue)
}

pub(super) fn alarm() -> Option<OwnedFd> {
    queue().ok()
}

pub(super) fn add_to_alarm(alarm: &OwnedFd, pid: i32) {
    // A process that has ended needs no watch.
    let _ = register(alarm, pid, libc::NOTE_FORK | libc::NOTE_EXIT);
}

pub(super) fn clear_alarm(alarm: &OwnedFd) {
    let mut events = [event(0, 0); 32];
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let (list, room) = (events.as_mut_ptr(), events.len() as c_int);
        // SAFETY: the list and the time live across the call, which writes at most `room` events.
        let read = unsafe { libc::kevent(alarm.as_raw_fd(), std::ptr::null(), 0, list, room, &raw const at_once) };
        if read < room {
            return;
        }
    }
}

fn queue() -> io::Result<OwnedFd> {
    // SAFETY: the call takes nothing. The descriptor it returns is new and owned here.
    let queue = unsafe {
        match libc::kqueue() {
            -1 => return Err(io::Error::last_os_error()),
            fd => OwnedFd::from_raw_fd(fd),
        }
    };
    fcntl(&queue, FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    Ok(queue)
}

fn register(queue: &OwnedFd, pid: i32, notes: u32) -> io::Result<()> {
    let change = event(usize::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?, notes);
    // SAFETY: the change lives across the call, which is given no room for events and waits for none.
    let done =
        unsafe { libc::kevent(queue.as_raw_fd(), &raw const change, 1, std::ptr::null_mut(), 0, std::ptr::null()) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn event(pid: usize, notes: u32) -> libc::kevent {
    libc::kevent {
        ident: pid,
        filter: libc::EVFILT_PROC,
        flags: libc::EV_ADD | libc::EV_CLEAR,
        fflags: notes,
        data: 0,
        udata: std::ptr::null_mut(),
    }
}

/// Call it in a process that was not forked without exec: CoreFoundation refuses to work there.
pub(super) fn hold_awake(reason: &str) -> io::Result<u32> {
    const LEVEL_ON: u32 = 255;
    let (kind, reason) = (CoreString::new("PreventUserIdleSystemSleep")?, CoreString::new(reason)?);
    let mut id = 0;
    // SAFETY: both strings and the id live across the call.
    match unsafe { IOPMAssertionCreateWithName(kind.0, LEVEL_ON, reason.0, &raw mut id) } {
        0 => Ok(id),
        error => Err(io::Error::other(format!("IOKit error {error:#x}"))),
    }
}

pub(super) fn release_awake(id: u32) {
    // SAFETY: the call takes a number, and refuses one that is not an assertion of this process.
    unsafe { IOPMAssertionRelease(id) };
}

/// A string of CoreFoundation.
struct CoreString(*const c_void);

impl CoreString {
    fn new(text: &str) -> io::Result<Self> {
        const UTF8: u32 = 0x0800_0100;
        let length = isize::try_from(text.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the bytes live across the call, which copies them.
        let made = unsafe { CFStringCreateWithBytes(std::ptr::null(), text.as_ptr(), length, UTF8, 0) };
        if made.is_null() { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(Self(made)) }
    }
}

impl Drop for CoreString {
    fn drop(&mut self) {
        // SAFETY: the string is ours and is released once.
        unsafe { CFRelease(self.0) };
    }
}
