//! The events of a run as programs read them: one JSON object per line.
//!
//! `run --events` writes them. `up` and the notifier read them. A reader skips events and fields that it does not know.

use fencepost_core::ledger::{EndedBy, Status};
use fencepost_core::run::StopCause;
use fencepost_core::token::{RunId, Token};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::summary::Summary;
use crate::vocabulary::{ReasonCode, WordSchema};

/// One line of `--events`. Times are RFC 3339 in UTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventLine {
    pub v: u32,
    pub at: String,
    pub job: String,
    #[schemars(with = "String")]
    pub run: RunId,
    #[serde(flatten)]
    pub event: RunEvent,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    Claimed {
        #[schemars(with = "u64")]
        token: Token,
        grants: u64,
        slot: String,
        took_over: Option<Predecessor>,
    },
    /// Another run holds the lease.
    Waiting {
        #[schemars(with = "Option<String>")]
        holder: Option<RunId>,
    },
    /// The holder was asked to stop.
    AskedToStop {
        #[schemars(with = "Option<String>")]
        holder: Option<RunId>,
    },
    /// The trigger is early and waits for its slot.
    Early {
        slot: String,
        wait_ms: u64,
    },
    Spawned {
        pid: i32,
    },
    Renewed {
        renewals: u64,
    },
    RenewalFailed {
        message: String,
    },
    Stopping {
        reason: StopReason,
        message: String,
    },
    /// The keeper woke past the deadline and stopped the tree.
    Frozen,
    Thawed,
    CompletionFailed {
        message: String,
    },
    /// What `--observe` did not do.
    Observed {
        #[schemars(with = "WordSchema<Status>")]
        status: Status,
        reason: String,
    },
    Missed {
        slot_from: String,
        slot_to: String,
        count: u64,
    },
    /// The last `count` good runs left the same artifacts.
    Stuck {
        count: u64,
    },
    WithoutLease {
        message: String,
    },
    /// Processes that the command left behind.
    LeftOvers {
        processes: Vec<String>,
    },
    /// Lines of the job's report that are not trusted.
    Untrusted {
        lines: Vec<String>,
    },
    /// Commands inside the run find it by their environment only.
    Unregistered {
        message: String,
    },
    /// The last event of every run.
    Ended(RunEnd),
    /// An event of a later version.
    #[serde(other)]
    Unknown,
}

/// The run before, which did not release its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Predecessor {
    #[schemars(with = "String")]
    pub run: RunId,
    pub reason: String,
}

/// The end of a run, as far as it is an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunEnd {
    #[schemars(with = "WordSchema<Status>")]
    pub status: Status,
    pub exit_code: u8,
    #[schemars(with = "WordSchema<EndedBy>")]
    pub ended_by: EndedBy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonCode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The last lines that a failed command printed, if they were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_output: Vec<String>,
}

impl RunEnd {
    pub fn of(summary: &Summary) -> Self {
        let &Summary { status, code, ended_by, reason, .. } = summary;
        let message = summary.message.clone().filter(|_| reason.is_some());
        let last_output = summary.last_output.clone();
        Self { status, exit_code: code, ended_by, reason, message, last_output }
    }
}

/// Why fencepost stops the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    Deadline,
    Taken,
    WokeLate,
    Timeout,
    Replaced,
    KeeperDied,
    /// A program was asked to stop and did not end within its grace.
    NotStopped,
    /// A word of a later version.
    #[serde(other)]
    Other,
}

impl StopReason {
    pub fn of(why: &StopCause) -> Self {
        match why {
            StopCause::Deadline => Self::Deadline,
            StopCause::Taken { .. } => Self::Taken,
            StopCause::WokeLate => Self::WokeLate,
            StopCause::Timeout => Self::Timeout,
            StopCause::Replaced(_) => Self::Replaced,
            StopCause::KeeperDied => Self::KeeperDied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#""v":1,"at":"2026-01-01T00:00:00Z","job":"a","run":"00000000-0000-0000-0000-000000000007""#;

    fn read(fields: &str) -> RunEvent {
        serde_json::from_str::<EventLine>(&format!("{{{HEAD},{fields}}}")).unwrap().event
    }

    #[test]
    fn every_event_is_read_as_it_was_written() {
        let run = RunId(uuid::Uuid::from_u128(7));
        let end = RunEnd {
            status: Status::SkippedOverlap,
            exit_code: 0,
            ended_by: EndedBy::Fencepost,
            reason: Some(ReasonCode::Held),
            message: Some("a skipped".to_string()),
            last_output: vec!["oh no".to_string()],
        };
        let took_over = Some(Predecessor { run, reason: "its host rebooted".to_string() });
        let token = Token::new(7).unwrap();
        for event in [
            RunEvent::Claimed { token, grants: 3, slot: "2026-01-01T00:00:00Z".to_string(), took_over },
            RunEvent::Frozen,
            RunEvent::Stopping { reason: StopReason::WokeLate, message: "stopped".to_string() },
            RunEvent::LeftOvers { processes: vec!["sleep".to_string()] },
            RunEvent::Ended(end),
        ] {
            let line = EventLine { v: 1, at: "now".to_string(), job: "a".to_string(), run, event };
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<EventLine>(&text).unwrap(), line, "{text}");
        }
    }

    #[test]
    fn an_event_is_one_flat_object() {
        let event = RunEvent::Ended(RunEnd {
            status: Status::Ok,
            exit_code: 0,
            ended_by: EndedBy::Child,
            reason: None,
            message: None,
            last_output: Vec::new(),
        });
        let run = RunId(uuid::Uuid::from_u128(7));
        let line = EventLine { v: 1, at: "2026-01-01T00:00:00Z".to_string(), job: "a".to_string(), run, event };
        let fields = r#""event":"ended","status":"ok","exit_code":0,"ended_by":"child""#;
        assert_eq!(serde_json::to_string(&line).unwrap(), format!("{{{HEAD},{fields}}}"));
    }

    #[test]
    fn unknown_events_fields_and_words_are_skipped() {
        assert_eq!(read(r#""event":"teleported","to":{"x":1}"#), RunEvent::Unknown);
        assert_eq!(read(r#""event":"renewed","renewals":4,"by":["a"]"#), RunEvent::Renewed { renewals: 4 });
        let RunEvent::Ended(end) =
            read(r#""event":"ended","status":"error","exit_code":9,"ended_by":"child","reason":"new","more":null"#)
        else {
            panic!("it is an end")
        };
        assert_eq!((end.exit_code, end.reason, end.message), (9, Some(ReasonCode::Other), None));
    }
}
