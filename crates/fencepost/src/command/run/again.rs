//! More than one run from one trigger: retries of a slot that failed, and slots that are caught up one by one.
//!
//! Each is a process of its own, in the place of the one before: the keeper is forked while there is only one thread.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use fencepost_core::ledger::Status;
use fencepost_core::plan::Mode;
use fencepost_core::slot::{Asked, Choice};
use fencepost_core::time::Wall;
use fencepost_core::token::Token;
use fencepost_guard::signals::{ReceivedSignal, Signals};
use fencepost_view::ReasonCode;
use fencepost_view::summary::Summary;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit::{Code, Failure};
use crate::report;
use crate::settings::Settings;

/// Tells the next process what this one has left to do. The job's command does not get it.
pub const VARIABLE: &str = "FENCEPOST_AGAIN";

const LOOKED_AT: &str = "looked at ";

/// The longest a retry waits.
const BACKOFF_MAX: Duration = Duration::from_secs(3600);

/// Where in a series of runs this one stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    retries_done: u32,
    /// The slot that is tried again.
    retry_of: Option<Wall>,
    /// The last slot that this trigger has tried. Those after it are left.
    tried: Option<Wall>,
    /// How many more slots may be caught up after this one.
    more: u32,
    /// The first code of the series that was not 0.
    carried: u8,
    /// It is not the first of its series.
    goes_on: bool,
}

/// A run that has ended, as far as the next one depends on it.
pub struct Before<'a> {
    pub summary: &'a Summary,
    /// The slot that it claimed.
    pub slot: Option<Wall>,
    /// How long it took.
    pub took: Duration,
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
        Self { retries_done: 0, retry_of: None, tried: None, more: 0, carried: 0, goes_on: false }
    }

    pub fn choice(&self, settings: &Settings, now: Wall) -> Choice {
        match (self.retry_of, self.tried, settings.slot.choice(&settings.zone, now)) {
            (Some(slot), _, _) => settings.slot.retry(slot),
            (None, Some(tried), Choice::Due(mut due)) => {
                due.asked = Asked::DueAfter(tried);
                Choice::Due(due)
            }
            (None, _, choice) => choice,
        }
    }

    /// How often the slot was tried before.
    pub fn retries_done(&self) -> u32 {
        self.retries_done
    }

    /// What is run after this one, if anything. `would_run` says whether a choice comes to a run, if the store answers.
    pub fn next(
        &self,
        settings: &Settings,
        before: &Before<'_>,
        would_run: impl Fn(&Choice) -> Option<bool>,
    ) -> Option<Next> {
        let slot = before.slot?;
        let summary = before.summary;
        let failed = matches!(summary.status, Status::Error | Status::Timeout);
        if failed && self.retries_done < settings.options.retries() && may_retry(summary) {
            let again = Self { retries_done: self.retries_done + 1, retry_of: Some(slot), goes_on: true, ..*self };
            // Triggers on other machines use attempts, too.
            if would_run(&settings.slot.retry(slot)) != Some(false) {
                let backoff =
                    settings.options.retry_backoff().saturating_mul(1 << self.retries_done.min(20)).min(BACKOFF_MAX);
                return Some(Next { again, after: backoff });
            }
        }
        if self.more == 0 || matches!(summary.reason, Some(ReasonCode::Interrupted | ReasonCode::Unrecorded)) {
            return None;
        }
        let carried = if self.carried == 0 { summary.code } else { self.carried };
        let (tried, more) = (Some(slot), self.more - 1);
        let again = Self { retries_done: 0, retry_of: None, tried, more, carried, goes_on: true };
        if would_run(&again.choice(settings, slot)) != Some(true) {
            return None;
        }
        Some(Next { again, after: settings.options.catch_up_spacing().saturating_sub(before.took) })
    }

    /// The code of the whole series: the first that was not 0. After a run, it is no news that nothing more is due.
    pub fn code(&self, summary: &Summary) -> Code {
        use ReasonCode::{Done, Held, NotDue, Running};
        match summary.reason {
            _ if self.carried != 0 => Code(self.carried),
            Some(Held | Running | Done | NotDue) if self.goes_on => Code::DONE,
            _ => Code(summary.code),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|number| number.parse::<i64>().ok());
        let mut next = || numbers.next().flatten();
        let (retries_done, slot, tried, more, carried) = (next()?, next()?, next()?, next()?, next()?);
        Some(Self {
            retries_done: u32::try_from(retries_done).ok()?,
            retry_of: (slot >= 0).then_some(Wall(slot)),
            tried: (tried >= 0).then_some(Wall(tried)),
            more: u32::try_from(more).ok()?,
            carried: u8::try_from(carried).ok()?,
            goes_on: true,
        })
    }

    fn show(&self) -> String {
        let number = |slot: Option<Wall>| slot.map_or(-1, |slot| slot.0);
        let (retry_of, tried) = (number(self.retry_of), number(self.tried));
        format!("{} {retry_of} {tried} {} {}", self.retries_done, self.more, self.carried)
    }
}

