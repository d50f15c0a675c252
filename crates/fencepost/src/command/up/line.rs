//! One line per event: for programs, for a file, or for people at a terminal.

use std::io::{IsTerminal, Write};

use fencepost_core::agenda::Agenda;
use fencepost_core::name::Name;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use serde_json::{Map, Value, json};

use super::program::Program;
use super::stamp;
use crate::args::Global;
use crate::show;

/// The widest that a column of names gets.
const NAME_MAX: usize = 32;

/// Something that happened.
#[derive(Debug)]
pub struct Line {
    job: Option<String>,
    event: String,
    fields: Vec<(&'static str, String)>,
    is_for_the_curious: bool,
}

impl Line {
    pub fn of_up(event: &str) -> Self {
        Self { job: None, event: event.to_string(), fields: Vec::new(), is_for_the_curious: false }
    }

    pub fn of_job(job: &Name, event: &str) -> Self {
        Self { job: Some(job.to_string()), ..Self::of_up(event) }
    }

    pub fn with(mut self, key: &'static str, value: &str) -> Self {
        self.fields.push((key, value.to_string()));
        self
    }

    pub fn with_some(self, key: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Only said with `-v`: where several machines do the same, most triggers find that another was first.
    pub fn for_the_curious(self) -> Self {
        Self { is_for_the_curious: true, ..self }
    }

    fn json(&self, at: &str) -> Value {
        let mut object = Map::new();
        object.insert("v".to_string(), json!(1));
        object.insert("at".to_string(), json!(at));
        object.insert("event".to_string(), json!(self.event));
        if let Some(job) = &self.job {
            object.insert("job".to_string(), json!(job));
        }
        for (key, value) in &self.fields {
            let number = value.parse::<i64>().ok().filter(|_| NUMBERS.contains(key));
            object.insert((*key).to_string(), number.map_or_else(|| json!(value), |number| json!(number)));
        }
        Value::Object(object)
    }

    fn details(&self) -> String {
        let shown = |value: &str| {
            let is_plain = !value.is_empty()
                && !value.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '='));
            if is_plain { value.to_string() } else { json!(value).to_string() }
        };
        self.fields.iter().map(|(key, value)| format!("{key}={}", shown(value))).collect::<Vec<_>>().join(" ")
    }
}

/// Fields that are numbers for programs.
const NUMBERS: [&str; 9] = ["jobs", "pid", "token", "count", "exit", "took_ms", "by_ms", "running", "signal"];

/// Where lines go, and how they look there.
#[derive(Debug)]
pub struct Printer {
    look: Style,
    verbose: bool,
    zone: Zone,
    width: usize,
    /// A line about what is next stands at the bottom of the terminal.
    shown_next: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Nothing,
    Json,
    Plain,
    Terminal { colours: bool },
}

impl Printer {
    pub fn new(global: &Global, program: &Program) -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let look = match (global.quiet, global.json) {
            (true, _) => Style::Nothing,
            (_, true) => Style::Json,
            _ if std::io::stdout().is_terminal() && !is_dumb => Style::Terminal { colours: !no_colour },
            _ => Style::Plain,
        };
        let mut printer =
            Self { look, verbose: global.verbose, zone: Zone::utc(), width: 0, shown_next: String::new() };
        printer.adapt(program);
        printer
    }

    pub fn adapt(&mut self, program: &Program) {
        self.zone = program.zone.clone();
        self.width = program.widest_name().min(NAME_MAX);
    }

    pub fn print(&mut self, line: &Line) {
        if line.is_for_the_curious && !self.verbose {
            return;
        }
        let at = stamp(clock::wall_now(), &self.zone);
        let job = line.job.as_deref().unwrap_or("-");
        match self.look {
            Style::Nothing => {}
            Style::Json => show::json(&line.json(&at)),
            Style::Plain => show::line(format!("{at} {job} {} {}", line.event, line.details()).trim_end()),
            Style::Terminal { colours } => {
                self.clear_next();
                let time = at.split_once('T').map_or(at.as_str(), |(_, time)| time.get(..8).unwrap_or(time));
                let width = self.width.max(1);
                let event = format!("{:12}", show::flat(&line.event));
                let details = show::flat(&line.details());
                let event = if colours { coloured(&line.event, &event) } else { event };
                show::write(&format!("{}\n", format!("{time}  {job:width$}  {event}  {details}").trim_end()));
            }
        }
    }

    /// Says at the bottom of a terminal what comes next.
    pub fn show_next(&mut self, agenda: &Agenda, running: usize) {
        if !matches!(self.look, Style::Terminal { .. }) {
            return;
        }
        let next = agenda.next().map_or_else(
            || "nothing is due any more".to_string(),
            |(name, slot)| format!("next {name} at {}", show::second_in(slot, &self.zone)),
        );
        let text = if running > 0 { format!("{next}, {running} running") } else { next };
        if text != self.shown_next {
            self.clear_next();
            let mut out = std::io::stdout().lock();
            let _ = write!(out, "{text}").and_then(|()| out.flush());
            self.shown_next = text;
        }
    }

    fn clear_next(&mut self) {
        if !self.shown_next.is_empty() {
            self.shown_next.clear();
            show::write("\r\x1b[K");
        }
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        self.clear_next();
    }
}

fn coloured(event: &str, text: &str) -> String {
    let code = match event {
        "ok" | "store_back" => 32,
        "started" | "up" | "reloaded" => 36,
        "error" | "timeout" | "lost" | "fenced" | "halted" | "died" | "not_started" | "reload_refused" => 31,
        "store_away" | "missed" | "stopping" | "ending" | "slept" | "clock_stepped" => 33,
        _ => 2,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}
