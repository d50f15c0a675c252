//! The README and the task pages as written: every block of commands is run in a clean directory, in the order of the page.
//!
//! A page becomes a bash script with the same line numbers, so a failure names the page and the line. Blocks say how they are
//! run in their info string, which GitHub and mdBook do not show:
//!
//! | block | is |
//! |---|---|
//! | `sh` | run as it stands; every command must succeed |
//! | `console` | lines after `$ ` are run, the others are the expected output; `…` stands for any text, alone on a line for any lines |
//! | `… file=PATH` | written to this file, which the commands after it find |
//! | `… host=b` | run on another machine: another state directory and another working directory |
//! | `… at="2026-11-15 07:00:00"` | run at this time (UTC) |
//! | `… exit=115` | the last command exits with this code |
//! | `… no-test="reason"` | not run |
//!
//! A block inside an HTML comment is run too; readers do not see it.
//!
//! `PAGE=two-machines cargo test -p fencepost --test all pages::` runs only the pages whose path contains the word.

mod block;
mod links;
mod script;

use std::fs;
use std::path::{Path, PathBuf};

use block::{Block, blocks};
use script::Walk;

/// A page, by its path in the repository.
#[derive(Debug)]
pub struct Page {
    pub name: String,
    pub text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn pages() -> Vec<Page> {
    let tasks = fs::read_dir(root().join("docs/tasks")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = tasks.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    paths.push(root().join("README.md"));
    paths.sort();
    let page = |path: PathBuf| Page {
        name: path.strip_prefix(root()).unwrap().to_string_lossy().into_owned(),
        text: fs::read_to_string(&path).unwrap(),
    };
    paths.into_iter().map(page).collect()
}

#[test]
fn every_block_of_commands_is_run_or_says_why_not() {
    let mut mistakes = Vec::new();
    for page in pages() {
        for block in blocks(&page) {
            mistakes.extend(block.mistake().map(|mistake| format!("{}:{}: {mistake}", page.name, block.line)));
        }
    }
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
}

/// Cron's PATH is /usr/bin:/bin.
#[test]
fn a_crontab_names_the_program_by_its_whole_path() {
    let mut mistakes = Vec::new();
    for name in links::documents().iter().map(|path| path.display().to_string()) {
        let page = Page { text: fs::read_to_string(root().join(&name)).unwrap(), name };
        for block in blocks(&page).iter().filter(|block| block.language == "crontab") {
            let jobs = block.lines.iter().enumerate().filter(|(_, line)| !line.starts_with('#'));
            let relative = jobs.filter(|(_, line)| line.split_whitespace().any(|word| word == "fencepost"));
            mistakes.extend(relative.map(|(index, line)| format!("{}:{}: {line}", page.name, block.line + 1 + index)));
        }
    }
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
}

#[test]
fn pages_work_as_written() {
    fencepost_testkit::signals::reset();
    let only = std::env::var("PAGE").unwrap_or_default();
    let chosen: Vec<Page> = pages().into_iter().filter(|page| page.name.contains(&only)).collect();
    let failures: Vec<String> = std::thread::scope(|scope| {
        let walks: Vec<_> = chosen.iter().map(|page| scope.spawn(|| Walk::new(page).failures())).collect();
        walks.into_iter().flat_map(|walk| walk.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}

#[test]
fn a_failure_names_its_page_and_line() {
    let page = |text: &str| Page { name: "page.md".into(), text: text.into() };
    let failures = |text: &str| Walk::new(&page(text)).failures();
    assert_eq!(failures("# Page\n\n```sh\ntrue\n```\n"), Vec::<String>::new());
    let failed = failures("# Page\n\n```sh\ntrue\nls /nowhere\ntrue\n```\n").concat();
    assert!(failed.starts_with("page.md:5: ") && failed.contains("nowhere"), "{failed}");
    let other = failures("```console\n$ echo one two\none …\n$ echo three\nfour\n```\n").concat();
    assert!(other.starts_with("page.md:4: ") && other.contains("three"), "{other}");
    assert_eq!(failures("```console exit=3\n$ echo a; exit 3\n```\n").len(), 1, "a console has one shell");
    assert_eq!(failures("```console exit=3\n$ sh -c 'exit 3'\n```\n"), Vec::<String>::new());
    assert_eq!(failures("```text file=a/b\nhello\n```\n\n```sh\ngrep hello a/b\n```\n"), Vec::<String>::new());
}
