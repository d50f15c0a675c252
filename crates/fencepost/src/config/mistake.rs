//! Mistakes in a configuration: message, place, and how they are shown.

use std::ops::Range;
use std::path::PathBuf;

use fencepost_view::answer::MistakeAnswer;

/// Maximum number of characters shown of a line, half of them before the mistake.
const SHOWN_CHARS_MAX: usize = 160;

/// Maximum number of mistakes shown. More are rarely read, and may have one cause.
pub const SHOWN_MISTAKES_MAX: usize = 50;

/// Maximum number of mistakes collected. Reading stops there.
pub const MISTAKES_MAX: usize = 10_000;

/// Maximum length of a line that is shown. A longer one was written by a program.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// The number of bytes between two entries of the index of characters.
const STRIDE: usize = 64;

/// A value, and where in the file it is written. Lines and columns count from 1, columns in characters. Line 0 is the
/// command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Located<T> {
    pub value: T,
    pub line: u32,
    pub column: u32,
    /// How many characters are underlined.
    pub width: u32,
}

impl<T> Located<T> {
    /// A value of the command line.
    pub fn typed(value: T) -> Self {
        Self { value, line: 0, column: 0, width: 0 }
    }

    /// Whether it comes from the command line.
    pub fn is_typed(&self) -> bool {
        self.line == 0
    }

    /// Another value at the same place.
    pub fn with<U>(&self, value: U) -> Located<U> {
        Located { value, line: self.line, column: self.column, width: self.width }
    }
}

/// A mistake in a configuration, or, as a warning, a likely one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// `None` if it concerns the file as a whole.
    pub at: Option<Located<()>>,
    /// A sentence: what is wrong and what was expected.
    pub message: String,
    /// A sentence: how to correct it.
    pub hint: Option<String>,
    /// The jobs that it stops, by their keys under `[job]`. Empty: it stands outside any job and stops all.
    pub jobs: Vec<String>,
}

impl Mistake {
    pub fn at<T>(at: &Located<T>, message: impl Into<String>, hint: Option<String>) -> Self {
        Self { at: Some(at.with(())), message: message.into(), hint, jobs: Vec::new() }
    }

    /// The same mistake, which stops only this job.
    pub fn of_job(self, job: &str) -> Self {
        Self { jobs: vec![job.to_string()], ..self }
    }

    /// Whether the mistake stands outside any job.
    pub fn stops_all(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Joins the same mistake, found again: for a further job, or outside any.
    fn join(&mut self, again: Self) {
        match self.stops_all() || again.stops_all() {
            true => self.jobs.clear(),
            false => {
                self.jobs.extend(again.jobs);
                self.jobs.dedup();
            }
        }
    }

    /// Sorts mistakes by their place, each of them once.
    pub fn sorted(mut mistakes: Vec<Self>) -> Vec<Self> {
        mistakes.sort_by_key(Self::order);
        let mut sorted: Vec<Self> = Vec::new();
        for mistake in mistakes {
            let here = sorted.iter_mut().rev().take_while(|other| other.order() == mistake.order());
            let mut same = here.filter(|other| (&other.message, &other.hint) == (&mistake.message, &mistake.hint));
            match same.next() {
                Some(same) => same.join(mistake),
                None => sorted.push(mistake),
            }
        }
        sorted
    }

    pub fn answer(&self) -> MistakeAnswer {
        MistakeAnswer {
            line: self.at.as_ref().map(|at| at.line as usize),
            column: self.at.as_ref().map(|at| at.column as usize),
            message: self.message.clone(),
            hint: self.hint.clone(),
            jobs: self.jobs.clone(),
        }
    }

    /// The sort key: the order of the file.
    pub fn order(&self) -> (usize, usize) {
        self.at.as_ref().map_or((0, 0), |at| (at.line as usize, at.column as usize))
    }
}

/// A configuration's text, and the file it was read from.
#[derive(Clone, Debug)]
pub struct Source {
    pub path: PathBuf,
    pub text: String,
    /// The byte offset of each line: each value is located without counting from the top.
    lines: Vec<usize>,
    /// The number of characters before each multiple of `STRIDE`: a line may be as long as the file.
    chars: Vec<usize>,
    /// The number of each line in the file, if the text is an excerpt of it.
    numbers: Vec<usize>,
    disclosure: Disclosure,
}

/// What a message about a mistake shows of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disclosure {
    /// The line, with a caret.
    Lines,
    /// What is wrong. The text is not TOML, so its lines are not shown: it may be another kind of file, reached by a link.
    Messages,
    /// Where the mistake is, and no content of the file.
    Places,
}

