//! Writes the events of a run as JSON lines for programs (`--events`).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use fencepost_core::run::Event;
use fencepost_core::time::millis;
use fencepost_core::token::RunId;
use fencepost_guard::drive::Note;
use fencepost_guard::{clock, descriptor};
use fencepost_view::event::{EventLine, Predecessor, RunEvent, StopReason};

use crate::args::Sink;
use crate::backlog::{Backlog, PATIENCE};
use crate::exit::Failure;
use crate::show;

/// Where the events of a run go, if anywhere. A sink that breaks never disturbs the job.
#[derive(Debug)]
pub struct Events {
    file: Option<File>,
    backlog: Backlog,
    job: String,
    run: RunId,
}

impl Events {
    pub fn open(sink: Option<Sink>, job: String, run: RunId) -> Result<Self, Failure> {
        let file = sink.map(|sink| open(&sink)).transpose()?;
        Ok(Self { file, backlog: Backlog::new(), job, run })
    }

    /// The line that says what has just happened.
    pub fn line(&self, event: RunEvent) -> EventLine {
        EventLine { v: 1, at: show::time(clock::now().wall), job: self.job.clone(), run: self.run, event }
    }

    pub fn write(&mut self, line: &EventLine) {
        let Some(file) = &mut self.file else { return };
        let written = serde_json::to_string(line).map_err(std::io::Error::from);
        if written.and_then(|text| self.backlog.put(&text, file)).is_err() {
            self.file = None;
        }
    }

    /// Writes the last event, and waits a little for a stalled reader: nothing is guarded any more.
    pub fn end(&mut self, line: &EventLine) {
        self.write(line);
        if let Some(file) = &mut self.file {
            let _ = self.backlog.pour(file, PATIENCE);
        }
    }
}

/// The event that programs read of something that happened.
pub fn described(note: &Note) -> RunEvent {
    match note {
        Note::Spawned { pid } => RunEvent::Spawned { pid: *pid },
        Note::LeftOvers(processes) => RunEvent::LeftOvers { processes: processes.clone() },
        Note::Untrusted(lines) => RunEvent::Untrusted { lines: lines.clone() },
        Note::Unregistered(message) => RunEvent::Unregistered { message: message.clone() },
        Note::Event(event) => decided(event),
    }
}

/// The event that programs read of something that the run decided.
fn decided(event: &Event) -> RunEvent {
    match event {
        Event::Claimed { token, grants, slot, took_over, .. } => RunEvent::Claimed {
            token: *token,
            grants: *grants,
            slot: show::time(*slot),
            took_over: took_over.as_ref().map(|from| Predecessor { run: from.run, reason: from.note.clone() }),
        },
        Event::Waiting { record, .. } => RunEvent::Waiting { holder: record.lease.as_ref().map(|lease| lease.run) },
        Event::AskedToStop { record } => RunEvent::AskedToStop { holder: record.lease.as_ref().map(|lease| lease.run) },
        Event::Early { slot, wait } => RunEvent::Early { slot: show::time(*slot), wait_ms: millis(*wait) },
        Event::Renewed { renewals, .. } => RunEvent::Renewed { renewals: *renewals },
        Event::RenewalFailed { error } => RunEvent::RenewalFailed { message: error.detail.clone() },
        Event::Stopping(why) => RunEvent::Stopping { reason: StopReason::of(why), message: why.note() },
        Event::Frozen => RunEvent::Frozen,
        Event::Thawed => RunEvent::Thawed,
        Event::CompletionFailed { error } => RunEvent::CompletionFailed { message: error.detail.clone() },
        Event::Observed { status, reason } => RunEvent::Observed { status: *status, reason: reason.clone() },
        Event::Missed { missed } => {
            RunEvent::Missed { slot_from: show::time(missed.from), slot_to: show::time(missed.to), count: missed.count }
        }
        Event::Stuck { count } => RunEvent::Stuck { count: *count },
        Event::WithoutLease { error } => RunEvent::WithoutLease { message: error.detail.clone() },
    }
}

fn open(sink: &Sink) -> Result<File, Failure> {
    let (opened, name) = match sink {
        Sink::File(path) => {
            (OpenOptions::new().append(true).create(true).mode(0o600).open(path), path.display().to_string())
        }
        // The descriptor itself: opening its file again would write from another offset.
        Sink::Descriptor(number) => (descriptor::for_writing(*number), format!("fd:{number}")),
    };
    opened.map_err(|error| Failure::Usage(format!("Cannot write events to {name}: {error}")))
}
