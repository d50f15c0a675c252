//! How a job differs from what it was: its definition, its settings on this host, and what its runs did.
//!
//! The caller reads files and settings; the rules here compare, and say since when a difference holds.

use std::time::Duration;

use fencepost_core::definition::{DefinitionChange, GoodDefinition};
use fencepost_core::ledger::{Ledger, Outcome, Status};
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::notice::{TroubleSince, trouble};
use crate::text;
use crate::time::LocalTime;

/// How many runs in a row make a change of duration, and how many before them it is measured by.
const CHANGED_RUNS: usize = 3;
const USUAL_RUNS_MIN: usize = 5;

/// A run that takes more than twice or less than a quarter of the usual time is not as usual. Differences of less than this are
/// noise.
const SLOWER: u32 = 2;
const FASTER: u32 = 4;
const NOISE: Duration = Duration::from_secs(10);

/// The part of its timeout that a run may take, in percent.
const TIMEOUT_PERCENT: u128 = 90;

/// `validate --drift`: the differences, and what could not be compared.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct DriftAnswer {
    pub differences: Vec<DriftDifference>,
    /// What could not be read. It is not known whether it differs.
    pub unknown: Vec<DriftUnknown>,
    /// The jobs whose definition has nothing to be compared with: no good run has left it.
    pub no_good_run: Vec<String>,
}

impl DriftAnswer {
    /// Those of these layers that were compared in full.
    pub fn compared(&self, layers: &[DriftLayer]) -> Vec<DriftLayer> {
        layers.iter().copied().filter(|layer| !self.unknown.iter().any(|unknown| unknown.layer == *layer)).collect()
    }
}

/// What a difference is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriftLayer {
    /// The configuration of a job, and the files that its command names.
    Definition,
    /// Triggers, hooks and MCP settings on this host.
    Installed,
    /// What the runs did.
    Runs,
}

impl DriftLayer {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Definition => "definition",
            Self::Installed => "installed",
            Self::Runs => "runs",
        }
    }
}

/// One difference.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DriftDifference {
    pub layer: DriftLayer,
    pub kind: &'static str,
    pub job: Option<String>,
    /// The key or the file that differs.
    pub subject: Option<String>,
    pub since: LocalTime,
    /// False: it began earlier than that.
    pub since_is_exact: bool,
    pub message: String,
    /// Nothing tells when it began: `since` is when it was first seen.
    #[serde(skip)]
    pub is_undated: bool,
}

impl DriftDifference {
    /// Tells this difference from others.
    pub fn id(&self) -> String {
        let (job, subject) = (self.job.as_deref().unwrap_or_default(), self.subject.as_deref().unwrap_or_default());
        [self.layer.as_str(), self.kind, job, subject].join("\n")
    }

    /// The day since which it holds.
    pub fn day(&self) -> String {
        let day = self.since.zone.show(self.since.at);
        day.split_once('T').map_or(day.clone(), |(day, _)| day.to_string())
    }

    pub fn sentence(&self) -> String {
        let since = if self.since_is_exact { "Since" } else { "Since before" };
        format!("{} {since} {}.", self.message, self.day())
    }
}

/// What could not be compared.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DriftUnknown {
    pub layer: DriftLayer,
    pub job: Option<String>,
    pub message: String,
}

/// What the runs of a job are measured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftExpectation {
    /// The time between two slots.
    pub period: Option<Duration>,
    pub timeout: Option<Duration>,
    pub stuck_after: Option<u64>,
}

/// A job, for the differences that are found in it.
#[derive(Clone, Copy, Debug)]
pub struct DriftedJob<'a> {
    pub job: &'a str,
    pub zone: &'a Zone,
}

/// Something that the runs of a job do otherwise than they should or did.
struct Deviation {
    kind: &'static str,
    since: TroubleSince,
    words: String,
}

