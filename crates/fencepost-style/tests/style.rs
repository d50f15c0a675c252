//! The sources follow the rules, but for the exceptions in `style-allowances.txt`, which can only become fewer.

use std::fs;
use std::path::Path;

use fencepost_style::{Findings, findings};

/// Set, the test writes the findings down as the new exceptions, if none of them is worse than before.
const UPDATE: &str = "FENCEPOST_STYLE_UPDATE";

#[test]
fn the_sources_follow_the_rules() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = manifest.join("style-allowances.txt");
    let allowed = read(&fs::read_to_string(&path).unwrap_or_default());
    let found = findings(&manifest.join("../.."));
    let worse = found.iter().filter_map(|(finding @ (rule, place), count)| {
        let allowed = allowed.get(finding).copied().unwrap_or(0);
        (*count > allowed).then(|| format!("{rule} {place}: {count}{}", limit(rule, allowed)))
    });
    let worse: Vec<String> = worse.collect();
    assert!(worse.is_empty(), "these break a rule of style (CONTRIBUTING.md):\n{}", worse.join("\n"));
    let better = allowed.iter().filter_map(|(finding @ (rule, place), count)| {
        let found = found.get(finding).copied().unwrap_or(0);
        (found < *count).then(|| format!("{rule} {place}: {found}, and {count} are allowed"))
    });
    let better: Vec<String> = better.collect();
    if std::env::var_os(UPDATE).is_some() {
        return fs::write(path, write(&found)).unwrap();
    }
    assert!(
        better.is_empty(),
        "fewer exceptions are needed; {UPDATE}=1 cargo test -p fencepost-style writes them down:\n{}",
        better.join("\n")
    );
}

fn limit(rule: &str, allowed: usize) -> String {
    let limit = match rule {
        "function" => fencepost_style::FUNCTION_LINES_MAX,
        "file" => fencepost_style::FILE_LINES_MAX,
        "type" => 1,
        _ => 0,
    };
    format!(", at most {}", allowed.max(limit))
}

/// A line for each exception: the rule, the place, the number.
fn write(found: &Findings) -> String {
    found.iter().map(|((rule, place), count)| format!("{rule} {place} {count}\n")).collect()
}

fn read(text: &str) -> Findings {
    let line = |line: &str| {
        let [rule, place, count] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line:?}") };
        ((rule.to_string(), place.to_string()), count.parse().unwrap())
    };
    text.lines().map(line).collect()
}
