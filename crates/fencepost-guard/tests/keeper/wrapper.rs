//! The wrapper's part, played by this very program: orders in, reports out, one JSON line each.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use fencepost_guard::keeper::{Heard, JobExit, Keeper, KeeperOrder, NamedProcess, Report, Spawn};
use fencepost_guard::terminal::{Terminal, share};
use nix::errno::Errno;
use nix::libc::{SIGCONT, SIGTTIN, SIGTTOU};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

pub const ARGUMENT: &str = "be-the-wrapper";
pub const TERMINAL_ARGUMENT: &str = "be-a-wrapper-on-a-terminal";

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
    Swept(Vec<NamedProcess>),
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
        match if reports { pass_reports(&mut keeper) } else { Heard::Nothing } {
            Heard::Gone => return say(&Line::Swept(keeper.sweep())),
            Heard::Left => {
                keeper.close();
                return drop(io::copy(&mut io::stdin(), &mut io::sink()));
            }
            _ => {}
        }
        if orders && !pass_orders(&mut keeper) {
            return keeper.close();
        }
    }
}

/// Runs the script as a person's shell job: what a wrapper does with the terminal, and nothing else.
pub fn run_on_terminal(script: &str) {
    let mut keeper = Keeper::start().unwrap();
    let mut terminal = Terminal::detect().unwrap();
    let foreground = terminal.is_for_reading();
    let argv = ["sh", "-c", script].map(Into::into).to_vec();
    let job = Spawn { argv, foreground, grace: Duration::from_secs(5), ..Spawn::default() };
    println!("began");
    keeper.send(&KeeperOrder::Spawn(Box::new(job))).unwrap();
    let mut child = 0;
    loop {
        match keeper.receive() {
            Heard::Nothing => {
                poll(&mut [PollFd::new(keeper.fd(), PollFlags::POLLIN)], PollTimeout::NONE).unwrap();
            }
            Heard::Report(Report::Spawned { pid }) => {
                child = pid;
                if foreground {
                    let _ = terminal.lend(child);
                }
            }
            Heard::Report(Report::ChildStopped { signal }) => follow(&mut keeper, &mut terminal, child, signal),
            Heard::Report(Report::ChildEnded { exit }) => {
                terminal.take_back(matches!(exit, JobExit::Signal(_))).unwrap();
                println!("ended {exit:?}");
            }
            Heard::Report(Report::Empty { .. }) => return keeper.close(),
            Heard::Report(_) => {}
            Heard::Left | Heard::Gone => panic!("the keeper is gone"),
        }
    }
}

/// A job that asks for the terminal is lent it, if it is ours; with any other stop the wrapper stops too.
fn follow(keeper: &mut Keeper, terminal: &mut Terminal, child: i32, signal: i32) {
    if [SIGTTIN, SIGTTOU].contains(&signal) && terminal.is_ours() {
        terminal.lend(child).unwrap();
        println!("lent");
    } else {
        terminal.take_back(false).unwrap();
        share(signal).unwrap();
        if terminal.is_ours() {
            terminal.lend(child).unwrap();
        }
        println!("continued");
    }
    keeper.send(&KeeperOrder::Signal(SIGCONT)).unwrap();
}

/// Everything that the keeper has to say, and what comes after it.
fn pass_reports(keeper: &mut Keeper) -> Heard {
    loop {
        match keeper.receive() {
            Heard::Report(report) => say(&Line::Report(report)),
            other => return other,
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
    let order: KeeperOrder = serde_json::from_slice(&line).unwrap();
    // A keeper that has just been killed is noticed by reading.
    let _ = keeper.send(&order);
    true
}

fn say(line: &Line) {
    let mut text = serde_json::to_string(line).unwrap();
    text.push('\n');
    io::stdout().write_all(text.as_bytes()).unwrap();
}
