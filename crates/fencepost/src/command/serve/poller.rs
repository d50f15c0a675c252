//! Reads the store for all viewers: one thread, at a limited rate.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime};

use fencepost_core::barrier::Need;
use fencepost_core::name::{Job, Name, host_in_names};
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_store::{Key, Store, StoreHandle};
use fencepost_sys::give_back_heap;
use fencepost_view::answer::{AnswerVersion, CheckLine, StoreStateAnswer};
use fencepost_view::board::{Board, BoardQuery};
use fencepost_view::durations::RunDurations;
use fencepost_view::status::StatusQuery;
use fencepost_view::time::LocalTime;
use tokio::sync::watch;

use super::events::Hub;
use crate::args::Global;
use crate::command::overdue::expected;
use crate::command::store::check::declarations;
use crate::command::store::last;
use crate::config::Config;
use crate::exit::Failure;
use crate::options::JobOptions;
use crate::place::Place;
use crate::{report, show, upstreams};

/// How often the store is read if no request asks for more: a file of this host, and any other store.
const EVERY: Duration = Duration::from_secs(2);
const EVERY_REMOTE: Duration = Duration::from_secs(5);

/// A store whose calls are slow or counted is read this often within its shortest time-to-live.
const LOOKS_PER_TTL: u32 = 10;

/// A look may take this part of the time at most.
const REST_FACTOR: u32 = 10;

/// A file of this host that has not changed is read again after this time: what is overdue changes with the clock.
const UNCHANGED_EVERY: Duration = Duration::from_secs(10);

/// A file of this host that is read within this time is read again for each request that comes after a change.
const PROMPT: Duration = Duration::from_millis(50);

/// A file that was written so recently may have been written again within one tick of the file system's clock.
const TICK: Duration = Duration::from_millis(100);

/// How long a request waits for a look.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the poller knows.
#[derive(Clone, Debug, Default)]
pub struct BoardLook {
    /// The last state that could be read.
    pub board: Option<Arc<TimedBoard>>,
    /// Why the store cannot be read now.
    pub trouble: Option<String>,
    /// When the newest look began.
    checked: Option<Instant>,
    is_embedded: bool,
    /// How many looks have read the store.
    pub count: u64,
}

impl BoardLook {
    /// How old an answer to a request may be.
    fn allowance(&self) -> Duration {
        let took = self.board.as_ref().map_or(Duration::ZERO, |board| board.took);
        match self.is_embedded {
            true if took < PROMPT => Duration::ZERO,
            true => (took * REST_FACTOR).min(EVERY),
            false => EVERY_REMOTE * 2,
        }
    }
}

/// A state of the store, and when it was read.
#[derive(Debug)]
pub struct TimedBoard {
    pub board: Board,
    pub at: Wall,
    /// How long the runs took that this server has seen.
    pub durations: RunDurations,
    /// How long it took to read it.
    pub took: Duration,
    /// How far the store's clock is ahead of this host's.
    pub clock_offset_ms: Option<i64>,
    /// The store that was read, without its password.
    pub store: StoreHandle,
    /// This host, as the names of its own jobs have it.
    pub host: String,
    /// What the settings of the store say.
    pub declares: Arc<[CheckLine]>,
}

impl TimedBoard {
    /// The store, and the last check of it that this host remembers.
    pub fn store_state(&self, trouble: Option<&str>) -> StoreStateAnswer {
        StoreStateAnswer {
            v: AnswerVersion,
            url: self.board.status.store.clone(),
            available: trouble.is_none(),
            error: trouble.map(str::to_string),
            polled: Some(LocalTime::new(self.at, &Zone::utc())),
            latency_ms: u64::try_from(self.took.as_millis()).ok(),
            clock_offset_ms: self.clock_offset_ms,
            jobs: self.board.status.jobs.len(),
            declares: self.declares.to_vec(),
            last_check: last::recall(&self.store),
        }
    }
}

/// The thread that reads the store, as requests see it.
#[derive(Debug)]
pub struct Poller {
    look: watch::Receiver<BoardLook>,
    wake: Mutex<mpsc::Sender<()>>,
}

impl Poller {
    pub fn start(global: Global, hub: Arc<Hub>) -> Self {
        let (sender, look) = watch::channel(BoardLook::default());
        let (wake, woken) = mpsc::channel();
        std::thread::spawn(move || {
            Lookout { global, store: None, seen: None, durations: RunDurations::default(), hub, sender }.go_on(&woken);
        });
        Self { look, wake: Mutex::new(wake) }
    }

