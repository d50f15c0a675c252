//! The thread that reads records, so a hung store delays nothing else.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fencepost_core::agenda::{Look, look};
use fencepost_core::history::Aside;
use fencepost_core::lease::{Claim, Context, Honest, Intent};
use fencepost_core::name::{Job, Name};
use fencepost_core::time::Reference;
use fencepost_core::token::Nonce;
use fencepost_guard::clock;
use fencepost_guard::local::Local;
use fencepost_guard::transact::{TransactError, look as read, transact};
use fencepost_store::Store;

use crate::place::Place;

/// A record to read, and the claim it is read for.
pub struct LookRequest {
    pub name: Name,
    pub job: Job,
    pub claim: Claim,
    pub place: Arc<Place>,
    pub local: Local,
    /// Opens the store again after it was unavailable: it may have been replaced.
    pub anew: bool,
}

/// The state of a job, and the time until its next slot.
pub type LookAnswer = (Name, Look, Option<Duration>);

pub struct Lookout {
    requests: Sender<LookRequest>,
    answers: Receiver<LookAnswer>,
    bell: UnixStream,
}

impl Lookout {
    pub fn start() -> io::Result<Self> {
        let (requests, inbox) = channel::<LookRequest>();
        let (outbox, answers) = channel();
        let (bell, mut rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        std::thread::Builder::new().name("lookout".to_string()).spawn(move || {
            let mut reader = LookReader::default();
            for request in inbox {
                let (look, next_in) = reader.look(&request);
                let answer = (request.name, look, next_in);
                if outbox.send(answer).is_err() || rope.write_all(&[1]).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { requests, answers, bell })
    }

    pub fn look(&self, request: Option<LookRequest>) {
        if let Some(request) = request {
            let _ = self.requests.send(request);
        }
    }

    pub fn answers(&mut self) -> Vec<LookAnswer> {
        while let Ok(1..) = self.bell.read(&mut [0; 256]) {}
        self.answers.try_iter().collect()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// The store, once it is open.
#[derive(Default)]
struct LookReader {
    store: Option<(Arc<Place>, Arc<dyn Store>)>,
}

impl LookReader {
    fn look(&mut self, request: &LookRequest) -> (Look, Option<Duration>) {
        match self.try_look(request) {
            Ok(seen) => seen,
            Err(message) => {
                self.store = None;
                (Look::Away(message), None)
            }
        }
    }

    fn try_look(&mut self, request: &LookRequest) -> Result<(Look, Option<Duration>), String> {
        if request.anew {
            self.store = None;
        }
        let store = self.open(&request.place)?;
        let asked = clock::boot_now();
        let (record, clock) = read(store.as_ref(), &request.job).map_err(|error| error.detail)?;
        let now = clock::now();
        let facts = request.local.facts(record.as_ref(), now.boot);
        let reference = clock.map(|clock| Reference { clock, asked });
        let context = Context {
            job: &request.job,
            now,
            nonce: Nonce { by: request.claim.run, write: 0 },
            reference: reference.as_ref(),
            date: None,
            facts: &facts,
            store: None,
            aside: Aside::default(),
        };
        let seen = look::<Honest>(&request.claim, record.as_ref(), &context);
        if seen.accounts {
            // Records the first sight of a schedule, and slots that will never run. That needs no process.
            let intent = Intent::Account(request.claim.clone());
            match transact(store.as_ref(), &request.local, &request.job, intent, request.claim.run) {
                Ok(_) | Err(TransactError::Refused(_)) => {}
                Err(TransactError::Store(error)) => return Err(error.detail),
            }
        }
        Ok((seen.look, seen.next_in))
    }

    fn open(&mut self, place: &Arc<Place>) -> Result<Arc<dyn Store>, String> {
        if let Some((opened, store)) = &self.store
            && Arc::ptr_eq(opened, place)
        {
            return Ok(Arc::clone(store));
        }
        let store = place.open().map_err(|failure| failure.message().to_string())?;
        self.store = Some((Arc::clone(place), Arc::clone(&store)));
        Ok(store)
    }
}
