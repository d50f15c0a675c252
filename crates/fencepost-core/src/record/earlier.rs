//! The record of a resource as earlier versions wrote it: one value for the fence and the command that runs.
//!
//! It becomes a [`Record`] when it is read, and is written as one at the next swap.

use alloc::boxed::Box;
use alloc::string::String;
use core::time::Duration;

use serde::Deserialize;

use super::{FORMAT, Holder, Lease, Record, Unreadable, Until, decode};
use crate::fence::Fence;
use crate::ledger::{EndedBy, Ledger, Outcome, Status, Trigger};
use crate::name::Job;
use crate::time::{Wall, as_millis};
use crate::token::{Nonce, RunId, Token};

/// The fence of a resource, and the command that it was advanced for.
#[derive(Deserialize)]
struct Turn {
    resource: String,
    nonce: Nonce,
    fence: Fence,
    turn: RunId,
    state: TurnState,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum TurnState {
    Running(Box<TurnLease>),
    Ended { code: i32 },
    NotStarted,
}

#[derive(Deserialize)]
struct TurnLease {
    #[serde(rename = "ttl_ms", with = "as_millis")]
    ttl: Duration,
    renewals: u64,
    #[serde(default)]
    until: Option<Until>,
    holder: Holder,
    since: Wall,
}

/// Reads the record of a resource, in its present or its earlier shape.
pub(super) fn decode_resource(bytes: &[u8]) -> Result<Record, Unreadable> {
    /// Only the earlier shape names the turn.
    #[derive(Deserialize)]
    struct Shape {
        turn: Option<RunId>,
    }
    match decode::<Shape>(bytes)?.turn {
        Some(_) => decode::<Turn>(bytes).map(Turn::into_record),
        None => decode(bytes),
    }
}

impl Turn {
    /// The earlier shape had no token of its own, so the first claim mints one.
    fn into_record(self) -> Record {
        let mut ledger = Ledger::default();
        let lease = match self.state {
            TurnState::Running(ref running) => Some(self.lease(running)),
            TurnState::Ended { code } => {
                ledger.push(self.outcome(Some(code)));
                None
            }
            TurnState::NotStarted => {
                ledger.push(self.outcome(None));
                None
            }
        };
        Record {
            v: FORMAT,
            store: self.fence.store,
            job: Job::of_resource(&self.resource),
            token: Token::default(),
            grants: 0,
            nonce: self.nonce,
            ledger,
            resources: Default::default(),
            upstreams: Default::default(),
            timing: None,
            paused: None,
            forgotten: None,
            definition: None,
            params: None,
            fence: Some(self.fence),
            moved_to: None,
            unknown: Default::default(),
            lease,
        }
    }

    fn lease(&self, running: &TurnLease) -> Lease {
        Lease {
            run: self.turn,
            ttl: running.ttl,
            renewals: running.renewals,
            until: running.until.clone(),
            holder: running.holder.clone(),
            slot: self.fence.at,
            zone: "UTC".into(),
            trigger: Trigger::Manual,
            covers: None,
            since: running.since,
            stop_asked: None,
            unknown: Default::default(),
        }
    }

    /// How the command ended. Without a code it could not be started.
    fn outcome(&self, code: Option<i32>) -> Outcome {
        let status = if code == Some(0) { Status::Ok } else { Status::Error };
        Outcome {
            slot: self.fence.at,
            zone: "UTC".into(),
            status,
            token: Token::default(),
            run: self.turn,
            host: self.fence.host.clone(),
            trigger: Trigger::Manual,
            unstarted: code.is_none(),
            started: self.fence.at,
            finished: self.fence.at,
            exit_code: code,
            ended_by: if code.is_some() { EndedBy::Child } else { EndedBy::Fencepost },
            tries: None,
            took: None,
            note: None,
            artifacts: Default::default(),
            upstreams: Default::default(),
            covers: None,
            clipped: false,
            unknown: Default::default(),
        }
    }
}
