//! Prints text and JSON on standard output.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;

use fencepost_core::time::Wall;
use fencepost_view::schema::ListedAnswer;
use fencepost_view::text::{is_unsafe, width};
use fencepost_view::time::UtcTime;
use serde_json::Value;

pub use fencepost_view::text::{clean, flat, holder, second_in, time_for_people};

/// RFC 3339 in UTC, for what belongs to no job's day.
pub fn time(moment: Wall) -> String {
    UtcTime(moment).to_string()
}

/// Why something could not be printed, if anything could not.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Prints a line.
pub fn line(line: &str) {
    text(&format!("{line}\n"));
}

/// Prints lines that are written already, cleaned.
pub fn text(text: &str) {
    write(&clean(text));
}

/// Prints a text of our own that moves the cursor or sets colours. A reader that has seen enough (`| head`) is no error.
pub fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => failed(&error),
        Ok(()) | Err(_) => {}
    }
}

/// Notes that something could not be printed.
pub fn failed(why: &std::io::Error) {
    let _ = FAILURE.set(why.to_string());
}

/// Why something could not be printed, if anything could not.
pub fn failure() -> Option<&'static str> {
    FAILURE.get().map(String::as_str)
}

/// Prints an answer as one line of JSON.
pub fn json(answer: &impl ListedAnswer) {
    line(&escaped(serde_json::to_string(answer).expect("our own types serialize")));
}

/// Prints what another program expects, in its own format, as one line of JSON.
pub fn foreign_json(value: &Value) {
    line(&escaped(value.to_string()));
}

/// JSON in which every character that a terminal would obey is escaped. Such a character stands only inside a string.
pub fn escaped(json: String) -> String {
    if !json.contains(is_unsafe) {
        return json;
    }
    let escape = |c: char| if is_unsafe(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    json.chars().map(escape).collect()
}

/// Prints rows in aligned columns, each row as long as the heading. The last column may be as long as it likes.
pub fn table(heading: &[&str], rows: &[Vec<String>]) {
    let rows = rows.iter().map(|row| row.iter().map(|cell| Cell::plain(cell)).collect());
    aligned(heading, rows.collect()).iter().for_each(|row| line(row));
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Cleaned, on one line.
    text: String,
    /// The same text with colours.
    painted: Option<String>,
}

impl Cell {
    pub fn plain(text: &str) -> Self {
        Self { text: flat(text), painted: None }
    }

    pub fn painted(text: &str, paint: impl FnOnce(&str) -> String) -> Self {
        let text = flat(text);
        Self { painted: Some(paint(&text)), text }
    }

    fn shown(&self) -> &str {
        self.painted.as_deref().unwrap_or(&self.text)
    }
}

/// The lines of a table with aligned columns, each row as long as the heading.
pub fn aligned(heading: &[&str], rows: Vec<Vec<Cell>>) -> Vec<String> {
    let rows: Vec<Vec<Cell>> =
        std::iter::once(heading.iter().map(|title| Cell::plain(title)).collect()).chain(rows).collect();
    let widest = |column: usize| rows.iter().map(|row| width(&row[column].text)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heading.len()).map(widest).collect();
    let render = |row: &Vec<Cell>| {
        let mut line = String::new();
        for (column, (cell, widest)) in row.iter().zip(&widths).enumerate() {
            line.push_str(cell.shown());
            let is_rest_empty = row[column + 1..].iter().all(|cell| cell.text.is_empty());
            let gap = if is_rest_empty { 0 } else { widest - width(&cell.text) + 2 };
            line.extend(std::iter::repeat_n(' ', gap));
        }
        line
    };
    rows.iter().map(render).collect()
}

/// The text in lines of at most so many columns, where words allow it. Lines after the first are indented.
pub fn wrapped(text: &str, columns: usize, indent: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_string()),
            Some(_) => lines.push(format!("{:indent$}{word}", "")),
        }
    }
    lines
}

/// How wide the terminal on standard output is, if it is one.
pub fn terminal_columns() -> Option<usize> {
    terminal_size().map(|(columns, _)| columns).filter(|columns| *columns > 0)
}

/// How many lines the terminal on standard output has, if it is one.
pub fn terminal_rows() -> Option<usize> {
    terminal_size().map(|(_, rows)| rows).filter(|rows| *rows > 0)
}

fn terminal_size() -> Option<(usize, usize)> {
    let out = std::io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok())??;
    Some((usize::from(size.ws_col), usize::from(size.ws_row)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_holds_nothing_that_a_terminal_obeys_and_loses_nothing() {
        let foreign = "a\x1b[2Jb\u{9b}c\u{202e}d\u{2066}e\u{200f}f\u{2028}g\x07\x7fh\ti\r\nj";
        let json = escaped(serde_json::to_string(foreign).unwrap());
        assert!(!json.contains(is_unsafe), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), foreign);
    }

    #[test]
    fn columns_are_aligned_by_what_a_terminal_shows() {
        let row = |cells: [&str; 3]| cells.map(Cell::plain).to_vec();
        let rows = vec![row(["日本", "x", "1"]), row(["e\u{301}", "yy\n\x1b", ""]), row(["a", "", "2"])];
        let lines = aligned(&["J", "K", "L"], rows);
        assert_eq!(lines, ["J     K   L", "日本  x   1", "e\u{301}     yy", "a         2"]);
    }

    #[test]
    fn a_long_text_is_wrapped_between_words() {
        assert_eq!(wrapped("one two three four", 9, 2), ["one two", "  three", "  four"]);
        assert_eq!(wrapped("unbreakable", 3, 2), ["unbreakable"]);
    }
}