/// Stands for a mistake of which only the place is shown.
const UNTOLD: &str = "The mistake is not shown without a token.";

impl Source {
    pub fn new(path: PathBuf, text: String) -> Self {
        let after_newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
        let lines = std::iter::once(0).chain(after_newlines).collect();
        let counts = text.as_bytes().chunks(STRIDE).scan(0, |total, chunk| {
            *total += count_chars(chunk);
            Some(*total)
        });
        let chars = std::iter::once(0).chain(counts).collect();
        Self { path, text, lines, chars, numbers: Vec::new(), disclosure: Disclosure::Lines }
    }

    /// An excerpt, whose lines have these numbers in the file, in ascending order.
    pub fn numbered(self, numbers: Vec<usize>) -> Self {
        Self { numbers, ..self }
    }

    /// The same source with all its lines hidden.
    pub fn hidden(self) -> Self {
        Self { disclosure: Disclosure::Messages, ..self }
    }

    /// The same source, of which messages show only places.
    pub fn with_places_only(self) -> Self {
        Self { disclosure: Disclosure::Places, ..self }
    }

    /// A mistake, for answers.
    pub fn answer(&self, mistake: &Mistake) -> MistakeAnswer {
        let answer = mistake.answer();
        match self.disclosure {
            Disclosure::Places => MistakeAnswer { message: UNTOLD.to_string(), hint: None, ..answer },
            Disclosure::Lines | Disclosure::Messages => answer,
        }
    }

    /// Converts a range of bytes to a line and a column.
    pub fn locate(&self, span: Range<usize>) -> Located<()> {
        let start = self.boundary(span.start);
        let line = self.lines.partition_point(|begins| *begins <= start);
        let line_start = self.lines[line - 1];
        let line_end = self.lines.get(line).map_or(self.text.len(), |next| next - 1);
        let end = self.boundary(span.end).clamp(start, line_end);
        let end = self.text[start..end].trim_end().len() + start;
        let count = |chars: usize| u32::try_from(chars).unwrap_or(u32::MAX);
        Located {
            value: (),
            line: count(self.numbers.get(line - 1).copied().unwrap_or(line)),
            column: count(self.chars_before(start) - self.chars_before(line_start) + 1),
            width: count((self.chars_before(end) - self.chars_before(start)).max(1)),
        }
    }

    fn chars_before(&self, byte: usize) -> usize {
        let mark = byte / STRIDE;
        self.chars[mark] + count_chars(&self.text.as_bytes()[mark * STRIDE..byte])
    }

    /// The mistakes, each with its line and a caret under it.
    pub fn render(&self, mistakes: &[Mistake]) -> String {
        let shown = mistakes.iter().take(SHOWN_MISTAKES_MAX);
        let each: Vec<String> = shown.map(|mistake| self.render_one(mistake)).collect();
        let path = self.path.display();
        match (each.as_slice(), mistakes.len()) {
            ([one], 1) => one.clone(),
            (all, count) if all.len() == count => format!("{path} has {count} mistakes.\n\n{}", all.join("\n\n")),
            (first, count) => format!(
                "{path} has {} mistakes. These are the first {}.\n\n{}",
                shown_count(count),
                first.len(),
                first.join("\n\n")
            ),
        }
    }

