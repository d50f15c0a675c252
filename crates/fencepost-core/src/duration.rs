//! Lengths of time as people write them: `90s`, `5m`, `1h30m`, `2d`.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// Reads a length of time. A bare number is refused, because its unit would be a guess.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text.chars().all(|c| c.is_ascii_digit()) {
        let number = Some(text.trim_start_matches('0')).filter(|number| !number.is_empty());
        return Err(format!("{text:?} has no unit; write for example {}s or 5m", number.unwrap_or("0")));
    }
    let length = signed(text, "write for example 90s, 5m or 1h30m")?;
    Duration::try_from(length).map_err(|_| format!("{text:?} is negative"))
}

/// Reads a length of time that may be negative. `example` ends the error about a text that is none.
pub fn signed(text: &str, example: &str) -> Result<SignedDuration, String> {
    let span: Span = text.parse().map_err(|_| format!("{text:?} is not a length of time; {example}"))?;
    span.to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| format!("{text:?} has no fixed length; use weeks, days, hours, minutes and seconds"))
}

/// Shows a length of time in at most two units.
pub fn show(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0 => format!("{}ms", length.as_millis()),
        1..60 => format!("{seconds}.{}s", length.subsec_millis() / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// Shows a length of time exactly, in the largest unit that divides it: `90s`, `2h`.
pub fn exact(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0 => format!("{}ms", length.as_millis()),
        _ if seconds.is_multiple_of(86_400) => format!("{}d", seconds / 86_400),
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_unit_is_shown_with_one() {
        for (text, example) in [("0", "0s"), ("00", "0s"), ("090", "90s"), ("5", "5s")] {
            assert!(parse(text).unwrap_err().contains(&format!("for example {example} or 5m")), "{text}");
        }
    }

    #[test]
    fn what_people_write_is_understood() {
        for (text, seconds) in [("90s", 90), ("5m", 300), ("1h30m", 5400), ("2d", 172_800), ("1w", 604_800), ("0s", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
    }

    #[test]
    fn what_is_ambiguous_or_senseless_is_refused_with_a_way_out() {
        assert!(parse("600").unwrap_err().contains("600s"));
        for text in ["", "5 parsecs", "-5m", "1y", "1mo", "soon"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lengths_are_shown_in_two_units() {
        for (millis, text) in
            [(7, "7ms"), (1_250, "1.2s"), (187_000, "3m07s"), (5_400_000, "1h30m"), (90_000_000, "1d01h")]
        {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
    }
}
