//! `fencepost advise`: how long runs take, which terms suit, and why.

use fencepost_core::advice::{Advice, Counts, RUNS_MIN, advise};
use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::record::Record;
use fencepost_core::time::Wall;
use fencepost_guard::archive::Slots;
use fencepost_guard::clock;
use fencepost_guard::scout::history_and_details;
use fencepost_guard::transact::skips;
use fencepost_store::Store;
use serde_json::{Map, Value, json};

use super::Damage;
use crate::args::{AdviseOptions, Global};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::show;
use crate::upstreams::recorded_schedule;

/// How many slots of the history are looked at besides the record.
const SLOTS_MAX: usize = 200;

pub fn run(global: &Global, options: &AdviseOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let store = place.open_to_read()?;
    let mut records = Vec::new();
    let mut damage = Damage::default();
    super::each_record(store.as_ref(), &mut damage, |_, record, _| {
        if options.job.as_ref().is_none_or(|name| record.job.name == *name) {
            records.push(record);
        }
        Ok(())
    })?;
    if let (Some(name), true, 0) = (&options.job, records.is_empty(), damage.sentences().len()) {
        return Err(Failure::Usage(format!("{name} has never run on this store.")));
    }
    let of = |record| Ok((record, advice(store.as_ref(), record, &mut damage)?));
    let advised: Vec<_> = records.iter().map(of).collect::<Result<_, Failure>>()?;
    match global.json {
        true => {
            let jobs: Vec<_> = advised.iter().map(|(job, of)| object(job, of.as_ref())).collect();
            let mut answer = json!({ "v": 1, "jobs": jobs });
            let unreadable = damage.sentences();
            if !unreadable.is_empty() {
                answer["unreadable"] = json!(unreadable);
            }
            show::json(&answer);
        }
        false => advised.iter().for_each(|(record, advice)| describe(record, advice.as_ref())),
    }
    Ok(damage.report(global, Code::DONE))
}

fn advice(store: &dyn Store, record: &Record, damage: &mut Damage) -> Result<Option<Advice>, Failure> {
    let skipped = damage.noted(skips(store, &record.job))?.flatten().map_or(0, |skips| skips.overlap);
    let halts = record.ledger.counts.get(&Status::Halted).copied().unwrap_or(0);
    let counts = Counts { grants: record.grants, skips: skipped, halts };
    let period = recorded_schedule(record).and_then(|schedule| schedule.period_hint(clock::now().wall));
    Ok(advise(&outcomes(store, record, damage)?, counts, period))
}

/// What the record holds, and the newest of its history.
fn outcomes(store: &dyn Store, record: &Record, damage: &mut Damage) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes = record.ledger.ring.clone();
    let oldest = outcomes.iter().map(|outcome| outcome.slot).min().unwrap_or_default();
    let mut slots = Slots::between(store, &record.job, Wall(0), oldest, oldest)?;
    for _ in 0..SLOTS_MAX {
        let Some(slot) = slots.next_from(Wall(0))? else { break };
        outcomes.extend(damage.noted(history_and_details(store, record, slot))?.unwrap_or_default());
    }
    outcomes.sort_by_key(Outcome::attempt);
    outcomes.dedup_by_key(|outcome| outcome.attempt());
    Ok(outcomes)
}

fn describe(record: &Record, advice: Option<&Advice>) {
    show::line(&record.job.to_string());
    match advice {
        None => show::line(&format!("  Too few runs ended well to say anything: it takes {RUNS_MIN}.")),
        Some(advice) => advice.sentences.iter().for_each(|sentence| show::line(&format!("  {sentence}"))),
    }
}

fn object(record: &Record, advice: Option<&Advice>) -> Value {
    let mut object = match advice.map(|advice| json!(advice)) {
        Some(Value::Object(fields)) => fields,
        _ => Map::from_iter([("runs".to_string(), Value::Null)]),
    };
    object.insert("job".to_string(), json!(record.job.to_string()));
    Value::Object(object)
}
