//! `fencepost session`: holds leases for a program in any language. Requests, answers and events are JSON lines.
//!
//! * `request`: reads a line, and turns it into the options of the verb that it stands for.
//! * `desk`: answers requests; each that asks a store or writes has a thread of its own.
//! * `claim`: one lease, from its claim to its end, on a thread of its own.
//! * `lease`: what the other requests know of a lease.
//! * `reply`: turns ends and failures into answers.
//! * `outlet`: writes the lines.
//!
//! It decides nothing: a claim is a run without a command, and every other request is a verb.

mod claim;
mod desk;
mod lease;
mod outlet;
mod reply;
mod request;

use std::io::{BufReader, stdin};
use std::time::Duration;

use fencepost_guard::signals::Signals;
use fencepost_view::session::SessionReply;

use self::desk::SessionDesk;
use self::outlet::{Importance, Outlet};
use crate::args::Global;
use crate::exit::{Code, Failure};
use crate::inside::Inside;
use crate::lines::{LINE_BYTES_MAX, Line, read_line};

/// How long requests in progress may take after the input has ended.
const FAREWELL: Duration = Duration::from_secs(10);

pub fn run(global: &Global) -> Result<Code, Failure> {
    // Restores the variables of the run around this program, while there is one thread. If it is unclear which run that is,
    // the requests name their lease anyway.
    let _ = Inside::find();
    let failed = |error: std::io::Error| Failure::Other(format!("Cannot start a session: {error}"));
    // The session ends with its input, and not before the program that it serves: a terminal's ctrl-C reaches both.
    let _signals = Signals::outlived().map_err(failed)?;
    let outlet = Outlet::open().map_err(failed)?;
    // What is wrong is answered. Warnings on standard error would mix with the program's own output.
    let global = Global { json: true, quiet: true, verbose: false, ..global.clone() };
    let desk = SessionDesk::new(global, outlet);
    let mut input = BufReader::with_capacity(64 * 1024, stdin().lock());
    loop {
        desk.outlet.wait_for_room();
        match read_line(&mut input) {
            // An input that cannot be read any more has ended.
            Ok(Line::End) | Err(_) => break,
            Ok(Line::TooLong) => {
                let message = format!("A request may have {LINE_BYTES_MAX} bytes.");
                desk.outlet.put(&SessionReply::new(None, reply::usage(&message)), Importance::Needed);
            }
            Ok(Line::Whole(line)) if line.trim_ascii().is_empty() => {}
            Ok(Line::Whole(line)) => desk.take(&line),
        }
    }
    desk.finish(FAREWELL);
    // The threads of the leases end with the process: nothing is renewed any more, and nothing is released.
    Ok(Code::DONE)
}
