//! What `demo --json` prints.

use std::path::PathBuf;

use serde::Serialize;

use super::incident::Incident;

#[derive(Debug, Serialize)]
pub struct DemoAnswer {
    v: u32,
    pub incidents: Vec<IncidentAnswer>,
    /// Whether every incident happened without the guard and was prevented with it.
    pub prevented: bool,
    /// The directory that `--keep` kept.
    pub directory: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
pub struct IncidentAnswer {
    pub incident: u8,
    pub name: &'static str,
    pub title: &'static str,
    pub without: Aftermath,
    pub with: Aftermath,
    pub prevented: bool,
}

/// One side of an incident, as its files show it.
#[derive(Debug, Serialize)]
pub struct Aftermath {
    /// Whether the incident happened.
    pub happened: bool,
    /// Whether the job's work was done in the end. A guard that prevents the work prevents nothing.
    pub done: bool,
    /// One sentence for people.
    pub result: String,
    /// The lines that show it, each behind the name of its file.
    pub seen: Vec<String>,
}

impl DemoAnswer {
    pub fn new(incidents: Vec<IncidentAnswer>, directory: Option<PathBuf>) -> Self {
        let prevented = incidents.iter().all(|incident| incident.prevented);
        Self { v: 1, incidents, prevented, directory }
    }
}

impl IncidentAnswer {
    pub fn new(incident: &Incident, without: Aftermath, with: Aftermath) -> Self {
        let prevented = without.happened && !with.happened && with.done;
        Self { incident: incident.number, name: incident.name, title: incident.title, without, with, prevented }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::demo::incident::INCIDENTS;

    fn side(happened: bool, done: bool) -> Aftermath {
        Aftermath { happened, done, result: String::new(), seen: Vec::new() }
    }

    #[test]
    fn an_incident_is_prevented_only_if_it_happened_and_the_work_was_done() {
        let prevented = |without, with| IncidentAnswer::new(&INCIDENTS[0], without, with).prevented;
        assert!(prevented(side(true, true), side(false, true)));
        assert!(!prevented(side(false, true), side(false, true)), "it never happened");
        assert!(!prevented(side(true, true), side(true, true)), "it happened with the guard as well");
        assert!(!prevented(side(true, true), side(false, false)), "the guard kept the job from its work");
    }
}
