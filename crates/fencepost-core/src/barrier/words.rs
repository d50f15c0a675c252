//! The barrier's reasons as sentences.

use alloc::format;
use alloc::string::{String, ToString};

use super::{Asker, Decision, Here, Wanted};
use crate::artifact::Artifact;
use crate::ledger::{Outcome, Status};
use crate::name::Job;
use crate::record::Lease;
use crate::time::Wall;
use crate::zone::Zone;

pub(super) fn never_ran(job: &Job) -> String {
    format!("{job} has never run on this store.")
}

pub(super) fn unreadable(job: &Job, why: &str) -> String {
    format!("The ledger of {job} cannot be read, so that nothing is known of it: {why}")
}

pub(super) fn no_record(job: &Job, wanted: Wanted, last_ok: Option<&Outcome>, asker: &Asker) -> String {
    let zone = &asker.zone;
    let which = match wanted {
        Wanted::Exactly(slot) => format!("its slot of {}", moment(slot, zone)),
        Wanted::Newest { from, before } if from.0 == i64::MIN || before.0 == i64::MAX => "any slot".to_string(),
        Wanted::Newest { from, before } if before.0 <= 0 => {
            format!("any slot before {}", moment(from.max(asker.slot), zone))
        }
        Wanted::Newest { from, before } if is_day(from, before, zone) => {
            format!("{} ({zone})", zone.date(from))
        }
        Wanted::Newest { from, .. } => format!("any slot from {} on", moment(from, zone)),
    };
    let last = match last_ok {
        None => "It has never ended well.".to_string(),
        Some(last) => {
            format!("Its last good run was for {}; what lies there may be as old as that.", moment(last.slot, zone))
        }
    };
    format!("{job} has no record for {which}: it did not run. {last}")
}

pub(super) fn too_old(job: &Job) -> String {
    format!(
        "The record of {job} no longer tells what became of these slots, and the history is looked up by exact slot only. \
         Ask for one slot: {job}@same-slot."
    )
}

pub(super) fn going(job: &Job, lease: &Lease, is_over: bool, zone: &Zone) -> String {
    let slot = moment(lease.slot, zone);
    let (host, since) = (&lease.holder.host, zone.show_time(lease.since));
    if is_over {
        return format!("{job} began its run for {slot} on {host} at {since}, and died without a record.");
    }
    format!("{job} is still running for {slot}, on {host} since {since}.")
}

pub(super) fn ended(job: &Job, slot: Wall, outcome: &Outcome, decision: Decision, zone: &Zone) -> String {
    let slot = moment(slot, zone);
    let note = outcome.note.as_ref().map_or_else(String::new, |note| format!(" ({note})"));
    match (outcome.status, decision) {
        (Status::Ok, _) => format!("{job} is ok for {slot}."),
        (Status::Empty, Decision::Proceed) => format!("{job} had nothing for {slot}{note}; proceeding as asked."),
        (Status::Empty, _) => format!("{job} had nothing for {slot}{note}."),
        (Status::SkippedBarrier, _) => format!("{job} had nothing to do for {slot}: its own upstream had nothing."),
        (Status::Halted, _) => format!("{job} was itself halted for {slot}{note}."),
        (Status::Missed, _) => format!("{job} missed its slot of {slot}{note}."),
        (Status::Lost, _) => format!("{job} died or lost its lease in its run for {slot}{note}."),
        (Status::Timeout, _) => format!("{job} ran out of time for {slot}{note}."),
        (Status::Fenced, _) => format!("{job} was fenced off in its run for {slot}{note}."),
        (Status::Error, _) => match outcome.exit_code {
            Some(code) if code != 0 => format!("{job} failed for {slot} with exit code {code}{note}."),
            _ => format!("{job} failed for {slot}{note}."),
        },
        (status, _) => format!("{job} is {status} for {slot}{note}."),
    }
}

pub(super) fn other_bytes(job: &Job, path: &str, shown: &str, recorded: Option<&Artifact>, here: &Here) -> String {
    match (recorded, here) {
        (None, _) => format!(
            "{job} is ok, but recorded no artifact {path}, so that {shown} cannot be compared. Let {job} declare \
             it: --produces {path}."
        ),
        (Some(_), Here::Missing) => {
            format!("{job} is ok and left {shown}, but there is no such file here. Was it pulled, or synced?")
        }
        (Some(_), Here::Unreadable(why)) => format!("{job} is ok and left {shown}, but it cannot be read here: {why}"),
        (Some(recorded), Here::Found(here)) => format!(
            "{shown} is not what {job} left: it recorded {} bytes with SHA-256 {}, and here are {} bytes with {}. It may \
             be an old clone, half synced, or changed since.",
            recorded.size,
            start(recorded),
            here.size,
            start(here)
        ),
    }
}

fn start(artifact: &Artifact) -> String {
    format!("{}…", &artifact.sha256.to_string()[..12])
}

/// An instant in the asking job's zone.
pub(crate) fn moment(at: Wall, zone: &Zone) -> String {
    format!("{} {} ({zone})", zone.date(at), zone.show_time(at))
}

fn is_day(from: Wall, before: Wall, zone: &Zone) -> bool {
    let date = zone.date(from);
    (zone.start_of_day(date), zone.start_of_day(date.tomorrow())) == (from, before)
}
