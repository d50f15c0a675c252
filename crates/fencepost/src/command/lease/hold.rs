//! `fencepost lease hold`: a lease that is renewed for as long as somebody wants it, and told in lines of JSON.

use std::fs::File;
use std::io::ErrorKind;
use std::time::Duration;

use fencepost_core::run::{Event, Overlap, Run, Stages, Terms};
use fencepost_core::time::{Boot, millis};
use fencepost_core::token::Token;
use fencepost_guard::drive::{Note, drive};
use fencepost_guard::hold::Stdin;
use fencepost_guard::signals::Signals;
use fencepost_guard::summary::{EndReason, Summary};
use fencepost_guard::transact::TransactError;
use fencepost_guard::{clock, descriptor};
use serde_json::{Value, json};

use super::Desk;
use crate::backlog::{Backlog, PATIENCE};
use crate::exit::{Code, Failure};
use crate::report::Voice;
use crate::show;
use crate::summary::Asked;

impl Desk<'_> {
    pub fn hold(&self, ttl: Duration, wait: Option<Duration>) -> Result<Code, Failure> {
        let mut claim = self.claim(ttl);
        claim.holder = self.place.host.holder_for_another();
        let terms = Terms {
            job: self.job.clone(),
            claim,
            grace: Duration::ZERO,
            overlap: Overlap::Skip,
            wait,
            timeout: None,
            run_without_store: false,
            stages: Stages::default(),
            empty_exit: None,
            observe: false,
            stuck_after: None,
            inside: Vec::new(),
        };
        let failed = |error: std::io::Error| Failure::Other(format!("Cannot hold {}: {error}", self.job));
        let mut signals = Signals::listen().map_err(failed)?;
        let mut lines = Lines::new(self, ttl).map_err(failed)?;
        let store = self.place.callee(&self.store);
        let mut tell = |note: Note| lines.note(&note);
        let finish = drive(Run::new(terms), store, &self.place.local(), &mut signals, &mut Stdin::new(), &mut tell);
        let summary = Asked { job: &self.job, skip_exit: 0, now: clock::now().wall }.summary(finish);
        self.held_to_the_end(summary, lines)
    }

    fn held_to_the_end(&self, summary: Summary, mut lines: Lines<'_>) -> Result<Code, Failure> {
        if let Some(refusal) = summary.refusal {
            return self.refused(TransactError::Refused(*refusal));
        }
        match summary.reason {
            None => {
                lines.end("released", None);
                let _ = lines.backlog.pour(&mut lines.output, PATIENCE);
                Ok(Code::DONE)
            }
            Some(EndReason::Interrupted) => Ok(Code(summary.code)),
            Some(EndReason::Lost | EndReason::Timeout | EndReason::KeeperDied) => {
                let reason = summary.note.unwrap_or_default().replace("stopped: ", "");
                lines.end("lost", Some(&reason));
                Voice::of(self.global).warn(&format!("{}: lease lost: {reason}.", self.job));
                Ok(Code::LOST)
            }
            Some(EndReason::Unrecorded) => Err(Failure::Other(format!(
                "{}: the lease could not be released before it ran out; it ends by itself.",
                self.job
            ))),
            Some(_) => {
                Err(summary.error.map_or_else(|| Failure::Other(summary.message.unwrap_or_default()), Failure::Store))
            }
        }
    }
}

/// What is printed of a lease that is held. Whoever reads the first line only must not keep it from being renewed.
struct Lines<'a> {
    desk: &'a Desk<'a>,
    ttl: Duration,
    granted: Option<(Token, u64)>,
    output: File,
    backlog: Backlog,
}

impl<'a> Lines<'a> {
    fn new(desk: &'a Desk<'a>, ttl: Duration) -> std::io::Result<Self> {
        Ok(Self { desk, ttl, granted: None, output: descriptor::for_writing(1)?, backlog: Backlog::new() })
    }

    fn note(&mut self, note: &Note) {
        let Note::Event(event) = note else { return };
        match event {
            Event::Claimed { token, grants, deadline, .. } => {
                self.granted = Some((*token, *grants));
                self.put("held", Some(*deadline), json!({ "ttl_ms": millis(self.ttl) }));
            }
            Event::Renewed { renewals, deadline } => {
                self.put("renewed", Some(*deadline), json!({ "renewals": renewals }));
            }
            // The last line says so.
            Event::Stopping(_) => return,
            Event::RenewalFailed { error } => self.put("renewal_failed", None, json!({ "message": error.detail })),
            _ => {}
        }
        Voice::of(self.desk.global).note(&self.desk.job.to_string(), note);
    }

    fn end(&mut self, event: &str, reason: Option<&str>) {
        self.put(event, None, json!({ "reason": reason, "held": false }));
    }

    /// Prints a line about the lease, with the time that its holder may rely on.
    fn put(&mut self, event: &str, deadline: Option<Boot>, more: Value) {
        let now = clock::now();
        let left = deadline.map(|deadline| deadline.since(now.boot));
        let mut line = json!({
            "v": 1,
            "event": event,
            "at": show::time(now.wall),
            "job": self.desk.job.to_string(),
            "token": self.granted.map(|(token, _)| token),
            "grants": self.granted.map(|(_, grants)| grants),
            "run": self.desk.me,
            "until": left.map(|left| show::time(now.wall + left)),
            "remaining_ms": left.map(millis),
            "held": true,
        });
        if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
            line.extend(more);
        }
        match self.backlog.put(&line.to_string(), &mut self.output) {
            // Whoever has read enough is no trouble; that nobody can is.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => show::failed(&error),
            Ok(()) | Err(_) => {}
        }
    }
}
