//! Copies a job's output to its log. A full disk does not disturb the job.
//!
//! The job writes into a named pipe, and a thread reads it. Neither a full log nor a full disk blocks the job: the
//! thread continues to read, and notes the dropped bytes in the log as soon as it can. The log file is created with the
//! first output, so a silent run makes none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fencepost_core::name::Job;
use fencepost_core::time::Wall;
use fencepost_core::token::RunId;
use fencepost_sys::free_bytes;
use fencepost_view::output::OutputTail;
use nix::fcntl::Flock;
use nix::libc::O_NONBLOCK;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::mkfifo;

use crate::backlog::{PATIENCE, PORTION_BYTES, takes_more};
use crate::logs::{self, Shelf};
use crate::place::Place;
use crate::settings::Settings;

/// Bytes that a log leaves free on its disk. A store on the same disk needs them to record the end of the run.
const RESERVE: u64 = 1024 * 1024;

/// How often a stalled reader is checked for the end of the job.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// The job's output on its way to the log.
pub struct Capture {
    pub stdout: PathBuf,
    pub stderr: PathBuf,
    shelf: Shelf,
    run: RunId,
    log: Arc<Mutex<Log>>,
    /// Signals the thread that no more output follows.
    bell: UnixStream,
    thread: Option<JoinHandle<()>>,
    /// Keeps each pipe open for writing before and after the job.
    _writers: Vec<File>,
}

/// One of the job's output streams.
struct CapturedStream {
    pipe: File,
    /// Where the stream is also printed.
    target: Option<File>,
    is_open: bool,
}

/// The log file, and the bytes missing in it.
#[derive(Default)]
struct Log {
    /// The name of the file, once the slot is known.
    path: Option<PathBuf>,
    file: Option<Flock<File>>,
    tail: OutputTail,
    max_bytes: u64,
    written: u64,
    /// Bytes dropped for lack of disk space since the last write that succeeded.
    lost: u64,
    why_lost: Option<String>,
    /// Bytes dropped beyond the log's size limit.
    beyond: u64,
    ends_in_line: bool,
}

impl Capture {
    /// Creates the pipes if the output is kept. A failure does not keep the job from running.
    pub fn prepare(settings: &Settings, place: &Place, job: &Job, run: RunId) -> io::Result<Option<Self>> {
        // Processes left running may write later, when no thread reads the pipe.
        let leaves_children = settings.options.leave_children() || settings.options.observe();
        if leaves_children || settings.options.output_on_failure() || !Shelf::is_wanted(settings) {
            return Ok(None);
        }
        let directory = place.state.join("output");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let shelf = Shelf::of(place, job, &settings.options);
        let stdout = directory.join(format!("{run}.stdout.pipe"));
        // If both streams go to one place, as under cron and `up`, one pipe preserves their order.
        let is_one = settings.by_up || is_same_file(io::stdout().as_fd(), io::stderr().as_fd());
        let stderr = if is_one { stdout.clone() } else { directory.join(format!("{run}.stderr.pipe")) };
        let target = |stream: BorrowedFd<'_>| match settings.by_up {
            true => Ok(None),
            false => stream.try_clone_to_owned().map(|fd| Some(File::from(fd))),
        };
        let mut streams = vec![CapturedStream::make(&stdout, target(io::stdout().as_fd())?)?];
        let mut writers = vec![OpenOptions::new().write(true).open(&stdout)?];
        if !is_one {
            streams.push(CapturedStream::make(&stderr, target(io::stderr().as_fd())?)?);
            writers.push(OpenOptions::new().write(true).open(&stderr)?);
        }
        let log = Arc::new(Mutex::new(Log { max_bytes: shelf.max_bytes, ends_in_line: true, ..Log::default() }));
        let (bell, rope) = UnixStream::pair()?;
        let copied = Arc::clone(&log);
        let thread =
            std::thread::Builder::new().name("log".to_string()).spawn(move || copy(streams, &rope, &copied))?;
        Ok(Some(Self { stdout, stderr, shelf, run, log, bell, thread: Some(thread), _writers: writers }))
    }

    /// Names the log by the slot that the run claimed.
    pub fn claimed(&self, slot: Wall) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).path = Some(self.shelf.path(slot, self.run));
    }

    /// Ends the capture after the job: flushes its output to the log and removes old logs. Returns the last lines.
    pub fn finish(mut self) -> Vec<String> {
        self.end();
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.close() {
            log.path.iter().for_each(|path| self.shelf.tidy(path));
        }
        log.tail.lines()
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let _ = self.bell.shutdown(std::net::Shutdown::Both);
        let _ = thread.join();
        let _ = fs::remove_file(&self.stdout);
        if self.stderr != self.stdout {
            let _ = fs::remove_file(&self.stderr);
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether two descriptors lead to the same file or pipe.
fn is_same_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    let id = |fd: BorrowedFd<'_>| fstat(fd).map(|file| (file.st_dev, file.st_ino)).ok();
    id(one).is_some() && id(one) == id(other)
}

/// Writes held-back output to the log at once. Returns the last lines.
pub fn keep_files(
    settings: &Settings,
    place: &Place,
    job: &Job,
    run: RunId,
    slot: Wall,
    files: [&Path; 2],
) -> Vec<String> {
    if !Shelf::is_wanted(settings) {
        return Vec::new();
    }
    let shelf = Shelf::of(place, job, &settings.options);
    let path = Some(shelf.path(slot, run));
    let mut log = Log { path, max_bytes: shelf.max_bytes, ends_in_line: true, ..Log::default() };
    let mut buffer = vec![0; 64 * 1024];
    for path in files {
        let Ok(mut file) = File::open(path) else { continue };
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            log.write(&buffer[..count]);
        }
    }
    if log.close() {
        log.path.iter().for_each(|path| shelf.tidy(path));
    }
    log.tail.lines()
}

