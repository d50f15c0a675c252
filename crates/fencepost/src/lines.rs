//! Reads lines of limited length from another program.

use std::io::{self, BufRead};

/// The longest line that is read. A longer one is skipped, and answered with an error.
pub const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A line of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Whole(Vec<u8>),
    /// Longer than [`LINE_BYTES_MAX`]; its bytes are gone.
    TooLong,
    End,
}

/// Reads a line of limited length.
pub fn read_line(input: &mut impl BufRead) -> io::Result<Line> {
    let (mut line, mut is_too_long) = (Vec::new(), false);
    loop {
        let buffer = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            buffer => buffer?,
        };
        if buffer.is_empty() {
            // A last line may lack its end.
            return Ok(match (is_too_long, line.is_empty()) {
                (true, _) => Line::TooLong,
                (false, true) => Line::End,
                (false, false) => Line::Whole(line),
            });
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        is_too_long |= line.len() + part.len() > LINE_BYTES_MAX;
        match is_too_long {
            true => line = Vec::new(),
            false => line.extend_from_slice(part),
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(if is_too_long { Line::TooLong } else { Line::Whole(line) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_is_read() {
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        let fits = "y".repeat(LINE_BYTES_MAX);
        let text = format!("{long}\n{fits}\n\nlast");
        let mut input = io::BufReader::with_capacity(1000, text.as_bytes());
        assert_eq!(read_line(&mut input).unwrap(), Line::TooLong);
        assert_eq!(read_line(&mut input).unwrap(), Line::Whole(fits.into_bytes()));
        assert_eq!(read_line(&mut input).unwrap(), Line::Whole(Vec::new()));
        assert_eq!(read_line(&mut input).unwrap(), Line::Whole(b"last".to_vec()));
        assert_eq!(read_line(&mut input).unwrap(), Line::End);
    }
}
