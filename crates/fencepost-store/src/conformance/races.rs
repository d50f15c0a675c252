//! Many callers at once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Bench, Check, CheckOutcome, Effort, Wrong, ensure, patiently};
use crate::{Entry, Key, Store, Swapped};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "create race",
        sentence: "Of all swaps that expect the same version, at most one wins.",
        slow: false,
        body: one_creator_wins,
    },
    Check {
        name: "counter race",
        sentence: "No update is lost while several writers change one key.",
        slow: true,
        body: no_increment_is_lost,
    },
    Check {
        name: "shared handle",
        sentence: "One connection may be used by several threads at once.",
        slow: false,
        body: one_handle_serves_several_threads,
    },
];

const CREATORS: usize = 32;

/// The rounds of creation, the number of counting threads, and how far each of them counts.
fn size(effort: Effort) -> (usize, usize, usize) {
    match effort {
        Effort::Thorough => (4, 16, 25),
        Effort::Brief => (1, 8, 6),
    }
}

fn one_creator_wins(bench: &Bench<'_>) -> CheckOutcome {
    let handles = (0..CREATORS).map(|_| (bench.open)()).collect::<Result<Vec<_>, _>>()?;
    let (rounds, ..) = size(bench.effort);
    for round in 0..rounds {
        let key = bench.key(&format!("r{round}"));
        let start = Barrier::new(CREATORS);
        let ended = all(handles.iter().enumerate().map(|(number, handle)| {
            let (key, start) = (&key, &start);
            move || {
                start.wait();
                patiently(|| handle.swap(key, None, Some(number.to_string().as_bytes())))
            }
        }))?;
        judge_creation(bench, &key, &ended)?;
    }
    Ok(())
}

/// One creation was won, and all the others returned its entry.
fn judge_creation(bench: &Bench<'_>, key: &Key, ended: &[Swapped]) -> CheckOutcome {
    let winners: Vec<usize> = (0..ended.len()).filter(|at| matches!(ended[*at], Swapped::Won(_))).collect();
    let &[winner] = winners.as_slice() else {
        return Err(
            format!("{} of {CREATORS} swaps that expected nothing were won: {winners:?}.", winners.len()).into()
        );
    };
    let Swapped::Won(Some(version)) = &ended[winner] else {
        return Err("A won swap of a value gave no version.".to_string().into());
    };
    let entry = Entry { bytes: winner.to_string().into_bytes(), version: version.clone() };
    for other in ended.iter().filter(|other| matches!(other, Swapped::Lost(_))) {
        ensure(*other == Swapped::Lost(Some(entry.clone())), || {
            format!("{winner} won with {entry:?}, and another lost to {other:?}.")
        })?;
    }
    bench.stands(key, Some(&entry))
}

fn no_increment_is_lost(bench: &Bench<'_>) -> CheckOutcome {
    let key = &bench.key("counter");
    let (_, counters, increments) = size(bench.effort);
    let handles = (0..counters).map(|_| (bench.open)()).collect::<Result<Vec<_>, _>>()?;
    let counting = &AtomicBool::new(true);
    let watched = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&bench.store, key, counting));
        let counted = all(handles.iter().map(|handle| move || count_up(handle, key, increments)));
        counting.store(false, Ordering::Release);
        let watched = watcher.join().unwrap_or_else(|_| Err("The watcher panicked.".to_string().into()));
        counted.and(watched)
    });
    watched?;
    sum_is(bench, key, counters * increments)
}

fn one_handle_serves_several_threads(bench: &Bench<'_>) -> CheckOutcome {
    let key = &bench.key("counter");
    let (threads, increments) = (8, 5);
    all((0..threads).map(|_| move || count_up(&bench.store, key, increments)))?;
    sum_is(bench, key, threads * increments)
}

fn count_up(store: &dyn Store, key: &Key, times: usize) -> CheckOutcome {
    for _ in 0..times {
        let mut current = patiently(|| store.read(key))?;
        loop {
            let next = (number(current.as_ref())? + 1).to_string();
            let expected = current.as_ref().map(|entry| &entry.version);
            match patiently(|| store.swap(key, expected, Some(next.as_bytes())))? {
                Swapped::Won(_) => break,
                Swapped::Lost(found) => current = found,
            }
        }
    }
    Ok(())
}

/// Reads while the others count: a later read never shows an earlier state.
fn watch(store: &dyn Store, key: &Key, counting: &AtomicBool) -> CheckOutcome {
    let mut last = 0;
    while counting.load(Ordering::Acquire) {
        let found = number(patiently(|| store.read(key))?.as_ref())?;
        ensure(found >= last, || format!("A read showed {found} after another had shown {last}."))?;
        last = found;
        thread::yield_now();
    }
    Ok(())
}

fn sum_is(bench: &Bench<'_>, key: &Key, sum: usize) -> CheckOutcome {
    let found = number(bench.read(key)?.as_ref())?;
    ensure(found == sum, || format!("After {sum} increments that were all won, the counter stands at {found}."))
}

fn number(entry: Option<&Entry>) -> Result<usize, Wrong> {
    let Some(entry) = entry else { return Ok(0) };
    let parsed = std::str::from_utf8(&entry.bytes).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("The counter holds {:?}, which no caller wrote.", entry.bytes).into())
}

/// Runs every job in its own thread and collects the results.
fn all<T: Send>(jobs: impl Iterator<Item = impl FnOnce() -> Result<T, Wrong> + Send>) -> Result<Vec<T>, Wrong> {
    thread::scope(|scope| {
        let running: Vec<_> = jobs.map(|job| scope.spawn(job)).collect();
        let panicked = |_| Err("A thread that used the store panicked.".to_string().into());
        running.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    })
}
