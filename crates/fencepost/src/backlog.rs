//! Writes lines without waiting for their reader: a stalled reader, or a terminal stopped by ctrl-S, must not delay the
//! renewal of a lease or the end of a job.

use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::FD_SETSIZE;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::select::{FdSet, select};
use nix::sys::time::TimeVal;

/// Size of one write. A pipe that is writable has room for this much.
pub const PORTION_BYTES: usize = 4096;

/// Buffer limit for a stalled reader; further lines are dropped.
const BACKLOG_BYTES_MAX: usize = 1 << 20;

/// How long the last lines wait for a stalled reader.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Lines whose reader has not taken them yet.
#[derive(Debug, Default)]
pub struct Backlog {
    pending: Vec<u8>,
}

impl Backlog {
    pub const fn new() -> Self {
        Self { pending: Vec::new() }
    }

    /// Writes as much of the line as the reader takes at once. The rest is buffered, and written before the next line.
    pub fn put(&mut self, line: &str, to: &mut (impl Write + AsFd)) -> std::io::Result<()> {
        if self.pending.len() + line.len() < BACKLOG_BYTES_MAX {
            self.pending.extend_from_slice(line.as_bytes());
            self.pending.push(b'\n');
        }
        self.pour(to, Duration::ZERO)
    }

    /// Writes the buffered rest, and waits at most `patience` for the reader.
    pub fn pour(&mut self, to: &mut (impl Write + AsFd), patience: Duration) -> std::io::Result<()> {
        let until = Instant::now() + patience;
        while !self.pending.is_empty() && takes_more(to, until) {
            match to.write(&self.pending[..self.pending.len().min(PORTION_BYTES)]) {
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.pending.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Waits until the deadline for the descriptor to become writable; an error counts as writable.
pub fn takes_more(to: &impl AsFd, until: Instant) -> bool {
    let mut fds = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
    loop {
        let patience = until.saturating_duration_since(Instant::now());
        match poll(&mut fds, PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX)) {
            Err(Errno::EINTR) => {}
            Ok(_) if is_unknown(&fds[0]) => return select_takes_more(to, until),
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

/// macOS cannot poll `/dev/tty`, and says so as of a descriptor that is not open.
fn is_unknown(fd: &PollFd<'_>) -> bool {
    fd.revents().is_some_and(|found| found.contains(PollFlags::POLLNVAL))
}

/// Asks the older call. It knows every device, but only low descriptors; a higher one counts as writable.
fn select_takes_more(to: &impl AsFd, until: Instant) -> bool {
    if to.as_fd().as_raw_fd() >= i32::try_from(FD_SETSIZE).unwrap_or(i32::MAX) {
        return true;
    }
    loop {
        let patience = until.saturating_duration_since(Instant::now());
        let seconds = i64::try_from(patience.as_secs()).unwrap_or(i64::MAX);
        let mut timeout = TimeVal::new(seconds, patience.subsec_micros().cast_signed().into());
        let mut writable = FdSet::new();
        writable.insert(to.as_fd());
        match select(None, None, &mut writable, None, &mut timeout) {
            Err(Errno::EINTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use std::io::Read;

    #[test]
    fn select_tells_a_full_pipe_from_one_with_room() {
        let (reader, writer) = std::io::pipe().unwrap();
        let soon = || Instant::now() + Duration::from_millis(20);
        assert!(select_takes_more(&writer, soon()));
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        while (&writer).write(&[0; 4096]).is_ok() {}
        assert!(!select_takes_more(&writer, soon()));
        drop(reader);
        assert!(select_takes_more(&writer, soon()), "an error counts as writable");
    }

    #[test]
    fn a_reader_who_does_not_read_is_not_waited_for_and_misses_nothing() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let mut backlog = Backlog::new();
        let lines: Vec<String> = (0..3000).map(|number| format!("{number:050}")).collect();
        for line in &lines {
            backlog.put(line, &mut writer).unwrap();
        }
        assert!(!backlog.pending.is_empty(), "more than a pipe holds");
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        backlog.pour(&mut writer, Duration::from_secs(60)).unwrap();
        drop(writer);
        assert_eq!(reading.join().unwrap().lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_reader_who_never_reads_is_given_up() {
        let (_reader, mut writer) = std::io::pipe().unwrap();
        let mut backlog = Backlog::new();
        (0..60_000).for_each(|_| backlog.put(&"x".repeat(49), &mut writer).unwrap());
        assert!(backlog.pending.len() <= BACKLOG_BYTES_MAX);
        backlog.pour(&mut writer, Duration::from_millis(10)).unwrap();
        assert!(!backlog.pending.is_empty());
    }

    #[test]
    fn a_reader_who_is_gone_is_an_error() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        drop(reader);
        let failed = Backlog::new().put("x", &mut writer).unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::BrokenPipe);
    }
}
