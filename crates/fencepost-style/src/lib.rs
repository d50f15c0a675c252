//! Reads the sources of the workspace and finds what breaks the rules of style. `tests/style.rs` fails on it.
//!
//! | rule | limit |
//! |---|---|
//! | `function` | a Rust function, from its `fn` to its last brace: 70 lines |
//! | `file` | a source file: 600 lines |
//! | `type` | a public type name of the product: one definition |
//! | `flush` | `sync_all` and `sync_data` in the product outside `fencepost-sys`, whose `flush` also empties the drive's cache: none |
//! | `word` | words that hide the actor, in comments, texts, documents and scripts: none |

mod rust;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub const FUNCTION_LINES_MAX: usize = 70;
pub const FILE_LINES_MAX: usize = 600;

/// Words that stand where the name of the actor belongs.
const WORDS: [&str; 4] =
    [concat!("no", "body"), concat!("some", "body"), concat!("who", "ever"), concat!("what", "ever")];

/// Crates that a product or the model is made of. Those for tests and measurements may repeat names.
const TYPED: [&str; 9] = [
    "fencepost",
    "fencepost-core",
    "fencepost-guard",
    "fencepost-sdk",
    "fencepost-sim",
    "fencepost-store",
    "fencepost-sys",
    "fencepost-view",
    "fencepost-web",
];

/// Calls that leave data in the cache of a drive on some systems.
const FLUSHES: [&str; 2] = [".sync_all(", ".sync_data("];

/// Directories without sources of ours.
const SKIPPED: [&str; 4] = ["target", "node_modules", ".git", "dist"];

/// What breaks a rule: the rule and the place, with the number that breaks it.
pub type Findings = BTreeMap<(String, String), usize>;

/// Everything in the workspace that breaks a rule.
pub fn findings(root: &Path) -> Findings {
    let mut found = Findings::new();
    let mut types: BTreeMap<String, usize> = BTreeMap::new();
    for path in sources(root) {
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        let name = path.display().to_string();
        let is_rust = name.ends_with(".rs");
        let mut note = |rule: &str, place: String, count: usize| {
            *found.entry((rule.to_string(), place)).or_insert(0) += count;
        };
        if (is_rust || name.ends_with(".ts")) && text.lines().count() > FILE_LINES_MAX {
            note("file", name.clone(), text.lines().count());
        }
        let words = match is_rust {
            true => words_in(&rust::prose(&text)),
            false => words_in(&text),
        };
        if words > 0 {
            note("word", name.clone(), words);
        }
        if is_rust {
            let code = rust::code(&text);
            for (function, lines) in rust::functions(&code).into_iter().filter(|(_, lines)| *lines > FUNCTION_LINES_MAX)
            {
                note("function", format!("{name}::{function}"), lines);
            }
            if TYPED.iter().any(|krate| name.starts_with(&format!("crates/{krate}/src/"))) {
                let flushes = FLUSHES.iter().map(|call| code.matches(call).count()).sum();
                if flushes > 0 && !name.starts_with("crates/fencepost-sys/") {
                    note("flush", name.clone(), flushes);
                }
                rust::public_types(&code).into_iter().for_each(|name| *types.entry(name).or_insert(0) += 1);
            }
        }
    }
    let twice = types.into_iter().filter(|(_, count)| *count > 1);
    found.extend(twice.map(|(name, count)| (("type".to_string(), name), count)));
    found
}

/// How often the words occur. The Unix user of the same name, as an argument or alone in quotes, is not one of them.
fn words_in(text: &str) -> usize {
    let text = text.to_ascii_lowercase();
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let count = |word: &str| {
        let ends = |at: usize| {
            let (before, after) = (text[..at].bytes().next_back(), text[at + word.len()..].bytes().next());
            let is_user = word == WORDS[0] && matches!(before, Some(b'"' | b'=')) && matches!(after, Some(b'"'));
            !before.is_some_and(is_part) && !after.is_some_and(is_part) && !is_user
        };
        text.match_indices(word).filter(|(at, _)| ends(*at)).count()
    };
    WORDS.iter().map(|word| count(word)).sum()
}

/// The files that the rules are about, by their paths below the root: sources, documents and scripts.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(root.join(&directory)).into_iter().flatten().flatten() {
            let (name, kind) = (entry.file_name(), entry.file_type());
            let path = directory.join(&name);
            let name = name.to_string_lossy().into_owned();
            if kind.as_ref().is_ok_and(fs::FileType::is_dir) && !SKIPPED.contains(&name.as_str()) {
                open.push(path);
            } else if kind.is_ok_and(|kind| kind.is_file()) && is_source(root, &path) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn is_source(root: &Path, path: &Path) -> bool {
    match path.extension().and_then(|end| end.to_str()) {
        Some("rs" | "md" | "ts" | "js" | "mjs" | "py" | "css" | "html" | "sql" | "toml" | "yml" | "sh") => true,
        Some(_) => false,
        None => fs::read(root.join(path)).is_ok_and(|bytes| bytes.starts_with(b"#!")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_and_users_are_none() {
        let [first, second, ..] = WORDS;
        assert_eq!(words_in(&format!("{first} knows, and {second}.")), 2);
        assert_eq!(words_in(&format!("as_{first} {first}s")), 0);
        assert_eq!(words_in(&format!("\"{first}\" \"--reuid={first}\" \"{first} else\"")), 1);
    }

    #[test]
    fn every_rule_finds_what_breaks_it() {
        let root = std::env::temp_dir().join(format!("fencepost-style-{}", std::process::id()));
        let src = root.join("crates/fencepost/src");
        fs::create_dir_all(&src).unwrap();
        let long = format!("fn long() {{\n{}}}\n", "    f();\n".repeat(69));
        let fits = format!("fn fits() {{\n{}}}\n", "    f();\n".repeat(68));
        fs::write(
            src.join("a.rs"),
            format!("{long}{fits}fn flush() {{ file.sync_all(); }}\npub struct Twice;\n/// For {}.\n", WORDS[2]),
        )
        .unwrap();
        fs::write(src.join("b.rs"), format!("pub(crate) enum Twice {{}}\n{}", "//\n".repeat(600))).unwrap();
        let found = findings(&root);
        fs::remove_dir_all(&root).unwrap();
        let found: Vec<_> =
            found.iter().map(|((rule, place), count)| (rule.as_str(), place.as_str(), *count)).collect();
        let place = "crates/fencepost/src/a.rs";
        let expected = [
            ("file", "crates/fencepost/src/b.rs", 601),
            ("flush", place, 1),
            ("function", "crates/fencepost/src/a.rs::long", 71),
            ("type", "Twice", 2),
            ("word", place, 1),
        ];
        assert_eq!(found, expected);
    }
}