impl DriftedJob<'_> {
    pub fn difference(
        &self,
        layer: DriftLayer,
        kind: &'static str,
        since: TroubleSince,
        subject: Option<String>,
        words: &str,
    ) -> DriftDifference {
        DriftDifference {
            layer,
            kind,
            job: Some(self.job.to_string()),
            subject,
            since: LocalTime::new(since.at, self.zone),
            since_is_exact: since.is_exact,
            message: format!("{} {words}", self.job),
            is_undated: false,
        }
    }

    /// A part of the definition that is not what it was at the last good run. It changed after that run; `changed` is when its
    /// file did, if that is known.
    pub fn redefined(
        &self,
        good: &GoodDefinition,
        change: &DefinitionChange,
        changed: Option<Wall>,
    ) -> DriftDifference {
        let at = changed.unwrap_or(good.at).max(good.at);
        let run = format!("the last good run ({} on {})", text::second_in(good.at, self.zone), text::flat(&good.host));
        let (kind, subject, words) = match change {
            DefinitionChange::Key(key) => ("key", key, format!("has another value of {key} than at {run}.")),
            DefinitionChange::File(name) => {
                ("file", name, format!("names {}, which is not as at {run}.", text::flat(name)))
            }
        };
        let since = TroubleSince { at, is_exact: true };
        self.difference(DriftLayer::Definition, kind, since, Some(subject.clone()), &words)
    }

    /// What the recorded runs do otherwise than they should or did.
    pub fn deviations(&self, ledger: &Ledger, expected: &DriftExpectation) -> Vec<DriftDifference> {
        let runs = PastRuns { ledger, expected };
        let found =
            [runs.failing(), runs.stuck(), runs.empty(), runs.overrun(), runs.near_timeout(), runs.other_length()];
        let difference =
            |found: Deviation| self.difference(DriftLayer::Runs, found.kind, found.since, None, &found.words);
        found.into_iter().flatten().map(difference).collect()
    }
}

struct PastRuns<'a> {
    ledger: &'a Ledger,
    expected: &'a DriftExpectation,
}

