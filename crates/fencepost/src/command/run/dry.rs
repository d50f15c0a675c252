//! `run --dry-run`: shows what a run would do now, decided by the same code. It writes nothing.

use std::time::Duration;

use fencepost_core::barrier::Asker;
use fencepost_core::history::Aside;
use fencepost_core::lease::{Claim, Context, Honest, Refusal};
use fencepost_core::ledger::Trigger;
use fencepost_core::name::Job;
use fencepost_core::record::Record;
use fencepost_core::run::{Finish, Kept, Overlap, Passage};
use fencepost_core::slot::{Chosen, NotNow};
use fencepost_core::time::{Reference, Wall};
use fencepost_core::token::Nonce;
use fencepost_guard::clock;
use fencepost_guard::transact::look;
use fencepost_guard::upstream_check::UpstreamCheck;
use fencepost_view::ReasonCode;
use fencepost_view::answer::{AnswerVersion, DryRunAnswer, DryRunDecision};
use fencepost_view::run_end::RunContext;

use super::check;
use crate::args::Global;
use crate::duration;
use crate::exit::{Code, Failure};
use crate::options::Given;
use crate::place::Place;
use crate::settings::Settings;
use crate::show;

pub fn run(global: &Global, place: &Place, job: &Job, settings: &Settings) -> Result<Code, Failure> {
    // Opens the store read-only: opening it otherwise would create it.
    let store = place.open_to_read()?;
    let asked = clock::boot_now();
    let (record, clock) = look(store.as_ref(), job)?;
    let now = clock::now();
    let facts = place.local().facts(record.as_ref(), now.boot);
    let reference = clock.map(|clock| Reference { clock, asked });
    let claim = Claim {
        run: crate::command::mint_run(),
        ttl: settings.ttl,
        holder: place.host.holder_by_hand(),
        slot: settings.slot.choice(&settings.zone, now.wall),
        zone: settings.zone.name().to_string(),
        trigger: Trigger::Manual,
    };
    let context = Context {
        job,
        now,
        nonce: Nonce { by: claim.run, write: 0 },
        reference: reference.as_ref(),
        date: None,
        facts: &facts,
        store: None,
        aside: Aside::default(),
    };
    let answer = match claim.choose::<Honest>(record.as_ref(), &context) {
        Ok(chosen) => match check(settings, place, &store, None, None)? {
            None => would_run(job, settings, &chosen, record.as_ref(), now.wall),
            Some(check) => behind_barrier(job, settings, &chosen, record.as_ref(), check, now.wall),
        },
        Err(refusal) => refused(job, settings, refusal, now.wall),
    };
    let code = Code(answer.exit_code.unwrap_or(0));
    match global.json {
        true => show::json(&answer),
        false => show::line(&answer.message),
    }
    Ok(code)
}

fn would_run(job: &Job, settings: &Settings, chosen: &Chosen, record: Option<&Record>, now: Wall) -> DryRunAnswer {
    let slot = settings.zone.show(chosen.slot);
    let took_over = record.and_then(|record| record.lease.as_ref());
    let (reason, why) = match took_over {
        Some(lease) => (ReasonCode::TookOver, format!("the run before ({}) did not end properly", lease.run)),
        None if chosen.slot > now => (ReasonCode::Free, format!("it takes the slot {slot} before its time")),
        None => (ReasonCode::Free, "nothing holds it".to_string()),
    };
    let message = format!("{job} would run for the slot {slot}: {why}.");
    let trigger = Some(chosen.trigger);
    DryRunAnswer {
        v: AnswerVersion,
        job: job.to_string(),
        decision: DryRunDecision::Run,
        reason,
        message,
        slot: Some(slot),
        trigger,
        exit_code: None,
    }
}

