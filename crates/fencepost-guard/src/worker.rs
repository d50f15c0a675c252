//! Calls to the store, so that one that hangs delays nobody who has something to keep.
//!
//! While something is guarded, calls are made on a thread of their own. While nothing is, the embedded store is called
//! right here: it answers within bounds, and starting a thread to wait for it costs more than what it does.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use fencepost_core::ledger::Attempt;
use fencepost_core::register::{Answer, StoreError, Swapped, Trouble};
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

fn is_won(answered: &Answered) -> bool {
    matches!(answered, Ok(Answer { value: Reply::Swap(Swapped::Won(_)), .. }))
}

/// A store to be called.
#[derive(Clone)]
pub struct Callee {
    pub store: Arc<dyn Store>,
    /// It is the embedded one: a call to it ends within seconds, whatever others do.
    pub is_embedded: bool,
}

impl std::fmt::Debug for Callee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callee").field("is_embedded", &self.is_embedded).finish_non_exhaustive()
    }
}

/// Makes one call at a time, here or on a thread of its own.
#[derive(Debug)]
pub struct Worker {
    callee: Callee,
    /// The answer to a call that was made here.
    answered: Option<Answered>,
    /// Started by the first call that nobody may wait for.
    thread: Option<Thread>,
}

impl Worker {
    pub fn new(callee: Callee) -> Self {
        Self { callee, answered: None, thread: None }
    }

    /// Makes a call. While something is guarded nobody waits for it.
    pub fn call(&mut self, call: Call, is_guarding: bool) {
        if self.callee.is_embedded && !is_guarding {
            self.thread.iter().for_each(Thread::put_off);
            self.answered = Some(perform(self.callee.store.as_ref(), &call));
            return;
        }
        if let Err(error) = self.thread().map(|thread| thread.send(Errand::Call(call))) {
            let detail = format!("No thread can be started to call the store: {error}; nothing was changed.");
            self.answered = Some(Err(StoreError::not_done(Trouble::Unavailable, detail)));
        }
    }

    /// Makes a call that puts an attempt into the history. Nobody waits for it.
    pub fn set_aside(&mut self, attempt: Attempt, call: Call) {
        if let Ok(thread) = self.thread() {
            thread.send(Errand::SetAside(attempt, call));
        }
    }