    pub fn render_one(&self, mistake: &Mistake) -> String {
        let MistakeAnswer { message, hint, .. } = self.answer(mistake);
        let hint = hint.map(|hint| format!(" {hint}")).unwrap_or_default();
        let Some(at) = &mistake.at else {
            return format!("{}: {message}{hint}", self.path.display());
        };
        let head = format!("{}:{}:{}: {message}{hint}", self.path.display(), at.line, at.column);
        let line = self.line(at.line as usize);
        if self.disclosure != Disclosure::Lines || line.len() > LINE_BYTES_MAX {
            return head;
        }
        let gutter = " ".repeat(at.line.to_string().len());
        let (line, caret) = shown_line(line, at);
        format!("{head}\n  {} | {line}\n  {gutter} | {caret}", at.line)
    }

    /// The lines of a range of bytes, counted from 0.
    pub fn lines_of(&self, span: &Range<usize>) -> Range<usize> {
        let line = |byte: usize| self.lines.partition_point(|begins| *begins <= byte);
        line(span.start) - 1..line(span.end.saturating_sub(1).max(span.start))
    }

    /// The text of these lines, with their ends.
    pub fn text_of(&self, lines: &Range<usize>) -> &str {
        let begin = |line: usize| self.lines.get(line).copied().unwrap_or(self.text.len());
        &self.text[begin(lines.start)..begin(lines.end)]
    }

    /// The line with this number in the file.
    fn line(&self, number: usize) -> &str {
        let index = match self.numbers.as_slice() {
            [] => number - 1,
            numbers => numbers.partition_point(|other| *other < number),
        };
        let begins = self.lines.get(index).copied().unwrap_or(self.text.len());
        let ends = self.lines.get(index + 1).map_or(self.text.len(), |next| next - 1);
        self.text[begins..ends].trim_end_matches('\r')
    }

    fn boundary(&self, mut byte: usize) -> usize {
        byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        byte
    }
}

/// The part of a line around a mistake, and the carets that go under it.
fn shown_line(line: &str, at: &Located<()>) -> (String, String) {
    let column = at.column as usize;
    let skipped = (column - 1).saturating_sub(SHOWN_CHARS_MAX / 2);
    let shown: Vec<char> = without_secrets(line).chars().skip(skipped).take(SHOWN_CHARS_MAX).collect();
    let before = column - 1 - skipped;
    let pad = shown.iter().map(|&c| if c == '\t' { '\t' } else { ' ' }).chain(std::iter::repeat(' ')).take(before);
    let width = (at.width as usize).min(SHOWN_CHARS_MAX.saturating_sub(before)).max(1);
    let caret = pad.chain(std::iter::repeat_n('^', width)).collect();
    let visible = |c: char| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    (shown.into_iter().map(visible).collect(), caret)
}

/// A number of mistakes as text. Counting stops at `MISTAKES_MAX`.
pub fn shown_count(count: usize) -> String {
    if count >= MISTAKES_MAX { format!("{MISTAKES_MAX} or more") } else { count.to_string() }
}

/// Counts the bytes that begin a character.
fn count_chars(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0b1100_0000 != 0b1000_0000).count()
}

/// A line in the form that may be shown: each character of a possible password becomes a star, which keeps the caret in
/// its place. In doubt it hides too much.
fn without_secrets(line: &str) -> String {
    let url = line.find("://").map(|at| at + "://".len());
    let secret = line.match_indices('=').find(|(at, _)| names_secret(&line[..*at])).map(|(at, _)| at + 1);
    let Some(kept) = url.into_iter().chain(secret).min() else { return line.to_string() };
    let starred = |c: char| if c.is_alphanumeric() || c == '%' { '*' } else { c };
    line[..kept].chars().chain(line[kept..].chars().map(starred)).collect()
}

/// Whether the last word of a text is the name of a secret.
fn names_secret(text: &str) -> bool {
    let key = text.trim_end().rsplit([' ', '\t', '{', ',', '.']).next().unwrap_or_default().to_ascii_lowercase();
    ["pass", "token", "secret", "key"].iter().any(|word| key.contains(word)) && !key.contains("_file")
}
