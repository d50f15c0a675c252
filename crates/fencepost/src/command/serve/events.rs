//! Changes as they are seen, as server-sent events.
//!
//! `job` is the new status of a job, `gone` a job that is no more, `trouble` a store that cannot be read. `board` follows the
//! changes of one look: a page that shows everything loads itself anew.
//!
//! Each event has an id. A client that comes back names the last one it saw, and gets what it missed; if that is not known
//! any more, it is told to read everything anew.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost_view::board::{Board, BoardEvent};
use fencepost_view::status::JobStatus;
use hyper::StatusCode;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::answer::ServeRequest;
use super::limit;
use super::reply::{self, ServeReply};
use super::tokens::random_hex;

/// The most viewers of events at once. Other requests keep the rest of the connections.
const VIEWERS_MAX: usize = 600;

/// Events that are kept for viewers that are behind or come back. One that is further behind is cut off.
const KEPT_MAX: usize = 2048;
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Events that a viewer takes at once. It holds no others.
const EVENTS_AT_ONCE: usize = 32;

/// How often something is sent to a viewer if nothing happens: a connection that is gone is noticed.
const BEAT: Duration = Duration::from_secs(15);
const BEAT_LINE: &str = ": all is quiet\n\n";

/// How long a browser waits before it comes back.
const COME_BACK: &str = "retry: 3000\n\n";

/// The events, and the viewers that wait for them. The events are kept once for all viewers.
#[derive(Debug)]
pub struct Hub {
    state: Mutex<HubState>,
    /// The number of the newest event; `None` once the server stops.
    news: watch::Sender<Option<u64>>,
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct HubState {
    /// This process, in ids: another one has other events.
    era: String,
    /// The number of the newest event.
    newest: u64,
    /// The newest events.
    kept: VecDeque<Bytes>,
    kept_bytes: usize,
    /// A digest of what was last told of each job.
    jobs: Option<BTreeMap<String, u64>>,
    trouble: Option<String>,
}

impl Hub {
    pub fn new() -> Self {
        let state = HubState {
            era: random_hex(6).unwrap_or_else(|_| std::process::id().to_string()),
            newest: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            jobs: None,
            trouble: None,
        };
        let places = Arc::new(Semaphore::new(limit("FENCEPOST_TEST_SERVE_VIEWERS", VIEWERS_MAX)));
        let news = watch::Sender::new(Some(0));
        Self { state: Mutex::new(state), news, places }
    }

    /// Tells what changed since the last look.
    pub fn note(&self, board: &Board) {
        let digests: BTreeMap<String, u64> =
            board.status.jobs.iter().map(|job| (job.job.clone(), digest(job))).collect();
        let mut state = self.state();
        // A store that answers again is a change, too.
        let mut is_changed = state.trouble.take().is_some();
        if let Some(before) = state.jobs.take() {
            for job in board.status.jobs.iter().filter(|job| before.get(&job.job) != digests.get(&job.job)) {
                state.tell(&BoardEvent::Job(job));
                is_changed = true;
            }
            for job in before.keys().filter(|job| !digests.contains_key(*job)) {
                state.tell(&BoardEvent::Gone { job });
                is_changed = true;
            }
        }
        state.jobs = Some(digests);
        if is_changed {
            state.tell(&BoardEvent::Board { jobs: Some(board.status.jobs.len()) });
        }
        self.announce(state);
    }

    /// Tells that the store cannot be read.
    pub fn note_trouble(&self, why: &str) {
        let mut state = self.state();
        if state.trouble.as_deref() != Some(why) {
            state.trouble = Some(why.to_string());
            state.tell(&BoardEvent::Trouble { message: why });
            state.tell(&BoardEvent::Board { jobs: None });
        }
        self.announce(state);
    }

    /// Ends the stream of every viewer.
    pub fn close(&self) {
        self.news.send_replace(None);
    }

    /// Wakes the viewers if there are new events.
    fn announce(&self, state: MutexGuard<'_, HubState>) {
        let newest = Some(state.newest);
        drop(state);
        self.news.send_if_modified(|news| news.is_some() && std::mem::replace(news, newest) != newest);
    }