    /// What is known, as fresh as the store allows.
    pub async fn fresh(&self) -> BoardLook {
        let mut look = self.look.clone();
        let asked = Instant::now();
        let is_fresh = move |look: &BoardLook| look.checked.is_some_and(|checked| checked + look.allowance() >= asked);
        if !is_fresh(&look.borrow()) {
            let _ = self.wake.lock().unwrap_or_else(PoisonError::into_inner).send(());
            let _ = tokio::time::timeout(PATIENCE, look.wait_for(is_fresh)).await;
        }
        look.borrow().clone()
    }

    /// Reads the store soon: an action has changed something.
    pub fn look_soon(&self) {
        let _ = self.wake.lock().unwrap_or_else(PoisonError::into_inner).send(());
    }
}

struct Lookout {
    global: Global,
    store: Option<OpenStore>,
    /// What the last reading rests on.
    seen: Option<Seen>,
    durations: RunDurations,
    hub: Arc<Hub>,
    sender: watch::Sender<BoardLook>,
}

/// The store that is open, by its URL.
struct OpenStore {
    url: String,
    store: Arc<dyn Store>,
    /// What its settings say. They are asked for once, after it has answered.
    declares: Option<Arc<[CheckLine]>>,
}

/// The files of a store and of the configuration as they were read.
struct Seen {
    at: Instant,
    files: Vec<FileState>,
    /// No file had been written just before.
    is_settled: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct FileState {
    path: PathBuf,
    state: Option<(u64, SystemTime)>,
}

impl FileState {
    fn is_settled(&self) -> bool {
        let age = |written: SystemTime| SystemTime::now().duration_since(written).unwrap_or_default();
        self.state.is_none_or(|(_, written)| age(written) > TICK)
    }
}

/// Waits for the next look: at least for `rest`, then until a request wakes the poller, and at most for `every`. A request
/// that came during the rest is for a look right after it. Breaks once no request can come any more.
fn pause(woken: &mpsc::Receiver<()>, rest: Duration, every: Duration) -> ControlFlow<()> {
    std::thread::sleep(rest);
    let first = woken.try_recv().or_else(|_| woken.recv_timeout(every - rest));
    while woken.try_recv().is_ok() {}
    match first {
        Ok(()) | Err(mpsc::RecvTimeoutError::Timeout) => ControlFlow::Continue(()),
        Err(mpsc::RecvTimeoutError::Disconnected) => ControlFlow::Break(()),
    }
}

impl Lookout {
    fn go_on(mut self, woken: &mpsc::Receiver<()>) {
        loop {
            let begun = Instant::now();
            let every = self.look();
            let rest = (begun.elapsed() * REST_FACTOR).min(every);
            if pause(woken, rest, every).is_break() {
                return;
            }
        }
    }

    /// Looks once, and says when to look again.
    fn look(&mut self) -> Duration {
        let at = Instant::now();
        let place = match Place::find(&self.global) {
            Ok(place) => place,
            Err(failure) => {
                self.failed(&failure, true);
                return EVERY;
            }
        };
        let properties = place.properties();
        let every = match properties.is_embedded {
            true => EVERY,
            false => EVERY_REMOTE.max(properties.minimum_ttl / LOOKS_PER_TTL),
        };
        let files = watched(&place);
        let is_same = |seen: &Seen| seen.is_settled && seen.at.elapsed() < UNCHANGED_EVERY && seen.files == files;
        if properties.is_embedded && self.seen.as_ref().is_some_and(is_same) {
            self.sender.send_modify(|look| look.checked = Some(at));
            return every;
        }
        let is_settled = files.iter().all(FileState::is_settled);
        match self.read(&place) {
            Ok(board) => {
                self.seen = Some(Seen { at, files, is_settled });
                self.found(board, at, properties.is_embedded);
                // A board of many jobs leaves as much behind as it holds.
                give_back_heap();
            }
            Err(failure) => {
                (self.seen, self.store) = (None, None);
                self.failed(&failure, properties.is_embedded);
            }
        }
        every
    }

