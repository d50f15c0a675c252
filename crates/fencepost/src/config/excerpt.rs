//! The part of a configuration that one run needs: what applies to all jobs, the job's own section and those of its upstreams.
//!
//! `up` reads the whole file once and hands each run an excerpt, so the cost of a run does not grow with the number of jobs.
//! The excerpt's first line says which lines of the file it holds: a mistake is shown with its place in the file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use toml::de::{DeTable, DeValue};
use toml_parser::lexer::TokenKind;

use super::mistake::Source;

/// How the first line of an excerpt begins.
const HEAD: &str = "# Lines of the configuration:";

/// Which lines of a configuration belong to which job. Lines count from 0. Comments and empty lines belong to none.
#[derive(Debug, Default)]
pub struct Sections {
    shared: Vec<Range<usize>>,
    jobs: BTreeMap<String, Vec<Range<usize>>>,
}

impl Sections {
    /// Divides a text that was accepted as a configuration.
    pub fn of(source: &Source) -> Self {
        let mut sections = Self::default();
        let mut within = ConfigTable::Root;
        for statement in statements(&source.text) {
            let text = &source.text[statement.clone()];
            let owner = match (&within, text.starts_with('[')) {
                (_, true) => {
                    within = ConfigTable::of(text);
                    within.owner()
                }
                (ConfigTable::Job(name), false) => Some(name.clone()),
                (ConfigTable::Jobs, false) => only_key(text),
                (ConfigTable::Root, false) => ConfigTable::of(text).owner(),
                (ConfigTable::Other, false) => None,
            };
            let lines = source.lines_of(&statement);
            let ranges = match owner {
                Some(name) => sections.jobs.entry(name).or_default(),
                None => &mut sections.shared,
            };
            match ranges.last_mut() {
                Some(last) if last.end == lines.start => last.end = lines.end,
                _ => ranges.push(lines),
            }
        }
        sections
    }

    /// The excerpt for these jobs.
    pub fn excerpt<'n>(&self, source: &Source, jobs: impl Iterator<Item = &'n str>) -> String {
        let mut ranges: Vec<&Range<usize>> =
            self.shared.iter().chain(jobs.filter_map(|job| self.jobs.get(job)).flatten()).collect();
        ranges.sort_by_key(|range| range.start);
        ranges.dedup();
        let numbers: String = ranges.iter().map(|range| format!(" {}-{}", range.start + 1, range.end)).collect();
        let lines: Vec<&str> = ranges.iter().map(|range| source.text_of(range)).collect();
        format!("{HEAD}{numbers}\n{}", lines.concat())
    }
}

/// Reads an excerpt of the file at `path`. A text without the first line of an excerpt is the whole file: an `up` of an earlier
/// version hands that over, if the program was replaced since it started.
pub fn read(path: PathBuf, text: String) -> Source {
    match text.split_once('\n').and_then(|(head, excerpt)| Some((numbers(head)?, excerpt.to_string()))) {
        Some((numbers, excerpt)) => Source::new(path, excerpt).numbered(numbers),
        None => Source::new(path, text),
    }
}

