//! Store calls off the main loop, so that a hung call cannot delay lease enforcement.
//!
//! While a command runs, calls are made on a thread. Otherwise a prompt store, as the embedded one is, is called directly: it
//! answers within bounds, and a thread costs more than the call.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use fencepost_core::register::{Answer, StoreError, Trouble};
use fencepost_core::transition::{Call, Reply};
use fencepost_store::Store;

/// What a call comes back with.
pub type Answered = Result<Answer<Reply>, StoreError>;

/// Makes one call and says what came of it.
pub fn perform(store: &dyn Store, call: &Call) -> Answered {
    match call {
        Call::Read(key) => store.read(key).map(|answer| answer.map(Reply::Read)),
        Call::Swap { key, expected, new } => {
            store.swap(key, expected.as_ref(), Some(new)).map(|answer| answer.map(Reply::Swap))
        }
    }
}

/// A store to be called.
#[derive(Clone)]
pub struct Callee {
    pub store: Arc<dyn Store>,
    /// A call ends within seconds: the caller may wait for it while nothing is guarded.
    pub is_prompt: bool,
}

impl std::fmt::Debug for Callee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callee").field("is_prompt", &self.is_prompt).finish_non_exhaustive()
    }
}

/// Makes one call at a time, here or on a thread of its own.
#[derive(Debug)]
pub struct CallWorker {
    callee: Callee,
    /// The answer to a call that was made here.
    answered: Option<Answered>,
    /// Started by the first call that must not block the loop.
    thread: Option<Thread>,
}

impl CallWorker {
    pub fn new(callee: Callee) -> Self {
        Self { callee, answered: None, thread: None }
    }

    /// Makes a call. While a command runs the loop does not wait for it.
    pub fn call(&mut self, call: Call, is_guarding: bool) {
        if self.callee.is_prompt && !is_guarding {
            self.answered = Some(perform(self.callee.store.as_ref(), &call));
            return;
        }
        if let Err(error) = self.thread().map(|thread| thread.send(call)) {
            let detail = format!("No thread can be started to call the store: {error}; nothing was changed.");
            self.answered = Some(Err(StoreError::not_done(Trouble::Unavailable, detail)));
        }
    }

    /// The answer, if it has come.
    pub fn answer(&mut self) -> Option<Answered> {
        self.answered.take().or_else(|| self.thread.as_mut().and_then(Thread::answer))
    }

    /// Whether there is an answer without waiting for [`Self::fd`].
    pub fn has_answered(&self) -> bool {
        self.answered.is_some()
    }

    /// What becomes readable when an answer comes.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.thread.as_ref().map(|thread| thread.bell.as_fd())
    }

    fn thread(&mut self) -> io::Result<&mut Thread> {
        if self.thread.is_none() {
            self.thread = Some(Thread::start(Arc::clone(&self.callee.store))?);
        }
        Ok(self.thread.as_mut().expect("it was started just now"))
    }
}

/// A thread that makes one call at a time, with a file descriptor to wait on.
#[derive(Debug)]
struct Thread {
    calls: Sender<Call>,
    answers: Receiver<Answered>,
    bell: UnixStream,
}

impl Thread {
    fn start(store: Arc<dyn Store>) -> io::Result<Self> {
        let (calls, inbox) = channel::<Call>();
        let (outbox, answers) = channel();
        let (bell, mut rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        thread::Builder::new().name("store".to_string()).stack_size(256 * 1024).spawn(move || {
            for call in inbox {
                if outbox.send(perform(store.as_ref(), &call)).is_err() || rope.write_all(&[1]).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { calls, answers, bell })
    }

    /// Hands a call to the thread. A thread that is gone shows itself by its silence, which the deadline bounds.
    fn send(&self, call: Call) {
        let _ = self.calls.send(call);
    }

    fn answer(&mut self) -> Option<Answered> {
        let _ = self.bell.read(&mut [0; 16]);
        self.answers.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::name::Key;
    use fencepost_core::register::Swapped;
    use fencepost_store::{Entry, MemoryStore, Version};
    use std::sync::Mutex;
    use std::thread::ThreadId;
    use std::time::{Duration, Instant};

    /// A store that notes on which thread it was called.
    struct Noting {
        store: MemoryStore,
        callers: Mutex<Vec<ThreadId>>,
    }

    impl Store for Noting {
        fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
            self.callers.lock().unwrap().push(thread::current().id());
            self.store.read(key)
        }

        fn swap(&self, key: &Key, old: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
            self.callers.lock().unwrap().push(thread::current().id());
            self.store.swap(key, old, new)
        }

        fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
            self.store.scan(prefix, after, limit)
        }
    }

    fn worker(is_prompt: bool) -> (Arc<Noting>, CallWorker) {
        let store = Arc::new(Noting { store: MemoryStore::new(), callers: Mutex::default() });
        let worker = CallWorker::new(Callee { store: Arc::clone(&store) as Arc<dyn Store>, is_prompt });
        (store, worker)
    }

    fn waited_for<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let begun = Instant::now();
        loop {
            match look() {
                None if begun.elapsed() < Duration::from_secs(5) => thread::sleep(Duration::from_millis(1)),
                found => return found,
            }
        }
    }

    #[test]
    fn only_a_prompt_store_is_waited_for_and_only_while_nothing_is_guarded() {
        let read = || Call::Read(Key::identity());
        for (is_prompt, is_guarding, is_here) in
            [(true, false, true), (true, true, false), (false, false, false), (false, true, false)]
        {
            let (store, mut worker) = worker(is_prompt);
            worker.call(read(), is_guarding);
            assert_eq!((worker.has_answered(), worker.fd().is_none()), (is_here, is_here));
            assert!(waited_for(|| worker.answer()).expect("an answer").is_ok());
            let is_caller_here = store.callers.lock().unwrap().as_slice() == [thread::current().id()];
            assert_eq!(is_caller_here, is_here, "prompt {is_prompt}, guarding {is_guarding}");
        }
    }
}
