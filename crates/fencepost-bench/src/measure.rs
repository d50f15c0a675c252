//! Interleaved measurements.

use std::time::{Duration, Instant};

/// Something to measure.
pub struct Subject<'a> {
    pub name: &'static str,
    act: Box<dyn FnMut() + 'a>,
}

impl<'a> Subject<'a> {
    pub fn new(name: &'static str, act: impl FnMut() + 'a) -> Self {
        Self { name, act: Box::new(act) }
    }
}

impl std::fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Measures every subject once a round, each round in another order, and returns the medians in the given order. A
/// first round warms everything up and does not count.
pub fn interleave(rounds: usize, mut subjects: Vec<Subject<'_>>) -> Vec<Duration> {
    let mut times = vec![Vec::with_capacity(rounds); subjects.len()];
    for round in 0..=rounds {
        for place in 0..subjects.len() {
            let which = (place * (round % 2 * 2 + 1) + round) % subjects.len();
            let begun = Instant::now();
            (subjects[which].act)();
            if round > 0 {
                times[which].push(begun.elapsed());
            }
        }
    }
    times.into_iter().map(median).collect()
}

pub fn millis(length: Duration) -> f64 {
    length.as_secs_f64() * 1e3
}

pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
