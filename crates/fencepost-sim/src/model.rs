//! The scaffolding that all models share: settings that are explored, bugs that are found, and the tables of both.

use std::fmt::{Debug, Display};
use std::time::Instant;

use crate::rulebook::Rulebook;

/// Something that can be explored completely within the bounds of a setting.
pub trait Model {
    const TITLE: &'static str;
    type Setting: Copy + 'static;
    type Step;
    type Violation: Complaint;

    fn name(setting: &Self::Setting) -> &'static str;
    /// Explores everything within the bounds, or up to the first violation: of the one that is sought, or of any. The rules
    /// are those in force.
    fn explore(setting: &Self::Setting, sought: Option<Self::Violation>) -> ModelReport<Self::Step, Self::Violation>;
    /// A path as sentences.
    fn narrate(setting: &Self::Setting, path: &[Self::Step]) -> String;
}

/// A promise that was broken.
pub trait Complaint: Copy + PartialEq + Debug + Display {}

impl<V: Copy + PartialEq + Debug + Display> Complaint for V {}

/// What an exploration has found.
#[derive(Clone, Debug)]
pub struct ModelReport<S, V> {
    pub states: usize,
    /// The number of steps to the farthest state.
    pub depth: usize,
    pub found: Option<Counterexample<S, V>>,
}

/// A violation, and a shortest path to it.
#[derive(Clone, Debug)]
pub struct Counterexample<S, V> {
    pub violation: V,
    pub path: Vec<S>,
}

/// A known bug. The same setting without it is explored completely, and is sound.
#[derive(Clone, Copy, Debug)]
pub struct Mutant<M: Model> {
    pub name: &'static str,
    /// What the bug is, in a sentence.
    pub what: &'static str,
    /// The promise that it breaks. It may break others on the way, which are passed over.
    pub breaks: M::Violation,
    pub setting: M::Setting,
    pub rules: Rulebook,
}

impl<M: Model> Mutant<M> {
    pub fn explore(&self) -> ModelReport<M::Step, M::Violation> {
        self.explore_for(self.breaks)
    }

    /// Explores until this promise is broken.
    pub fn explore_for(&self, sought: M::Violation) -> ModelReport<M::Step, M::Violation> {
        self.rules.apply(|| M::explore(&self.setting, Some(sought)))
    }

    pub fn narrate(&self, path: &[M::Step]) -> String {
        self.rules.apply(|| M::narrate(&self.setting, path))
    }
}

/// The mutant of this name.
pub fn named<M: Model>(mutants: &'static [Mutant<M>], name: &str) -> Option<&'static Mutant<M>> {
    mutants.iter().find(|mutant| mutant.name == name)
}

/// The name, the states and the depth of each setting. Panics at the first violation.
pub fn sizes<M: Model>(settings: &[M::Setting]) -> Vec<(&'static str, usize, usize)> {
    let size = |setting: &M::Setting| {
        let report = M::explore(setting, None);
        if let Some(found) = report.found {
            panic!("{}: {}:\n{}", M::name(setting), found.violation, M::narrate(setting, &found.path));
        }
        (M::name(setting), report.states, report.depth)
    };
    settings.iter().map(size).collect()
}

/// Panics unless the bug is found, by the promise that it breaks.
pub fn assert_found<M: Model>(mutant: &Mutant<M>) {
    let report = mutant.explore();
    let found = report.found.unwrap_or_else(|| panic!("{} {} states show nothing.", mutant.what, report.states));
    assert_eq!(found.violation, mutant.breaks, "{}\n{}", mutant.what, mutant.narrate(&found.path));
}

/// A model with its settings and its bugs, for the command line.
pub trait Catalogue {
    /// Explores everything and prints the tables. Says whether all is sound and every bug is found.
    fn explore(&self) -> bool;
    /// Prints how the bug of this name breaks its promise, if it is one of these. Says whether it is found.
    fn tell(&self, name: &str) -> Option<bool>;
}

/// The settings and the bugs of one model.
#[derive(Debug)]
pub struct ModelTable<M: Model + 'static> {
    pub settings: &'static [M::Setting],
    pub mutants: &'static [Mutant<M>],
}

impl<M: Model> Catalogue for ModelTable<M> {
    fn explore(&self) -> bool {
        println!("\n{:<24} {:>10} {:>6} {:>9}", M::TITLE, "states", "depth", "time");
        let (mut total, mut sound) = (0, true);
        for setting in self.settings {
            let begun = Instant::now();
            let report = M::explore(setting, None);
            let seconds = begun.elapsed().as_secs_f64();
            println!("{:<24} {:>10} {:>6} {seconds:>7.1} s", M::name(setting), report.states, report.depth);
            total += report.states;
            if let Some(found) = report.found {
                sound = false;
                println!("{}:\n{}", found.violation, M::narrate(setting, &found.path));
            }
        }
        println!("{:<24} {total:>10}\n", "together");
        println!("{:<24} {:<17} {:>5} {:>8}  found by", "mutant", "setting", "steps", "states");
        for mutant in self.mutants {
            let report = mutant.explore();
            let (steps, by) = report.found.map_or((0, "NOT FOUND".to_string()), |found| {
                (found.path.len(), format!("{:?}: {}", found.violation, found.violation))
            });
            sound &= steps > 0;
            println!("{:<24} {:<17} {steps:>5} {:>8}  {by}", mutant.name, M::name(&mutant.setting), report.states);
        }
        sound
    }

    fn tell(&self, name: &str) -> Option<bool> {
        let mutant = named(self.mutants, name)?;
        let found = mutant.explore().found;
        if let Some(found) = &found {
            print!("{}\n{}{}\n", mutant.what, mutant.narrate(&found.path), found.violation);
        }
        Some(found.is_some())
    }
}
