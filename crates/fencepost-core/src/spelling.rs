//! The words by which people write a choice: on the command line, in a configuration and in the documentation.
//!
//! Each closed set of words is declared here once, beside no other list of them. The core reads no command line; the binary
//! builds its grammar, its errors and its reference pages from [`Spelled::WORDS`].

use crate::barrier::OnEmpty;
use crate::fence::WriteMode;
use crate::plan::{CatchUpMode, CatchUpOrder};
use crate::run::Overlap;
use crate::slot::OnLost;

/// A type whose values are each written as one word.
pub trait Spelled: Copy + PartialEq + 'static {
    /// Every value with its word and what the word means.
    const WORDS: &'static [(Self, &'static str, &'static str)];

    /// The word for this value.
    fn word(self) -> &'static str {
        let entry = Self::WORDS.iter().find(|(value, ..)| *value == self);
        entry.map_or("", |(_, word, _)| word)
    }

    /// The value that a word stands for.
    fn of_word(text: &str) -> Option<Self> {
        Self::WORDS.iter().find(|(_, word, _)| *word == text).map(|(value, ..)| *value)
    }
}

impl Spelled for Overlap {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Skip, "skip", "Leave the work to the run that holds the lease, and exit 0"),
        (Self::Replace, "replace", "Ask that run to stop, and take its place"),
    ];
}

impl Spelled for OnLost {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Rerun, "rerun", "Run the slot again, within the bounds of catch-up"),
        (Self::Halt, "halt", "Exit 117 until --again repeats the slot"),
    ];
}

impl Spelled for CatchUpMode {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Each, "each", "One run for each slot"),
        (Self::Collapse, "collapse", "One run for all slots of the gap"),
    ];
}

impl Spelled for CatchUpOrder {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::OldestFirst, "oldest", "The oldest slot runs first"),
        (Self::NewestFirst, "newest", "The newest slot runs first"),
    ];
}

impl Spelled for OnEmpty {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Skip, "skip", "Skip the run if the upstream had nothing to do"),
        (Self::Proceed, "proceed", "Run all the same"),
    ];
}

impl Spelled for WriteMode {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Many, "many", "A holder may write again and again"),
        (Self::Once, "once", "A token is the right to write one time"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Spelled>() {
        for (value, word, meaning) in T::WORDS {
            assert!(!word.is_empty() && !meaning.is_empty());
            assert_eq!(value.word(), *word);
            assert!(T::of_word(word) == Some(*value), "{word} is the word of two values");
        }
        assert!(T::of_word("no such word").is_none());
    }

    #[test]
    fn a_word_and_its_value_lead_to_each_other() {
        check::<Overlap>();
        check::<OnLost>();
        check::<CatchUpMode>();
        check::<CatchUpOrder>();
        check::<OnEmpty>();
        check::<WriteMode>();
        assert_eq!((Overlap::Replace.word(), CatchUpOrder::NewestFirst.word()), ("replace", "newest"));
    }
}