impl Next {
    /// Whether it is the same slot once more.
    pub fn is_retry(&self) -> bool {
        self.again.retry_of.is_some()
    }

    /// Waits until it is time. A signal that asks the run to end cuts the wait short: its number is the error.
    pub fn wait(&self, signals: &mut Signals) -> Result<(), i32> {
        let until = Instant::now() + self.after;
        loop {
            let ends = signals.pending().into_iter().find_map(|received| match received {
                ReceivedSignal::End(signal) => Some(signal),
                _ => None,
            });
            let left = until.saturating_duration_since(Instant::now());
            match ends {
                Some(signal) => return Err(signal),
                None if left.is_zero() => return Ok(()),
                None => {
                    let left = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
                    let _ = poll(&mut [PollFd::new(signals.fd(), PollFlags::POLLIN)], left);
                }
            }
        }
    }

    /// Puts the next process in the place of this one. It comes back only if that fails.
    pub fn exec(self) -> Failure {
        exec(&self.again.show())
    }
}

fn exec(handed_on: &str) -> Failure {
    report::flush();
    let error = match std::env::current_exe() {
        Ok(program) => Command::new(program).args(std::env::args_os().skip(1)).env(VARIABLE, handed_on).exec(),
        Err(error) => error,
    };
    Failure::Other(format!("Cannot start the next run: {error}. The next trigger goes on."))
}

/// Tries an item of work again, after its attempts up to this one were verified.
pub fn exec_looked_at(token: Token) -> Failure {
    exec(&format!("{LOOKED_AT}{token}"))
}

/// The last attempt at an item of work that was looked at, if the process before this one did so.
pub fn looked_at() -> Option<Token> {
    let handed_on = std::env::var(VARIABLE).ok()?;
    handed_on.strip_prefix(LOOKED_AT)?.parse().ok().and_then(Token::new)
}

/// How many slots may follow the first.
fn more(settings: &Settings) -> u32 {
    let scheduled = settings.slot.scheduled().filter(|due| due.asked.is_by_schedule() && due.terms.mode == Mode::Each);
    scheduled.map_or(0, |due| due.terms.catch_up.saturating_sub(1))
}

/// Whether the command itself failed, and its failure is recorded.
fn may_retry(summary: &Summary) -> bool {
    use ReasonCode::{CannotExecute, Interrupted, NotFound, Unrecorded};
    !matches!(summary.reason, Some(Interrupted | NotFound | CannotExecute | Unrecorded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_on_comes_back() {
        for retry_of in [None, Some(Wall(1_790_000_000_000))] {
            let tried = Some(Wall(1_780_000_000_000));
            let again = Again { retries_done: 2, retry_of, tried, more: 3, carried: 118, goes_on: true };
            assert_eq!(Again::parse(&again.show()), Some(again));
        }
        for wrong in ["", "1", "a b c d e", "1 2 3 4 999", "-1 -1 -1 0 0"] {
            assert_eq!(Again::parse(wrong), None, "{wrong}");
        }
    }
}
