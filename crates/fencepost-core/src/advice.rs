//! Recommendations from a job's ledger, each with its reason.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use serde::Serialize;

use crate::ledger::{Outcome, Status};
use crate::time::millis;

/// The share of skipped triggers at a healthy site, in percent.
pub const HEALTHY_SKIPS_PERCENT: u64 = 2;

/// The fewest healthy runs from which advice is given.
pub const RUNS_MIN: usize = 5;

/// The recommended ttl of a renewed lease: long enough for a store's failover, short enough to notice a dead holder.
const RENEWED_TTL: Duration = Duration::from_secs(300);

/// Statistics of a job's runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// How many runs ended well and have a duration.
    pub runs: usize,
    pub median_ms: u64,
    pub p95_ms: u64,
    pub worst_ms: u64,
    /// The recommended ttl for a renewed lease, as under `run`.
    pub ttl_ms: u64,
    pub renew_ms: u64,
    /// The recommended ttl without renewals, as with `lease acquire`.
    pub ttl_without_renewal_ms: u64,
    pub skips_percent: u64,
    pub halts_percent: u64,
    pub sentences: Vec<String>,
}

/// How many triggers were skipped or halted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub grants: u64,
    pub skips: u64,
    pub halts: u64,
}

/// The advice; `None` if too few runs ended well. `period` is the time between two slots, if there is a schedule.
pub fn advise(outcomes: &[Outcome], counts: Counts, period: Option<Duration>) -> Option<Advice> {
    let healthy = outcomes.iter().filter(|outcome| matches!(outcome.status, Status::Ok | Status::Empty));
    let mut lengths: Vec<u64> = healthy.map(|outcome| millis(outcome.length())).collect();
    lengths.sort_unstable();
    if lengths.len() < RUNS_MIN {
        return None;
    }
    let worst = *lengths.last()?;
    let at = |percent: usize| lengths[(lengths.len() - 1) * percent / 100];
    let mut advice = Advice {
        runs: lengths.len(),
        median_ms: at(50),
        p95_ms: at(95),
        worst_ms: worst,
        ttl_ms: millis(RENEWED_TTL),
        renew_ms: millis(RENEWED_TTL / 3),
        ttl_without_renewal_ms: worst.saturating_mul(2).max(1).div_ceil(1_000) * 1_000,
        skips_percent: percent(counts.skips, counts.grants + counts.skips),
        halts_percent: percent(counts.halts, counts.grants),
        sentences: Vec::new(),
    };
    advice.sentences = sentences(&advice, period);
    Some(advice)
}

fn percent(part: u64, whole: u64) -> u64 {
    (part * 100 + whole / 2).checked_div(whole).unwrap_or(0)
}

fn sentences(advice: &Advice, period: Option<Duration>) -> Vec<String> {
    let mut sentences = Vec::from([
        format!(
            "Of {} runs that ended well half took at most {}, 95 of 100 at most {}, and the longest {}.",
            advice.runs,
            shown(advice.median_ms),
            shown(advice.p95_ms),
            shown(advice.worst_ms)
        ),
        format!(
            "Under run a --ttl of {} suits, renewed every {}: it need not be as long as a run, only as long as you can wait \
             for another machine to take over from one that died.",
            shown(advice.ttl_ms),
            shown(advice.renew_ms)
        ),
        format!(
            "Where nothing renews the lease, --ttl {} suits: twice the longest healthy run, so that it does not end under a \
             slow one.",
            shown(advice.ttl_without_renewal_ms)
        ),
    ]);
    sentences.push(match advice.skips_percent {
        high if high > HEALTHY_SKIPS_PERCENT => format!(
            "{high} of 100 triggers were skipped because a run was going; a healthy job sees about {HEALTHY_SKIPS_PERCENT}. \
             Runs take too long for their interval, or something holds them up."
        ),
        fine => format!("{fine} of 100 triggers were skipped because a run was going, which is healthy."),
    });
    if advice.halts_percent > 0 {
        sentences.push(format!(
            "{} of 100 runs were halted by an upstream: fencepost status says by which.",
            advice.halts_percent
        ));
    }
    if let Some(period) = period.map(millis).filter(|period| *period > 0) {
        sentences.push(tightness(advice, period));
    }
    sentences
}

