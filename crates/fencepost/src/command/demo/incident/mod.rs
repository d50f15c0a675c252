//! The five incidents. One function plays each on both sides: the same steps, with and without the guard.

mod half_done;
mod leftovers;
mod overtaking;
mod two_machines;
mod zombie;

use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_view::answer::Aftermath;
use nix::unistd::Pid;

use super::DemoError;
use super::sandbox::Scenery;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

#[derive(Debug)]
pub struct Incident {
    pub number: u8,
    /// Identifier in JSON answers and file names.
    pub name: &'static str,
    pub title: &'static str,
    pub story: &'static str,
    /// The scripts of the processes, by file name.
    pub scripts: &'static [(&'static str, &'static str)],
    pub play: fn(&Scenery<'_>) -> Result<Aftermath, DemoError>,
}

pub const INCIDENTS: [Incident; 5] =
    [overtaking::INCIDENT, two_machines::INCIDENT, zombie::INCIDENT, leftovers::INCIDENT, half_done::INCIDENT];

/// Shows a count in words.
fn times(count: usize) -> String {
    match count {
        1 => "once".into(),
        2 => "twice".into(),
        count => format!("{count} times"),
    }
}

/// Prefixes the lines of a file with its name.
fn labelled(name: &str, lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| format!("{name}: {line}")).collect()
}

/// The pids in a line that a script printed.
fn pids(line: &str) -> Vec<Pid> {
    line.split_whitespace().filter_map(|word| word.parse().ok()).map(Pid::from_raw).collect()
}

/// The date in UTC. An incident reads it once: midnight may pass while it plays.
fn today() -> String {
    Zone::utc().date(clock::now().wall).to_string()
}

fn yesterday() -> String {
    Zone::utc().date(Wall(clock::now().wall.0 - DAY_MS)).to_string()
}
