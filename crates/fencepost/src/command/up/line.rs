//! One line per event: JSON for programs, plain for a file, or formatted for a terminal.

use std::fmt;
use std::io::{IsTerminal, Write};

use fencepost_core::agenda::Agenda;
use fencepost_core::name::Name;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_view::up::{UpEvent, UpEventLine};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::program::Program;
use super::stamp;
use crate::args::Global;
use crate::show;

/// Maximum width of the column of names.
const NAME_MAX: usize = 32;

/// An event of one job or of `up` itself.
#[derive(Debug)]
pub struct UpLine {
    job: Option<Name>,
    event: UpEvent,
    needs_verbose: bool,
}

impl UpLine {
    pub fn of_up(event: UpEvent) -> Self {
        Self { job: None, event, needs_verbose: false }
    }

    pub fn of_job(job: &Name, event: UpEvent) -> Self {
        Self { job: Some(job.clone()), ..Self::of_up(event) }
    }

    /// Prints the line only with `-v` if `is_quiet`: with several machines, most triggers find that another was first.
    pub fn quiet_if(self, is_quiet: bool) -> Self {
        Self { needs_verbose: is_quiet, ..self }
    }

    fn details(&self) -> String {
        let shown = |value: &Value| match value {
            Value::String(text) if is_plain(text) => text.clone(),
            other => other.to_string(),
        };
        let fields = fields(&self.event);
        fields.iter().map(|(key, value)| format!("{key}={}", shown(value))).collect::<Vec<_>>().join(" ")
    }
}

/// Whether a value needs no quotes.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '='))
}

/// The fields of an event in declaration order.
fn fields(event: &UpEvent) -> Vec<(String, Value)> {
    let text = serde_json::to_string(event).unwrap_or_default();
    serde_json::from_str(&text).map_or_else(|_| Vec::new(), |Fields(fields)| fields)
}

/// The fields of a JSON object, in order.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor).map(Self)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Vec<(String, Value)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        std::iter::from_fn(|| map.next_entry().transpose()).collect()
    }
}

/// The destination and format of lines.
#[derive(Debug)]
pub struct Printer {
    look: Style,
    verbose: bool,
    zone: Zone,
    width: usize,
    /// The line about the next runs at the bottom of the terminal.
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

    pub fn print(&mut self, line: &UpLine) {
        if line.needs_verbose && !self.verbose {
            return;
        }
        let at = stamp(clock::wall_now(), &self.zone);
        let (job, event) = (line.job.as_ref().map(Name::as_str), line.event.name());
        let who = job.unwrap_or("-");
        match self.look {
            Style::Nothing => {}
            Style::Json => show::json(&UpEventLine::new(at, job, line.event.clone())),
            Style::Plain => show::line(format!("{at} {who} {event} {}", line.details()).trim_end()),
            Style::Terminal { colours } => {
                self.clear_next();
                let time = at.split_once('T').map_or(at.as_str(), |(_, time)| time.get(..8).unwrap_or(time));
                let width = self.width.max(1);
                let details = show::flat(&line.details());
                let padded = format!("{event:12}");
                let event = if colours { coloured(event, &padded) } else { padded };
                show::write(&format!("{}\n", format!("{time}  {who:width$}  {event}  {details}").trim_end()));
            }
        }
    }

    /// Shows the next runs at the bottom of a terminal.
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
        "error" | "timeout" | "lost" | "fenced" | "halted" | "died" | "not_started" | "reload_refused" | "broken" => 31,
        "store_away" | "missed" | "stopping" | "ending" | "slept" | "clock_stepped" => 33,
        _ => 2,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}
