//! The keeper with real processes.
//!
//! A fork wants a process with one thread, so this program runs itself once more for every test, as the wrapper
//! (`wrapper.rs`): it passes on orders from standard input and reports to standard output, and the test drives it
//! through pipes (`scene.rs`).

mod ending;
mod freezing;
mod plain;
mod scene;
mod session;
mod terminal;
mod together;
mod wrapper;

use std::env;
use std::process::ExitCode;

use fencepost_testkit::{runner, signals};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == wrapper::ARGUMENT) {
        wrapper::run();
        return ExitCode::SUCCESS;
    }
    if let [first, script] = &arguments[..]
        && first == wrapper::TERMINAL_ARGUMENT
    {
        wrapper::run_on_terminal(script);
        return ExitCode::SUCCESS;
    }
    if let Some((first, program)) = arguments.split_first()
        && first == session::ARGUMENT
    {
        session::become_program(program);
    }
    signals::reset();
    let portable = if scene::PORTABLE { together::PORTABLE_TESTS } else { &[] };
    let linux = if cfg!(target_os = "linux") { plain::LINUX_TESTS } else { &[] };
    let tests = [plain::TESTS, linux, ending::TESTS, freezing::TESTS, terminal::TESTS, together::TESTS, portable];
    runner::run(&tests.concat(), 4)
}
