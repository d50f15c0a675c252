//! `explore`: every world, and every known bug with the path that shows it.

use std::process::ExitCode;
use std::time::Instant;

use fencepost_core::barrier::Strict;
use fencepost_core::lease::Honest;
use fencepost_sim::config::Config;
use fencepost_sim::explore::{explore, narrate};
use fencepost_sim::{barrier, fenced, mutants, slots, worlds};

const USAGE: &str = "usage: fencepost-sim explore [--deep | --fenced | --barrier | --slots] | path MUTANT";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let sound = match arguments[..] {
        ["explore"] => explore_worlds(&worlds::ALL) & explore_mutants() & explore_others(),
        ["explore", "--deep"] => explore_worlds(&worlds::DEEP) & explore_mutants() & explore_others(),
        ["explore", "--fenced"] => explore_fenced(),
        ["explore", "--barrier"] => explore_barrier(),
        ["explore", "--slots"] => explore_slots(),
        ["path", name] => tell_path(name),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn explore_worlds(worlds: &[Config]) -> bool {
    println!("{:<20} {:>10} {:>6} {:>9}", "world", "states", "depth", "time");
    let (mut total, mut sound) = (0, true);
    for config in worlds {
        let begun = Instant::now();
        let report = explore::<Honest>(config, None);
        let seconds = begun.elapsed().as_secs_f64();
        println!("{:<20} {:>10} {:>6} {seconds:>7.1} s", config.name, report.states, report.depth);
        total += report.states;
        if let Some(found) = report.found {
            sound = false;
            println!("{}:\n{}", found.violation, narrate::<Honest>(config, &found.path));
        }
    }
    println!("{:<20} {total:>10}\n", "together");
    sound
}

fn explore_mutants() -> bool {
    println!("{:<24} {:<17} {:>5} {:>8}  found by", "mutant", "world", "steps", "states");
    let mut all_found = true;
    for mutant in mutants::all() {
        let report = mutant.explore();
        let (steps, by) = report.found.map_or((0, "NOT FOUND".to_string()), |found| {
            (found.path.len(), format!("{:?}: {}", found.violation, found.violation))
        });
        all_found &= steps > 0;
        println!("{:<24} {:<17} {steps:>5} {:>8}  {by}", mutant.name, mutant.config.name, report.states);
    }
    all_found
}

/// Writes to a fenced file, and their bugs.
fn explore_fenced() -> bool {
    println!("\n{:<24} {:>10} {:>6} {:>9}", "fenced writes", "states", "depth", "time");
    let (mut total, mut sound) = (0, true);
    for setting in fenced::settings::ALL {
        let begun = Instant::now();
        let report = setting.explore(None);
        let seconds = begun.elapsed().as_secs_f64();
        println!("{:<24} {:>10} {:>6} {seconds:>7.1} s", setting.name, report.states, report.depth);
        total += report.states;
        if let Some(found) = report.found {
            sound = false;
            println!("{}:\n{}", found.violation, setting.narrate(&found));
        }
    }
    println!("{:<24} {total:>10}\n", "together");
    println!("{:<24} {:<17} {:>5} {:>8}  found by", "mutant", "setting", "steps", "states");
    for mutant in fenced::mutants::ALL {
        let report = mutant.explore();
        let (steps, by) = report.found.map_or((0, "NOT FOUND".to_string()), |found| {
            (found.path.len(), format!("{:?}: {}", found.violation, found.violation))
        });
        sound &= steps > 0;
        println!("{:<24} {:<17} {steps:>5} {:>8}  {by}", mutant.name, mutant.setting.name, report.states);
    }
    sound
}

/// The worlds that are not about leases.
fn explore_others() -> bool {
    explore_fenced() & explore_barrier() & explore_slots()
}

/// Slots and items of work, and their bugs.
fn explore_slots() -> bool {
    println!("\n{:<24} {:>10} {:>6} {:>9}", "slots", "states", "depth", "time");
    let (mut total, mut sound) = (0, true);
    for setting in slots::settings::ALL {
        let begun = Instant::now();
        let report = setting.explore::<Honest>(None);
        let seconds = begun.elapsed().as_secs_f64();
        println!("{:<24} {:>10} {:>6} {seconds:>7.1} s", setting.name, report.states, report.depth);
        total += report.states;
        if let Some(found) = report.found {
            sound = false;
            println!("{}:\n{}", found.violation, setting.narrate::<Honest>(&found));
        }
    }
    println!("{:<24} {total:>10}\n", "together");
    println!("{:<24} {:<17} {:>5} {:>8}  found by", "mutant", "setting", "steps", "states");
    for mutant in slots::mutants::ALL {
        let report = mutant.explore();
        let (steps, by) = report.found.map_or((0, "NOT FOUND".to_string()), |found| {
            (found.path.len(), format!("{:?}: {}", found.violation, found.violation))
        });
        sound &= steps > 0;
        println!("{:<24} {:<17} {steps:>5} {:>8}  {by}", mutant.name, mutant.setting.name, report.states);
    }
    sound
}

/// What a job is let through by, and the bugs of that.
fn explore_barrier() -> bool {
    let begun = Instant::now();
    let report = barrier::explore::<Strict>(None);
    let seconds = begun.elapsed().as_secs_f64();
    println!("\n{:<24} {:>10} {:>9}", "barrier", "states", "time");
    println!("{:<24} {:>10} {seconds:>7.1} s\n", "one upstream, or several", report.states);
    let mut sound = report.found.is_none();
    if let Some((violation, scene)) = report.found {
        println!("{violation}: {scene}");
    }
    println!("{:<24} {:>8}  found by", "mutant", "states");
    for mutant in barrier::mutants::ALL {
        let report = mutant.explore();
        sound &= report.found.is_some();
        let by = report.found.map_or("NOT FOUND".to_string(), |(violation, _)| format!("{violation:?}: {violation}"));
        println!("{:<24} {:>8}  {by}", mutant.name, report.states);
    }
    sound
}

fn tell_path(name: &str) -> bool {
    if let Some(mutant) = slots::mutants::named(name) {
        let found = mutant.explore().found;
        if let Some(found) = &found {
            print!("{}\n{}{}\n", mutant.what, mutant.narrate(found), found.violation);
        }
        return found.is_some();
    }
    if let Some(mutant) = barrier::mutants::named(name) {
        let found = mutant.explore().found;
        if let Some((violation, scene)) = &found {
            println!("{}\n{scene}\n{violation}", mutant.what);
        }
        return found.is_some();
    }
    if let Some(mutant) = fenced::mutants::named(name) {
        let found = mutant.explore().found;
        if let Some(found) = &found {
            print!("{}\n{}{}\n", mutant.what, mutant.setting.narrate(found), found.violation);
        }
        return found.is_some();
    }
    let Some(mutant) = mutants::named(name) else {
        eprintln!("there is no mutant of the name {name}");
        return false;
    };
    let found = mutant.explore().found;
    if let Some(found) = &found {
        print!("{}\n{}{}\n", mutant.what, mutant.narrate(&found.path), found.violation);
    }
    found.is_some()
}