    /// Adds a viewer, who has seen everything up to an id.
    fn join(self: &Arc<Self>, last: Option<&str>) -> Option<mpsc::Receiver<Bytes>> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let news = self.news.subscribe();
        (*news.borrow())?;
        let (sender, receiver) = mpsc::channel(1);
        let (opening, seen) = self.state().opening(last);
        let _ = sender.try_send(opening);
        tokio::spawn(Viewer { hub: Arc::clone(self), seen, sender, _place: place }.follow(news));
        Some(receiver)
    }

    fn state(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that is sent events.
struct Viewer {
    hub: Arc<Hub>,
    /// The number of the last event that it was sent.
    seen: u64,
    /// Has room for one event: a viewer that does not read holds few of them.
    sender: mpsc::Sender<Bytes>,
    _place: OwnedSemaphorePermit,
}

impl Viewer {
    /// Sends events until the client is gone, is too far behind, or the server stops.
    async fn follow(mut self, mut news: watch::Receiver<Option<u64>>) {
        loop {
            let Some(newest) = *news.borrow_and_update() else { return };
            let parts = match newest > self.seen {
                true => match self.hub.state().since(self.seen, EVENTS_AT_ONCE) {
                    Some(missed) => missed,
                    None => return,
                },
                false => tokio::select! {
                    changed = news.changed() => match changed {
                        Ok(()) => continue,
                        Err(_) => return,
                    },
                    () = self.sender.closed() => return,
                    () = tokio::time::sleep(BEAT) => vec![(self.seen, Bytes::from_static(BEAT_LINE.as_bytes()))],
                },
            };
            for (number, part) in parts {
                if self.sender.send(part).await.is_err() {
                    return;
                }
                self.seen = number;
            }
        }
    }
}

impl HubState {
    fn tell(&mut self, event: &BoardEvent<'_>) {
        self.newest += 1;
        let event = Bytes::from(self.written(event));
        self.kept_bytes += event.len();
        self.kept.push_back(event);
        while self.kept.len() > KEPT_MAX || self.kept_bytes > KEPT_BYTES_MAX {
            self.kept_bytes -= self.kept.pop_front().map_or(0, |event| event.len());
        }
    }

    /// What a new viewer is sent first, and the number of the last event in it.
    fn opening(&self, last: Option<&str>) -> (Bytes, u64) {
        let (rest, seen) = match last.map(|last| self.number(last)) {
            Some(Some(number)) => (String::new(), number),
            Some(None) => (self.reset(), self.newest),
            // An event without data is not dispatched; the client remembers its id.
            None => (format!("id: {}\n\n", self.id()), self.newest),
        };
        (Bytes::from(format!("{COME_BACK}{rest}")), seen)
    }

    /// The number of an event whose successors are kept.
    fn number(&self, id: &str) -> Option<u64> {
        let (era, number) = id.rsplit_once('-')?;
        let number = number.parse().ok()?;
        self.since(number, 0).filter(|_| era == self.era).map(|_| number)
    }

    /// The first events after a number, with theirs. `None` if they are not kept any more.
    fn since(&self, number: u64, most: usize) -> Option<Vec<(u64, Bytes)>> {
        let oldest = self.newest - self.kept.len() as u64;
        let is_known = (oldest..=self.newest).contains(&number);
        let events = || (number + 1..).zip(self.kept.iter().skip((number - oldest) as usize).cloned()).take(most);
        is_known.then(|| events().collect())
    }

    /// Tells a viewer to read everything anew, and where the events go on from.
    fn reset(&self) -> String {
        self.written(&BoardEvent::Reset {}) + &self.written(&BoardEvent::Board { jobs: None })
    }

    /// An event with the newest id.
    fn written(&self, event: &BoardEvent<'_>) -> String {
        let data = reply::json_text(event);
        format!("id: {}\nevent: {}\ndata: {data}\n\n", self.id(), event.name())
    }

    /// The id of the newest event.
    fn id(&self) -> String {
        format!("{}-{}", self.era, self.newest)
    }
}

/// Changes when a job does. The end of a lease and the length of a run move all the time and are left out.
fn digest(job: &JobStatus) -> u64 {
    let mut status = json!(job);
    if let Some(holder) = status.get_mut("holder").and_then(Value::as_object_mut) {
        holder.remove("until");
    }
    if let Some(recent) = status.get_mut("recent").and_then(Value::as_array_mut) {
        for outcome in recent.iter_mut().filter(|outcome| outcome["status"] == "running") {
            outcome["duration_ms"] = Value::Null;
        }
    }
    let mut hasher = DefaultHasher::new();
    status.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Answers with the events from now on, or from the last one that the client saw.
pub fn subscribe(asked: &ServeRequest<'_>) -> ServeReply {
    if let Err(why) = asked.parameters.only(&[]) {
        return reply::bad_request(&why);
    }
    let last = asked.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    match asked.server.hub.join(last) {
        Some(events) => reply::stream("text/event-stream", events),
        None => reply::error(
            StatusCode::SERVICE_UNAVAILABLE,
            fencepost_view::ReasonCode::Failed,
            "Too many viewers ask for events. Ask for /api/v1/status from time to time.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tell(hub: &Hub, texts: impl IntoIterator<Item = String>) {
        let mut state = hub.state();
        texts.into_iter().for_each(|job| state.tell(&BoardEvent::Gone { job: &job }));
        hub.announce(state);
    }

    fn numbers(count: usize) -> impl Iterator<Item = String> {
        (0..count).map(|number| number.to_string())
    }

    /// Runs tasks until each of them waits.
    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_viewer_that_comes_back_gets_what_it_missed() {
        let hub = Hub::new();
        tell(&hub, numbers(3));
        let state = hub.state();
        let id = |number: u64| format!("{}-{number}", state.era);
        assert_eq!((state.number(&id(3)), state.number(&id(1))), (Some(3), Some(1)));
        let missed = state.since(1, 9).unwrap();
        assert_eq!(missed.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(missed[0].1, format!("id: {}\nevent: gone\ndata: {{\"job\":\"1\"}}\n\n", id(2)));
        assert_eq!(state.number(&id(4)), None, "it is of the future");
        assert!(state.number("other-1").is_none() && state.number("\u{0}").is_none());
    }

    #[tokio::test]
    async fn one_look_may_change_every_job_and_a_viewer_that_does_not_read_is_cut_off() {
        let hub = Arc::new(Hub::new());
        let (mut good, mut stalled) = (hub.join(None).unwrap(), hub.join(None).unwrap());
        good.recv().await.unwrap();
        for _ in 0..4 {
            tell(&hub, numbers(KEPT_MAX));
            for _ in 0..KEPT_MAX {
                assert!(good.recv().await.unwrap().starts_with(b"id: "));
            }
        }
        // It gets what was underway for it, and then the end.
        let mut parts = 0;
        while stalled.recv().await.is_some() {
            parts += 1;
        }
        assert!(parts <= EVENTS_AT_ONCE + 1, "{parts}");
        settle().await;
        assert_eq!(hub.places.available_permits(), VIEWERS_MAX - 1);
        tell(&hub, (0..3 * KEPT_MAX).map(|_| "x".repeat(2000)));
        assert!(hub.state().kept_bytes <= KEPT_BYTES_MAX && hub.state().kept.len() <= KEPT_MAX);
    }

    #[tokio::test]
    async fn the_number_of_viewers_is_bounded_and_each_that_leaves_makes_room() {
        let hub = Arc::new(Hub::new());
        let mut viewers: Vec<_> = (0..VIEWERS_MAX).map(|_| hub.join(None).unwrap()).collect();
        assert!(hub.join(None).is_none());
        viewers.pop();
        settle().await;
        let mut last = hub.join(None).unwrap();
        last.recv().await.unwrap();
        hub.close();
        assert!(last.recv().await.is_none(), "its stream ends");
        drop(viewers);
        settle().await;
        assert!(hub.join(None).is_none());
    }
}
