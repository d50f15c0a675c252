//! `explore`: every world, and every known bug with the path that shows it.

use std::process::ExitCode;

use fencepost_sim::model::{Catalogue, ModelTable};
use fencepost_sim::{barrier, fenced, mutants, slots, worlds};

const USAGE: &str = "usage: fencepost-sim explore [--deep | --leases | --fenced | --barrier | --slots] | path MUTANT";

const LEASES: &dyn Catalogue = &ModelTable { settings: &worlds::ALL, mutants: &mutants::ALL };
const DEEP: &dyn Catalogue = &ModelTable { settings: &worlds::DEEP, mutants: &mutants::ALL };
const FENCED: &dyn Catalogue = &ModelTable { settings: &fenced::settings::ALL, mutants: &fenced::mutants::ALL };
const BARRIER: &dyn Catalogue = &ModelTable { settings: &barrier::SETTINGS, mutants: &barrier::mutants::ALL };
const SLOTS: &dyn Catalogue = &ModelTable { settings: &slots::settings::ALL, mutants: &slots::mutants::ALL };

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let sound = match arguments[..] {
        ["explore"] => explore(&[LEASES, FENCED, BARRIER, SLOTS]),
        ["explore", "--deep"] => explore(&[DEEP, FENCED, BARRIER, SLOTS]),
        ["explore", "--leases"] => explore(&[LEASES]),
        ["explore", "--fenced"] => explore(&[FENCED]),
        ["explore", "--barrier"] => explore(&[BARRIER]),
        ["explore", "--slots"] => explore(&[SLOTS]),
        ["path", name] => {
            [LEASES, FENCED, BARRIER, SLOTS].iter().find_map(|table| table.tell(name)).unwrap_or_else(|| {
                eprintln!("there is no mutant of the name {name}");
                false
            })
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn explore(tables: &[&dyn Catalogue]) -> bool {
    let results: Vec<bool> = tables.iter().map(|table| table.explore()).collect();
    !results.contains(&false)
}
