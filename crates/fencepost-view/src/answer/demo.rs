//! What became of the incidents of the demo.

use schemars::JsonSchema;
use serde::Serialize;

use super::AnswerVersion;

/// `demo`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DemoAnswer {
    pub v: AnswerVersion,
    pub incidents: Vec<IncidentAnswer>,
    /// Whether every incident happened without the guard and was prevented with it.
    pub prevented: bool,
    /// The directory that `--keep` kept.
    pub directory: Option<String>,
}

/// One incident, without the guard and with it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct IncidentAnswer {
    /// Its number, from 1 to 5.
    pub incident: u8,
    pub name: String,
    pub title: String,
    pub without: Aftermath,
    pub with: Aftermath,
    pub prevented: bool,
}

/// One side of an incident, as its files show it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
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
    pub fn new(incidents: Vec<IncidentAnswer>, directory: Option<String>) -> Self {
        let prevented = incidents.iter().all(|incident| incident.prevented);
        Self { v: AnswerVersion, incidents, prevented, directory }
    }
}

impl IncidentAnswer {
    pub fn new(incident: u8, name: &str, title: &str, without: Aftermath, with: Aftermath) -> Self {
        let prevented = without.happened && !with.happened && with.done;
        Self { incident, name: name.into(), title: title.into(), without, with, prevented }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(happened: bool, done: bool) -> Aftermath {
        Aftermath { happened, done, result: String::new(), seen: Vec::new() }
    }

    #[test]
    fn an_incident_is_prevented_only_if_it_happened_and_the_work_was_done() {
        let prevented = |without, with| IncidentAnswer::new(1, "name", "title", without, with).prevented;
        assert!(prevented(side(true, false), side(false, true)));
        assert!(!prevented(side(false, true), side(false, true)), "it never happened");
        assert!(!prevented(side(true, false), side(true, true)), "it happened with the guard as well");
        assert!(!prevented(side(true, false), side(false, false)), "the guard kept the job from its work");
    }
}