/// Checks the upstreams once, without waiting for them.
fn behind_barrier(
    job: &Job,
    settings: &Settings,
    chosen: &Chosen,
    record: Option<&Record>,
    check: UpstreamCheck,
    now: Wall,
) -> DryRunAnswer {
    let check = UpstreamCheck { wait: Duration::ZERO, ..check };
    let asker = Asker { slot: chosen.slot, zone: settings.zone.clone() };
    let (halt, barred) = match check.inspect(&asker).passage(&check.needs) {
        Passage::Proceed { .. } => return would_run(job, settings, chosen, record, now),
        Passage::Skip { barred } => (false, barred),
        Passage::Halt { barred } => (true, barred),
    };
    let finish = Finish::Barred { halt, barred, recorded: Kept::Recorded };
    let answer = ending(job, settings, finish, now);
    let before =
        settings.options.prepare.as_ref().map_or("", |_| " Its prepare command, which was not run, may change that.");
    let slot = Some(settings.zone.show(chosen.slot));
    DryRunAnswer { slot, message: format!("{}{before}", answer.message), ..answer }
}

fn refused(job: &Job, settings: &Settings, refusal: Refusal, now: Wall) -> DryRunAnswer {
    match refusal {
        Refusal::NotNow { why: NotNow::Early { slot, wait }, .. } => {
            let slot = settings.zone.show(slot);
            let message = format!("{job} would wait {} for its slot {slot}, then run.", duration::show(wait));
            wait_for(job, ReasonCode::Early, message, Some(slot))
        }
        Refusal::NotNow { why, .. } => ending(job, settings, Finish::NotNow(why), now),
        Refusal::Held { record, remaining } => {
            let holder = record.lease.as_ref().map(|lease| show::holder(lease, remaining, now)).unwrap_or_default();
            if settings.options.overlap() == Overlap::Replace {
                let why = format!("{job} would ask its holder to stop, and run in its place: it is held by {holder}.");
                return wait_for(job, ReasonCode::Replace, why, None);
            }
            if let Some(wait) = settings.options.wait.value() {
                let wait = duration::show(wait);
                let why = format!("{job} would wait up to {wait} for its turn: it is held by {holder}.");
                return wait_for(job, ReasonCode::Held, why, None);
            }
            ending(job, settings, Finish::Held { record, remaining }, now)
        }
        other => ending(job, settings, Finish::Refused(other), now),
    }
}

fn wait_for(job: &Job, reason: ReasonCode, message: String, slot: Option<String>) -> DryRunAnswer {
    let (job, trigger) = (job.to_string(), None);
    DryRunAnswer {
        v: AnswerVersion,
        job,
        decision: DryRunDecision::Wait,
        reason,
        message,
        slot,
        trigger,
        exit_code: None,
    }
}

/// Reports a run that starts nothing, with its message and exit code.
fn ending(job: &Job, settings: &Settings, finish: Finish, now: Wall) -> DryRunAnswer {
    use ReasonCode::{Barred, Done, Halted, Held, NotDue, Paused, Running, Unknown};
    let summary =
        RunContext { job, skip_exit: settings.options.skip_exit(), now, zone: &settings.zone }.summary(finish);
    let (decision, would) = match summary.reason {
        Some(Halted | Unknown) => (DryRunDecision::Halt, "would be halted"),
        Some(Held | Barred | Running | Done | NotDue | Paused) => (DryRunDecision::Skip, "would be skipped"),
        _ => (DryRunDecision::Fail, "would fail"),
    };
    let words = summary.message.unwrap_or_default();
    let message = match words.strip_prefix(&format!("{job} skipped: ")) {
        Some(why) => format!("{job} {would}: {why}"),
        None => format!("{job} {would}. {words}"),
    };
    DryRunAnswer {
        v: AnswerVersion,
        job: job.to_string(),
        decision,
        reason: summary.reason.unwrap_or(ReasonCode::None),
        message,
        slot: summary.slot.map(|slot| settings.zone.show(slot)),
        trigger: None,
        exit_code: Some(summary.code),
    }
}
