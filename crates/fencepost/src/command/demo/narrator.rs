//! The demo's output for people: plain text, at most 78 columns wide, with colours and pauses only on a terminal.

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use fencepost_view::answer::{Aftermath, DemoAnswer};

use super::incident::Incident;
use super::sandbox::Sandbox;
use super::{DemoError, Side};
use crate::args::Global;
use crate::show;

const COLUMNS: usize = 78;

/// Pauses for reading. With all of them the demo takes less than 40 seconds.
const AFTER_STORY: Duration = Duration::from_secs(1);
const AFTER_STEP: Duration = Duration::from_millis(200);
const AFTER_SIDE: Duration = Duration::from_millis(600);

/// Indentation of each kind of line.
const STORY: &str = "   ";
const STEP: &str = "     ";
const DETAIL: &str = "       ";

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const FAINT: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

#[derive(Debug)]
pub struct Narrator {
    speaks: bool,
    colours: bool,
    pauses: bool,
}

impl Narrator {
    pub fn new(global: &Global, fast: bool) -> Self {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_terminal = std::io::stdout().is_terminal();
        let speaks = !global.json && !global.quiet;
        Self { speaks, colours: is_terminal && !is_dumb && !is_set("NO_COLOR"), pauses: speaks && is_terminal && !fast }
    }

    pub fn open(&self, directory: &Path, incidents: usize) {
        let incidents = if incidents == 1 { "One incident" } else { "Five incidents" };
        self.say("", "", &format!("{incidents} of unattended jobs, first without the guard, then with it."));
        self.say("", "", &format!("Real processes, in {}.", directory.display()));
    }

    pub fn incident(&self, sandbox: &Sandbox, incident: &Incident) -> Result<(), DemoError> {
        self.gap();
        self.say(BOLD, "", &format!("{}. {}", incident.number, incident.title));
        self.say("", STORY, incident.story);
        self.pause(sandbox, AFTER_STORY)
    }

    pub fn side(&self, side: Side) {
        self.gap();
        let heading = match side {
            Side::Without => "without the guard",
            Side::With => "with the guard",
        };
        self.say(BOLD, STORY, heading);
    }

    /// Shows a command that is started, ready to be copied.
    pub fn command(&self, sandbox: &Sandbox, line: &str) -> Result<(), DemoError> {
        let room = COLUMNS - STEP.len() - " \\".len();
        let lines = wrapped(&format!("$ {}", show::flat(line)), room, "    ");
        self.print("", STEP, &lines.join(" \\\n"));
        self.pause(sandbox, AFTER_STEP)
    }

    /// Shows the next step.
    pub fn step(&self, sandbox: &Sandbox, text: &str) -> Result<(), DemoError> {
        self.say("", STEP, text);
        self.pause(sandbox, AFTER_STEP)
    }

    /// Shows how a process ended, with its last line of output.
    pub fn end(&self, who: &str, code: i32, said: &str) {
        let who = if who.is_empty() { String::new() } else { format!("{who}: ") };
        let said = if said.is_empty() { String::new() } else { format!(". {said}") };
        self.say(FAINT, DETAIL, &format!("{who}exit {code}{said}"));
    }

    pub fn aftermath(&self, sandbox: &Sandbox, side: Side, aftermath: &Aftermath) -> Result<(), DemoError> {
        for line in &aftermath.seen {
            self.say(FAINT, DETAIL, line);
        }
        let (colour, word) = match (side, aftermath.happened, aftermath.done) {
            (_, true, _) => (RED, "BROKEN"),
            (Side::With, false, true) => (GREEN, "PREVENTED"),
            (Side::With, false, false) => (RED, "NOT DONE"),
            (Side::Without, false, _) => (RED, "DID NOT HAPPEN"),
        };
        self.say(colour, STEP, &format!("{word}: {}", aftermath.result));
        self.pause(sandbox, AFTER_SIDE)
    }

    /// Prints the last lines.
    pub fn close(&self, answer: &DemoAnswer) {
        self.gap();
        let prevented = answer.incidents.iter().filter(|incident| incident.prevented).count();
        let all = answer.incidents.len();
        let colour = if answer.prevented { GREEN } else { RED };
        let verdict = format!("{prevented} of {all} happened without the guard and were prevented with it.");
        self.say(colour, "", &verdict);
        self.kept(answer.directory.as_deref());
        if answer.directory.is_none() {
            self.say("", "", "No file and no process is left. --keep keeps the directory.");
        }
    }

    /// Prints where the kept files are.
    pub fn kept(&self, directory: Option<&str>) {
        if let Some(directory) = directory {
            self.say("", "", &format!("Kept: {directory}"));
        }
    }

    fn gap(&self) {
        if self.speaks {
            show::line("");
        }
    }

    /// Prints a wrapped paragraph with a hanging indent.
    fn say(&self, colour: &str, indent: &str, text: &str) {
        let hanging = if indent == STORY { "" } else { "  " };
        let lines = wrapped(&show::flat(text), COLUMNS - indent.len(), hanging);
        self.print(colour, indent, &lines.join("\n"));
    }

    fn print(&self, colour: &str, indent: &str, text: &str) {
        if !self.speaks {
            return;
        }
        for line in text.lines() {
            match (self.colours, colour) {
                (false, _) | (true, "") => show::line(&format!("{indent}{line}")),
                (true, colour) => show::write(&format!("{indent}{colour}{line}{PLAIN}\n")),
            }
        }
    }

    fn pause(&self, sandbox: &Sandbox, time: Duration) -> Result<(), DemoError> {
        sandbox.pause(if self.pauses { time } else { Duration::ZERO })
    }
}

/// Wraps a text at its spaces. A word longer than a line stays whole, so a path can be copied.
fn wrapped(text: &str, columns: usize, hanging: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("{hanging}{word}")),
            None => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_at_its_spaces_and_a_long_word_is_left_whole() {
        assert_eq!(wrapped("one two three", 7, "  "), ["one two", "  three"]);
        assert_eq!(wrapped("one two three", 80, "  "), ["one two three"]);
        assert_eq!(wrapped("see /a/very/long/path now", 8, ""), ["see", "/a/very/long/path", "now"]);
    }
}
