//! `fencepost runs`: how runs ended, newest slot first.

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::ledger::{Outcome, Status};
use fencepost_core::record::Record;
use fencepost_core::time::{StoreClock, Wall};
use fencepost_core::token::{RunId, Token};
use fencepost_core::zone::Zone;
use fencepost_guard::archive::Slots;
use fencepost_guard::scout::history_and_details;
use fencepost_store::Store;

use super::Damage;
use crate::args::{Global, RunsOptions};
use crate::exit::{Code, Failure};
use crate::moment::{Moment, Range};
use crate::place::Place;
use crate::report::{self, length};
use crate::show::{self, RunJson};

pub fn run(global: &Global, options: &RunsOptions) -> Result<Code, Failure> {
    let range = range(options)?;
    let place = Place::find(global)?;
    let store = place.open_to_read()?;
    let mut list = List { wanted: &options.status, range, limit: options.limit, lines: BTreeMap::new() };
    let mut records = Vec::new();
    let mut damage = Damage::default();
    super::each_record(store.as_ref(), &mut damage, |_, record, clock| {
        if options.job.as_ref().is_none_or(|name| record.job.name == *name) {
            list.add_record(&record, &place, clock);
            records.push(record);
        }
        Ok(())
    })?;
    // All records first: they say how far back into the histories it is worth to look.
    for record in &records {
        list.add_history(store.as_ref(), record, &mut damage)?;
    }
    if global.json {
        list.newest_first().for_each(|line| show::json(&line.json));
        let sentences = damage.sentences();
        sentences.iter().for_each(|sentence| report::error_json(Code::FAILED, "unreadable", sentence));
        return Ok(damage.report(global, Code::DONE));
    }
    show::line(&format!("store   {}", place.shown_store()));
    show::line("");
    if list.lines.is_empty() {
        show::line("No runs.");
        return Ok(damage.report(global, Code::DONE));
    }
    let heading = ["SLOT", "JOB", "STATUS", "TOOK", "EXIT", "TOKEN", "HOST", "NOTE"];
    show::table(&heading, &list.newest_first().map(Line::row).collect::<Vec<_>>());
    Ok(damage.report(global, Code::DONE))
}

fn range(options: &RunsOptions) -> Result<Range, Failure> {
    let moment =
        |option: &str, text: &Option<String>| text.as_ref().map(|text| Moment::parse(option, text)).transpose();
    let zone = options.tz.as_ref().map(|zone| Zone::parse(zone)).transpose();
    Ok(Range {
        since: moment("--since", &options.since)?,
        until: moment("--until", &options.until)?,
        zone: zone.map_err(|error| Failure::Usage(format!("--tz: {error}")))?,
    })
}

/// The runs that are asked for, as many as that, by slot.
struct List<'a> {
    wanted: &'a [Status],
    range: Range,
    limit: usize,
    lines: BTreeMap<Spot, Line>,
}

/// Where a run stands in the list. The same attempt has the same place, from wherever it was read.
type Spot = (Wall, Wall, Token, RunId, String);

struct Line {
    slot: Wall,
    json: RunJson,
}

impl List<'_> {
    /// Adds what a record holds, and the run behind its lease.
    fn add_record(&mut self, record: &Record, place: &Place, clock: Option<&StoreClock>) {
        let is_over = place.is_over(record, clock);
        if let Some((lease, json)) = record.lease.as_ref().zip(RunJson::unrecorded(record, is_over)) {
            let at = (lease.slot, lease.since, record.token, lease.run, record.job.to_string());
            let status = if is_over { Status::Lost } else { Status::Running };
            if self.wants(status) && self.range.meets(lease.slot, lease.slot, &show::zone(&lease.zone)) {
                self.add(at, Line { slot: lease.slot, json });
            }
        }
        record.ledger.ring.iter().for_each(|outcome| self.add_outcome(record, outcome));
    }

    /// Adds what the record has no room for, as far back as it can matter. What stands there is whole, and takes the
    /// place of what the record had to cut.
    fn add_history(&mut self, store: &dyn Store, record: &Record, damage: &mut Damage) -> Result<(), Failure> {
        let oldest = record.ledger.ring.iter().map(|outcome| outcome.slot).min().unwrap_or_default();
        let at_once = self.threshold().max(oldest);
        let mut slots = Slots::between(store, &record.job, self.range.floor(), self.range.ceiling(), at_once)?;
        while let Some(slot) = slots.next_from(self.threshold())? {
            for outcome in damage.noted(history_and_details(store, record, slot))?.unwrap_or_default() {
                self.add_outcome(record, &outcome);
            }
        }
        Ok(())
    }

    fn add_outcome(&mut self, record: &Record, outcome: &Outcome) {
        let (from, to) = outcome.covers.map_or((outcome.slot, outcome.slot), |covers| (covers.from, covers.to));
        let (first, last) = (from.min(outcome.slot), to.max(outcome.slot));
        if self.wants(outcome.status) && self.range.meets(first, last, &show::zone(&outcome.zone)) {
            let at = (outcome.slot, outcome.started, outcome.token, outcome.run, record.job.to_string());
            self.add(at, Line { slot: outcome.slot, json: RunJson::ended(record, outcome) });
        }
    }

    fn add(&mut self, at: Spot, line: Line) {
        self.lines.insert(at, line);
        if self.lines.len() > self.limit {
            self.lines.pop_first();
        }
    }

    fn wants(&self, status: Status) -> bool {
        self.wanted.is_empty() || self.wanted.contains(&status)
    }

    /// No older slot can still get into the list.
    fn threshold(&self) -> Wall {
        match self.lines.first_key_value() {
            Some((at, _)) if self.lines.len() >= self.limit => at.0,
            None if self.limit == 0 => Wall(i64::MAX),
            _ => Wall(i64::MIN),
        }
    }

    fn newest_first(&self) -> impl Iterator<Item = &Line> {
        self.lines.values().rev()
    }
}

impl Line {
    fn note(&self) -> String {
        let covers = self.json.count.map(|count| format!("× {count}"));
        let note = self.json.note.as_deref().map(show::flat);
        covers.into_iter().chain(note).collect::<Vec<_>>().join(" ")
    }

    fn row(&self) -> Vec<String> {
        let run = &self.json;
        let dash = || "-".to_string();
        vec![
            show::second_in(self.slot, &show::zone(&run.timezone)),
            run.job.clone(),
            run.status.to_string(),
            run.duration_ms.map_or_else(dash, |millis| length(Duration::from_millis(millis))),
            run.exit_code.map_or_else(dash, |code| code.to_string()),
            run.token.to_string(),
            run.host.clone(),
            self.note(),
        ]
    }
}
