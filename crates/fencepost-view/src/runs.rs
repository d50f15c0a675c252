//! How runs ended, newest slot first.

use std::collections::BTreeMap;

use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::name::Job;
use fencepost_core::record::Record;
use fencepost_core::time::{StoreClock, Wall};
use fencepost_core::token::{RunId, Token};
use fencepost_store::StoreError;
use fencepost_store::records::{history_and_details, look};
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{AnswerVersion, ErrorDetail, RunAnswer};
use crate::archive::Slots;
use crate::moment::{Moment, Range};
use crate::unread::{Unread, each_record};
use crate::{View, ViewError, text};

/// Which runs are asked for.
#[derive(Clone, Debug, Default)]
pub struct RunsQuery {
    pub job: Option<Job>,
    /// Any status, if none is named.
    pub statuses: Vec<Status>,
    pub range: Range,
    pub limit: usize,
}

/// The runs, newest slot first, and the records that cannot be read. `runs` prints each as an answer of its own.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunList {
    pub v: AnswerVersion,
    pub runs: Vec<RunAnswer>,
    pub errors: Vec<ErrorDetail>,
}

impl View<'_> {
    pub fn runs(&self, query: &RunsQuery) -> Result<RunList, ViewError> {
        let (mut records, mut unread) = (Vec::new(), Unread::default());
        each_record(self.store, &mut unread, |_, record, clock| {
            if query.job.as_ref().is_none_or(|asked| record.job.is_named_by(asked)) {
                let is_over = self.is_over(&record, clock);
                records.push((record, is_over));
            }
            Ok(())
        })?;
        let records: Vec<_> = records.iter().map(|(record, is_over)| (record, *is_over)).collect();
        let runs = self.listed(query, &records, &mut unread)?;
        Ok(RunList { v: AnswerVersion, runs, errors: unread.into_errors() })
    }

    /// The runs of one job since a moment, newest first and at most `limit`, from its record and its history. Reads no other
    /// record. Pages of the history that cannot be read are left out.
    pub fn runs_since(&self, job: &Job, since: Wall, limit: usize) -> Result<Vec<RunAnswer>, ViewError> {
        let (record, clock) = look(self.store, job)?;
        let Some(record) = record.filter(|record| !record.is_hidden()) else { return Ok(Vec::new()) };
        let range = Range { since: Some(Moment::Instant(since)), ..Range::default() };
        let query = RunsQuery { range, limit, ..RunsQuery::default() };
        let is_over = self.is_over(&record, clock.as_ref());
        Ok(self.listed(&query, &[(&record.remembered(), is_over)], &mut Unread::default())?)
    }

    /// The runs of these records that match the query, newest first. With a record comes whether its lease has ended
    /// without a release.
    pub(crate) fn listed(
        &self,
        query: &RunsQuery,
        records: &[(&Record, bool)],
        unread: &mut Unread,
    ) -> Result<Vec<RunAnswer>, StoreError> {
        let mut list = RunsList { query, lines: BTreeMap::new() };
        // All records first: they bound how far back the histories have to be read.
        records.iter().for_each(|(record, is_over)| list.add_record(record, *is_over));
        for (record, _) in records {
            list.add_history(self, record, unread)?;
        }
        Ok(list.lines.into_values().rev().collect())
    }
}

/// The newest runs that a record itself holds, newest first, and the run behind its lease.
pub(crate) fn runs_of_record(record: &Record, is_over: bool, limit: usize) -> Vec<RunAnswer> {
    let query = RunsQuery { limit, ..RunsQuery::default() };
    let mut list = RunsList { query: &query, lines: BTreeMap::new() };
    list.add_record(record, is_over);
    list.lines.into_values().rev().collect()
}

impl View<'_> {
    /// One run of a job, whose record the caller has read: going, or ended. `None` if nothing is recorded of it.
    pub fn run(
        &self,
        record: &Record,
        clock: Option<&StoreClock>,
        slot: Wall,
        run: &str,
    ) -> Result<Option<RunAnswer>, StoreError> {
        let going = RunAnswer::unrecorded(record, self.is_over(record, clock));
        if let Some(going) = going.filter(|going| going.run == run) {
            return Ok(Some(going));
        }
        let is_it = |outcome: &&Outcome| outcome.status.is_of_a_run() && outcome.run.to_string() == run;
        if let Some(known) = record.ledger.ring.iter().rev().find(is_it) {
            return Ok(Some(RunAnswer::ended(record, known)));
        }
        let older = history_and_details(self.store, record, slot)?;
        Ok(older.iter().rev().find(is_it).map(|known| RunAnswer::ended(record, known)))
    }
}

/// The newest runs that match the query, by slot.
struct RunsList<'a> {
    query: &'a RunsQuery,
    lines: BTreeMap<Spot, RunAnswer>,
}

/// Where a run stands in the list. The record and the history give the same attempt the same spot.
type Spot = (Wall, Wall, Token, RunId, String);

impl RunsList<'_> {
    /// Adds what a record holds, and the run behind its lease.
    fn add_record(&mut self, record: &Record, is_over: bool) {
        let run = RunAnswer::unrecorded(record, is_over);
        if let Some((lease, run)) = record.lease.as_ref().zip(run) {
            let at = (lease.slot, lease.since, record.token, lease.run, record.job.to_string());
            if self.wants(run.status) && self.query.range.meets(lease.slot, lease.slot, &run.slot.zone) {
                self.add(at, run);
            }
        }
        record.ledger.ring.iter().for_each(|outcome| self.add_outcome(record, outcome));
    }

    /// Adds what the record has no room for, as far back as it can matter. The history holds outcomes whole: they replace
    /// those that the record had to cut.
    fn add_history(&mut self, view: &View<'_>, record: &Record, unread: &mut Unread) -> Result<(), StoreError> {
        let oldest = record.ledger.ring.iter().map(|outcome| outcome.slot).min().unwrap_or_default();
        let (range, at_once) = (&self.query.range, self.threshold().max(oldest));
        let mut slots = Slots::between(view.store, &record.job, range.floor(), range.ceiling(), at_once)?;
        while let Some(slot) = slots.next_from(self.threshold())? {
            let found = unread.noted_history(history_and_details(view.store, record, slot))?;
            for outcome in found.unwrap_or_default() {
                self.add_outcome(record, &outcome);
            }
        }
        Ok(())
    }

    fn add_outcome(&mut self, record: &Record, outcome: &Outcome) {
        let (from, to) = outcome.covers.map_or((outcome.slot, outcome.slot), |covers| (covers.from, covers.to));
        let (first, last) = (from.min(outcome.slot), to.max(outcome.slot));
        if self.wants(outcome.status) && self.query.range.meets(first, last, &text::zone(&outcome.zone)) {
            let at = (outcome.slot, outcome.started, outcome.token, outcome.run, record.job.to_string());
            self.add(at, RunAnswer::ended(record, outcome));
        }
    }

    fn add(&mut self, at: Spot, run: RunAnswer) {
        self.lines.insert(at, run);
        if self.lines.len() > self.query.limit {
            self.lines.pop_first();
        }
    }

    fn wants(&self, status: Status) -> bool {
        self.query.statuses.is_empty() || self.query.statuses.contains(&status)
    }

    /// No older slot can still get into the list.
    fn threshold(&self) -> Wall {
        match self.lines.first_key_value() {
            Some((at, _)) if self.lines.len() >= self.query.limit => at.0,
            None if self.query.limit == 0 => Wall(i64::MAX),
            _ => Wall(i64::MIN),
        }
    }
}
