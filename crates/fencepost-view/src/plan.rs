//! Which slots of a job would run now, which are dropped, and why.

use std::time::Duration;

use fencepost_core::lease::Honest;
use fencepost_core::name::Job;
use fencepost_core::plan::{CatchUpTerms, Due, Gap, Plan};
use fencepost_core::record::{Paused, Record};
use fencepost_core::schedule::Schedule;
use fencepost_core::slot::{Asked, LeaseState, OnLost, Scheduled};
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_store::records::look;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{AnswerVersion, ErrorDetail, JobMistakes};
use crate::time::LocalTime;
use crate::{View, ViewError, recorded_schedule, text};

/// How far ahead changes of the clocks are looked for.
pub const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

/// `plan`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanAnswer {
    pub v: AnswerVersion,
    /// The slots that a trigger would run now, in this order.
    pub run: Vec<LocalTime>,
    /// The slots that never run.
    pub dropped: Option<DroppedSlots>,
    pub next_slot: Option<LocalTime>,
    pub reason: String,
    #[serde(skip)]
    pub more: PlanDetails,
}

/// `plan` without a job.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanAllAnswer {
    pub v: AnswerVersion,
    /// The jobs that have a schedule.
    pub jobs: Vec<PlannedJob>,
    /// Jobs of the configuration that do not run because of mistakes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<JobMistakes>,
    /// Records that cannot be read, with their keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorDetail>,
}

/// The plan of one of several jobs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlannedJob {
    pub job: String,
    #[serde(flatten)]
    pub plan: PlanAnswer,
}

/// What people are shown of a plan besides its JSON.
#[derive(Clone, Debug)]
pub struct PlanDetails {
    pub schedule: Schedule,
    pub due: Vec<Due>,
    /// The next change of the clocks that meets the schedule.
    pub clock_change: Option<String>,
}

/// A stretch of slots, both ends included.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DroppedSlots {
    pub count: u64,
    pub from: LocalTime,
    pub to: LocalTime,
}

impl DroppedSlots {
    fn new(gap: Gap, zone: &Zone) -> Self {
        Self { count: gap.count, from: LocalTime::new(gap.from, zone), to: LocalTime::new(gap.to, zone) }
    }
}

/// The terms of a plan.
#[derive(Clone, Debug)]
pub struct PlanQuery {
    pub job: Job,
    /// Otherwise it is the schedule of the job's newest run.
    pub schedule: Option<Schedule>,
    pub terms: CatchUpTerms,
    pub retries: u32,
}

/// A job's record and the schedule that its slots are planned by.
#[derive(Clone, Debug)]
pub struct JobPlanner {
    record: Option<Record>,
    is_over: bool,
    scheduled: Scheduled,
}

impl View<'_> {
    /// Reads what a plan of the job rests on; `None` if the job has no schedule.
    pub fn planner(&self, query: PlanQuery) -> Result<Option<JobPlanner>, ViewError> {
        let (record, clock) = look(self.store, &query.job)?;
        let is_over = record.as_ref().is_some_and(|record| self.is_over(record, clock.as_ref()));
        let schedule = query.schedule.or_else(|| record.as_ref().and_then(recorded_schedule));
        let (terms, retries, on_lost) = (query.terms, query.retries, OnLost::default());
        let scheduled = schedule.map(|schedule| Scheduled { schedule, terms, asked: Asked::Due, on_lost, retries });
        Ok(scheduled.map(|scheduled| JobPlanner { record, is_over, scheduled }))
    }
}

impl JobPlanner {
    pub fn zone(&self) -> &Zone {
        self.scheduled.schedule.zone()
    }

    /// The plan of a trigger at this instant.
    pub fn plan(&self, now: Wall) -> PlanAnswer {
        let standing = if self.is_over { LeaseState::Over } else { LeaseState::Stands };
        let record = self.record.as_ref().map(|record| record.as_of(now));
        let (_, plan) = self.scheduled.plan::<Honest>(record.as_deref(), standing, now);
        let paused = record.as_ref().and_then(|record| record.paused.as_ref());
        // Slots up to the end of a pause do not run.
        let next = match paused.and_then(|paused| paused.until) {
            Some(until) => self.scheduled.schedule.after(until),
            None => plan.upcoming(now),
        };
        let (schedule, zone) = (&self.scheduled.schedule, self.zone());
        PlanAnswer {
            v: AnswerVersion,
            run: plan.run.iter().map(|due| LocalTime::new(due.slot, zone)).collect(),
            dropped: plan.dropped.map(|gap| DroppedSlots::new(gap, zone)),
            next_slot: next.map(|next| LocalTime::new(next, zone)),
            reason: self.reason(&plan, paused),
            more: PlanDetails {
                schedule: schedule.clone(),
                clock_change: schedule.dst_within(now, YEAR).map(|change| change.to_string()),
                due: plan.run,
            },
        }
    }

    fn reason(&self, plan: &Plan, paused: Option<&Paused>) -> String {
        let reason = plan.reason(&self.scheduled.terms, self.zone());
        match paused {
            None => reason,
            Some(paused) => {
                let until = text::until(paused, self.zone());
                format!("The job is paused{until}, from {}: no trigger runs it. {reason}", paused.by)
            }
        }
    }
}
