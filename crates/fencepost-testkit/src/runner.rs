//! Runs the tests of a program that has no test harness, because it must be able to fork or to run itself once more.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;

pub type Test = (&'static str, fn());

/// Runs the tests that the command line asks for, as the usual harness does: all of them, or those whose name contains
/// one of the words; `--list` lists them. Tests mostly wait, so several threads share a processor.
pub fn run(tests: &[Test], threads: usize) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let words: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let exact = has("--exact");
    let matches = |name: &str, word: &str| if exact { name == word } else { name.contains(word) };
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| matches(name, word));
    let tests: Vec<Test> = tests.iter().copied().filter(|(name, _)| is_wanted(name)).collect();
    if has("--list") {
        let listed = if has("--ignored") { &[] } else { &tests[..] };
        listed.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (queue, failures) = (Mutex::new(tests), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
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
