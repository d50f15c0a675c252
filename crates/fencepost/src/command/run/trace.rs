//! The trace context (W3C) of a run's command: `TRACEPARENT` and `TRACESTATE`.
//!
//! The command's spans appear under the run in a tracing tool. A trace that is going around the run goes on.

use std::fmt::Write;

use fencepost_core::token::RunId;
use fencepost_guard::child::Variables;

const PARENT: &str = "TRACEPARENT";
const STATE: &str = "TRACESTATE";

/// The version that is written. Fields of later versions are not known, and so not passed on.
const VERSION: &str = "00";
const SAMPLED: &str = "01";
/// The length of version 00: two digits, a trace of 32, a parent of 16 and two of flags, with dashes in between.
const LENGTH: usize = 55;

/// The variables of the command of `run`, inside the trace that `inherited` names. If it names none, the trace has the id
/// of the run, and the state that came with it is removed.
pub fn variables(run: RunId, inherited: Option<&str>) -> Variables {
    let bytes = run.0.as_bytes();
    let around = inherited.and_then(Inherited::parse);
    let trace = around.as_ref().map_or_else(|| hex(bytes), |around| around.trace.to_string());
    let flags = around.as_ref().map_or(SAMPLED, |around| around.flags);
    let parent = format!("{VERSION}-{trace}-{}-{flags}", parent_id(run));
    let state = around.is_none().then(|| (STATE.into(), None));
    [(PARENT.into(), Some(parent.into()))].into_iter().chain(state).collect()
}

/// The value that this process inherited, unless the job's own variables set another.
pub fn inherited(configured: &Variables) -> Option<String> {
    let set = configured.iter().rev().find(|(name, _)| name == PARENT);
    match set {
        Some((_, value)) => value.as_ref()?.to_str().map(str::to_string),
        None => std::env::var(PARENT).ok(),
    }
}

/// The id of the run's span: the random half of the run's id. It is never zero, which the standard forbids.
fn parent_id(run: RunId) -> String {
    let half = &run.0.as_bytes()[8..];
    match half.iter().all(|byte| *byte == 0) {
        true => "0000000000000001".to_string(),
        false => hex(half),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A valid `TRACEPARENT`.
#[derive(Debug, PartialEq, Eq)]
struct Inherited<'a> {
    trace: &'a str,
    flags: &'a str,
}

impl<'a> Inherited<'a> {
    /// `None` if the standard tells a receiver to ignore it and to begin a new trace.
    fn parse(text: &'a str) -> Option<Self> {
        if !text.is_ascii() || text.len() < LENGTH {
            return None;
        }
        let (known, more) = text.split_at(LENGTH);
        let [version, trace, parent, flags] = known.split('-').collect::<Vec<_>>()[..] else { return None };
        let lengths = [(version, 2), (trace, 32), (parent, 16), (flags, 2)];
        let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_zero = |text: &str| text.bytes().all(|byte| byte == b'0');
        let is_written = lengths.into_iter().all(|(part, length)| part.len() == length && is_hex(part));
        let is_later = version != VERSION;
        // Only a later version may have more fields.
        let is_complete = more.is_empty() || is_later && more.starts_with('-');
        let is_valid = is_written && is_complete && version != "ff" && !is_zero(trace) && !is_zero(parent);
        // Of the flags of a later version only the first bit keeps its meaning.
        let flags = match (is_later, flags.ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f'])) {
            (false, _) => flags,
            (true, true) => SAMPLED,
            (true, false) => "00",
        };
        is_valid.then_some(Self { trace, flags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn parent(inherited: Option<&str>) -> String {
        let run = RunId("0197a0f0-1234-7abc-8def-0123456789ab".parse().unwrap());
        let variables = variables(run, inherited);
        let is_removed = variables.iter().any(|(name, value)| name == STATE && value.is_none());
        let value = variables[0].1.as_ref().unwrap().to_str().unwrap().to_string();
        assert_eq!(is_removed, !value.contains(TRACE), "the state belongs to its trace: {value}");
        value
    }

    #[test]
    fn without_a_trace_around_it_the_run_begins_one_of_its_own_id() {
        assert_eq!(parent(None), "00-0197a0f012347abc8def0123456789ab-8def0123456789ab-01");
        let zero = variables(RunId(uuid::Uuid::from_u128(7 << 64)), None);
        assert_eq!(zero[0].1.as_ref().unwrap(), "00-00000000000000070000000000000000-0000000000000001-01");
    }

    #[test]
    fn a_valid_trace_goes_on_under_the_run() {
        for (flags, kept) in [("00", "00"), ("01", "01"), ("03", "03")] {
            let inherited = format!("00-{TRACE}-00f067aa0ba902b7-{flags}");
            assert_eq!(parent(Some(&inherited)), format!("00-{TRACE}-8def0123456789ab-{kept}"));
        }
        for (later, kept) in [("01", "01"), ("fe", "00"), ("ff-more-fields", "01"), ("00-", "00")] {
            let inherited = format!("cc-{TRACE}-00f067aa0ba902b7-{later}");
            assert_eq!(parent(Some(&inherited)), format!("00-{TRACE}-8def0123456789ab-{kept}"), "{inherited}");
        }
    }

    #[test]
    fn an_invalid_trace_is_replaced() {
        let upper = TRACE.to_uppercase();
        for wrong in [
            "",
            "nonsense",
            &format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            &format!("00-{TRACE}-0000000000000000-01"),
            &format!("00-{upper}-00f067aa0ba902b7-01"),
            &format!("00-{TRACE}-00f067aa0ba902b7-0"),
            &format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            &format!("00-{TRACE}-00f067aa0ba902b7-01 "),
            &format!("cc-{TRACE}-00f067aa0ba902b7-01more"),
            &format!("00-{TRACE}0-0f067aa0ba902b7-01"),
            &format!("0x-{TRACE}-00f067aa0ba902b7-01"),
            &format!("00-{TRACE}-00f067aa0ba902b7-é1"),
            &format!("00_{TRACE}_00f067aa0ba902b7_01"),
        ] {
            assert_eq!(parent(Some(wrong)), parent(None), "{wrong}");
        }
    }
}
