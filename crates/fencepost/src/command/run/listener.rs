//! Forwards the events of a run to people, programs, the notifier and the log.

use fencepost_core::ledger::Status;
use fencepost_core::name::Job;
use fencepost_core::run::Event;
use fencepost_core::skips::Skip;
use fencepost_core::time::Wall;
use fencepost_core::waiting::WaitingRun;
use fencepost_guard::drive::Note;
use fencepost_guard::transact::{count_skip, look};
use fencepost_guard::waiting::WaitingMark;
use fencepost_guard::{clock, nudge};
use fencepost_store::Store;
use fencepost_sys::Awake;

use super::RunAttempt;
use super::capture::Capture;
use crate::args::inner_job;
use crate::events::{self, Events};
use crate::notify::Teller;
use crate::report::Voice;

pub struct Listener<'a> {
    pub attempt: &'a RunAttempt<'a>,
    pub store: &'a dyn Store,
    pub capture: Option<&'a Capture>,
    pub events: &'a mut Events,
    pub teller: Option<&'a mut Teller>,
    pub claimed: Option<ClaimedSlot>,
    /// Held from the start of the command, if the job asks for it.
    pub awake: Option<Awake>,
    /// This run, as it is announced if it has to wait.
    pub waiting: WaitingRun,
    pub mark: Option<WaitingMark>,
}

/// The lease that the run was granted.
#[derive(Clone, Copy, Debug)]
pub struct ClaimedSlot {
    pub slot: Wall,
    pub grants: u64,
}

impl Listener<'_> {
    pub fn hear(&mut self, note: &Note) {
        let line = self.events.line(events::described(note));
        if let Some(teller) = &mut self.teller {
            teller.note(&line.event);
        }
        match note {
            Note::Event(event) => self.follow(event),
            Note::Spawned { .. } => self.stay_awake(),
            _ => {}
        }
        self.events.write(&line);
        let RunAttempt { global, job, place, settings, .. } = self.attempt;
        Voice::of(global).note(&job.to_string(), note, &settings.zone);
        if let Note::Event(Event::AskedToStop { record }) = note {
            nudge(&place.host, record);
        }
    }

    /// Handles an event.
    fn follow(&mut self, event: &Event) {
        match event {
            Event::Waiting { .. } => self.announce(),
            Event::Claimed { slot, grants, .. } => {
                self.mark = None;
                self.claimed = Some(ClaimedSlot { slot: *slot, grants: *grants });
                self.keep_output(*slot);
            }
            Event::WithoutLease { .. } => self.keep_output(clock::now().wall),
            Event::Observed { status, .. } => self.count_observed(*status),
            _ => {}
        }
    }

    /// Keeps the machine from sleeping while the command runs.
    fn stay_awake(&mut self) {
        let RunAttempt { global, settings, job, .. } = self.attempt;
        if !settings.options.awake() || self.awake.is_some() {
            return;
        }
        match Awake::hold(&format!("fencepost: {job}")) {
            Ok(awake) => self.awake = Some(awake),
            Err(error) => Voice::of(global).warn(&format!(
                "{job}: this machine cannot be kept awake ({error}). The job runs anyway, and may be interrupted by sleep."
            )),
        }
    }

    /// Lets `status` and `why` say what this run waits for.
    fn announce(&mut self) {
        let RunAttempt { place, settings, .. } = self.attempt;
        let then = inner_job(&settings.argv).and_then(|name| crate::command::job(&name, false, place).ok());
        self.waiting.then = then.map(|job| job.to_string());
        self.mark = Some(place.local().waiting().note(&self.waiting));
    }

    fn keep_output(&self, slot: Wall) {
        if let Some(capture) = self.capture {
            capture.claimed(slot);
        }
    }

    /// Counts a skip that `--observe` prevented.
    fn count_observed(&self, status: Status) {
        let RunAttempt { job, place, run, .. } = self.attempt;
        if let Some(skip) = Skip::of(status).or_else(|| overlap(status, self.store, job)) {
            let _ = count_skip(self.store, &place.local(), job, *run, &place.host.name, skip);
        }
    }
}

/// Returns an observed overlap with the run that holds the lease.
fn overlap(status: Status, store: &dyn Store, job: &Job) -> Option<Skip> {
    let (record, _) = look(store, job).ok().filter(|_| status == Status::SkippedOverlap)?;
    record.map(|record| Skip::Overlap(record.token))
}
