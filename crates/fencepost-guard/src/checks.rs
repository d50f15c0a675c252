//! The checks of a run, off its loop: of the upstreams before the work, and of the artifacts after it.

use std::io;
use std::os::fd::BorrowedFd;

use fencepost_core::barrier::Asker;
use fencepost_core::contract::{Lack, Produced};
use fencepost_core::ledger::Barred;
use fencepost_core::run::{Grant, Input, Passage};
use fencepost_core::zone::Zone;

use crate::artifact::Snapshot;
use crate::clock;
use crate::task::BackgroundTask;
use crate::upstream_check::{Inspection, Pinned, UpstreamCheck};

/// Performs [`Output::Inspect`](fencepost_core::run::Output::Inspect) and
/// [`Output::Survey`](fencepost_core::run::Output::Survey) on background threads.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    check: Option<UpstreamCheck>,
    inspecting: Option<BackgroundTask<(Inspection, Snapshot)>>,
    surveying: Option<BackgroundTask<Vec<Produced>>>,
    /// The declared artifacts before the work.
    before: Snapshot,
    inputs: Vec<Pinned>,
}

impl Checks {
    pub fn new(check: Option<UpstreamCheck>) -> Self {
        Self { check, ..Self::default() }
    }

    /// The inputs that were pinned for the work.
    pub fn inputs(&self) -> &[Pinned] {
        &self.inputs
    }

    /// Begins to check the upstreams.
    pub fn inspect(&mut self, grant: Option<&Grant>) -> Vec<Input> {
        let Some(check) = self.check.clone() else {
            return vec![Input::Inspected(Passage::Proceed { upstreams: Vec::new() })];
        };
        let asker = asker(grant);
        match BackgroundTask::start("check", move || (check.inspect(&asker), check.snapshot())) {
            Ok(task) => self.inspecting = Some(task),
            Err(error) => return halted(&error),
        }
        Vec::new()
    }

    /// Begins to look at the artifacts that the work left.
    pub fn survey(&mut self) -> Vec<Input> {
        let Some(check) = self.check.clone() else { return vec![Input::Surveyed(Vec::new())] };
        let before = std::mem::take(&mut self.before);
        match BackgroundTask::start("check", move || check.survey(&before)) {
            Ok(task) => self.surveying = Some(task),
            Err(error) => {
                let lack = Lack::Unreadable { why: format!("no thread can be started to hash it: {error}") };
                let produced = Produced { declared: "the artifact".to_string(), files: Vec::new(), lack: Some(lack) };
                return vec![Input::Surveyed(vec![produced])];
            }
        }
        Vec::new()
    }

    /// Returns the result of a check, if it has finished.
    pub fn hear(&mut self) -> Vec<Input> {
        if let Some((inspection, before)) = self.inspecting.as_ref().and_then(BackgroundTask::result) {
            self.inspecting = None;
            self.before = before;
            let needs = self.check.as_ref().map_or(&[][..], |check| &check.needs);
            let passage = inspection.passage(needs);
            self.inputs = inspection.inputs;
            return vec![Input::Inspected(passage)];
        }
        if let Some(produced) = self.surveying.as_ref().and_then(BackgroundTask::result) {
            self.surveying = None;
            return vec![Input::Surveyed(produced)];
        }
        Vec::new()
    }

    /// Descriptors that become readable when a check has finished.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let inspecting = self.inspecting.as_ref().map(BackgroundTask::fd);
        inspecting.into_iter().chain(self.surveying.as_ref().map(BackgroundTask::fd))
    }
}

/// The slot that the upstreams are checked for: the grant's, or now without a lease.
fn asker(grant: Option<&Grant>) -> Asker {
    let lease = grant.and_then(|grant| grant.record.lease.as_ref());
    let zone = lease.and_then(|lease| Zone::parse(&lease.zone).ok());
    Asker { slot: lease.map_or_else(|| clock::now().wall, |lease| lease.slot), zone: zone.unwrap_or_else(Zone::utc) }
}

fn halted(error: &io::Error) -> Vec<Input> {
    let reason = format!("The upstreams cannot be asked, for no thread can be started: {error}");
    let barred = vec![Barred { job: "fencepost".to_string(), halt: true, reason }];
    vec![Input::Inspected(Passage::Halt { barred })]
}
