//! `fencepost lease hold`: renews a lease until end of file on standard input, and prints JSON lines about it.

use std::fs::File;
use std::io::ErrorKind;
use std::time::Duration;

use fencepost_core::run::{Event, Overlap, Run, Stages, Terms};
use fencepost_core::time::{Boot, millis};
use fencepost_core::token::Token;
use fencepost_core::zone::Zone;
use fencepost_guard::drive::{Note, drive};
use fencepost_guard::hold::Stdin;
use fencepost_guard::signals::Signals;
use fencepost_guard::transact::TransactError;
use fencepost_guard::{clock, descriptor};
use fencepost_view::ReasonCode;
use fencepost_view::answer::{AnswerVersion, HoldEvent, HoldLine};
use fencepost_view::run_end::RunContext;
use fencepost_view::summary::Summary;
use fencepost_view::time::UtcTime;

use super::LeaseDesk;
use crate::backlog::{Backlog, PATIENCE};
use crate::exit::{Code, Failure};
use crate::report::Voice;
use crate::show;

impl LeaseDesk<'_> {
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
            must_record: false,
            observe: false,
            stuck_after: None,
            inside: Vec::new(),
        };
        let failed = |error: std::io::Error| Failure::Other(format!("Cannot hold {}: {error}", self.job));
        let mut signals = Signals::listen().map_err(failed)?;
        let mut lines = Lines::new(self, ttl).map_err(failed)?;
        let store = self.place.callee(&self.store);
        let mut tell = |note: Note| lines.note(&note);
        let finish =
            drive(Run::new(terms), store, &self.place.local(), Some(&mut signals), &mut Stdin::new(), &mut tell);
        let summary =
            RunContext { job: &self.job, skip_exit: 0, now: clock::now().wall, zone: &Zone::utc() }.summary(finish);
        self.held_to_the_end(summary, lines)
    }

    fn held_to_the_end(&self, summary: Summary, mut lines: Lines<'_>) -> Result<Code, Failure> {
        if let Some(refusal) = summary.refusal {
            return self.refused(TransactError::Refused(*refusal));
        }
        match summary.reason {
            None => {
                lines.end(HoldEvent::Released, None);
                let _ = lines.backlog.pour(&mut lines.output, PATIENCE);
                Ok(Code::DONE)
            }
            Some(ReasonCode::Interrupted) => Ok(Code(summary.code)),
            Some(ReasonCode::Lost | ReasonCode::Timeout | ReasonCode::KeeperDied) => {
                let reason = summary.note.unwrap_or_default().replace("stopped: ", "");
                lines.end(HoldEvent::Lost, Some(reason.clone()));
                Voice::of(self.global).warn(&format!("{}: lease lost: {reason}.", self.job));
                Ok(Code::LOST)
            }
            Some(ReasonCode::Unrecorded) => Err(Failure::Other(format!(
                "{}: the lease could not be released before it ran out; it ends by itself.",
                self.job
            ))),
            Some(_) => {
                Err(summary.error.map_or_else(|| Failure::Other(summary.message.unwrap_or_default()), Failure::Store))
            }
        }
    }
}

/// Prints the lines about a held lease. A stalled reader must not delay the renewals.
struct Lines<'a> {
    desk: &'a LeaseDesk<'a>,
    ttl: Duration,
    granted: Option<(Token, u64)>,
    output: File,
    backlog: Backlog,
}

impl<'a> Lines<'a> {
    fn new(desk: &'a LeaseDesk<'a>, ttl: Duration) -> std::io::Result<Self> {
        Ok(Self { desk, ttl, granted: None, output: descriptor::for_writing(1)?, backlog: Backlog::new() })
    }

    fn note(&mut self, note: &Note) {
        let Note::Event(event) = note else { return };
        match event {
            Event::Claimed { token, grants, deadline, .. } => {
                self.granted = Some((*token, *grants));
                let line = self.line(HoldEvent::Held, Some(*deadline));
                self.put(HoldLine { ttl_ms: Some(millis(self.ttl)), ..line });
            }
            Event::Renewed { renewals, deadline } => {
                let line = self.line(HoldEvent::Renewed, Some(*deadline));
                self.put(HoldLine { renewals: Some(*renewals), ..line });
            }
            // The last line reports it.
            Event::Stopping(_) => return,
            Event::RenewalFailed { error } => {
                let line = self.line(HoldEvent::RenewalFailed, None);
                self.put(HoldLine { message: Some(error.detail.clone()), ..line });
            }
            _ => {}
        }
        Voice::of(self.desk.global).note(&self.desk.job.to_string(), note, &Zone::utc());
    }

    fn end(&mut self, event: HoldEvent, reason: Option<String>) {
        let line = self.line(event, None);
        self.put(HoldLine { reason: Some(reason), held: false, ..line });
    }

    /// Builds a line about the lease, with the time that its holder may rely on.
    fn line(&self, event: HoldEvent, deadline: Option<Boot>) -> HoldLine {
        let now = clock::now();
        let left = deadline.map(|deadline| deadline.since(now.boot));
        HoldLine {
            v: AnswerVersion,
            event,
            at: UtcTime(now.wall),
            job: self.desk.job.to_string(),
            token: self.granted.map(|(token, _)| token.number()),
            grants: self.granted.map(|(_, grants)| grants),
            run: self.desk.me.to_string(),
            until: left.map(|left| UtcTime(now.wall + left)),
            remaining_ms: left.map(millis),
            held: true,
            ttl_ms: None,
            renewals: None,
            message: None,
            reason: None,
        }
    }

    fn put(&mut self, line: HoldLine) {
        let line = serde_json::to_string(&line).expect("our own types serialize");
        match self.backlog.put(&line, &mut self.output) {
            // A closed pipe is no error: the reader has read enough. After any other error no reader gets the line.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => show::failed(&error),
            Ok(()) | Err(_) => {}
        }
    }
}
