//! One key, one caller: the answers of `read` and `swap`.

use super::{Bench, Check, CheckOutcome, ensure};
use crate::{Entry, Swapped, Version};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "read", sentence: "A read returns the last value written.", slow: false, body: reads_what_stands },
    Check {
        name: "create",
        sentence: "A swap that expects no value creates the key only if it has none.",
        slow: false,
        body: creates_only_where_nothing_is,
    },
    Check {
        name: "stale swap",
        sentence: "A swap that expects an old version changes nothing, and returns the current value.",
        slow: false,
        body: refuses_a_stale_swap,
    },
    Check { name: "remove", sentence: "A swap can remove a key.", slow: false, body: removes },
    Check {
        name: "other handles",
        sentence: "What one client wrote, the next read of another client returns.",
        slow: false,
        body: handles_see_each_other,
    },
    Check {
        name: "reopen",
        sentence: "A value is still there after the store is closed and opened again.",
        slow: false,
        body: outlives_its_handle,
    },
];

fn reads_what_stands(bench: &Bench<'_>) -> CheckOutcome {
    let key = bench.key("a");
    bench.stands(&key, None)?;
    let version = bench.put(&key, None, b"one")?;
    bench.stands(&key, Some(&Entry { bytes: b"one".to_vec(), version: version.clone() }))?;
    let version = bench.put(&key, Some(&version), b"two")?;
    bench.stands(&key, Some(&Entry { bytes: b"two".to_vec(), version }))
}

fn creates_only_where_nothing_is(bench: &Bench<'_>) -> CheckOutcome {
    let key = bench.key("a");
    let version = bench.put(&key, None, b"one")?;
    let current = Entry { bytes: b"one".to_vec(), version };
    bench.refused(&key, None, Some(b"two"), Some(&current))?;
    bench.refused(&key, None, Some(b"one"), Some(&current))?;
    bench.refused(&key, None, None, Some(&current))
}

fn refuses_a_stale_swap(bench: &Bench<'_>) -> CheckOutcome {
    let (key, other) = (bench.key("a"), bench.key("b"));
    let old = bench.put(&key, None, b"one")?;
    bench.refused(&other, Some(&old), Some(b"two"), None)?;
    bench.refused(&other, Some(&old), None, None)?;
    let foreign = bench.put(&other, None, b"one")?;
    let version = bench.put(&key, Some(&old), b"two")?;
    let current = Entry { bytes: b"two".to_vec(), version };
    let made_up = Version(b"made up".to_vec());
    for stale in [&old, &foreign, &made_up] {
        bench.refused(&key, Some(stale), Some(b"three"), Some(&current))?;
        bench.refused(&key, Some(stale), None, Some(&current))?;
    }
    Ok(())
}

fn removes(bench: &Bench<'_>) -> CheckOutcome {
    let key = bench.key("a");
    let version = bench.put(&key, None, b"one")?;
    bench.remove(&key, &version)?;
    bench.stands(&key, None)?;
    bench.refused(&key, Some(&version), Some(b"two"), None)?;
    bench.refused(&key, Some(&version), None, None)?;
    let ended = bench.store.swap(&key, None, None)?.value;
    ensure(ended == Swapped::Won(None), || format!("A removal of nothing, expecting nothing, ended as {ended:?}."))?;
    bench.put(&key, None, b"three").map(|_| ())
}

fn handles_see_each_other(bench: &Bench<'_>) -> CheckOutcome {
    let key = bench.key("a");
    let handles = [(bench.open)()?, (bench.open)()?, (bench.open)()?];
    let mut expected: Option<Version> = None;
    for round in 0..9_u8 {
        // Every handle reads before every swap, which detects a handle that caches its reads.
        for handle in &handles {
            let found = handle.read(&key)?.value.map(|entry| entry.version);
            ensure(found == expected, || format!("In round {round} a handle saw {found:?} instead of {expected:?}."))?;
        }
        let writer = &handles[usize::from(round) % handles.len()];
        match writer.swap(&key, expected.as_ref(), Some(&[round]))?.value {
            Swapped::Won(version) => expected = version,
            lost => return Err(format!("In round {round} a swap of the current state ended as {lost:?}.").into()),
        }
    }
    Ok(())
}

fn outlives_its_handle(bench: &Bench<'_>) -> CheckOutcome {
    let key = bench.key("a");
    let brief = (bench.open)()?;
    let Swapped::Won(Some(version)) = brief.swap(&key, None, Some(b"one"))?.value else {
        return Err("A swap of nothing into something was not won.".to_string().into());
    };
    drop(brief);
    let found = (bench.open)()?.read(&key)?.value;
    let written = Some(Entry { bytes: b"one".to_vec(), version });
    ensure(found == written, || {
        format!("A handle was closed after it had won {written:?}; the next one saw {found:?}.")
    })
}
