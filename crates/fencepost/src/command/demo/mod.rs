//! `fencepost demo`: five incidents of unattended jobs, live on this machine.
//!
//! Each incident is played twice with the same real processes: without the guard, where something breaks, and with it. What
//! happened is read back from the files that the processes left. Nothing outside one temporary directory is touched.
//!
//! * [`sandbox`]: the temporary directory, the environment of the processes, signals, removal.
//! * [`actor`]: one process that waits for its cues.
//! * [`incident`]: the five, a file each.
//! * [`narrator`]: what people read. Programs read a [`DemoAnswer`].

mod actor;
mod incident;
mod narrator;
mod sandbox;

use crate::args::Global;
use crate::args::demo::DemoOptions;
use crate::exit::{Code, Failure};
use crate::show;
use fencepost_view::answer::{Aftermath, DemoAnswer, IncidentAnswer};
use incident::{INCIDENTS, Incident};
use narrator::Narrator;
use sandbox::Sandbox;

/// Plays the incidents. Exits 0 only if each one happened without the guard and was prevented with it.
pub fn run(global: &Global, options: &DemoOptions) -> Result<Code, Failure> {
    let narrator = Narrator::new(global, options.fast);
    let failure = |error: DemoError| Failure::Other(error.to_string());
    let sandbox = Sandbox::create().map_err(failure)?;
    let played = play_all(&sandbox, &narrator, options.incident);
    let closed = sandbox.close(options.keep);
    let answer = match played {
        Ok(incidents) => DemoAnswer::new(incidents, closed.map_err(failure)?),
        Err(DemoError::Interrupted(signal)) => {
            narrator.kept(closed.map_err(failure)?.as_deref());
            return Ok(Code::of_signal(signal));
        }
        Err(error) => return Err(failure(error)),
    };
    narrator.close(&answer);
    if global.json {
        show::json(&answer);
    }
    Ok(if answer.prevented { Code::DONE } else { Code::REFUSED })
}

fn play_all(sandbox: &Sandbox, narrator: &Narrator, only: Option<u8>) -> Result<Vec<IncidentAnswer>, DemoError> {
    let chosen: Vec<&Incident> =
        INCIDENTS.iter().filter(|incident| only.is_none_or(|n| n == incident.number)).collect();
    narrator.open(sandbox.path(), chosen.len());
    let mut answers = Vec::new();
    for incident in chosen {
        answers.push(play(incident, sandbox, narrator)?);
    }
    Ok(answers)
}

/// Plays one incident: without the guard, then with it.
fn play(incident: &Incident, sandbox: &Sandbox, narrator: &Narrator) -> Result<IncidentAnswer, DemoError> {
    narrator.incident(sandbox, incident)?;
    let mut sides: Vec<Aftermath> = Vec::new();
    for side in [Side::Without, Side::With] {
        narrator.side(side);
        let aftermath = (incident.play)(&sandbox.scenery(narrator, incident, side)?)?;
        narrator.aftermath(sandbox, side, &aftermath)?;
        sides.push(aftermath);
    }
    let [without, with] = <[Aftermath; 2]>::try_from(sides).expect("an incident has two sides");
    Ok(IncidentAnswer::new(incident.number, incident.name, incident.title, without, with))
}

/// Whether the guard is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Without,
    With,
}

/// Why the demo ended early.
#[derive(Debug)]
pub enum DemoError {
    /// A signal asked the demo to stop.
    Interrupted(i32),
    Failed(String),
}

impl std::fmt::Display for DemoError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interrupted(signal) => write!(f, "The demo was ended by signal {signal}."),
            Self::Failed(why) => write!(f, "The demo could not go on: {why}"),
        }
    }
}
