//! Writes lines without waiting for their reader: a stalled reader, or a terminal stopped by ctrl-S, must not delay the
//! renewal of a lease or the end of a job.

use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

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
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

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
