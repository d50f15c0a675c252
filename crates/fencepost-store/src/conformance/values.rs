//! The values that every store accepts.

use super::{Bench, Check, CheckOutcome, ensure};
use crate::{Entry, Fate, VALUE_BYTES_MAX};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "values",
        sentence: "Values of any bytes are returned unchanged.",
        slow: false,
        body: any_bytes_come_back,
    },
    Check {
        name: "largest value",
        sentence: "A value of the largest size that fencepost writes is accepted.",
        slow: false,
        body: takes_the_largest,
    },
    Check {
        name: "too large a value",
        sentence: "A larger value is refused, and changes nothing.",
        slow: false,
        body: refuses_one_byte_more,
    },
];

fn any_bytes_come_back(bench: &Bench<'_>) -> CheckOutcome {
    let every_byte: Vec<u8> = (0..=255).collect();
    let values: [&[u8]; 6] = [b"", b"\0", b"\r\n \n", &every_byte, b"\xff\xfe\xc3\x28", "{\"ü\": 1}\n".as_bytes()];
    for (number, bytes) in values.into_iter().enumerate() {
        let key = bench.key(&format!("v{number}"));
        let version = bench.put(&key, None, bytes)?;
        bench.stands(&key, Some(&Entry { bytes: bytes.to_vec(), version }))?;
    }
    Ok(())
}

fn takes_the_largest(bench: &Bench<'_>) -> CheckOutcome {
    let key = bench.key("a");
    let version = bench.put(&key, None, &pattern(VALUE_BYTES_MAX))?;
    let found = bench.read(&key)?;
    let whole = found.is_some_and(|entry| entry.version == version && entry.bytes == pattern(VALUE_BYTES_MAX));
    ensure(whole, || format!("A value of {VALUE_BYTES_MAX} bytes did not come back as it was."))
}

fn refuses_one_byte_more(bench: &Bench<'_>) -> CheckOutcome {
    let (key, absent) = (bench.key("a"), bench.key("b"));
    let version = bench.put(&key, None, b"one")?;
    let current = Entry { bytes: b"one".to_vec(), version: version.clone() };
    for (key, expected, stands) in [(&key, Some(&version), Some(&current)), (&absent, None, None)] {
        match bench.store.swap(key, expected, Some(&pattern(VALUE_BYTES_MAX + 1))) {
            Err(error) if error.fate == Fate::NotDone => bench.stands(key, stands)?,
            Err(error) => return Err(format!("Too large a value was refused with an unknown fate: {error}").into()),
            Ok(_) => return Err(format!("A value of {} bytes was taken.", VALUE_BYTES_MAX + 1).into()),
        }
    }
    Ok(())
}

/// Returns bytes without short repetitions, which detects a store that cuts or reorders them.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8)) as u8).collect()
}
