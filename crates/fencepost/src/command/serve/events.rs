//! Changes as they are seen, as server-sent events.
//!
//! `job` is the new status of a job, `gone` a job that is no more, `trouble` a store that cannot be read. `board` follows the
//! changes of one look: a page that shows everything loads itself anew.
//!
//! Each event has an id. A client that comes back names the last one it saw, and gets what it missed; if that is not known
//! any more, it is told to read everything anew.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencepost_view::board::Board;
use fencepost_view::status::JobStatus;
use hyper::StatusCode;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::answer::ServeRequest;
use super::reply::{self, ServeReply};
use super::tokens::random_hex;
use crate::show;

/// The most viewers of events at once. Other requests keep the rest of the connections.
const VIEWERS_MAX: usize = 600;

/// Events that a viewer may be behind. Then it is cut off, and comes back with its last id.
const BEHIND_MAX: usize = 256;

/// Events that are kept for viewers that come back.
const KEPT_MAX: usize = 2048;
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How often something is sent to a viewer if nothing happens: a connection that is gone is noticed.
const BEAT: Duration = Duration::from_secs(15);

/// How long a browser waits before it comes back.
const COME_BACK: &str = "retry: 3000\n\n";

/// The viewers, and what they are told.
#[derive(Debug)]
pub struct Hub(Mutex<HubState>);

#[derive(Debug)]
struct HubState {
    /// This process, in ids: another one has other events.
    era: String,
    next: u64,
    /// The newest events.
    kept: VecDeque<Bytes>,
    kept_bytes: usize,
    viewers: Vec<mpsc::Sender<Bytes>>,
    /// A digest of what was last told of each job.
    jobs: Option<BTreeMap<String, u64>>,
    trouble: Option<String>,
    beaten: std::time::Instant,
    is_closed: bool,
}

