//! More than one run from one trigger: retries of a failed slot, and catch-up slots one by one.
//!
//! Each run is its own process that replaces the one before: the keeper must be forked while there is only one thread.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use fencepost_core::ledger::Status;
use fencepost_core::plan::CatchUpMode;
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

/// Passes the remaining work to the next process. The job's command does not inherit it.
pub const VARIABLE: &str = "FENCEPOST_AGAIN";

const LOOKED_AT: &str = "looked at ";

/// Maximum backoff of a retry.
const BACKOFF_MAX: Duration = Duration::from_secs(3600);

/// The position of this run in a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    retries_done: u32,
    /// The slot that is retried.
    retry_of: Option<Wall>,
    /// The last slot that this trigger has tried. Later ones remain.
    tried: Option<Wall>,
    /// How many more slots may be caught up after this one.
    more: u32,
    /// The first nonzero code of the series.
    carried: u8,
    /// Whether this run is not the first of its series.
    goes_on: bool,
}

/// What the next run needs to know of the one that ended.
pub struct Before<'a> {
    pub summary: &'a Summary,
    /// The slot it claimed.
    pub slot: Option<Wall>,
    /// Its duration.
    pub took: Duration,
}

/// The next run, and the delay before it.
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

    /// A run that begins its own series.
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

    /// How often the slot was retried before.
    pub fn retries_done(&self) -> u32 {
        self.retries_done
    }

    /// Decides which run follows, if any. `would_run` tells whether a choice leads to a run, if the store is available.
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
            // Triggers on other machines use attempts too.
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

    /// The exit code of the series: the first nonzero one. After a run, "nothing due" does not change it.
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
    /// Whether the next run is a retry of the same slot.
    pub fn is_retry(&self) -> bool {
        self.again.retry_of.is_some()
    }

    /// Waits for the backoff. A signal that ends the run interrupts the wait; its number is the error.
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

    /// Replaces this process by the next one. Returns only if exec fails.
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
    Failure::Other(format!("Cannot start the next run: {error}. The next trigger continues."))
}

/// Tries an item of work again after its attempts up to `token` were verified.
pub fn exec_looked_at(token: Token) -> Failure {
    exec(&format!("{LOOKED_AT}{token}"))
}

/// The last verified attempt at an item of work, if the previous process verified one.
pub fn looked_at() -> Option<Token> {
    let handed_on = std::env::var(VARIABLE).ok()?;
    handed_on.strip_prefix(LOOKED_AT)?.parse().ok().and_then(Token::new)
}

/// How many slots may follow the first.
fn more(settings: &Settings) -> u32 {
    let scheduled =
        settings.slot.scheduled().filter(|due| due.asked.is_by_schedule() && due.terms.mode == CatchUpMode::Each);
    scheduled.map_or(0, |due| due.terms.catch_up.saturating_sub(1))
}

/// Whether the command itself failed and its failure is recorded.
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
