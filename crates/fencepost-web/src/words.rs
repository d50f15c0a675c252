//! Times and numbers as the pages show them.

use std::time::Duration;

use fencepost_core::time::Wall;
use fencepost_view::text;
use fencepost_view::time::LocalTime;
use maud::{Markup, html};

/// When something will be: a countdown that the script keeps up to date. Its title is the time itself.
pub fn countdown(at: &LocalTime, now: Wall) -> Markup {
    html! {
        time.in datetime=(at.zone.show(at.at)) title=(moment(at)) {
            @if at.at > now { "in " (coarse(at.at.since(now))) } @else { "due" }
        }
    }
}

/// When something was, as an age that the script keeps up to date.
pub fn age(at: &LocalTime, now: Wall) -> Markup {
    html! {
        time.ago datetime=(at.zone.show(at.at)) title=(moment(at)) { (coarse(now.since(at.at))) " ago" }
    }
}

/// A moment near now: the time of day, with the day if it is another. Its title is the whole of it.
pub fn near(at: &LocalTime, now: Wall) -> Markup {
    html! { time datetime=(at.zone.show(at.at)) title=(moment(at)) { (text::near(at.at, now, &at.zone)) } }
}

/// A moment, to the second.
pub fn moment(at: &LocalTime) -> String {
    text::second_in(at.at, &at.zone)
}

/// A length of time without seconds, unless there is nothing else: a countdown does not flicker. The script knows the same rule.
pub fn coarse(length: Duration) -> String {
    match length.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        _ => text::length(length),
    }
}

pub fn millis(length: u64) -> String {
    text::length(Duration::from_millis(length))
}

/// `1 job`, `2 jobs`.
pub fn counted(count: usize, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

/// A part from 0 to 1 in percent. Anything but nothing is more than `0 %`.
pub fn percent(part: f64) -> String {
    match part * 100.0 {
        percent if percent <= 0.0 => "0 %".to_string(),
        percent if percent < 0.1 => "< 0.1 %".to_string(),
        percent if percent < 10.0 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// A word of a program, as a person writes it: `never_ran` becomes `never ran`.
pub fn spaced(word: &str) -> String {
    word.replace('_', " ")
}
