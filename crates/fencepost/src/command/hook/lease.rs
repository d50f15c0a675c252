//! Whether a run may still write: its lease, its deadline, and whether it is asked to stop.

use std::time::Duration;

use fencepost_core::fence::Level;
use fencepost_core::name::Job;
use fencepost_core::record::Record;
use fencepost_core::said::Published;
use fencepost_core::token::Token;
use fencepost_guard::clock;
use fencepost_guard::run_state::RunState;
use fencepost_guard::transact::look;

use crate::args::Global;
use crate::exit::Failure;
use crate::inside::{Inside, variable};
use crate::place::Place;
use crate::rehearsal;

/// How long the store may take to answer. Agents give a hook ten seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a tool must not write now.
#[derive(Debug, PartialEq, Eq)]
pub enum Denial {
    /// The lease is lost. `seen` is the newest token of the job, if it is known.
    Lost { why: String, seen: Option<Token> },
    /// The run is ending.
    Ending(String),
    /// It cannot be told whether the lease is held.
    Unknown(String),
}

impl Denial {
    /// What the agent is told: the reason, and what to do.
    pub fn instruction(&self, tool: &str, job: &Job) -> String {
        match self {
            Self::Lost { why, .. } => format!(
                "fencepost refused {tool}: this run of {job} has lost its lease: {why}. Another run may be doing the same work \
                 now. Write nothing more, in no other way either. Say in a few words what is left undone, and stop."
            ),
            Self::Ending(why) => format!(
                "fencepost refused {tool}: this run of {job} is ending: {why}. Write nothing more, in no other way either. Say \
                 in a few words what is left undone, and stop."
            ),
            Self::Unknown(why) => format!(
                "fencepost refused {tool}: it is unknown whether this run of {job} still holds its lease: {why}. Wait a \
                 minute, then try the same call again. Do not write in another way."
            ),
        }
    }
}

impl Inside {
    /// A write that was refused, for the run's report: it then ends as fenced.
    pub fn refused_write(&self, why: String, seen: Option<Token>) -> Option<Published> {
        let token = variable("FENCEPOST_TOKEN")?.parse().ok().and_then(Token::new)?;
        Some(Published {
            resource: "tools of the agent".to_string(),
            kind: "tool".to_string(),
            level: Level::Gated,
            token,
            run: self.run,
            at: clock::wall_now(),
            seen: seen.unwrap_or(token),
            refused: Some(why),
        })
    }
}

/// Checks what the wrapper says first, then the store.
pub fn check_lease(global: &Global, inside: &Inside, state: Option<&RunState>) -> Result<(), Denial> {
    if rehearsal::is_on() {
        return Ok(());
    }
    let Some(state) = state else {
        return Err(Denial::Unknown("the file in which the run's wrapper tells its state cannot be read".to_string()));
    };
    if let Some(why) = &state.stopping {
        return Err(Denial::Ending(why.clone()));
    }
    let now = clock::boot_now();
    match state.deadline {
        Some(deadline) if now >= deadline => {
            return Err(Denial::Lost { why: "it was not renewed in time".to_string(), seen: None });
        }
        Some(deadline) if deadline.since(now) < state.grace => {
            return Err(Denial::Ending("its lease is not renewed and ends in a moment".to_string()));
        }
        _ => {}
    }
    let unknown = |failure: Failure| Denial::Unknown(failure.message().trim_end_matches('.').to_string());
    let place = Place::find(global).map_err(unknown)?;
    let job = inside.job.clone();
    let found = place.ask_within(PATIENCE, move |place| {
        let store = place.open_to_read()?;
        Ok(look(store.as_ref(), &job)?.0)
    });
    match found {
        None => Err(Denial::Unknown(format!("{} does not answer", place.shown_store()))),
        Some(Err(failure)) => Err(unknown(failure)),
        Some(Ok(record)) => holds(inside, record.as_ref()),
    }
}

fn holds(inside: &Inside, record: Option<&Record>) -> Result<(), Denial> {
    let Some(record) = record else {
        return Err(Denial::Lost { why: "the store has no record of the job".to_string(), seen: None });
    };
    let seen = Some(record.token);
    match &record.lease {
        Some(lease) if lease.run == inside.run => match &lease.stop_asked {
            Some(asked) => Err(Denial::Ending(format!("another run, on {}, asked it to hand over", asked.host))),
            None => Ok(()),
        },
        Some(lease) => {
            let why = format!("it is held by {} under token {}", lease.holder.host, record.token);
            Err(Denial::Lost { why, seen })
        }
        None => Err(Denial::Lost { why: "it was released or taken away".to_string(), seen }),
    }
}
