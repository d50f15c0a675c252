//! Writes lines for a reader that may stall: nothing that renews a lease waits for it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::show;

/// Buffer limit for a stalled reader: beyond it, no further request is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Beyond this limit, events that the next one replaces are dropped.
const EVENT_BYTES_MAX: usize = 64 * 1024;

/// The lines that are to be written, by a thread of their own.
#[derive(Debug, Default)]
pub struct Outlet {
    queue: Mutex<OutletQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct OutletQueue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    is_writing: bool,
}

/// Whether a line may be dropped while the reader is stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// An answer, or an event that comes once.
    Needed,
    /// The next event of its kind says the same.
    Passing,
}

impl Outlet {
    /// Starts to write to standard output. The process ends if the reader has closed it: nothing can be told any more.
    pub fn open() -> io::Result<Arc<Self>> {
        let outlet = Arc::new(Self::default());
        let own = Arc::clone(&outlet);
        std::thread::Builder::new().name("output".to_string()).spawn(move || {
            own.write(&mut io::stdout());
            std::process::exit(0);
        })?;
        Ok(outlet)
    }

    /// Queues a line.
    pub fn put(&self, line: &impl Serialize, importance: Importance) {
        let mut bytes = show::escaped(serde_json::to_string(line).expect("our own types serialize")).into_bytes();
        bytes.push(b'\n');
        let mut queue = self.queue();
        if importance == Importance::Passing && queue.bytes > EVENT_BYTES_MAX {
            return;
        }
        queue.bytes += bytes.len();
        queue.lines.push_back(bytes);
        self.changed.notify_all();
    }

    /// Waits until a stalled reader has taken enough of the lines.
    pub fn wait_for_room(&self) {
        let queue = self.queue();
        drop(self.changed.wait_while(queue, |queue| queue.bytes > ANSWER_BYTES_MAX));
    }

    /// Waits until every line is written, for a limited time.
    pub fn finish(&self, patience: Duration) {
        let queue = self.queue();
        let _ = self.changed.wait_timeout_while(queue, patience, |queue| queue.bytes > 0 || queue.is_writing);
    }

    /// Writes lines until the reader is gone.
    fn write(&self, to: &mut impl Write) {
        loop {
            let lines = self.next();
            if self.write_out(&lines, to).is_err() {
                return;
            }
        }
    }

    /// Waits for lines, and takes all of them.
    fn next(&self) -> Vec<u8> {
        let queue = self.changed.wait_while(self.queue(), |queue| queue.lines.is_empty());
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        queue.is_writing = true;
        queue.lines.drain(..).flatten().collect()
    }

    fn write_out(&self, lines: &[u8], to: &mut impl Write) -> io::Result<()> {
        to.write_all(lines)?;
        to.flush()?;
        let mut queue = self.queue();
        queue.bytes -= lines.len();
        queue.is_writing = false;
        self.changed.notify_all();
        Ok(())
    }

    fn queue(&self) -> MutexGuard<'_, OutletQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
