//! Visits every reachable state of a world, nearest first, so that the first violation has a shortest path.

use std::collections::HashSet;
use std::fmt::Write;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use fencepost_core::lease::Rules;

use crate::config::Config;
use crate::invariants::Violation;
use crate::rulebook::Rulebook;
use crate::steps::Step;
use crate::world::World;

/// Something that can be explored: a beginning, what can happen next, and what must be true.
pub trait Model: Sized + Hash {
    type Config;
    type Step: Copy;
    type Violation: Copy + PartialEq;

    fn begin(config: &Self::Config) -> Self;
    fn next(&self, config: &Self::Config) -> Vec<Self::Step>;
    fn take(&self, config: &Self::Config, step: Self::Step) -> Self;
    fn wrong(&self, config: &Self::Config) -> impl Iterator<Item = Self::Violation>;
}

impl Model for World {
    type Config = Config;
    type Step = Step;
    type Violation = Violation;

    fn begin(config: &Config) -> Self {
        Self::new(config)
    }

    fn next(&self, config: &Config) -> Vec<Step> {
        self.steps(config)
    }

    fn take(&self, config: &Config, step: Step) -> Self {
        self.after(config, step)
    }

    fn wrong(&self, config: &Config) -> impl Iterator<Item = Violation> {
        self.violations(config)
    }
}

/// What an exploration has found.
#[derive(Clone, Debug)]
pub struct Report<S = Step, V = Violation> {
    pub states: usize,
    /// The number of steps to the farthest state.
    pub depth: usize,
    pub found: Option<Found<S, V>>,
}

/// A violation, and a shortest path to it.
#[derive(Clone, Debug)]
pub struct Found<S = Step, V = Violation> {
    pub violation: V,
    pub path: Vec<S>,
}

/// Explores everything within the bounds of `config`, or up to the first violation: of the one that is sought, or of
/// any.
pub fn explore<R: Rules>(config: &Config, sought: Option<Violation>) -> Report {
    Rulebook::of::<R>().apply(|| explore_world(config, sought))
}

/// Under whichever rules are in force.
fn explore_world(config: &Config, sought: Option<Violation>) -> Report {
    explore_model::<World>(config, sought)
}

/// The same for any model.
pub fn explore_model<M: Model>(config: &M::Config, sought: Option<M::Violation>) -> Report<M::Step, M::Violation> {
    let mut explorer = Explorer { visited: Visited::default(), origins: Vec::new() };
    let mut frontier = Vec::new();
    frontier.extend(explorer.visit(M::begin(config), None));
    let mut depth = 0;
    loop {
        let mut next = Vec::new();
        for (from, world) in frontier {
            for step in world.next(config) {
                let Some((at, reached)) = explorer.visit(world.take(config, step), Some((from, step))) else {
                    continue;
                };
                let is_sought = |violation: &M::Violation| sought.is_none_or(|sought| sought == *violation);
                if let Some(violation) = reached.wrong(config).find(is_sought) {
                    let found = Found { violation, path: explorer.path_to(at) };
                    return Report { states: explorer.origins.len(), depth: depth + 1, found: Some(found) };
                }
                next.push((at, reached));
            }
        }
        if next.is_empty() {
            return Report { states: explorer.origins.len(), depth, found: None };
        }
        depth += 1;
        frontier = next;
    }
}

/// A path as sentences, each with the true time at which it happens.
pub fn narrate<R: Rules>(config: &Config, path: &[Step]) -> String {
    Rulebook::of::<R>().apply(|| tell(config, path))
}

fn tell(config: &Config, path: &[Step]) -> String {
    let mut world = World::new(config);
    let mut text = String::new();
    for step in path {
        world = world.after(config, *step);
        let seconds = world.now_ms as f64 / 1000.0;
        let running: Vec<u8> = world.running().map(|process| process.run).collect();
        let lease = world.store.record().and_then(|record| record.lease.as_ref());
        let lease = lease.map_or("free".to_string(), |lease| format!("held by {}", lease.run.0.as_u128()));
        let _ = writeln!(text, "{seconds:>8.2} s  {step:<50}  {lease:<12} running: {running:?}");
    }
    text
}

#[derive(Debug)]
struct Explorer<S> {
    visited: Visited,
    /// How each state was first reached: from which, and by what step.
    origins: Vec<Option<(u32, S)>>,
}

type Visited = HashSet<u128, BuildHasherDefault<Ready>>;

impl<S: Copy> Explorer<S> {
    /// The state with its number, if it is new.
    fn visit<W: Hash>(&mut self, world: W, origin: Option<(u32, S)>) -> Option<(u32, W)> {
        if !self.visited.insert(fingerprint(&world)) {
            return None;
        }
        let at = u32::try_from(self.origins.len()).expect("fewer states than 2^32 fit into memory");
        self.origins.push(origin);
        Some((at, world))
    }

    fn path_to(&self, mut at: u32) -> Vec<S> {
        let mut path = Vec::new();
        while let Some((from, step)) = self.origins[at as usize] {
            path.push(step);
            at = from;
        }
        path.reverse();
        path
    }
}

/// 128 bits: among a hundred million states the odds that any two look alike are below 10^-22.
fn fingerprint(value: &impl Hash) -> u128 {
    let mut hasher = Fingerprint { low: 0x9e37_79b9_7f4a_7c15, high: 0xd1b5_4a32_d192_ed03 };
    value.hash(&mut hasher);
    u128::from(hasher.low) | (u128::from(hasher.high) << 64)
}

/// Two lanes of folded multiplication with different constants.
struct Fingerprint {
    low: u64,
    high: u64,
}

impl Fingerprint {
    fn mix(&mut self, word: u64) {
        self.low = fold(self.low ^ word, 0xa076_1d64_78bd_642f).wrapping_add(word);
        self.high = fold(self.high.rotate_left(23) ^ word, 0xe703_7ed1_a0b4_28db).wrapping_add(self.low);
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(bytes.len() as u64);
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }

    fn finish(&self) -> u64 {
        self.low
    }
}

/// A fingerprint is its own hash.
#[derive(Default)]
struct Ready(u64);

impl Hasher for Ready {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are kept");
    }

    fn write_u128(&mut self, number: u128) {
        self.0 = number as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
