//! The calls that only Linux has, and what other systems answer by a call and Linux by a file of `/proc`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::statvfs::fstatvfs;
use nix::time::ClockId;
use nix::unistd::Pid;

use super::{Errand, ProcessEntry, ProcessState, exit_now};

/// Opens an entry of a directory to inspect it, a symbolic link itself. It needs no permission on the entry.
pub const LOOK: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW);

/// The host name changes only if the administrator sets another.
pub const HOST_NAME_STAYS: bool = true;

/// The clock for deadlines. It runs through suspend, unlike `CLOCK_MONOTONIC`.
pub const BOOT_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;

/// Runs the errand in a process that shares our memory while we wait.
pub(super) fn beside(errand: &mut Errand<'_>) -> io::Result<Pid> {
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
const STACK_BYTES: usize = 64 * 1024;

/// Releases this program's code pages. The kernel has them in its page cache and maps them again when they are needed.
///
/// Starting up maps far more of them than waiting for a child needs, and they are most of a waiting process's memory.
pub fn give_back_code() {
    let here = give_back_code as fn() as usize;
    let Ok(mappings) = fs::read_to_string("/proc/self/maps") else { return };
    let Some(code) = mappings.lines().filter_map(code_range).find(|code| code.contains(&here)) else { return };
    // SAFETY: these pages hold code from a file and cannot be written, so that they come back as they were.
    unsafe { libc::madvise(code.start as *mut libc::c_void, code.len(), libc::MADV_DONTNEED) };
}

/// The addresses of a mapping, if it is code: `55d0c0a00000-55d0c0f00000 r-xp …`.
fn code_range(mapping: &str) -> Option<std::ops::Range<usize>> {
    let (range, rest) = mapping.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    rest.starts_with("r-xp ").then_some(address(start)?..address(end)?)
}

/// Makes all threads allocate from one heap. glibc would otherwise keep a heap, with what was freed there, for each thread.
pub fn share_one_heap() {
    // SAFETY: the call sets a number of the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Returns freed memory to the system. Only glibc can be asked to.
pub fn give_back_heap() {
    // SAFETY: the call takes the allocator's own locks, and touches no memory that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Whether this process has one thread.
pub fn is_single_threaded() -> bool {
    // The directory has a link for itself, one for its parent and one for each thread.
    let threads = fs::metadata("/proc/self/task").map_or(1, |task| task.nlink().saturating_sub(2));
    threads <= 1 || (threads == 2 && is_emulated())
}

/// Whether qemu-user runs this program. It has one thread of its own, which it brings safely through a fork: it forks
/// between two translated blocks, with its locks taken, and starts that thread again in the child.
///
/// qemu answers `/proc/self/exe` with the emulated program's path; by any other name the kernel shows qemu.
fn is_emulated() -> bool {
    match (fs::read_link("/proc/self/exe"), fs::read_link("/proc/thread-self/exe")) {
        (Ok(told), Ok(real)) => told != real,
        _ => false,
    }
}

/// All processes of the machine.
pub fn processes() -> io::Result<Vec<ProcessEntry>> {
    let names = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // A process that ends during the scan is not an error.
    Ok(names.filter_map(process).collect())
}

/// The processes of a process group.
pub fn group_members(group: i32) -> io::Result<Vec<ProcessEntry>> {
    Ok(processes()?.into_iter().filter(|entry| entry.group == group).collect())
}

/// All processes of the machine. One listing is enough: a group's members are among them.
pub fn processes_with_group(_: i32) -> io::Result<Vec<ProcessEntry>> {
    processes()
}

/// A process, also as a zombie; `None` if it does not exist or is hidden.
pub fn process(pid: i32) -> Option<ProcessEntry> {
    // The fields that are read come well before; one call instead of one for each doubling of a buffer.
    let mut stat = [0; 1024];
    let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut stat).ok()?;
    // A process name may contain any bytes.
    parse_stat(&String::from_utf8_lossy(&stat[..length]))
}

/// Reads the content of a `stat` file. The name is in parentheses and may contain parentheses: the last one ends it.
fn parse_stat(stat: &str) -> Option<ProcessEntry> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace();
    let letter = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let threads: u32 = fields.nth(14)?.parse().ok()?;
    let mark = fields.nth(1)?.parse().ok()?;
    let (pid, state, name) = (pid.parse().ok()?, state(letter, threads), name.to_string());
    Some(ProcessEntry { pid, parent, group, state, name, mark, parent_mark: None })
}

fn state(letter: &str, threads: u32) -> ProcessState {
    match letter {
        "T" | "t" => ProcessState::Stopped,
        "D" => ProcessState::Deep,
        // A process whose first thread has ended looks like a zombie while its other threads run.
        "Z" if threads > 1 => ProcessState::Running,
        "Z" | "X" | "x" => ProcessState::Dead,
        _ => ProcessState::Running,
    }
}

/// The user of a process; 0 if it is gone.
pub fn uid_of(pid: i32) -> u32 {
    fs::metadata(format!("/proc/{pid}")).map_or(0, |entry| entry.uid())
}

/// The names of the pid and the time namespace of this process. `None` unless `/proc` shows this process under its own
/// pid: in a new pid namespace with the old `/proc`, `/proc/<getpid()>` is another process.
pub fn namespaces() -> Option<(String, String)> {
    let stat = fs::read("/proc/self/stat").ok()?;
    let pid = std::process::id().to_string();
    stat.strip_prefix(pid.as_bytes())?.strip_prefix(b" ")?;
    let link = |name: &str| Some(fs::read_link(name).ok()?.to_string_lossy().into_owned());
    Some((link("/proc/self/ns/pid")?, link("/proc/self/ns/time")?))
}

/// The id of this machine; empty if it cannot be read.
pub fn machine_id() -> String {
    let text = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_string()
}

/// The id of this boot.
pub fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()
}