impl PastRuns<'_> {
    fn good(&self) -> Vec<&Outcome> {
        self.ledger.ring.iter().filter(|outcome| outcome.status.is_good()).collect()
    }

    /// The newest good runs in a row for which this holds.
    fn last_good(&self, holds: impl Fn(&Outcome) -> bool) -> usize {
        self.good().iter().rev().take_while(|outcome| holds(outcome)).count()
    }

    /// Since when the last `count` good runs are as they are.
    fn since(&self, count: usize) -> TroubleSince {
        let good = self.good();
        let first = good.len() - count.min(good.len());
        let is_exact = first > 0 || self.ledger.given_up.is_none();
        TroubleSince { at: good.get(first).map_or(Wall(0), |outcome| outcome.ended()), is_exact }
    }

    fn failing(&self) -> Option<Deviation> {
        let (status, count, since) = trouble(self.ledger)?;
        let runs = if count == 1 { "the last run".to_string() } else { format!("the last {count} runs") };
        Some(Deviation { kind: "failing", since, words: format!("has not ended well in {runs}: {status}.") })
    }

    /// The same bytes, run after run.
    fn stuck(&self) -> Option<Deviation> {
        let last = *self.good().last()?;
        let count = self.ledger.repeats(&last.artifacts);
        let words = format!("is stuck: its last {count} good runs left the same bytes.");
        let is_stuck = self.expected.stuck_after.is_some_and(|after| count >= after);
        is_stuck.then(|| Deviation { kind: "stuck", since: self.since_same(&last.artifacts, count), words })
    }

    fn since_same(&self, artifacts: &[fencepost_core::artifact::Artifact], count: u64) -> TroubleSince {
        let ok: Vec<&Outcome> = self.ledger.ring.iter().filter(|outcome| outcome.status == Status::Ok).collect();
        let first = ok.iter().rposition(|outcome| outcome.artifacts != artifacts).map_or(0, |place| place + 1);
        let is_exact = ok.len() as u64 > count || self.ledger.given_up.is_none();
        TroubleSince { at: ok.get(first).map_or(Wall(0), |outcome| outcome.ended()), is_exact }
    }

    /// Nothing to do, run after run, of a job that had something to do before.
    fn empty(&self) -> Option<Deviation> {
        let count = self.last_good(|outcome| outcome.status == Status::Empty);
        let is_long = self.expected.stuck_after.is_some_and(|after| count as u64 >= after);
        let words = format!("found nothing to do in its last {count} good runs.");
        let has_worked = self.ledger.last_ok.is_some();
        (is_long && has_worked).then(|| Deviation { kind: "empty", since: self.since(count), words })
    }

    /// Longer than the time between two slots.
    fn overrun(&self) -> Option<Deviation> {
        let period = self.expected.period?;
        let count = self.last_good(|outcome| outcome.length() > period);
        let words = format!("took longer than its interval of {} in its last {count} good runs.", text::length(period));
        (count >= CHANGED_RUNS).then(|| Deviation { kind: "overrun", since: self.since(count), words })
    }

    fn near_timeout(&self) -> Option<Deviation> {
        let timeout = self.expected.timeout?;
        let is_near = |outcome: &Outcome| outcome.length().as_millis() * 100 >= timeout.as_millis() * TIMEOUT_PERCENT;
        let count = self.last_good(is_near);
        let words =
            format!("took nearly as long as its timeout of {} in its last {count} good runs.", text::length(timeout));
        (count >= CHANGED_RUNS).then(|| Deviation { kind: "near_timeout", since: self.since(count), words })
    }

    /// Much longer or shorter than the good runs before.
    fn other_length(&self) -> Option<Deviation> {
        let good = self.good();
        let lengths: Vec<Duration> = good.iter().map(|outcome| outcome.length()).collect();
        let last = lengths.len().checked_sub(CHANGED_RUNS)?;
        for first in USUAL_RUNS_MIN..=last {
            let usual = median(&lengths[..first]);
            let (slow, fast) = ((usual * SLOWER).max(usual + NOISE), (usual / FASTER).min(usual.saturating_sub(NOISE)));
            let count = lengths.len() - first;
            let kind = match &lengths[first..] {
                changed if changed.iter().all(|length| *length > slow) => "slower",
                changed if changed.iter().all(|length| *length < fast) => "faster",
                _ => continue,
            };
            let words = format!(
                "took {} in its last {count} good runs, and {} before.",
                text::length(median(&lengths[first..])),
                text::length(usual)
            );
            return Some(Deviation { kind, since: TroubleSince { at: good[first].ended(), is_exact: true }, words });
        }
        None
    }
}

