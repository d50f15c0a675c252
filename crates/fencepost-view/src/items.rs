//! The items of work of `once`: which are done, in progress, failed or unknown.

use fencepost_core::lease::Honest;
use fencepost_core::name::{Job, Key, Name};
use fencepost_core::record::Record;
use fencepost_core::slot::{Choice, LeaseState, NotNow, OnUnknown};
use fencepost_core::time::{StoreClock, Wall};
use fencepost_core::zone::Zone;
use fencepost_store::records::look;
use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::{AnswerVersion, ErrorDetail, OnceState};
use crate::time::LocalTime;
use crate::unread::{Unread, each_shown_record};
use crate::{View, ViewError};

/// `once list`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OnceListAnswer {
    pub v: AnswerVersion,
    pub store: String,
    /// By key.
    pub items: Vec<OnceItem>,
    /// Records that cannot be read, with their keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ErrorDetail>,
}

/// `once show`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OnceShowAnswer {
    pub v: AnswerVersion,
    #[serde(flatten)]
    pub item: OnceItem,
}

/// An item of work.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OnceItem {
    pub key: String,
    pub state: OnceState,
    /// When the newest attempt began.
    pub started: Option<LocalTime>,
    /// When the newest attempt ended, if it has.
    pub finished: Option<LocalTime>,
    /// How long ago the newest attempt ended, or began if it has not.
    pub age_ms: Option<u64>,
    pub exit_code: Option<i32>,
    /// Who is doing it.
    pub holder: Option<ItemHolder>,
    pub token: u64,
    /// How many attempts there were.
    pub attempts: u64,
    pub note: Option<String>,
    /// The fingerprint of its parameters.
    pub params: Option<String>,
}

/// The process that does an item of work.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ItemHolder {
    pub run: String,
    pub host: String,
    pub pid: Option<i32>,
}

impl View<'_> {
    /// All items that were not forgotten, with times in this zone.
    pub fn once_items(&self, zone: &Zone) -> Result<OnceListAnswer, ViewError> {
        let (mut items, mut unread) = (Vec::new(), Unread::default());
        each_shown_record(self.store, Key::ITEMS, &mut unread, |_, record, clock| {
            items.push(self.item(&record, clock, zone));
            Ok(())
        })?;
        items.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(OnceListAnswer { v: AnswerVersion, store: self.store_url.clone(), items, errors: unread.into_errors() })
    }

    /// One item, with times in this zone; `None` if nothing is recorded of it.
    pub fn once_item(&self, key: &Name, zone: &Zone) -> Result<Option<OnceShowAnswer>, ViewError> {
        let (record, clock) = look(self.store, &Job::once(key.clone()))?;
        let record = record.filter(|record| !record.is_hidden());
        Ok(record.map(|record| OnceShowAnswer { v: AnswerVersion, item: self.item(&record, clock.as_ref(), zone) }))
    }

    fn item(&self, record: &Record, clock: Option<&StoreClock>, zone: &Zone) -> OnceItem {
        let is_over = self.is_over(record, clock);
        let held = record.lease.as_ref().filter(|_| !is_over);
        let last = record.ledger.last();
        let local = |at: Wall| LocalTime::new(at, zone);
        let started = record.lease.as_ref().map(|lease| lease.since).or(last.map(|last| last.started));
        let finished = last.filter(|_| record.lease.is_none()).map(|last| last.finished);
        let age = finished.or(started).map(|at| self.now.since(at));
        OnceItem {
            key: record.job.name.to_string(),
            state: if held.is_some() { OnceState::InProgress } else { state(record, is_over) },
            started: started.map(local),
            finished: finished.map(local),
            age_ms: age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            exit_code: last.filter(|_| record.lease.is_none()).and_then(|last| last.exit_code),
            holder: held.map(|lease| ItemHolder {
                run: lease.run.to_string(),
                host: lease.holder.host.clone(),
                pid: lease.holder.pid(),
            }),
            token: record.token.number(),
            attempts: record.grants,
            note: last.and_then(|last| last.note.clone()),
            params: record.params.map(|params| params.to_string()),
        }
    }
}

/// What the next attempt would be told, by the rule that decides it.
fn state(record: &Record, is_over: bool) -> OnceState {
    let lease = if is_over { LeaseState::Over } else { LeaseState::Stands };
    let choice = Choice::Once { params: None, on_unknown: OnUnknown::Halt };
    match choice.choose::<Honest>(Some(record), lease, Wall(0)) {
        Err(NotNow::Duplicate { .. }) => OnceState::Done,
        Err(_) => OnceState::Unknown,
        Ok(_) => OnceState::Failed,
    }
}