/// The numbers of the lines in an excerpt, from its first line.
fn numbers(head: &str) -> Option<Vec<usize>> {
    let ranges = head.strip_prefix(HEAD)?.split_ascii_whitespace().map(|range| {
        let (first, last) = range.split_once('-')?;
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    Some(ranges.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
}

/// The table that statements belong to.
enum ConfigTable {
    /// The keys before the first table.
    Root,
    /// `[job]`
    Jobs,
    /// `[job.NAME]` and tables in it.
    Job(String),
    Other,
}

impl ConfigTable {
    /// The table that a header opens, or that a key at the top of the file is in.
    fn of(statement: &str) -> Self {
        let Ok(document) = DeTable::parse(statement) else { return Self::Other };
        let Some((key, value)) = document.get_ref().iter().next() else { return Self::Other };
        match value.get_ref() {
            DeValue::Table(jobs) if key.get_ref() == "job" => {
                let mut names = jobs.keys().map(|name| name.get_ref().to_string());
                match (names.next(), names.next()) {
                    (Some(name), None) => Self::Job(name),
                    _ => Self::Jobs,
                }
            }
            _ => Self::Other,
        }
    }

    fn owner(&self) -> Option<String> {
        match self {
            Self::Job(name) => Some(name.clone()),
            Self::Root | Self::Jobs | Self::Other => None,
        }
    }
}

/// The first part of the key that a statement sets.
fn only_key(statement: &str) -> Option<String> {
    let document = DeTable::parse(statement).ok()?;
    document.get_ref().keys().next().map(|key| key.get_ref().to_string())
}

/// The headers and the settings of a text, each with the bytes from its first to its last character.
fn statements(text: &str) -> Vec<Range<usize>> {
    let mut statements = Vec::new();
    let (mut statement, mut depth) = (None::<Range<usize>>, 0_usize);
    for token in toml_parser::Source::new(text).lex() {
        match token.kind() {
            TokenKind::Whitespace | TokenKind::Comment => continue,
            TokenKind::Newline | TokenKind::Eof if depth == 0 => {
                statements.extend(statement.take());
                continue;
            }
            TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket => depth += 1,
            TokenKind::RightSquareBracket | TokenKind::RightCurlyBracket => depth = depth.saturating_sub(1),
            _ => {}
        }
        let span = token.span();
        statement.get_or_insert(span.start()..span.end()).end = span.end();
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Reading;

    fn source(text: &str) -> Source {
        Source::new(PathBuf::from("/x/fencepost.toml"), text.to_string())
    }

    fn excerpt(text: &str, jobs: &[&str]) -> Source {
        let whole = source(text);
        let excerpt = Sections::of(&whole).excerpt(&whole, jobs.iter().copied());
        read(whole.path, excerpt)
    }

    const TEXT: &str = r#"timezone = "Asia/Tokyo" # [job.not-a-header]

[defaults]
ttl = "7m"

[job.a]
# A comment.
schedule = "0 7 * * *"
command = '''
[job.b]
echo # a
'''

[job.a.environment]
X = "1"

[job."b.c"]
needs = [
  "a", # ]
]
command = "b"

[up]
spread = "3s"

[job]
inline = { command = "i" }
e.command = "e"
e.retries = 3
"#;

    const DOTTED: &str = r#"job.f.command = "f"
job.g.command = "g"
store = "sqlite:/x/store.db"
job.f.environment = { A = "[job.g]" }
[up]
"#;

    #[test]
    fn an_excerpt_says_of_its_jobs_what_the_whole_file_says() {
        for (text, job) in [(TEXT, "a"), (TEXT, "b.c"), (TEXT, "inline"), (TEXT, "e"), (DOTTED, "f"), (DOTTED, "g")] {
            let whole = Reading::of_source(source(text));
            let part = Reading::of_source(excerpt(text, &[job]));
            assert_eq!((whole.mistakes, part.mistakes), (vec![], vec![]), "{job}");
            assert_eq!(part.config.jobs.keys().map(|name| name.as_str()).collect::<Vec<_>>(), [job]);
            for (name, of_part) in &part.config.jobs {
                assert_eq!(format!("{of_part:?}"), format!("{:?}", whole.config.jobs[name]), "{job}");
            }
            assert_eq!(format!("{:?}", part.config.up), format!("{:?}", whole.config.up));
            assert_eq!(part.config.top.store, whole.config.top.store);
        }
        let two = Reading::of_source(excerpt(TEXT, &["b.c", "a"]));
        assert_eq!(two.config.jobs.len(), 2);
    }

    #[test]
    fn a_mistake_in_an_excerpt_is_shown_where_it_is_in_the_file() {
        let text = TEXT.replace("command = \"b\"", "command = 7");
        let render = |source| Reading::of_source(source).faultless().unwrap_err().message().to_string();
        let whole = render(source(&text));
        assert!(whole.starts_with("/x/fencepost.toml:21:11:"), "{whole}");
        assert_eq!(render(excerpt(&text, &["b.c"])), whole);
    }

    #[test]
    fn jobs_that_cannot_be_told_apart_are_in_every_excerpt() {
        let text = "job = { a = { command = 'a' }, b = { command = 'b' } }\n";
        assert_eq!(Reading::of_source(excerpt(text, &["a"])).config.jobs.len(), 2);
        let one = "job = { a = { command = 'a' } }\n";
        assert_eq!(Reading::of_source(excerpt(one, &["a"])).config.jobs.len(), 1);
    }

    #[test]
    fn lines_of_an_excerpt_end_as_they_end_in_the_file() {
        let text = TEXT.replace('\n', "\r\n");
        let (whole, part) = (Reading::of_source(source(&text)), Reading::of_source(excerpt(&text, &["a"])));
        let [of_whole, of_part] = [&whole, &part].map(|reading| format!("{:?}", reading.config.jobs.values().next()));
        assert_eq!((of_part, part.mistakes.len()), (of_whole, 0));
        let unended = "[job.a]\ncommand = 'a'\n[job.b]\ncommand = 'b'";
        assert_eq!(Reading::of_source(excerpt(unended, &["a", "b"])).config.jobs.len(), 2);
    }

    #[test]
    fn another_text_is_the_whole_file() {
        for text in ["", "x", "[job.a]\ncommand = 'a'\n", "# Lines of the configuration: 1-x\n"] {
            assert_eq!(read(PathBuf::from("/x"), text.to_string()).text, text);
        }
    }
}
