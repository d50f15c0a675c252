//! A task on its own thread, off the caller's loop: a slow task cannot delay a deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

#[derive(Debug)]
pub struct BackgroundTask<T> {
    result: Receiver<T>,
    /// Readable when the thread has ended.
    bell: UnixStream,
}

impl<T: Send + 'static> BackgroundTask<T> {
    pub fn start(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<Self> {
        let (outbox, result) = channel();
        let (bell, rope) = UnixStream::pair()?;
        thread::Builder::new().name(name.to_string()).spawn(move || {
            let _ = outbox.send(work());
            drop(rope);
        })?;
        Ok(Self { result, bell })
    }

    /// The result, once the thread has ended.
    pub fn result(&self) -> Option<T> {
        self.result.try_recv().ok()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