fn median(lengths: &[Duration]) -> Duration {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::definition::DefinitionDigests;
    use fencepost_core::ledger::{EndedBy, Trigger};
    use fencepost_core::token::RunId;

    const DAY: i64 = 24 * 3_600_000;

    /// One run a day: its status, its length in seconds, and the bytes it left.
    fn ledger(runs: &[(Status, u64, &str)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (number, (status, seconds, bytes)) in runs.iter().enumerate() {
            let artifacts = match *bytes {
                "" => serde_json::json!([]),
                bytes => serde_json::json!([{ "path": "out", "size": 1, "sha256": bytes.repeat(64) }]),
            };
            let at = number as i64 * DAY;
            ledger.push(
                serde_json::from_value(serde_json::json!({
                    "slot": at, "zone": "UTC", "status": status, "token": number + 1, "artifacts": artifacts,
                    "run": RunId(uuid::Uuid::from_u128(number as u128 + 1)), "host": "a", "trigger": Trigger::Schedule,
                    "started": at, "finished": at, "took_ms": seconds * 1000, "ended_by": EndedBy::Child,
                }))
                .unwrap(),
            );
        }
        ledger
    }

    fn found(runs: &[(Status, u64, &str)], expected: DriftExpectation) -> Vec<String> {
        let zone = Zone::utc();
        let job = DriftedJob { job: "j", zone: &zone };
        let differences = job.deviations(&ledger(runs), &expected);
        differences.iter().map(|difference| format!("{} {}", difference.kind, difference.day())).collect()
    }

    use Status::{Empty, Error, Halted, Ok};

    #[test]
    fn a_job_that_fails_is_named_since_its_first_failure() {
        let nothing = DriftExpectation::default();
        assert_eq!(found(&[(Ok, 1, ""), (Error, 1, ""), (Halted, 1, "")], nothing), ["failing 1970-01-02"]);
        assert_eq!(found(&[(Error, 1, ""), (Empty, 1, "")], nothing), [""; 0]);
    }

    #[test]
    fn the_same_bytes_so_many_times_are_stuck() {
        let expected = DriftExpectation { stuck_after: Some(3), ..Default::default() };
        let runs = [(Ok, 1, "a"), (Ok, 1, "b"), (Ok, 1, "b"), (Ok, 1, "b")];
        assert_eq!(found(&runs, expected), ["stuck 1970-01-02"]);
        assert_eq!(found(&runs[..3], expected), [""; 0]);
        assert_eq!(found(&runs, DriftExpectation::default()), [""; 0]);
        // A run without artifacts leaves no bytes that could be the same.
        assert_eq!(found(&[(Ok, 1, ""); 5], expected), [""; 0]);
        let empty = [(Ok, 1, "a"), (Empty, 1, ""), (Empty, 1, ""), (Empty, 1, "")];
        assert_eq!(found(&empty, expected), ["empty 1970-01-02"]);
        assert_eq!(found(&[(Empty, 1, ""); 5], expected), [""; 0]);
    }

    #[test]
    fn durations_are_compared_with_interval_timeout_and_past() {
        let expected = DriftExpectation {
            period: Some(Duration::from_secs(60)),
            timeout: Some(Duration::from_secs(100)),
            ..Default::default()
        };
        let runs = |seconds: &[u64]| seconds.iter().map(|seconds| (Ok, *seconds, "")).collect::<Vec<_>>();
        assert_eq!(found(&runs(&[50, 61, 61, 61]), expected), ["overrun 1970-01-02"]);
        assert_eq!(found(&runs(&[50, 61, 61]), expected), [""; 0]);
        let long = DriftExpectation { period: None, ..expected };
        assert_eq!(found(&runs(&[50, 90, 95, 91]), long), ["near_timeout 1970-01-02"]);
        let nothing = DriftExpectation::default();
        assert_eq!(found(&runs(&[20, 20, 20, 20, 20, 20, 50, 50, 50]), nothing), ["slower 1970-01-07"]);
        assert_eq!(found(&runs(&[20, 20, 20, 20, 20, 20, 50, 50]), nothing), [""; 0]);
        assert_eq!(found(&runs(&[60, 60, 60, 60, 60, 3, 2, 3]), nothing), ["faster 1970-01-06"]);
        // Seconds are noise, and one slow run is no change.
        assert_eq!(found(&runs(&[1, 1, 1, 1, 1, 3, 3, 3]), nothing), [""; 0]);
        assert_eq!(found(&runs(&[20, 20, 20, 20, 20, 50, 20, 50]), nothing), [""; 0]);
    }

    #[test]
    fn a_beginning_that_left_the_ring_is_not_dated() {
        let mut ledger = ledger(&[(Error, 1, ""); 3]);
        ledger.give_up(0);
        let zone = Zone::utc();
        let job = DriftedJob { job: "j", zone: &zone };
        let found = job.deviations(&ledger, &DriftExpectation::default());
        assert_eq!(found[0].sentence(), "j has not ended well in the last 2 runs: error. Since before 1970-01-02.");
    }

    #[test]
    fn a_definition_differs_since_its_file_changed_but_not_before_the_good_run() {
        let zone = Zone::utc();
        let job = DriftedJob { job: "j", zone: &zone };
        let digests = DefinitionDigests::default();
        let good = GoodDefinition { at: Wall(2 * DAY), host: "a".into(), digests, unknown: Default::default() };
        let day = |changed| job.redefined(&good, &DefinitionChange::File("x".into()), changed).day();
        assert_eq!(day(Some(Wall(5 * DAY))), "1970-01-06");
        assert_eq!((day(Some(Wall(DAY))), day(None)), ("1970-01-03".into(), "1970-01-03".into()));
    }
}
