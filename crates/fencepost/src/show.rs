//! Prints text and JSON on standard output.

use std::io::{ErrorKind, Write};
use std::sync::OnceLock;

use fencepost_core::time::Wall;
use fencepost_view::text::is_unsafe;
use fencepost_view::time::UtcTime;
use serde::Serialize;

pub use fencepost_view::text::{clean, flat, holder, second, second_in, time_for_people};

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

/// Prints a value as one line of JSON.
pub fn json(value: &impl Serialize) {
    line(&escaped(serde_json::to_string(value).expect("our own types serialize")));
}

/// JSON in which every character that a terminal would obey is escaped. Such a character stands only inside a string.
fn escaped(json: String) -> String {
    if !json.contains(is_unsafe) {
        return json;
    }
    let escape = |c: char| if is_unsafe(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    json.chars().map(escape).collect()
}

/// Prints rows in aligned columns, each row as long as the heading. The last column may be as long as it likes.
pub fn table(heading: &[&str], rows: &[Vec<String>]) {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| flat(cell)).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heading[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let render = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    line(&render(heading.to_vec()));
    for row in &rows {
        line(&render(row.iter().map(String::as_str).collect()));
    }
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
}