/// Writes a file or directory to the disk.
pub fn flush(file: &File) -> io::Result<()> {
    file.sync_all()
}

/// Writes the whole file system that contains a directory to the disk.
pub fn flush_file_system(directory: &Path) -> io::Result<()> {
    Ok(nix::unistd::syncfs(File::open(directory)?)?)
}

/// The bytes that a user may still write to the file system of an open file.
pub fn free_bytes(file: &File) -> io::Result<u64> {
    let found = fstatvfs(file)?;
    Ok(found.blocks_available().saturating_mul(found.fragment_size()))
}

/// Whether a cloud service copies the file to other machines, by an attribute that only macOS sets.
pub fn is_provided_by_cloud(_: &Path) -> bool {
    false
}

pub(super) fn exit_descriptor(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers. The descriptor it returns is new and owned here.
    unsafe {
        match libc::syscall(libc::SYS_pidfd_open, pid, 0) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(i32::try_from(fd).unwrap_or(-1))),
        }
    }
}

/// Linux tells no other process of forks.
pub(super) fn alarm() -> Option<OwnedFd> {
    None
}

pub(super) fn add_to_alarm(_: &OwnedFd, _: i32) {}

pub(super) fn clear_alarm(_: &OwnedFd) {}

/// An idle Linux machine does not sleep by itself.
pub(super) fn hold_awake(_: &str) -> io::Result<u32> {
    Ok(0)
}

pub(super) fn release_awake(_: u32) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, state: &str, threads: u32) -> String {
        format!("42 ({name}) {state} 7 41 41 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 {threads} 0 12345 6 7")
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read() {
        let entry = parse_stat(&stat("a) R 1 (b", "S", 1)).unwrap();
        assert_eq!((entry.pid, entry.parent, entry.group, entry.mark), (42, 7, 41, 12345));
        assert_eq!((entry.name.as_str(), entry.state), ("a) R 1 (b", ProcessState::Running));
    }

    #[test]
    fn a_zombie_is_dead_unless_other_threads_go_on() {
        assert_eq!(parse_stat(&stat("x", "Z", 1)).unwrap().state, ProcessState::Dead);
        assert_eq!(parse_stat(&stat("x", "Z", 3)).unwrap().state, ProcessState::Running);
        assert_eq!(parse_stat(&stat("x", "T", 1)).unwrap().state, ProcessState::Stopped);
        assert_eq!(parse_stat(&stat("x", "D", 1)).unwrap().state, ProcessState::Deep);
    }
}
