//! What happens during a run, as JSON lines for programs (`--events`).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use fencepost_core::ledger::Status;
use fencepost_core::run::{Event, Finish, Why};
use fencepost_guard::drive::Note;
use fencepost_guard::{clock, descriptor};
use serde_json::{Map, Value, json};

use crate::args::Sink;
use crate::backlog::{Backlog, PATIENCE};
use crate::exit::Failure;
use crate::report;
use crate::show;

/// Where events go, if anywhere. A sink that breaks never disturbs the job.
#[derive(Debug)]
pub struct Events {
    file: Option<File>,
    backlog: Backlog,
    job: String,
    run: String,
}

impl Events {
    pub fn open(sink: Option<Sink>, job: String, run: String) -> Result<Self, Failure> {
        let file = sink.map(|sink| open(&sink)).transpose()?;
        Ok(Self { file, backlog: Backlog::new(), job, run })
    }

    pub fn note(&mut self, note: &Note) {
        let (event, fields) = match note {
            Note::Spawned { pid } => ("spawned", json!({ "pid": pid })),
            Note::LeftOvers(processes) => ("left_overs", json!({ "processes": processes })),
            Note::Untrusted(lines) => ("untrusted", json!({ "lines": lines })),
            Note::Event(event) => described(event),
        };
        self.write(event, fields);
    }

    /// The last event of every run.
    pub fn end(&mut self, finish: &Finish, status: &str, exit_code: u8) {
        let ended_by = match finish {
            Finish::Ended { judgement, .. } | Finish::WithoutLease { judgement, .. } => judgement.ended_by.as_str(),
            Finish::Unrecorded { .. } => "child",
            _ => "fencepost",
        };
        let mut fields = json!({ "status": status, "exit_code": exit_code, "ended_by": ended_by });
        if let Some((reason, message)) = report::reason_and_words(&self.job, finish, clock::now().wall) {
            fields["reason"] = json!(reason);
            fields["message"] = json!(message);
        }
        self.write("ended", fields);
        self.flush();
    }

    /// The last event of a run that failed before it came to anything.
    pub fn fail(&mut self, failure: &Failure, exit_code: u8) {
        let (status, message) = (Status::Error.as_str(), failure.message());
        let reason = failure.reason();
        let fields = json!({
            "status": status, "exit_code": exit_code, "ended_by": "fencepost", "reason": reason, "message": message
        });
        self.write("ended", fields);
        self.flush();
    }

    fn write(&mut self, event: &str, fields: Value) {
        let Some(file) = &mut self.file else { return };
        let mut object = Map::new();
        object.insert("v".to_string(), json!(1));
        object.insert("event".to_string(), json!(event));
        object.insert("at".to_string(), json!(show::time(clock::now().wall)));
        object.insert("job".to_string(), json!(self.job));
        object.insert("run".to_string(), json!(self.run));
        if let Value::Object(fields) = fields {
            object.extend(fields);
        }
        if self.backlog.put(&Value::Object(object).to_string(), file).is_err() {
            self.file = None;
        }
    }

    /// Waits a little for a reader who has not taken everything yet, now that nothing is guarded any more.
    fn flush(&mut self) {
        if let Some(file) = &mut self.file {
            let _ = self.backlog.pour(file, PATIENCE);
        }
    }
}

fn described(event: &Event) -> (&'static str, Value) {
    match event {
        Event::Claimed { token, grants, slot, took_over, .. } => {
            let took_over = took_over.as_ref().map(|from| json!({ "run": from.run, "reason": from.note }));
            ("claimed", json!({ "token": token, "grants": grants, "slot": show::time(*slot), "took_over": took_over }))
        }
        Event::Waiting { record, .. } => ("waiting", json!({ "holder": record.lease.as_ref().map(|l| l.run) })),
        Event::AskedToStop { record } => ("asked_to_stop", json!({ "holder": record.lease.as_ref().map(|l| l.run) })),
        Event::Early { slot, wait } => {
            ("early", json!({ "slot": show::time(*slot), "wait_ms": fencepost_core::time::millis(*wait) }))
        }
        Event::Renewed { renewals, .. } => ("renewed", json!({ "renewals": renewals })),
        Event::RenewalFailed { error } => ("renewal_failed", json!({ "message": error.detail })),
        Event::Stopping(why) => ("stopping", json!({ "reason": reason(why), "message": why.note() })),
        Event::Frozen => ("frozen", json!({})),
        Event::Thawed => ("thawed", json!({})),
        Event::CompletionFailed { error } => ("completion_failed", json!({ "message": error.detail })),
        Event::Observed { status, reason } => ("observed", json!({ "status": status.as_str(), "reason": reason })),
        Event::Missed { missed } => (
            "missed",
            json!({
                "slot_from": show::time(missed.from), "slot_to": show::time(missed.to), "count": missed.count
            }),
        ),
        Event::Stuck { count } => ("stuck", json!({ "count": count })),
        Event::WithoutLease { error } => ("without_lease", json!({ "message": error.detail })),
    }
}

fn reason(why: &Why) -> &'static str {
    match why {
        Why::Deadline => "deadline",
        Why::Taken { .. } => "taken",
        Why::WokeLate => "woke_late",
        Why::Timeout => "timeout",
        Why::Replaced(_) => "replaced",
        Why::KeeperDied => "keeper_died",
    }
}

fn open(sink: &Sink) -> Result<File, Failure> {
    let (opened, name) = match sink {
        Sink::File(path) => {
            (OpenOptions::new().append(true).create(true).mode(0o600).open(path), path.display().to_string())
        }
        // The very descriptor, and not its file opened once more: that would begin to write somewhere else.
        Sink::Descriptor(number) => (descriptor::for_writing(*number), format!("fd:{number}")),
    };
    opened.map_err(|error| Failure::Usage(format!("Cannot write events to {name}: {error}")))
}
