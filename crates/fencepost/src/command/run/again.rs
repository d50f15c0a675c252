//! More than one run from one trigger: retries of a slot that failed, and slots that are caught up one by one.
//!
//! Each is a process of its own, in the place of the one before: the keeper is forked while there is only one thread.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use fencepost_core::ledger::Status;
use fencepost_core::plan::Mode;
use fencepost_core::run::Finish;
use fencepost_core::slot::{Asked, Choice};
use fencepost_core::time::Wall;

use crate::exit::{Code, Failure};
use crate::settings::Settings;

/// Tells the next process what this one has left to do. It is nobody else's business.
pub const VARIABLE: &str = "FENCEPOST_AGAIN";

/// The longest a retry waits.
const BACKOFF_MAX: Duration = Duration::from_secs(3600);

/// Where in a row of runs this one stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    retries_done: u32,
    /// The slot that is tried again.
    retry_of: Option<Wall>,
    /// How many more slots may be caught up after this one.
    more: u32,
    /// The first code of the row that was not 0.
    carried: u8,
    /// It is not the first of its row.
    goes_on: bool,
}

/// A run that has ended, as far as it matters for the next.
pub struct Ended<'a> {
    pub finish: &'a Finish,
    pub status: Status,
    pub code: Code,
    pub slot: Option<Wall>,
}

/// What comes next, and after how long.
#[derive(Debug)]
pub struct Next {
    again: Again,
    after: Duration,
}

impl Again {
    pub fn from_environment(settings: &Settings) -> Self {
        let handed = std::env::var(VARIABLE).ok().and_then(|text| Self::parse(&text));
        handed.unwrap_or_else(|| Self { more: more(settings), ..Self::alone() })
    }

    /// A run that stands for itself.
    pub fn alone() -> Self {
        Self { retries_done: 0, retry_of: None, more: 0, carried: 0, goes_on: false }
    }

    pub fn choice(&self, settings: &Settings, now: Wall) -> Choice {
        match self.retry_of {
            Some(slot) => settings.slot.retry(slot),
            None => settings.slot.choice(&settings.zone, now),
        }
    }

    /// How often the slot was tried before.
    pub fn retries_done(&self) -> u32 {
        self.retries_done
    }

    /// What is run after this one, if anything. `plan` finds the slot that is due next.
    pub fn next(&self, settings: &Settings, ended: &Ended<'_>, plan: impl FnOnce() -> Option<Wall>) -> Option<Next> {
        let slot = ended.slot?;
        let failed = matches!(ended.status, Status::Error | Status::Timeout);
        if failed && self.retries_done < settings.retries && may_retry(ended.finish) {
            let again = Self { retries_done: self.retries_done + 1, retry_of: Some(slot), goes_on: true, ..*self };
            let backoff = settings.retry_backoff.saturating_mul(1 << self.retries_done.min(20)).min(BACKOFF_MAX);
            return Some(Next { again, after: backoff });
        }
        if self.more == 0 || matches!(ended.finish, Finish::Interrupted(_) | Finish::Unrecorded { .. }) {
            return None;
        }
        // A slot that failed is due again while it is the newest; that is for the next trigger.
        plan().filter(|due| *due != slot)?;
        let carried = if self.carried == 0 { ended.code.0 } else { self.carried };
        let again = Self { retries_done: 0, retry_of: None, more: self.more - 1, carried, goes_on: true };
        Some(Next { again, after: settings.catch_up_spacing })
    }

    /// The code of the whole row: the first that was not 0. That nothing more is due is no news then.
    pub fn code(&self, code: Code, finish: &Finish) -> Code {
        match finish {
            _ if self.carried != 0 => Code(self.carried),
            Finish::NotNow(_) if self.goes_on => Code::DONE,
            _ => code,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|number| number.parse::<i64>().ok());
        let mut next = || numbers.next().flatten();
        let (retries_done, slot, more, carried) = (next()?, next()?, next()?, next()?);
        Some(Self {
            retries_done: u32::try_from(retries_done).ok()?,
            retry_of: (slot >= 0).then_some(Wall(slot)),
            more: u32::try_from(more).ok()?,
            carried: u8::try_from(carried).ok()?,
            goes_on: true,
        })
    }

    fn show(&self) -> String {
        let slot = self.retry_of.map_or(-1, |slot| slot.0);
        format!("{} {slot} {} {}", self.retries_done, self.more, self.carried)
    }
}

impl Next {
    /// Whether it is the same slot once more.
    pub fn is_retry(&self) -> bool {
        self.again.retry_of.is_some()
    }

    /// Puts the next process in the place of this one. It comes back only if that fails.
    pub fn exec(self) -> Failure {
        std::thread::sleep(self.after);
        let error = match std::env::current_exe() {
            Ok(program) => {
                let mut command = Command::new(program);
                command.args(std::env::args_os().skip(1)).env(VARIABLE, self.again.show()).exec()
            }
            Err(error) => error,
        };
        Failure::Other(format!("Cannot start the next run: {error}. The next trigger goes on."))
    }
}

/// How many slots may follow the first.
fn more(settings: &Settings) -> u32 {
    let scheduled = settings.slot.scheduled().filter(|due| due.asked == Asked::Due && due.terms.mode == Mode::Each);
    scheduled.map_or(0, |due| due.terms.catch_up.saturating_sub(1))
}

/// Whether it was the command that failed, and not somebody who wanted it to end.
fn may_retry(finish: &Finish) -> bool {
    !matches!(finish, Finish::Interrupted(_) | Finish::NotSpawned(_) | Finish::Unrecorded { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_on_comes_back() {
        for retry_of in [None, Some(Wall(1_790_000_000_000))] {
            let again = Again { retries_done: 2, retry_of, more: 3, carried: 118, goes_on: true };
            assert_eq!(Again::parse(&again.show()), Some(again));
        }
        for wrong in ["", "1", "a b c d", "1 2 3 999", "-1 -1 0 0"] {
            assert_eq!(Again::parse(wrong), None, "{wrong}");
        }
    }
}
