//! The stores from the command line: proved, chosen, moved and recovered, with passwords, under storms and outages.

mod check;
mod clockless;
mod lost;
mod moving;
mod naming;
mod one_shot;
mod outage;
mod password;
mod refused;
mod stopped;
pub mod storm;

use std::process::Command;

use crate::common::{Said, Site};

/// What PostgreSQL and Redis need to keep what they acknowledge.
pub const POSTGRES: &[&str] = &["fsync=on", "max_connections=200"];
pub const REDIS: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// A command of one of several hosts, each with a state of its own.
pub fn on_host(site: &Site, host: &str, arguments: &[&str]) -> Command {
    let mut command = site.command(arguments);
    command.env("FENCEPOST_TEST_HOST", host).env("FENCEPOST_STATE_DIR", site.path(&format!("state-{host}")));
    command.env("FENCEPOST_TEST_TTL_MIN", "1s");
    command
}

pub fn say(mut command: Command) -> Said {
    Said::of(command.output().unwrap())
}
