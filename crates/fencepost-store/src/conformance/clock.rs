//! The store's clock, where it has one.

use std::thread;
use std::time::Duration;

use super::{Bench, Check, CheckOutcome, ensure};
use crate::StoreClock;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "clock on every answer",
        sentence: "If the store has a clock, every answer carries its reading.",
        slow: false,
        body: every_answer_or_none,
    },
    Check {
        name: "clock",
        sentence: "The clock never steps back: it counts the milliseconds by which leases are judged.",
        slow: false,
        body: never_goes_back,
    },
];

fn every_answer_or_none(bench: &Bench<'_>) -> CheckOutcome {
    let key = bench.key("a");
    let read = bench.store.read(&key)?.clock.is_some();
    let won = bench.store.swap(&key, None, Some(b"1"))?.clock.is_some();
    let lost = bench.store.swap(&key, None, Some(b"1"))?.clock.is_some();
    let scan = bench.store.scan(&bench.prefix(), None, 1)?.clock.is_some();
    ensure([won, lost, scan].iter().all(|carried| *carried == read), || {
        format!("A clock was carried by a read: {read}, a won swap: {won}, a lost swap: {lost}, a scan: {scan}.")
    })
}

/// Reads over two handles, because each must return the store's clock and not one of its own.
fn never_goes_back(bench: &Bench<'_>) -> CheckOutcome {
    let key = bench.key("a");
    let other = (bench.open)()?;
    let mut last: Option<StoreClock> = None;
    for round in 0..20_u8 {
        let store = if round % 2 == 0 { &bench.store } else { &other };
        let read = store.read(&key)?;
        let expected = read.value.map(|entry| entry.version);
        let swap = store.swap(&key, expected.as_ref(), Some(&[round]))?;
        for clock in [read.clock, swap.clock].into_iter().flatten() {
            if let Some(last) = last.filter(|last| last.era == clock.era) {
                ensure(last.tick <= clock.tick, || format!("After {last:?} it showed {clock:?}."))?;
            }
            last = Some(clock);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