/// Whether the interval leaves room for the runs.
fn tightness(advice: &Advice, period: u64) -> String {
    let share = advice.p95_ms * 100 / period;
    match share {
        100.. if advice.median_ms >= period => format!(
            "The interval of {} is too tight: most runs take longer than it, and the next trigger is skipped each time.",
            shown(period)
        ),
        100.. => format!(
            "The interval of {} is too tight: at least 5 of 100 runs take longer than it, and the next trigger is skipped each \
             time.",
            shown(period)
        ),
        70.. => format!(
            "The interval of {} is tight: slow runs take {share} % of it. A little slower, and triggers will be skipped.",
            shown(period)
        ),
        _ => format!("The interval of {} leaves room: slow runs take {share} % of it.", shown(period)),
    }
}

fn shown(length_ms: u64) -> String {
    match length_ms {
        0..1_000 => format!("{length_ms}ms"),
        1_000..60_000 if length_ms % 1_000 < 50 => format!("{}s", length_ms / 1_000),
        1_000..60_000 => format!("{}.{}s", length_ms / 1_000, length_ms % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", length_ms / 60_000, length_ms / 1_000 % 60),
        _ => format!("{}h{:02}m", length_ms / 3_600_000, length_ms / 60_000 % 60),
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{EndedBy, Trigger};
    use crate::time::Wall;
    use crate::token::{RunId, Token};
    use uuid::Uuid;

    fn runs(lengths: &[i64], status: Status) -> Vec<Outcome> {
        let outcome = |(number, length): (usize, &i64)| Outcome {
            slot: Wall(number as i64),
            zone: "UTC".to_string(),
            status,
            token: Token::new(number as u64).unwrap(),
            run: RunId(Uuid::from_u128(number as u128)),
            host: "h".to_string(),
            trigger: Trigger::Schedule,
            unstarted: false,
            started: Wall(0),
            finished: Wall(*length),
            exit_code: Some(0),
            ended_by: EndedBy::Child,
            tries: None,
            took: None,
            note: None,
            artifacts: Vec::new(),
            upstreams: Vec::new(),
            covers: None,
            clipped: false,
            unknown: Default::default(),
        };
        lengths.iter().enumerate().map(outcome).collect()
    }

    #[test]
    fn failed_runs_are_not_measured() {
        let mut all = runs(&[10, 20, 30, 40, 50], Status::Ok);
        all.extend(runs(&[9_999_999], Status::Error));
        let advice = advise(&all, Counts::default(), None).unwrap();
        assert_eq!((advice.runs, advice.median_ms, advice.worst_ms), (5, 30, 50));
        assert_eq!(advice.ttl_without_renewal_ms, 1000);
    }

    #[test]
    fn too_few_runs_say_nothing() {
        assert_eq!(advise(&runs(&[10; RUNS_MIN - 1], Status::Ok), Counts::default(), None), None);
    }

    #[test]
    fn a_tight_interval_and_many_skips_are_pointed_out() {
        let all = runs(&[50_000; 20], Status::Ok);
        let counts = Counts { grants: 90, skips: 10, halts: 9 };
        let said = |period: u64| advise(&all, counts, Some(Duration::from_secs(period))).unwrap().sentences.join(" ");
        assert!(said(40).contains("too tight"));
        assert!(said(60).contains("is tight: slow runs take 83 %"));
        assert!(said(600).contains("leaves room"));
        assert!(
            said(600).contains("10 of 100 triggers were skipped") && said(600).contains("10 of 100 runs were halted")
        );
    }
}
