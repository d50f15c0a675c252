//! The keeper with real processes.
//!
//! A fork wants a process with one thread, so that this program runs itself once more for every test, as the wrapper
//! (`wrapper.rs`): it passes on orders from standard input and reports to standard output, and the test drives it
//! through pipes (`scene.rs`).

mod ending;
mod freezing;
mod plain;
mod scene;
#[path = "../signals/mod.rs"]
mod signals;
mod terminal;
mod wrapper;

use std::env;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;

type Test = (&'static str, fn());

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
    signals::reset();
    let words = arguments.iter().filter(|argument| !argument.starts_with('-')).collect::<Vec<_>>();
    let exact = arguments.iter().any(|argument| argument == "--exact");
    let wanted = |name: &str| {
        words.is_empty() || words.iter().any(|word| if exact { name == *word } else { name.contains(*word) })
    };
    let tests: Vec<Test> = [plain::TESTS, ending::TESTS, freezing::TESTS, terminal::TESTS]
        .concat()
        .into_iter()
        .filter(|test| wanted(test.0))
        .collect();
    if arguments.iter().any(|argument| argument == "--list") {
        list(&tests, &arguments);
        return ExitCode::SUCCESS;
    }
    run(tests)
}

/// As the usual harness lists them, for tools that run tests one by one.
fn list(tests: &[Test], arguments: &[String]) {
    let ignored = arguments.iter().any(|argument| argument == "--ignored");
    for (name, _) in tests.iter().filter(|_| !ignored) {
        println!("{name}: test");
    }
}

/// The tests mostly wait, so that several of them fit on one processor.
fn run(tests: Vec<Test>) -> ExitCode {
    let queue = Mutex::new(tests);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some((name, test)) = queue.lock().unwrap().pop() else { return };
                    let passed = catch_unwind(test).is_ok();
                    println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
                    if !passed {
                        failures.lock().unwrap().push(name);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    if failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {failures:?}");
    ExitCode::FAILURE
}
