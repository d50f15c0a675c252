//! The reference pages of the documentation: generated from the table of options and from the grammar of the command line.

use std::fmt::Write;
use std::path::Path;

use clap::Command;

use super::{JobOptions, LEASE, Logs, ONCE, OptionInfo, OptionSet, PLAN, RUN, SharedTable, TopOptions, UpTableOptions};
use crate::help::table::find;
use crate::help::{describe, grammar};

/// Writes the pages instead of comparing them, if this variable is set.
const BLESS: &str = "FENCEPOST_BLESS";

const NOTE: &str = "<!-- Generated: FENCEPOST_BLESS=1 cargo test -p fencepost reference. Do not edit. -->\n";

#[track_caller]
fn check(page: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(page);
    if std::env::var_os(BLESS).is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, generated).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "docs/reference/{page} is out of date. Write it anew: {BLESS}=1 cargo test -p fencepost reference"
    );
}

#[test]
fn the_reference_of_the_configuration_is_current() {
    let mut page = format!("# Reference: `fencepost.toml`\n\n{NOTE}\n");
    page.push_str(
        "Every key, with what it takes, its built-in default, the table that sets it for all jobs, and the option of the\n\
         command line that takes precedence. How values are written, which value counts and where the file is found:\n\
         [CONFIGURATION.md](../CONFIGURATION.md).\n",
    );
    section(&mut page, "Top level", TopOptions::INFO.iter());
    section(&mut page, "`[up]`", UpTableOptions::INFO.iter());
    section(&mut page, "`[logs]`, and `logs` of a job", Logs::INFO.iter());
    page.push_str("\n## `[job.NAME]`\n");
    for group in groups(JobOptions::INFO.iter().map(|info| info.group)) {
        let _ = write!(
            page,
            "\n### {group}\n\n| key | value | default | for all jobs | option | |\n|---|---|---|---|---|---|\n"
        );
        for info in JobOptions::INFO.iter().filter(|info| info.group == group) {
            row(&mut page, &[&code(info.key), &value(info), &default(info), shared(info), &flag(info), &meaning(info)]);
        }
    }
    check("configuration.md", &page);
}

fn section<'i>(page: &mut String, title: &str, options: impl Iterator<Item = &'i OptionInfo>) {
    let _ = write!(page, "\n## {title}\n\n| key | value | default | |\n|---|---|---|---|\n");
    for info in options {
        row(page, &[&code(info.key), &value(info), &default(info), &meaning(info)]);
    }
}

fn value(info: &OptionInfo) -> String {
    (info.expected)()
}

fn default(info: &OptionInfo) -> String {
    match info.shown_default() {
        none if none.is_empty() => "none".to_string(),
        default => default,
    }
}

fn shared(info: &OptionInfo) -> &'static str {
    match info.shared {
        SharedTable::Defaults => "`[defaults]`",
        SharedTable::Notify => "`[notify]`",
        SharedTable::Logs => "`[logs]`",
        SharedTable::Nowhere => "no",
    }
}

fn flag(info: &OptionInfo) -> String {
    if info.flag.is_empty() {
        return String::new();
    }
    let short = info.short.map(|short| format!("`-{short}` ")).unwrap_or_default();
    let verbs = [(RUN, "run"), (PLAN, "plan"), (ONCE, "once"), (LEASE, "lease")];
    let verbs: Vec<&str> = verbs.into_iter().filter(|(bit, _)| info.is_for(*bit)).map(|(_, verb)| verb).collect();
    format!("{short}`{}` of {}", format!("--{} {}", info.flag, info.value).trim_end(), verbs.join(", "))
}

fn meaning(info: &OptionInfo) -> String {
    format!("{}. {}", info.help.trim(), info.detail).trim().to_string()
}

#[test]
fn the_reference_of_the_commands_is_current() {
    let whole = grammar();
    let mut page = format!("# Reference: commands\n\n{NOTE}\n");
    page.push_str(
        "Every verb with its arguments and options. What the verbs do, their exit codes and the fields of `--json`:\n\
         [COMMANDS.md](../COMMANDS.md). Options that are keys of the configuration too: [configuration.md](configuration.md).\n",
    );
    page.push_str("\n## Options of every verb\n\nThey stand before or after the verb, never after `--`.\n");
    tables(&mut page, &describe::global_sections(&whole));
    for verb in describe::verbs(&whole) {
        describe_verb(&mut page, verb);
    }
    check("commands.md", &page);
}

fn describe_verb(page: &mut String, verb: &Command) {
    if verb.has_subcommands() {
        return describe::verbs(verb).for_each(|verb| describe_verb(page, verb));
    }
    let usage = describe::usage(verb);
    let _ = write!(page, "\n## `{}`\n\n{}.\n", usage.trim_start_matches("fencepost "), describe::about(verb));
    tables(page, &describe::own_sections(verb));
    let Some(help) = find(describe::path(verb)) else { return };
    if !help.notes.is_empty() {
        let _ = write!(page, "\n{}\n", help.notes);
    }
    page.push_str("\n```sh no-test=\"examples\"\n");
    for (what, example) in help.examples {
        let _ = write!(page, "# {what}\n{example}\n");
    }
    page.push_str("```\n");
}

/// A table of arguments for each heading.
fn tables(page: &mut String, sections: &[describe::ArgumentGroup]) {
    for section in sections {
        let _ = write!(page, "\n| {} | |\n|---|---|\n", section.title);
        for arg in &section.arguments {
            row(page, &[&code(&arg.spelling), &arg.long]);
        }
    }
}

fn groups<'g>(of_each: impl Iterator<Item = &'g str>) -> Vec<&'g str> {
    let mut groups = Vec::new();
    of_each.for_each(|group| {
        if !groups.contains(&group) {
            groups.push(group);
        }
    });
    groups
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn row(page: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect();
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

#[test]
fn an_option_of_the_command_line_is_named_as_its_key() {
    for info in JobOptions::INFO.iter().filter(|info| !info.flag.is_empty()) {
        let named = info.flag == info.key.replace('_', "-");
        assert!(named || (info.key, info.flag) == ("timezone", "tz"), "{info:?}");
        for other in info.conflicts {
            assert!(JobOptions::INFO.iter().any(|info| info.key == *other), "{}: there is no {other}", info.key);
        }
    }
}
