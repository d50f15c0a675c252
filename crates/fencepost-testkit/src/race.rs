//! A race for one value of a store, whose result can be checked to the last swap.

use std::collections::HashMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use fencepost_store::{Fate, Key, Store, Swapped};

use crate::{PATIENCE, eventually};

/// How one attempt of a swap ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Won,
    Lost,
    NotDone,
    Unknown,
}

/// What a race saw.
#[derive(Debug, Default)]
pub struct Tally {
    pub won: usize,
    pub lost: usize,
    pub not_done: usize,
    pub unknown: usize,
    /// Of the unknown ones those that had happened.
    pub happened: usize,
}

/// Threads add lines to one value until each has added its own. A line names its attempt, so the value shows afterwards
/// which swaps happened: a swap that was won is there once, one that was lost or not done never, and each line of a
/// thread exactly once.
pub fn race(
    open: &(dyn Fn() -> Box<dyn Store> + Sync),
    referee: &dyn Store,
    key: &Key,
    threads: usize,
    lines: usize,
) -> Tally {
    let attempts: Mutex<HashMap<String, Ended>> = Mutex::default();
    thread::scope(|scope| {
        for thread in 0..threads {
            let attempts = &attempts;
            scope.spawn(move || {
                let store = open();
                for line in 0..lines {
                    add(&*store, key, &format!("{thread}.{line}"), attempts);
                }
            });
        }
    });
    let found = referee.read(key).unwrap().value.expect("the lines");
    let text = String::from_utf8(found.bytes).unwrap();
    let stands: Vec<&str> = text.lines().collect();
    let attempts = attempts.into_inner().unwrap();
    let mut tally = Tally::default();
    for (attempt, ended) in &attempts {
        let times = stands.iter().filter(|line| *line == attempt).count();
        let (count, allowed) = match ended {
            Ended::Won => (&mut tally.won, 1..=1),
            Ended::Lost => (&mut tally.lost, 0..=0),
            Ended::NotDone => (&mut tally.not_done, 0..=0),
            Ended::Unknown => (&mut tally.unknown, 0..=1),
        };
        *count += 1;
        tally.happened += if *ended == Ended::Unknown { times } else { 0 };
        assert!(allowed.contains(&times), "{attempt} ended as {ended:?} and stands there {times} times:\n{text}");
    }
    for thread in 0..threads {
        for line in 0..lines {
            let begins = format!("{thread}.{line}.");
            let times = stands.iter().filter(|found| found.starts_with(&begins)).count();
            assert_eq!(times, 1, "{begins}:\n{text}");
        }
    }
    assert_eq!(stands.len(), threads * lines, "{text}");
    tally
}

/// Waits until a race has come so far.
pub fn wait_for_lines(store: &dyn Store, key: &Key, lines: usize) {
    let count = || {
        let entry = store.read(key).ok()?.value?;
        Some(entry.bytes.iter().filter(|byte| **byte == b'\n').count())
    };
    eventually(&format!("there are {lines} lines"), || count().is_some_and(|found| found >= lines));
}

fn add(store: &dyn Store, key: &Key, line: &str, attempts: &Mutex<HashMap<String, Ended>>) {
    let begun = Instant::now();
    for attempt in 0.. {
        assert!(begun.elapsed() < PATIENCE, "{line} could not be added");
        let Ok(read) = store.read(key) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let mut text =
            read.value.as_ref().map_or(String::new(), |entry| String::from_utf8(entry.bytes.clone()).unwrap());
        if text.lines().any(|found| found.starts_with(&format!("{line}."))) {
            return;
        }
        let name = format!("{line}.{attempt}");
        text.push_str(&name);
        text.push('\n');
        let ended = match store.swap(key, read.value.as_ref().map(|entry| &entry.version), Some(text.as_bytes())) {
            Ok(answer) if matches!(answer.value, Swapped::Won(_)) => Ended::Won,
            Ok(_) => Ended::Lost,
            Err(error) if error.fate == Fate::NotDone => Ended::NotDone,
            Err(_) => Ended::Unknown,
        };
        attempts.lock().unwrap().insert(name, ended);
        if ended == Ended::Won {
            return;
        }
    }
}
