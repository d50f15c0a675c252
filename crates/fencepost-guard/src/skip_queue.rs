//! A queue for the skipped triggers of one host: they are counted one at a time, with a pause between them.
//!
//! Counting a skip is a swap. In a store with one write lock, such as SQLite, a crowd of skipped triggers would keep
//! the lock taken, and the holder's renewal could miss its deadline. The queue leaves the store free for most of the
//! time.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use fencepost_core::time::Boot;

use crate::clock;

/// How long a skipped trigger waits in the queue. Limited, because the process ahead of it may be stopped.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pause between two attempts to get the lock, at first and at most.
const TRY_PAUSE_MIN: Duration = Duration::from_millis(2);
const TRY_PAUSE_MAX: Duration = Duration::from_millis(50);

/// For the time that one skip used the store, the store is left free this many times as long, within these bounds.
const REST_SHARES: u32 = 2;
const REST_MAX: Duration = Duration::from_millis(20);

/// The right to count a skip, until it is dropped. It only reduces load: without it the skip is counted all the same.
#[derive(Debug)]
pub struct SkipQueue {
    file: Option<File>,
    entered: Boot,
}

impl SkipQueue {
    pub fn enter(path: &Path) -> Self {
        let file = opened(path).and_then(waited_for);
        if let Some(rest) = file.as_ref().and_then(rest) {
            sleep(rest);
        }
        Self { file, entered: clock::boot_now() }
    }
}

impl Drop for SkipQueue {
    /// Tells the next process in the queue how long to pause. A trigger that comes alone does not pause.
    fn drop(&mut self) {
        let Some(file) = &mut self.file else { return };
        let now = clock::boot_now();
        let rest = (now.since(self.entered) * REST_SHARES).clamp(Duration::from_millis(1), REST_MAX);
        let _ = file.rewind().and_then(|()| file.write_all(&(now + rest).0.to_be_bytes()));
    }
}

fn opened(path: &Path) -> Option<File> {
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).ok()?;
    }
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).ok()
}

fn waited_for(file: File) -> Option<File> {
    let begun = clock::boot_now();
    let mut pause = TRY_PAUSE_MIN;
    loop {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(fs::TryLockError::WouldBlock) if clock::boot_now().since(begun) < PATIENCE => sleep(pause),
            Err(_) => return None,
        }
        pause = (pause * 2).min(TRY_PAUSE_MAX);
    }
}

/// How long the previous process asked for a pause. A time far ahead is from an earlier boot.
fn rest(mut file: &File) -> Option<Duration> {
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes).ok()?;
    let rest = Boot(u64::from_be_bytes(bytes)).since(clock::boot_now());
    (rest <= REST_MAX).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn one_is_inside_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/gate");
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let gate = SkipQueue::enter(&path);
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    sleep(Duration::from_millis(1));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(gate);
                });
            }
        });
    }

    #[test]
    fn the_next_one_rests_for_longer_than_the_last_one_took() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gate");
        let first = SkipQueue::enter(&path);
        sleep(Duration::from_millis(5));
        let left = clock::boot_now();
        drop(first);
        let second = SkipQueue::enter(&path);
        assert!(second.entered.since(left) >= Duration::from_millis(10));
    }

    #[test]
    fn a_gate_that_cannot_be_made_or_was_left_by_another_boot_keeps_nobody() {
        assert!(SkipQueue::enter(Path::new("/proc/no/such/gate")).file.is_none());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gate");
        fs::write(&path, u64::MAX.to_be_bytes()).unwrap();
        assert_eq!(rest(&opened(&path).unwrap()), None);
    }
}
