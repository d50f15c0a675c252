//! The store's own thread: a call that hangs hangs only here, while the driver keeps the deadline.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use fencepost_core::register::{Answer, StoreError};
use fencepost_core::transition::{Call, Reply};
use fencepost_store::Store;

/// What a call comes back with.
pub type Answered = Result<Answer<Reply>, StoreError>;

/// Makes one call and says what came of it.
pub fn perform(store: &dyn Store, call: &Call) -> Answered {
    match call {
        Call::Read(key) => {
            store.read(key).map(|answer| Answer { value: Reply::Read(answer.value), clock: answer.clock })
        }
        Call::Swap { key, expected, new } => store
            .swap(key, expected.as_ref(), new.as_deref())
            .map(|answer| Answer { value: Reply::Swap(answer.value), clock: answer.clock }),
    }
}

/// A thread that makes one call at a time, with a file descriptor to wait on.
#[derive(Debug)]
pub struct Worker {
    calls: Sender<Call>,
    answers: Receiver<Answered>,
    bell: UnixStream,
}

impl Worker {
    pub fn start(store: Arc<dyn Store>) -> io::Result<Self> {
        let (calls, inbox) = channel::<Call>();
        let (outbox, answers) = channel();
        let (bell, mut rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        thread::Builder::new().name("store".to_string()).stack_size(256 * 1024).spawn(move || {
            for call in inbox {
                let answer = perform(store.as_ref(), &call);
                if outbox.send(answer).is_err() || rope.write_all(&[1]).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { calls, answers, bell })
    }

    /// Hands a call to the thread. A thread that is gone shows itself by its silence, which the deadline bounds.
    pub fn call(&self, call: Call) {
        let _ = self.calls.send(call);
    }

    /// The answer, if it has come.
    pub fn answer(&mut self) -> Option<Answered> {
        let _ = self.bell.read(&mut [0; 16]);
        self.answers.try_recv().ok()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