impl Hub {
    pub fn new() -> Self {
        Self(Mutex::new(HubState {
            era: random_hex(6).unwrap_or_else(|_| std::process::id().to_string()),
            next: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            viewers: Vec::new(),
            jobs: None,
            trouble: None,
            beaten: std::time::Instant::now(),
            is_closed: false,
        }))
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
                state.tell("job", &json!(job));
                is_changed = true;
            }
            for job in before.keys().filter(|job| !digests.contains_key(*job)) {
                state.tell("gone", &json!({ "job": job }));
                is_changed = true;
            }
        }
        state.jobs = Some(digests);
        if is_changed {
            state.tell("board", &json!({ "jobs": board.status.jobs.len() }));
        }
        state.beat();
    }

    /// Tells that the store cannot be read.
    pub fn note_trouble(&self, why: &str) {
        let mut state = self.state();
        if state.trouble.as_deref() != Some(why) {
            state.trouble = Some(why.to_string());
            state.tell("trouble", &json!({ "message": why }));
            state.tell("board", &json!({}));
        }
        state.beat();
    }

    /// Ends the stream of every viewer.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.viewers.clear();
    }

    #[cfg(test)]
    fn viewers(&self) -> usize {
        self.state().viewers.iter().filter(|viewer| !viewer.is_closed()).count()
    }

    /// Adds a viewer, who has seen everything up to an id.
    fn join(&self, last: Option<&str>) -> Option<mpsc::Receiver<Bytes>> {
        let mut state = self.state();
        state.viewers.retain(|viewer| !viewer.is_closed());
        if state.viewers.len() >= VIEWERS_MAX || state.is_closed {
            return None;
        }
        let missed = state.missed(last);
        let (sender, receiver) = mpsc::channel(BEHIND_MAX + 1);
        let mut opening = COME_BACK.to_string();
        match missed {
            Some(missed) => missed.iter().for_each(|event| opening.push_str(&String::from_utf8_lossy(event))),
            None if last.is_some() => opening.push_str(&state.reset()),
            // An event without data is not dispatched; the client remembers its id.
            None => opening.push_str(&format!("id: {}\n\n", state.id())),
        }
        let _ = sender.try_send(Bytes::from(opening));
        state.viewers.push(sender);
        Some(receiver)
    }

    fn state(&self) -> MutexGuard<'_, HubState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HubState {
    fn tell(&mut self, kind: &str, data: &Value) {
        self.next += 1;
        let data = show::escaped(data.to_string());
        let event = Bytes::from(format!("id: {}\nevent: {kind}\ndata: {data}\n\n", self.id()));
        self.kept_bytes += event.len();
        self.kept.push_back(event.clone());
        while self.kept.len() > KEPT_MAX || self.kept_bytes > KEPT_BYTES_MAX {
            self.kept_bytes -= self.kept.pop_front().map_or(0, |event| event.len());
        }
        self.send(&event);
    }

    /// Sends to every viewer that keeps up. Another one is cut off.
    fn send(&mut self, bytes: &Bytes) {
        self.viewers.retain(|viewer| viewer.try_send(bytes.clone()).is_ok());
        self.beaten = std::time::Instant::now();
    }

    fn beat(&mut self) {
        if self.beaten.elapsed() >= BEAT {
            self.send(&Bytes::from_static(b": all is quiet\n\n"));
        }
    }

    /// The events after an id. `None` if they are not known, or if the viewer is new.
    fn missed(&self, last: Option<&str>) -> Option<Vec<Bytes>> {
        let (era, number) = last?.rsplit_once('-')?;
        let number: u64 = number.parse().ok()?;
        let oldest = self.next - self.kept.len() as u64;
        let is_known = era == self.era && (oldest..=self.next).contains(&number);
        is_known.then(|| self.kept.iter().skip((number - oldest) as usize).cloned().collect())
    }

    /// Tells a viewer to read everything anew, and where the events go on from.
    fn reset(&self) -> String {
        let id = self.id();
        format!("id: {id}\nevent: reset\ndata: {{}}\n\nid: {id}\nevent: board\ndata: {{}}\n\n")
    }

    /// The id of the newest event.
    fn id(&self) -> String {
        format!("{}-{}", self.era, self.next)
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

    fn text(events: &[Bytes]) -> String {
        events.iter().map(|event| String::from_utf8_lossy(event).into_owned()).collect()
    }

    #[test]
    fn a_viewer_that_comes_back_gets_what_it_missed() {
        let hub = Hub::new();
        for number in 0..3 {
            hub.state().tell("job", &json!(number));
        }
        let state = hub.state();
        let id = |number: u64| format!("{}-{number}", state.era);
        assert_eq!(text(&state.missed(Some(&id(3))).unwrap()), "");
        assert!(text(&state.missed(Some(&id(1))).unwrap()).contains("data: 1\n\nid: "));
        assert!(state.missed(Some(&id(4))).is_none(), "it is of the future");
        assert!(state.missed(Some("other-1")).is_none() && state.missed(None).is_none());
        assert!(state.missed(Some("\u{0}")).is_none());
    }

    #[test]
    fn a_viewer_that_does_not_read_is_cut_off_and_memory_stays_bounded() {
        let hub = Hub::new();
        let mut slow = hub.join(None).unwrap();
        for number in 0..BEHIND_MAX + 5 {
            hub.state().tell("job", &json!(number));
        }
        assert_eq!(hub.viewers(), 0);
        let mut seen = 0;
        while slow.try_recv().is_ok() {
            seen += 1;
        }
        assert_eq!(seen, BEHIND_MAX + 1);
        for _ in 0..3 * KEPT_MAX {
            hub.state().tell("job", &json!("x".repeat(2000)));
        }
        assert!(hub.state().kept_bytes <= KEPT_BYTES_MAX && hub.state().kept.len() <= KEPT_MAX);
    }

    #[test]
    fn the_number_of_viewers_is_bounded_and_each_that_leaves_makes_room() {
        let hub = Hub::new();
        let mut viewers: Vec<_> = (0..VIEWERS_MAX).map(|_| hub.join(None).unwrap()).collect();
        assert!(hub.join(None).is_none());
        viewers.pop();
        assert!(hub.join(None).is_some());
        hub.close();
        assert!(hub.join(None).is_none());
    }
}
