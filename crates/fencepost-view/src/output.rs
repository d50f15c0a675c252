//! The last lines of a command's output, as messages quote them.

use std::collections::VecDeque;

use fencepost_core::ledger::cut;
use fencepost_core::name::Job;
use fencepost_core::time::Wall;

use crate::text::{clean, flat, without_escapes};

/// The bytes at the end of the output that its last lines are taken from.
pub const TAIL_BYTES: usize = 8 * 1024;

/// The most lines that are quoted.
pub const LAST_LINES_MAX: usize = 10;

/// The most bytes of a quoted line.
const LINE_BYTES_MAX: usize = 300;

/// The most bytes of the one line that a failure's sentence quotes.
const QUOTED_BYTES_MAX: usize = 200;

/// Where the output of runs is kept. The caller knows the files; an answer only quotes their last lines.
pub trait KeptOutput {
    /// The name of this host. Output is kept on the host that ran the command.
    fn host(&self) -> &str;

    /// The last lines of a run's output; none if nothing is kept of it here.
    fn last_lines(&self, job: &Job, slot: Wall, run: &str) -> Vec<String>;
}

/// The end of an output stream that is still being written.
#[derive(Clone, Debug, Default)]
pub struct OutputTail {
    bytes: VecDeque<u8>,
    is_cut: bool,
}

impl OutputTail {
    pub fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        let over = (self.bytes.len() + kept.len()).saturating_sub(TAIL_BYTES);
        self.is_cut |= over > 0 || kept.len() < bytes.len();
        self.bytes.drain(..over);
        self.bytes.extend(kept);
    }

    pub fn lines(&mut self) -> Vec<String> {
        last_lines(self.bytes.make_contiguous(), self.is_cut)
    }
}

/// The last lines of an output, without escape sequences, control characters and empty lines. If the beginning `is_cut`
/// off, the first line is not whole and is left out, unless it is the only one.
pub fn last_lines(bytes: &[u8], is_cut: bool) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let text = without_escapes(&text);
    // A progress bar overwrites its line: only the last version was to be seen.
    let shown = |line: &str| {
        let last = line.trim_end().rsplit('\r').next().unwrap_or_default();
        cut(clean(&last.replace('\t', "    ")).trim_end(), LINE_BYTES_MAX)
    };
    let mut lines: Vec<String> = text.split('\n').map(shown).collect();
    if is_cut && lines.iter().skip(1).any(|line| !line.is_empty()) {
        lines.remove(0);
    }
    lines.retain(|line| !line.is_empty());
    lines.drain(..lines.len().saturating_sub(LAST_LINES_MAX));
    lines
}

/// The words that add the last line of the output to a sentence; empty if there is none.
pub fn quoted(lines: &[String]) -> String {
    lines.last().map_or_else(String::new, |line| format!(" Last output: {}", cut(&flat(line), QUOTED_BYTES_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole_clean_and_few() {
        let mut tail = OutputTail::default();
        for number in 0..5_000 {
            tail.push(format!("line {number}\n").as_bytes());
        }
        let lines = tail.lines();
        assert_eq!(lines.len(), LAST_LINES_MAX);
        assert_eq!((lines[0].as_str(), lines[9].as_str()), ("line 4990", "line 4999"));
        assert_eq!(quoted(&lines), " Last output: line 4999");
        assert_eq!(quoted(&[]), "");
    }

    #[test]
    fn colours_progress_bars_and_control_characters_are_removed() {
        let text = b"\x1b[1;31mError:\x1b[0m no\x07 such\x1b]0;title\x07 file\n10%\r50%\r100%\n\n\tin main\xff\n";
        assert_eq!(last_lines(text, false), ["Error: no such file", "100%", "    in main\u{fffd}"]);
        assert_eq!(last_lines(b"ended by windows\r\n", false), ["ended by windows"]);
    }

    #[test]
    fn a_line_that_lost_its_beginning_is_left_out_unless_it_is_the_only_one() {
        assert_eq!(last_lines(b"f a line\nwhole\n", true), ["whole"]);
        let mut tail = OutputTail::default();
        tail.push(&vec![b'x'; 3 * TAIL_BYTES]);
        let lines = tail.lines();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].len() <= LINE_BYTES_MAX && lines[0].ends_with('…'), "{}", lines[0]);
    }
}