    fn read(&mut self, place: &Place) -> Result<TimedBoard, Failure> {
        let mut opened = match self.store.take().filter(|open| open.url == place.store) {
            Some(open) => open,
            None => OpenStore { url: place.store.clone(), store: place.open_to_read()?, declares: None },
        };
        let store = Arc::clone(&opened.store);
        let (query, begun) = (query(place)?, Instant::now());
        let before = self.sender.borrow().board.clone();
        let before = before.as_ref().map(|before| &before.board);
        let (board, at) =
            place.ask(store.as_ref(), |view| view.board(&query, before).map(|board| (board, view.now)))?;
        let took = begun.elapsed();
        let reading = store.read(&Key::identity())?.clock;
        let clock_offset_ms = reading.map(|clock| clock.wall.0.saturating_sub(clock::now().wall.0));
        let is_new = place.is_new()?;
        let declares = match is_new {
            true => Arc::default(),
            false => opened.declares(place)?,
        };
        // Nothing after this fails: the runs of a look that fails are not counted twice.
        self.durations.note(&board, before);
        // A store that does not exist yet is empty, and is opened again until it does.
        self.store = (!is_new).then_some(opened);
        let (store, durations) = (place.handle_without_password(), self.durations.clone());
        Ok(TimedBoard {
            board,
            at,
            durations,
            took,
            clock_offset_ms,
            store,
            declares,
            host: host_in_names(&place.host.name),
        })
    }

    fn found(&self, board: TimedBoard, at: Instant, is_embedded: bool) {
        let (board, had_trouble) = (Arc::new(board), self.sender.borrow().trouble.is_some());
        if had_trouble {
            report::say("The store can be read again.");
        }
        self.hub.note(&board.board);
        self.sender.send_modify(|look| {
            let count = look.count + 1;
            *look = BoardLook { board: Some(board), trouble: None, checked: Some(at), is_embedded, count };
        });
    }

    fn failed(&self, failure: &Failure, is_embedded: bool) {
        let why = show::flat(failure.message());
        if self.sender.borrow().trouble.is_none() {
            report::say(&format!("The store cannot be read: {why} Pages show the last known state."));
        }
        self.hub.note_trouble(&why);
        self.sender.send_modify(|look| {
            (look.trouble, look.checked, look.is_embedded) = (Some(why), Some(Instant::now()), is_embedded);
        });
    }
}

impl OpenStore {
    fn declares(&mut self, place: &Place) -> Result<Arc<[CheckLine]>, Failure> {
        if let Some(known) = &self.declares {
            return Ok(Arc::clone(known));
        }
        // If the question fails, the next look asks again.
        Ok(match declarations(&place.handle()?) {
            Ok(lines) => Arc::clone(self.declares.insert(lines.into())),
            Err(unknown) => Arc::new([unknown]),
        })
    }
}

/// What a board rests on besides the store.
fn query(place: &Place) -> Result<BoardQuery, Failure> {
    let status = StatusQuery { job: None, expected: expected(place, None)?, since: None };
    let Some(config) = &place.config else {
        return Ok(BoardQuery { status, needs: Vec::new(), ttls: Default::default() });
    };
    let ttl = |options: &JobOptions| options.ttl.as_ref().map(|ttl| ttl.value);
    let ttls = config.jobs.iter().filter_map(|(name, options)| Some((name.clone(), ttl(options)?))).collect();
    Ok(BoardQuery { status, needs: needs(place, config), ttls })
}

/// The configured needs of each job. One whose needs cannot be read is among the jobs with mistakes.
fn needs(place: &Place, config: &Config) -> Vec<(Job, Vec<Need>)> {
    let of = |name: &Name, options: &JobOptions| {
        let job = crate::command::job(name, false, place).ok()?;
        let base = upstreams::base(Some(config), name).ok()?;
        Some((job, upstreams::needs(options, Some(config), &base).ok()?))
    };
    config.jobs.iter().filter_map(|(name, options)| of(name, options)).collect()
}

/// The files whose change changes the answer.
fn watched(place: &Place) -> Vec<FileState> {
    let path = place.store.split_once(':').map_or(place.store.as_str(), |(_, path)| path);
    let log = format!("{path}-wal");
    let config = place.config.iter().map(|config| config.path.clone());
    let paths = [PathBuf::from(path), PathBuf::from(log), place.state.join("waiting")].into_iter().chain(config);
    paths
        .map(|path| {
            let found = std::fs::metadata(&path).ok();
            let state = found.and_then(|found| Some((found.len(), found.modified().ok()?)));
            FileState { path, state }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_request_that_comes_during_the_rest_is_answered_right_after_it() {
        let (wake, woken) = mpsc::channel();
        (0..3).for_each(|_| wake.send(()).unwrap());
        let (begun, rest) = (Instant::now(), Duration::from_millis(20));
        assert!(pause(&woken, rest, LONG).is_continue() && (rest..LONG).contains(&begun.elapsed()));
        assert!(woken.try_recv().is_err(), "one look is for all of them");
        drop(wake);
        assert!(pause(&woken, Duration::ZERO, LONG).is_break());
    }
}