    /// The attempts that have come into the history since this was asked last.
    pub fn asides(&self) -> impl Iterator<Item = Attempt> {
        self.thread.iter().flat_map(|thread| thread.asides.try_iter())
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
    errands: Sender<Errand>,
    is_put_off: Arc<AtomicBool>,
    answers: Receiver<Answered>,
    asides: Receiver<Attempt>,
    bell: UnixStream,
}

enum Errand {
    Call(Call),
    SetAside(Attempt, Call),
}

impl Thread {
    fn start(store: Arc<dyn Store>) -> io::Result<Self> {
        let (errands, inbox) = channel();
        let is_put_off = Arc::new(AtomicBool::new(false));
        let mut queue = Queue { inbox, waiting: VecDeque::new(), is_put_off: Arc::clone(&is_put_off) };
        let (outbox, answers) = channel();
        let (is_aside, asides) = channel();
        let (bell, mut rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        thread::Builder::new().name("store".to_string()).stack_size(256 * 1024).spawn(move || {
            while let Some(errand) = queue.next() {
                let is_heard = match errand {
                    Errand::Call(call) => {
                        outbox.send(perform(store.as_ref(), &call)).is_ok() && rope.write_all(&[1]).is_ok()
                    }
                    // It is asked for when something else has happened, so that the bell is not rung.
                    Errand::SetAside(attempt, call) => {
                        !is_won(&perform(store.as_ref(), &call)) || is_aside.send(attempt).is_ok()
                    }
                };
                if !is_heard {
                    return;
                }
            }
        })?;
        Ok(Self { errands, is_put_off, answers, asides, bell })
    }

    /// Hands an errand to the thread. A thread that is gone shows itself by its silence, which the deadline bounds.
    fn send(&self, errand: Errand) {
        let _ = self.errands.send(errand);
    }

    /// Leaves what nobody waits for undone from now on: the store is about to be called by somebody who does.
    fn put_off(&self) {
        self.is_put_off.store(true, Ordering::Relaxed);
    }

    fn answer(&mut self) -> Option<Answered> {
        let _ = self.bell.read(&mut [0; 16]);
        self.answers.try_recv().ok()
    }
}

/// Errands in the order in which they are run: what somebody waits for, a renewal for example, goes before what nobody
/// does.
struct Queue {
    inbox: Receiver<Errand>,
    waiting: VecDeque<Errand>,
    is_put_off: Arc<AtomicBool>,
}

impl Queue {
    /// The next errand, once there is one; none when nobody is left to send any.
    fn next(&mut self) -> Option<Errand> {
        loop {
            if self.is_put_off.load(Ordering::Relaxed) {
                self.waiting.clear();
            }
            let errand = match self.inbox.try_recv() {
                Ok(errand) => errand,
                Err(TryRecvError::Empty) if self.waiting.is_empty() => self.inbox.recv().ok()?,
                Err(TryRecvError::Empty) => return self.waiting.pop_front(),
                Err(TryRecvError::Disconnected) => return None,
            };
            match errand {
                Errand::Call(_) => return Some(errand),
                Errand::SetAside(..) => self.waiting.push_back(errand),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::name::{Job, Key, Name};
    use fencepost_core::time::Wall;
    use fencepost_core::token::{RunId, Token};
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

    fn worker(is_embedded: bool) -> (Arc<Noting>, Worker) {
        let store = Arc::new(Noting { store: MemoryStore::new(), callers: Mutex::default() });
        let worker = Worker::new(Callee { store: Arc::clone(&store) as Arc<dyn Store>, is_embedded });
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
    fn only_the_embedded_store_is_waited_for_and_only_while_nothing_is_guarded() {
        let read = || Call::Read(Key::identity());
        for (is_embedded, is_guarding, is_here) in
            [(true, false, true), (true, true, false), (false, false, false), (false, true, false)]
        {
            let (store, mut worker) = worker(is_embedded);
            worker.call(read(), is_guarding);
            assert_eq!((worker.has_answered(), worker.fd().is_none()), (is_here, is_here));
            assert!(waited_for(|| worker.answer()).expect("an answer").is_ok());
            let is_caller_here = store.callers.lock().unwrap().as_slice() == [thread::current().id()];
            assert_eq!(is_caller_here, is_here, "embedded {is_embedded}, guarding {is_guarding}");
        }
    }

    #[test]
    fn only_what_was_won_is_aside() {
        let (store, mut worker) = worker(true);
        let job = Job::shared(Name::new("j").unwrap());
        let attempt = |slot| (Wall(slot), Token::new(1).unwrap(), RunId(uuid::Uuid::from_u128(1)));
        let put = |slot| Call::Swap { key: Key::history(&job, Wall(slot), 0), expected: None, new: Some(vec![1]) };
        store.store.swap(&Key::history(&job, Wall(1), 0), None, Some(b"another's")).unwrap();
        worker.set_aside(attempt(1), put(1));
        worker.set_aside(attempt(2), put(2));
        let aside = waited_for(|| worker.asides().next());
        assert_eq!(aside, Some(attempt(2)), "what stands there already is left to the end");
        assert_eq!(worker.asides().next(), None);
        assert!(worker.answer().is_none());
        assert!(store.callers.lock().unwrap().iter().all(|caller| *caller != thread::current().id()));
    }
    #[test]
    fn what_somebody_waits_for_goes_first() {
        let (sender, inbox) = channel();
        let mut queue = Queue { inbox, waiting: VecDeque::new(), is_put_off: Arc::default() };
        let attempt = |slot| (Wall(slot), Token::new(1).unwrap(), RunId(uuid::Uuid::from_u128(1)));
        let read = || Call::Read(Key::identity());
        let is_call = |errand: Option<Errand>| errand.map(|errand| matches!(errand, Errand::Call(_)));
        sender.send(Errand::SetAside(attempt(1), read())).unwrap();
        sender.send(Errand::SetAside(attempt(2), read())).unwrap();
        sender.send(Errand::Call(read())).unwrap();
        assert_eq!(is_call(queue.next()), Some(true));
        assert!(matches!(queue.next(), Some(Errand::SetAside(first, _)) if first == attempt(1)));
        sender.send(Errand::Call(read())).unwrap();
        assert_eq!([is_call(queue.next()), is_call(queue.next())], [Some(true), Some(false)]);
        sender.send(Errand::SetAside(attempt(3), read())).unwrap();
        sender.send(Errand::Call(read())).unwrap();
        assert_eq!(is_call(queue.next()), Some(true));
        queue.is_put_off.store(true, Ordering::Relaxed);
        sender.send(Errand::Call(read())).unwrap();
        assert_eq!(is_call(queue.next()), Some(true));
        assert!(queue.waiting.is_empty(), "it is put off for good");
        drop(sender);
        assert!(queue.next().is_none());
    }
}