impl CapturedStream {
    fn make(path: &Path, target: Option<File>) -> io::Result<Self> {
        mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        let pipe = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
        Ok(Self { pipe, target, is_open: true })
    }

    /// Copies the available output. False if there was none.
    fn pass(&mut self, buffer: &mut [u8], rope: &UnixStream, log: &Mutex<Log>) -> bool {
        match self.pipe.read(buffer) {
            Ok(0) => self.is_open = false,
            Ok(count) => {
                if self.target.as_mut().is_some_and(|target| print(target, &buffer[..count], rope).is_err()) {
                    // The reader has closed its end, or has stalled.
                    self.target = None;
                }
                log.lock().unwrap_or_else(PoisonError::into_inner).write(&buffer[..count]);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(_) => self.is_open = false,
        }
        false
    }
}

/// Prints output of the job. While the job runs, this waits for the reader as the job itself would. Once it has ended, a
/// stalled reader gets [`PATIENCE`] for each portion.
fn print(target: &mut File, bytes: &[u8], rope: &UnixStream) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        while !takes_more(target, Instant::now() + POLL_EVERY) {
            if is_rung(rope, PollTimeout::ZERO) {
                match takes_more(target, Instant::now() + PATIENCE) {
                    true => break,
                    false => return Err(io::ErrorKind::TimedOut.into()),
                }
            }
        }
        match target.write(&rest[..rest.len().min(PORTION_BYTES)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether no more output follows.
fn is_rung(rope: &UnixStream, within: PollTimeout) -> bool {
    let mut fds = [PollFd::new(rope.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, within).is_ok_and(|ready| ready > 0)
}

/// Copies until no more output follows and all of it is copied.
fn copy(mut streams: Vec<CapturedStream>, rope: &UnixStream, log: &Mutex<Log>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let is_last = {
            let mut fds: Vec<PollFd<'_>> =
                streams.iter().map(|stream| PollFd::new(stream.pipe.as_fd(), PollFlags::POLLIN)).collect();
            fds.push(PollFd::new(rope.as_fd(), PollFlags::POLLIN));
            let _ = poll(&mut fds, PollTimeout::NONE);
            fds.last().and_then(|fd| fd.revents()).is_some_and(|events| !events.is_empty())
        };
        for stream in &mut streams {
            while stream.is_open && stream.pass(&mut buffer, rope, log) {}
        }
        if is_last || streams.iter().all(|stream| !stream.is_open) {
            return;
        }
    }
}

impl Log {
    fn write(&mut self, bytes: &[u8]) {
        self.tail.push(bytes);
        self.create();
        let room = usize::try_from(self.max_bytes.saturating_sub(self.written)).unwrap_or(usize::MAX);
        let (kept, beyond) = bytes.split_at(bytes.len().min(room));
        let has_room = self.has_room(kept.len());
        if self.lost > 0 && !kept.is_empty() && has_room {
            self.say_lost();
        }
        if self.lost == 0 && !kept.is_empty() && has_room {
            self.try_write(kept);
        } else {
            self.lost += kept.len() as u64;
        }
        if !beyond.is_empty() && self.beyond == 0 && self.lost == 0 {
            let max = self.max_bytes;
            let _ = self.say(&format!("cut here: no more than {max} bytes are kept of one run (max_bytes)"));
        }
        self.beyond += beyond.len() as u64;
    }

    /// Creates the file, unless that has succeeded already.
    fn create(&mut self) {
        let Some(path) = self.path.as_ref().filter(|_| self.file.is_none()) else { return };
        match logs::create(path) {
            Ok(file) => self.file = Some(file),
            Err(error) => self.why_lost = Some(error.to_string()),
        }
    }

    /// Whether the disk keeps its reserve after writing this many bytes. True if its free space is unknown. After a
    /// loss the log goes on only with twice the reserve: otherwise smaller portions would leave a log full of gaps.
    fn has_room(&mut self, bytes: usize) -> bool {
        let Some(free) = self.file.as_ref().and_then(|file| free_bytes(file).ok()) else { return true };
        let reserve = if self.lost > 0 { 2 * RESERVE } else { RESERVE };
        let has_room = free >= reserve + bytes as u64;
        if !has_room {
            self.why_lost = Some("less than 1 MiB is free on the disk".to_string());
        }
        has_room
    }

    fn try_write(&mut self, bytes: &[u8]) {
        let Some(file) = &mut self.file else {
            self.lost += bytes.len() as u64;
            return;
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(count @ 1..) => {
                    self.ends_in_line = rest[count - 1] == b'\n';
                    self.written += count as u64;
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) => break,
                Err(error) => {
                    self.why_lost = Some(error.to_string());
                    break;
                }
            }
        }
        self.lost += rest.len() as u64;
    }

    /// Notes the dropped bytes in the log, and resets their count if that succeeds.
    fn say_lost(&mut self) {
        let why = self.why_lost.clone().unwrap_or_default();
        if self.say(&format!("cut here: {} bytes could not be written: {why}", self.lost)).is_ok() {
            self.lost = 0;
        }
    }

    /// Writes a line of fencepost's own, completely or not at all.
    fn say(&mut self, text: &str) -> io::Result<()> {
        let newline = if self.ends_in_line { "" } else { "\n" };
        let line = format!("{newline}[fencepost: {text}]\n");
        let file = self.file.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let before = file.metadata()?.len();
        file.write_all(line.as_bytes()).inspect_err(|_| drop(file.set_len(before)))?;
        self.ends_in_line = true;
        Ok(())
    }

    /// Notes the dropped bytes at the end. True if there is a log file.
    fn close(&mut self) -> bool {
        if self.lost > 0 {
            self.say_lost();
        }
        if self.beyond > 0 {
            let _ = self.say(&format!("{} more bytes were not kept", self.beyond));
        }
        self.file.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(path: &Path, max_bytes: u64) -> Log {
        Log { file: Some(logs::create(path).unwrap()), max_bytes, ends_in_line: true, ..Log::default() }
    }

    #[test]
    fn a_log_that_is_full_says_so_and_how_much_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b.log");
        let mut log = log(&path, 10);
        log.write(b"12345\n789");
        log.write(b"abc");
        log.write(b"more");
        assert!(log.close());
        let text = fs::read_to_string(&path).unwrap();
        let expected = "12345\n789a\n[fencepost: cut here: no more than 10 bytes are kept of one run (max_bytes)]\n\
                        [fencepost: 6 more bytes were not kept]\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_disk_that_is_full_for_a_while_leaves_a_line_where_something_is_missing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("b.log");
        let mut log = log(&path, 1000);
        log.write(b"before\n");
        let good = log.file.take();
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        log.file = Some(Flock::lock(full, nix::fcntl::FlockArg::LockShared).map_err(|(_, error)| error).unwrap());
        log.write(b"lost\n");
        log.write(b"lost, too\n");
        log.file = good;
        log.write(b"after\n");
        assert!(log.close());
        let text = fs::read_to_string(&path).unwrap();
        let said = "[fencepost: cut here: 15 bytes could not be written: No space left on device (os error 28)]";
        assert_eq!(text, format!("before\n{said}\nafter\n"));
    }
}
