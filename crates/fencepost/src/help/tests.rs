use std::path::Path;

use clap::{Command, Parser};

use super::table::verbs;
use super::*;

/// Every verb that people type, as its words after `fencepost`.
fn every_verb(command: &Command) -> Vec<String> {
    let below = describe::verbs(command);
    below.flat_map(|verb| [vec![describe::path(verb).to_string()], every_verb(verb)].concat()).collect()
}

#[test]
fn every_verb_has_help_and_the_help_has_only_verbs() {
    let mut typed = every_verb(&grammar());
    let mut described: Vec<String> = verbs().map(|entry| entry.verb.to_string()).collect();
    typed.sort();
    described.sort();
    assert_eq!(typed, described, "each verb has one entry in help/table.rs");
    for entry in verbs() {
        assert!((2..=3).contains(&entry.examples.len()), "{}: two or three examples", entry.verb);
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(entry.page);
        assert!(page.exists(), "{}: there is no page {}", entry.verb, entry.page);
    }
}

#[test]
fn the_first_line_of_the_help_is_each_verbs_own() {
    let root = grammar();
    let about = |verb: &String| describe::about(named(&root, &verb.split(' ').collect::<Vec<_>>()).0);
    let verbs = every_verb(&root);
    let mut first_lines: Vec<String> = verbs.iter().map(about).collect();
    first_lines.sort();
    first_lines.dedup();
    assert_eq!(
        first_lines.len(),
        verbs.len(),
        "a doc comment of shared options replaced the verb's own: {first_lines:?}"
    );
}

#[test]
fn another_word_for_a_verb_is_no_verb_itself_and_options_that_h_shows_exist() {
    let root = grammar();
    for entry in verbs() {
        let parent = entry.verb.rsplit_once(' ').map_or("", |(parent, _)| parent);
        let above = if parent.is_empty() { &root } else { root.find_subcommand(parent).unwrap() };
        for word in entry.other_words {
            assert!(above.find_subcommand(word).is_none(), "{}: `{word}` is a verb", entry.verb);
            assert_eq!(*word, word.to_lowercase(), "{}", entry.verb);
        }
        let (command, _) = named(&root, &entry.verb.split(' ').collect::<Vec<_>>());
        for id in entry.common {
            assert!(command.get_arguments().any(|arg| arg.get_id() == id), "{}: there is no option {id}", entry.verb);
        }
    }
}

#[test]
fn every_example_parses_as_its_verb() {
    for entry in verbs() {
        for (_, example) in entry.examples {
            let words = words_of(example);
            let typed: Vec<&str> = entry.verb.split(' ').collect();
            assert_eq!(words[1..=typed.len()], typed, "{example}: shows another verb");
            if let Err(error) = Arguments::try_parse_from(&words) {
                panic!("{example}: {error}");
            }
        }
    }
}

#[test]
fn the_words_of_a_shell_line_are_split_as_a_shell_does() {
    assert_eq!(words_of("x | fencepost a 'b c' \"$d\" > e"), ["fencepost", "a", "b c", "7"]);
    assert_eq!(words_of("t=$(fencepost a b)"), ["fencepost", "a", "b"]);
}

/// The words of the fencepost command in a shell line. A variable becomes a number.
fn words_of(line: &str) -> Vec<String> {
    let start = line.find("fencepost ").expect("an example calls fencepost");
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line[start..].chars() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            ('|' | ')' | '>' | ';', None) => break,
            (' ', None) => words.push(std::mem::take(&mut word)),
            (c, _) => word.push(c),
        }
    }
    words.push(word);
    let plain = words.into_iter().filter(|word| !word.is_empty());
    plain.map(|word| if word.starts_with('$') { "7".to_string() } else { word }).collect()
}

#[test]
fn what_most_people_need_stands_first() {
    let order = |verb: &str| verbs().position(|entry| entry.verb == verb).unwrap();
    for (first, later) in [("init", "mcp"), ("demo", "mcp"), ("status", "hook"), ("pause", "hook"), ("run", "up")] {
        assert!(order(first) < order(later), "{first} comes before {later}");
    }
}

#[test]
fn usages_name_a_verb_and_show_how_an_optional_value_is_typed() {
    let root = grammar();
    let page_of = |verb: &str| page(named(&root, &[verb]).0, Depth::Whole, 80);
    assert!(page_of("status").contains("--watch[=D]"), "{}", page_of("status"));
    assert!(page_of("status").contains("--since T"), "{}", page_of("status"));
    let completed = complete::candidates(&["status".to_string(), "--wat".to_string()]);
    assert_eq!(completed.iter().map(|candidate| candidate.word.as_str()).collect::<Vec<_>>(), ["--watch"]);
    for verb in ["lease", "store", "publish", "serve"] {
        let page = page_of(verb);
        assert!(page.contains("VERB") && !page.contains("<COMMAND>") && !page.contains("[COMMAND]"), "{page}");
    }
}

#[test]
fn no_line_of_the_help_is_wider_than_the_terminal() {
    let root = grammar();
    for verb in every_verb(&root).iter().map(String::as_str).chain([""]) {
        let (command, _) = named(&root, &verb.split_whitespace().collect::<Vec<_>>());
        for (depth, columns) in [(Depth::Short, 80), (Depth::Whole, 80), (Depth::Whole, 60), (Depth::Whole, 100)] {
            for line in page(command, depth, columns).lines() {
                let is_one_word = line.trim_start().split(' ').count() == 1;
                assert!(line.chars().count() <= columns || is_one_word, "{verb} at {columns}: {line}");
            }
        }
    }
}

#[test]
fn the_short_help_fits_a_screen() {
    let root = grammar();
    for verb in every_verb(&root) {
        let (command, _) = named(&root, &verb.split_whitespace().collect::<Vec<_>>());
        let lines = page(command, Depth::Short, 80).lines().count();
        assert!(lines <= 50, "{verb} -h has {lines} lines: name the common options in help/table.rs");
    }
}

#[test]
fn a_mistyped_option_is_told_with_the_nearest_one_and_the_help_of_its_verb() {
    let error = |words: &[&str]| Arguments::try_parse_from(words).unwrap_err().to_string();
    let text = reworded(&error(&["fencepost", "publish", "file", "x", "--tokn", "7"]), "publish file");
    assert!(
        text.starts_with("unexpected argument '--tokn' found\n\n  tip: a similar argument exists: '--token'\n"),
        "{text}"
    );
    assert!(text.ends_with("\n\nNothing was run. Help: fencepost publish file -h"), "{text}");
    let text = reworded(&error(&["fencepost", "status", "--nosuch"]), "status");
    assert!(!text.contains("to pass") && !text.contains("\n\n\n"), "{text}");
}
