//! The exit codes, each with its meaning. They are a contract: scripts branch on them.

use std::process::ExitCode;

use fencepost_core::contract::Judgement;
use fencepost_core::ledger::Status;

/// An exit code of the command line. A library reports the same number for the same failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u8);

impl Code {
    pub const DONE: Self = Self(0);
    /// What was checked is refused.
    pub const REFUSED: Self = Self(1);
    /// Usage or configuration error, by hand.
    pub const USAGE: Self = Self(2);
    /// Held by another, by hand. Under `run` a skip is not a failure.
    pub const HELD: Self = Self(11);
    /// The lease is lost, by hand.
    pub const LOST: Self = Self(12);
    /// A stale token: the write was refused, by hand.
    pub const FENCED: Self = Self(13);
    /// The barrier says skip, by hand. Under `run` that is no failure.
    pub const BARRED: Self = Self(14);
    /// The barrier says halt, by hand.
    pub const HALTED: Self = Self(15);
    /// Done already, or not due, by hand.
    pub const NOT_NOW: Self = Self(16);
    /// An earlier attempt died between its effect and its record, by hand.
    pub const UNKNOWN: Self = Self(17);
    /// A declared artifact is missing or untouched, by hand.
    pub const NO_OUTPUT: Self = Self(18);
    /// The command exited with 0 after it had reported a failure.
    const SAID_ERROR: Self = Self(1);
    /// Added to the codes of `run`, which keeps them apart from the child's own.
    const UNDER_RUN: u8 = 100;
    pub const TIMED_OUT: Self = Self(124);
    /// fencepost or its store failed. Never reported as "held" or "done".
    pub const FAILED: Self = Self(125);
    pub const CANNOT_EXECUTE: Self = Self(126);
    pub const NOT_FOUND: Self = Self(127);

    /// The code as `run` and `once` give it, apart from the command's own codes.
    pub const fn under_run(self) -> Self {
        Self(self.0 + Self::UNDER_RUN)
    }

    /// The code by hand of one that `run` and `once` give.
    pub const fn by_hand(self) -> Self {
        match self.0 {
            111..=118 => Self(self.0 - Self::UNDER_RUN),
            _ => self,
        }
    }

    /// Ended on request, by this signal.
    pub fn of_signal(signal: i32) -> Self {
        Self::of_child(128 + signal)
    }

    /// The child's own code, unless the judgement overrides it: an empty result, or a missing artifact.
    pub fn of_judgement(exit_code: i32, judgement: &Judgement) -> Self {
        match judgement.status {
            Status::Ok | Status::Empty => Self::DONE,
            _ if judgement.breach.is_some() => Self::NO_OUTPUT.under_run(),
            _ if exit_code == 0 => Self::SAID_ERROR,
            _ => Self::of_child(exit_code),
        }
    }

    pub fn of_child(code: i32) -> Self {
        Self(u8::try_from(code).unwrap_or(Self::FAILED.0))
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.0)
    }
}
