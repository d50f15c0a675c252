//! The wrapper's part, played by this very program: orders in, reports out, one JSON line each.

use std::io::{self, Write};
use std::os::fd::AsFd;

use fencepost_guard::keeper::{Heard, Keeper, Order, Process, Report};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

pub const ARGUMENT: &str = "be-the-wrapper";

/// What the wrapper says to the test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    Started {
        wrapper: i32,
        keeper: i32,
        micros: u128,
    },
    Report(Report),
    /// The keeper died, and the wrapper has swept up.
    Swept(Vec<Process>),
}

pub fn run() {
    let begun = std::time::Instant::now();
    let mut keeper = Keeper::start().unwrap();
    let micros = begun.elapsed().as_micros();
    say(&Line::Started { wrapper: std::process::id().cast_signed(), keeper: keeper.pid(), micros });
    loop {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN), PollFd::new(keeper.fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::NONE).unwrap();
        let [orders, reports] = fds.map(|fd| fd.any().unwrap());
        if reports && !pass_reports(&mut keeper) {
            say(&Line::Swept(keeper.sweep()));
            return;
        }
        if orders && !pass_orders(&mut keeper) {
            return keeper.close();
        }
    }
}

/// False when the keeper is gone.
fn pass_reports(keeper: &mut Keeper) -> bool {
    loop {
        match keeper.receive() {
            Heard::Report(report) => say(&Line::Report(report)),
            Heard::Nothing => return true,
            Heard::Gone => return false,
        }
    }
}

/// False at the end of the orders. They are read byte by byte, because what a buffer holds cannot be polled for.
fn pass_orders(keeper: &mut Keeper) -> bool {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") {
        match nix::unistd::read(io::stdin(), &mut byte) {
            Ok(0) => return false,
            Ok(_) => line.push(byte[0]),
            Err(Errno::EINTR) => {}
            Err(error) => panic!("reading orders: {error}"),
        }
    }
    let order: Order = serde_json::from_slice(&line).unwrap();
    // A keeper that has just been killed is noticed by reading.
    let _ = keeper.send(&order);
    true
}

fn say(line: &Line) {
    let mut text = serde_json::to_string(line).unwrap();
    text.push('\n');
    io::stdout().write_all(text.as_bytes()).unwrap();
}
