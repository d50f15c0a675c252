//! Visits every reachable state of a world, nearest first, so that the first violation has a shortest path.

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::model::{Complaint, Counterexample, Model, ModelReport};

/// A world that is explored step by step: a beginning, what can happen next, and what must be true.
pub trait StateSpace: Sized + Hash {
    const TITLE: &'static str;
    type Setting: Copy + 'static;
    type Step: Copy + Display;
    type Violation: Complaint;

    fn name(setting: &Self::Setting) -> &'static str;
    fn begin(setting: &Self::Setting) -> Self;
    fn next(&self, setting: &Self::Setting) -> Vec<Self::Step>;
    fn take(&self, setting: &Self::Setting, step: Self::Step) -> Self;
    fn wrong(&self, setting: &Self::Setting) -> impl Iterator<Item = Self::Violation>;
    /// A step and the state it has led to, in one line.
    fn tell(&self, setting: &Self::Setting, step: Self::Step) -> String;
}

impl<W: StateSpace> Model for W {
    const TITLE: &'static str = W::TITLE;
    type Setting = W::Setting;
    type Step = W::Step;
    type Violation = W::Violation;

    fn name(setting: &W::Setting) -> &'static str {
        W::name(setting)
    }

    fn explore(setting: &W::Setting, sought: Option<W::Violation>) -> ModelReport<W::Step, W::Violation> {
        let mut explorer = Explorer { visited: Visited::default(), origins: Vec::new() };
        let mut frontier = Vec::new();
        frontier.extend(explorer.visit(W::begin(setting), None));
        let mut depth = 0;
        loop {
            let mut next = Vec::new();
            for (from, world) in frontier {
                for step in world.next(setting) {
                    let Some((at, reached)) = explorer.visit(world.take(setting, step), Some((from, step))) else {
                        continue;
                    };
                    let is_sought = |violation: &W::Violation| sought.is_none_or(|sought| sought == *violation);
                    if let Some(violation) = reached.wrong(setting).find(is_sought) {
                        let found = Counterexample { violation, path: explorer.path_to(at) };
                        return ModelReport { states: explorer.origins.len(), depth: depth + 1, found: Some(found) };
                    }
                    next.push((at, reached));
                }
            }
            if next.is_empty() {
                return ModelReport { states: explorer.origins.len(), depth, found: None };
            }
            depth += 1;
            frontier = next;
        }
    }

    fn narrate(setting: &W::Setting, path: &[W::Step]) -> String {
        let mut world = W::begin(setting);
        let mut text = String::new();
        for step in path {
            world = world.take(setting, *step);
            text += &world.tell(setting, *step);
            text.push('\n');
        }
        text
    }
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
    let mut hasher = FingerprintHasher { low: 0x9e37_79b9_7f4a_7c15, high: 0xd1b5_4a32_d192_ed03 };
    value.hash(&mut hasher);
    u128::from(hasher.low) | (u128::from(hasher.high) << 64)
}

/// Two lanes of folded multiplication with different constants.
struct FingerprintHasher {
    low: u64,
    high: u64,
}

impl FingerprintHasher {
    fn mix(&mut self, word: u64) {
        self.low = fold(self.low ^ word, 0xa076_1d64_78bd_642f).wrapping_add(word);
        self.high = fold(self.high.rotate_left(23) ^ word, 0xe703_7ed1_a0b4_28db).wrapping_add(self.low);
    }
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Hasher for FingerprintHasher {
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
