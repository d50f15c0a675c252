//! The sentences of `why`, each built by one small function from what the ledger holds.

use fencepost_core::ledger::{Consumed, EndedBy, Outcome, Status, Trigger};
use fencepost_core::name::Name;
use fencepost_core::record::Lease;
use fencepost_core::schedule::Schedule;
use fencepost_core::slot::Timing;
use fencepost_core::time::Wall;
use fencepost_core::token::RunId;
use fencepost_core::zone::Zone;

use super::{Case, Sentence};
use crate::answer::RecordedArtifact;
use crate::moment::Moment;
use crate::text;

/// A run that starts later than this after its slot is worth a word.
const LATE_MILLIS: u128 = 1_000;

/// The whole chain, in order.
pub(super) fn all(case: &Case) -> Vec<Sentence> {
    let mut sentences = due(case);
    sentences.extend(which(case));
    for (number, attempt) in case.attempts.iter().enumerate() {
        sentences.extend(ended(case, number + 1, attempt));
    }
    sentences.extend(case.going.as_ref().map(|lease| going(case, lease)));
    sentences.extend(case.going.as_ref().and_then(|lease| found_missed(case, lease.run)));
    sentences.extend(printed(case));
    sentences.extend(case.status().map(|status| follows(case, status)));
    sentences.extend(last_good(case));
    sentences.extend(held(case));
    sentences.extend(waved_off(case));
    sentences.extend(paused(case));
    sentences
}

/// Which slot was due by the schedule, which is next, and what became of it if nothing ran for it.
fn due(case: &Case) -> Vec<Sentence> {
    let Some((schedule, timing)) = case.schedule() else { return Vec::new() };
    let zone = schedule.zone();
    let asked = case.at.as_ref().map(|at| at.end(&case.asked_in)).filter(|end| *end <= case.now);
    let newest = schedule.at_or_before(asked.map_or(case.now, |end| Wall(end.0 - 1)));
    let next = schedule.after(case.now).map_or_else(|| "none".to_string(), |next| moment(next, zone));
    let Some(newest) = newest else {
        let text = format!("By its schedule, {}, no slot has come yet; the next is {next}.", schedule.describe());
        return vec![Sentence::new("schedule", text)];
    };
    let when = asked.map_or_else(String::new, |_| " at or before then".to_string());
    let text = format!(
        "By its schedule, {}, the newest slot{when} was {}, and the next is {next}.",
        schedule.describe(),
        moment(newest, zone)
    );
    let schedule = Sentence::new("schedule", text);
    match case.slot == Some(newest) {
        true => vec![schedule],
        false => vec![schedule, passed(case, newest, timing, zone)],
    }
}

/// Says what became of the newest slot, if the answer is about another one.
fn passed(case: &Case, newest: Wall, timing: &Timing, zone: &Zone) -> Sentence {
    let slot = format!("The slot {}", moment(newest, zone));
    let ended = |run: &&Outcome| run.slot == newest && run.status != Status::Missed;
    if let Some(run) = case.record.ledger.ring.iter().rev().find(ended) {
        return Sentence::new("schedule", format!("{slot} ended as {}.", run.status));
    }
    if let Some(overlap) = overlapped(case, newest, &slot, zone) {
        return overlap;
    }
    let is_missed = |run: &Outcome| {
        let covers = run.covers.filter(|_| run.status == Status::Missed);
        covers.is_some_and(|covers| covers.from <= newest && newest <= covers.to)
    };
    let text = if newest <= timing.since {
        format!("{slot} is from before the job was first seen, resumed or edited: it is not caught up.")
    } else if case.record.ledger.ring.iter().any(is_missed) {
        format!("{slot} was missed: nothing ran for it in time, and it was too late to catch it up.")
    } else if timing.evaluated >= Some(newest) {
        format!("{slot} is accounted for, longer ago than the record remembers.")
    } else {
        format!(
            "{slot} is open: no trigger has come for it since, or none that ran it. fencepost plan {} says what the next \
             one does.",
            case.record.job
        )
    };
    Sentence::new("catch_up", text)
}

/// Names the run that was going, or is going, when the newest slot passed.
fn overlapped(case: &Case, newest: Wall, slot: &str, zone: &Zone) -> Option<Sentence> {
    let during = case.record.ledger.ring.iter().find(|run| {
        run.status.is_of_a_run() && run.status != Status::Lost && run.started < newest && newest < run.ended()
    });
    if let Some(run) = during {
        let text = format!(
            "{slot} passed while run {} was going, for {}: its triggers were skipped, and that is final.",
            run.run,
            moment(run.slot, zone)
        );
        return Some(Sentence::new("overlap", text));
    }
    let is_going =
        |lease: &&Lease| lease.holder.is_run() && !case.is_over && lease.since < newest && lease.slot != newest;
    let lease = case.record.lease.as_ref().filter(is_going)?;
    let text = format!(
        "{slot} passed while run {} is going, for {}: its triggers are skipped.",
        lease.run,
        moment(lease.slot, zone)
    );
    Some(Sentence::new("overlap", text))
}

/// What the trigger of a run found missed before it began.
fn found_missed(case: &Case, run: RunId) -> Option<Sentence> {
    let found = case.record.ledger.ring.iter().find(|found| found.run == run && found.status == Status::Missed)?;
    let covers = found.covers?;
    let zone = text::zone(&found.zone);
    let text = match covers.count {
        1 => format!("Its trigger found the slot {} missed, too late to be caught up.", moment(covers.to, &zone)),
        count => format!(
            "Its trigger found {count} slots missed, from {} to {}, too late to be caught up.",
            moment(covers.from, &zone),
            moment(covers.to, &zone)
        ),
    };
    Some(Sentence::new("catch_up", text))
}

/// Triggers that came to nothing, over all time.
fn waved_off(case: &Case) -> Vec<Sentence> {
    let Some(skips) = &case.skips else { return Vec::new() };
    let counts = [
        ("duplicate", skips.duplicate, "found the slot done already, or a run at it"),
        ("overlap", skips.overlap, "came while a run for another slot was going"),
    ];
    let sentence = |(about, count, what): (&'static str, u64, &str)| {
        Sentence::new(about, format!("So far {count} of its triggers {what}, which is no failure."))
    };
    counts.into_iter().filter(|(_, count, _)| *count > 0).map(sentence).collect()
}

/// Which slot is meant, and of which day it is.
fn which(case: &Case) -> Vec<Sentence> {
    let job = &case.record.job;
    let asked = case.at.as_ref().map(|at| asked(at, &case.asked_in));
    let Some(slot) = case.slot else {
        let when = asked.map_or_else(String::new, |asked| format!(" at or before {asked}"));
        return vec![Sentence::new("nothing", format!("Nothing is recorded of {job}{when}."))];
    };
    let zone = case.zone();
    let shown = format!("{} {} ({zone})", zone.date(slot), clock(slot, &zone));
    let mut sentences = Vec::new();
    if let Some(day) = case.at.as_ref().and_then(|at| at.day(&case.asked_in))
        && case.asked_in.date(slot) != day
        && !case.attempts.iter().any(|attempt| attempt.covers.is_some())
    {
        let text = format!("Nothing is recorded of {job} for {day} ({}): it did not run on that day.", case.asked_in);
        sentences.push(Sentence::new("nothing", text));
    }
    let which = match asked {
        None => format!("The newest recorded slot of {job} is {shown}"),
        Some(asked) => format!("The newest recorded slot of {job} at or before {asked} is {shown}"),
    };
    sentences.push(Sentence::new("slot", format!("{which}; it belongs to the day {}.", zone.date(slot))));
    sentences
}

fn asked(at: &Moment, zone: &Zone) -> String {
    match at.day(zone) {
        Some(date) => format!("the end of {date} ({zone})"),
        None => moment(at.first(zone), zone),
    }
}

/// Everything about one attempt that has ended.
fn ended(case: &Case, number: usize, attempt: &Outcome) -> Vec<Sentence> {
    if attempt.status == Status::Missed {
        return [missed(case, attempt)].into_iter().chain(stands_for(attempt)).collect();
    }
    let mut sentences = vec![began(case, number, attempt)];
    sentences.extend(case.taken_over(attempt).map(|lost| took_over(case, lost)));
    sentences.extend(found_missed(case, attempt.run));
    sentences.extend(let_through(case, &attempt.upstreams));
    sentences.extend(said(attempt));
    sentences.extend(exit(attempt));
    sentences.extend(left(attempt));
    sentences.push(end(case, attempt));
    sentences.extend(stands_for(attempt));
    sentences
}

/// A slot that nothing ran for, and who found that out.
fn missed(case: &Case, found: &Outcome) -> Sentence {
    let at = time(found.started, found.slot, &case.zone());
    let note = found.note.as_ref().map_or_else(String::new, |note| format!(": {}", text::flat(note)));
    Sentence::new("missed", closed(&format!("A trigger on {} at {at} found that it was missed{note}", found.host)))
}

fn began(case: &Case, number: usize, attempt: &Outcome) -> Sentence {
    let zone = case.zone();
    let late = attempt.started.since(attempt.slot);
    let late = match late.as_millis() {
        0..=LATE_MILLIS => String::new(),
        _ => format!(", {} after its slot", text::length(late)),
    };
    let text = format!(
        "Attempt {number} was triggered by {} at {}{late}, on {}, under token {} (run {}).",
        trigger(attempt.trigger),
        time(attempt.started, attempt.slot, &zone),
        attempt.host,
        attempt.token,
        attempt.run
    );
    Sentence::new("attempt", text)
}

fn trigger(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Schedule => "its schedule",
        Trigger::CatchUp => "the catch-up of a slot that was missed",
        Trigger::Manual => "a direct call",
    }
}

fn took_over(case: &Case, lost: &Outcome) -> Sentence {
    let note = lost.note.as_deref().unwrap_or_default();
    let cause = note.split(';').next().unwrap_or_default();
    let text = format!(
        "It took over from run {} on {}, which had begun at {} and did not end properly: {cause}.",
        lost.run,
        lost.host,
        moment(lost.started, &case.zone())
    );
    Sentence::new("take_over", text)
}

/// Which attempts of its upstreams the barrier let it through by, or what it read of them.
fn let_through(case: &Case, upstreams: &[Consumed]) -> Vec<Sentence> {
    let zone = case.zone();
    let sentence = |consumed: &Consumed| {
        let bytes =
            consumed.sha256.map(|sha256| format!(", to read the bytes with SHA-256 {}…", &sha256.to_string()[..12]));
        let text = format!(
            "The barrier let it through on {}: run {} was ok for {}{}.",
            consumed.job,
            consumed.run,
            moment(consumed.slot, &zone),
            bytes.unwrap_or_default()
        );
        Sentence::new("barrier", text)
    };
    upstreams.iter().map(sentence).collect()
}

/// What the barrier, the job or fencepost had to say of the attempt.
fn said(attempt: &Outcome) -> Option<Sentence> {
    let note = closed(&text::flat(attempt.note.as_deref()?));
    let (about, who) = match (attempt.status, attempt.ended_by) {
        (Status::Halted, _) => ("barrier", "The barrier halted it, and nothing was run"),
        (Status::SkippedBarrier, _) => ("barrier", "The barrier found nothing to do, and nothing was run"),
        (_, EndedBy::Child) => ("job", "The job said"),
        (_, EndedBy::Fencepost) => ("fencepost", "fencepost noted"),
    };
    Some(Sentence::new(about, format!("{who}: {note}")))
}

fn exit(attempt: &Outcome) -> Option<Sentence> {
    let code = attempt.exit_code?;
    let signal = if (129..=192).contains(&code) { format!(" (signal {})", code - 128) } else { String::new() };
    let took = text::length(attempt.length());
    Some(Sentence::new("exit", format!("Its command ended with exit code {code}{signal}; it took {took}.")))
}

fn left(attempt: &Outcome) -> Option<Sentence> {
    let artifacts: Vec<_> = attempt.artifacts.iter().map(RecordedArtifact::from).collect();
    let artifacts = text::artifacts(&artifacts);
    (!artifacts.is_empty()).then(|| Sentence::new("artifacts", format!("It left {}.", artifacts.join(", "))))
}

fn end(case: &Case, attempt: &Outcome) -> Sentence {
    let at = time(attempt.finished, attempt.slot, &case.zone());
    let by = match attempt.ended_by {
        EndedBy::Child => "",
        EndedBy::Fencepost => ", by fencepost",
    };
    Sentence::new("end", format!("It ended as {} at {at}{by}.", attempt.status))
}

fn stands_for(attempt: &Outcome) -> Option<Sentence> {
    let covers = attempt.covers?;
    let zone = text::zone(&attempt.zone);
    let (from, to) = (moment(covers.from, &zone), moment(covers.to, &zone));
    if covers.count == 1 {
        return None;
    }
    Some(Sentence::new("covers", format!("That stands for {} slots, from {from} to {to}.", covers.count)))
}

/// The run that has not ended, or not properly.
fn going(case: &Case, lease: &Lease) -> Sentence {
    let number = case.attempts.len() + 1;
    let how = trigger(lease.trigger);
    let holder = text::holder(lease, case.remaining.filter(|_| !case.is_over), case.now);
    let text = match case.is_over {
        false => format!(
            "Attempt {number} was triggered by {how} and is running under token {} (run {}): it is held by {holder}.",
            case.record.token, lease.run
        ),
        true => format!(
            "Attempt {number} was triggered by {how} at {} on {}, under token {} (run {}), and did not end properly: \
             its lease has ended, and nothing is recorded of its end.",
            time(lease.since, lease.slot, &case.zone()),
            lease.holder.host,
            case.record.token,
            lease.run
        ),
    };
    Sentence::new("running", text)
}

/// The last lines of the output, where the slot is not done.
fn printed(case: &Case) -> Option<Sentence> {
    let status = case.status()?;
    if matches!(status, Status::Ok | Status::Empty | Status::SkippedBarrier | Status::Halted) {
        return None;
    }
    let printed = case.printed.as_ref()?;
    let logs = format!("fencepost logs {} --run {}", case.record.job, printed.run);
    let text = match printed.lines.as_slice() {
        [] if printed.is_elsewhere => format!("Its output stayed on {}. Run there: {logs}", text::flat(&printed.host)),
        [] => return None,
        lines => format!("The last lines that it printed ({logs}):\n    {}", lines.join("\n    ")),
    };
    Some(Sentence::new(super::OUTPUT, text))
}

/// What follows from how it ended.
fn follows(case: &Case, status: Status) -> Sentence {
    let text = match status {
        Status::Ok => "So the slot is done, and jobs that need it may proceed.",
        Status::Empty => {
            "So the slot is done, and there was nothing: jobs that need it are skipped, which is no failure."
        }
        Status::Error | Status::Timeout => return Sentence::new("next", failed(case, status)),
        Status::Lost if case.going.is_some() => {
            "So the slot is not done: the next trigger takes over and records it as lost."
        }
        Status::Lost => {
            "So the slot is not done, and how far the run came is not known: the next trigger tries again, and until \
             then jobs that need it halt."
        }
        Status::Fenced => {
            "So the slot is not done: a newer run had written before it, and its stale write did not land. Look at the \
             run with the higher token."
        }
        Status::Halted => {
            "So nothing stale was read: the next trigger asks the upstreams again, and until then jobs that need this \
             one halt."
        }
        Status::Missed => "So nothing was run for it, and no catch-up is allowed to: jobs that need it halt.",
        Status::SkippedBarrier => {
            "So the slot is done, and there was nothing to do: jobs that need it are skipped too."
        }
        Status::SkippedOverlap => "So this trigger was skipped: the run that was going counts.",
        Status::SkippedDuplicate => "So nothing was run: the slot was done already.",
        Status::SkippedPaused => "So nothing was run: the job is paused until it is resumed.",
        Status::Running => {
            "So it is not known yet how it ends: another trigger is skipped, and jobs that need it halt or wait."
        }
    };
    Sentence::new("next", text)
}

/// What follows from a failure: the slot is tried again only while it has attempts left.
fn failed(case: &Case, status: Status) -> String {
    let job = &case.record.job;
    let longer = if status == Status::Timeout { " Raise --timeout if it needs longer." } else { "" };
    let used = case.attempts.last().and_then(|last| last.tries).unwrap_or(1);
    let again = match used {
        _ if case.record.timing.is_none() => "The next trigger runs it again.".to_string(),
        0 => "This used none of its attempts: the next trigger tries it again, within the bounds of catch-up."
            .to_string(),
        used => format!("It has used {}. To repeat it: fencepost run {job} --again", attempts(used, case.retries)),
    };
    format!("So the slot is not done, and jobs that need it halt. {again}{longer}")
}

/// How many attempts a slot has used, and has over all triggers and machines. A run may have had other settings.
fn attempts(used: u32, retries: Option<u32>) -> String {
    match retries {
        Some(retries) if used <= retries.saturating_add(1) => {
            format!("{used} of its {} attempts (retries = {retries})", retries.saturating_add(1))
        }
        _ if used == 1 => "1 attempt".to_string(),
        _ => format!("{used} attempts"),
    }
}

/// When a job that never ran is due, and how to run it at once.
pub(super) fn first_run(job: &Name, schedule: Option<&Schedule>, now: Wall) -> Sentence {
    let next = schedule.and_then(|schedule| Some((schedule.after(now)?, schedule.zone())));
    let text = match next {
        Some((next, zone)) => format!("Its next slot is {}. At once: fencepost run {job} --now", moment(next, zone)),
        None => format!("To run it: fencepost run {job}"),
    };
    Sentence::new("next", text)
}

/// What there is to fall back on where this slot is no good, or what came after it.
fn last_good(case: &Case) -> Option<Sentence> {
    if case.status() == Some(Status::Ok) {
        return None;
    }
    let text = match &case.record.ledger.last_ok {
        None => format!("{} has never ended well.", case.record.job),
        Some(last) => {
            let zone = text::zone(&last.zone);
            let ended = text::time_for_people(last.finished, case.now, &zone);
            let since = if case.slot.is_some_and(|slot| last.slot > slot) {
                "Since then it was good again: the"
            } else {
                "The"
            };
            format!("{since} last good run was for {} and ended {ended}.", moment(last.slot, &zone))
        }
    };
    Some(Sentence::new("last_ok", text))
}

/// A lease by hand, or of another slot, that stands in the way now.
fn held(case: &Case) -> Option<Sentence> {
    let lease = case.record.lease.as_ref().filter(|_| !case.is_over && case.going.is_none())?;
    let holder = text::holder(lease, case.remaining, case.now);
    Some(Sentence::new("held", format!("At present its lease is held by {holder}.")))
}

fn paused(case: &Case) -> Option<Sentence> {
    let paused = case.record.paused.as_ref()?;
    let note = paused.note.as_ref().map_or_else(String::new, |note| format!(" ({})", text::flat(note)));
    let since = text::time_for_people(paused.since, case.now, &case.zone());
    let until = text::until(paused, &case.zone());
    let text = format!("It is paused since {since}{until}, from {}{note}: its triggers are skipped.", paused.by);
    Some(Sentence::new("paused", text))
}

/// A moment in full.
fn moment(at: Wall, zone: &Zone) -> String {
    format!("{} {} ({zone})", zone.date(at), clock(at, zone))
}

/// A time of day, with the date only where it is not the slot's.
fn time(at: Wall, slot: Wall, zone: &Zone) -> String {
    if zone.date(at) == zone.date(slot) { clock(at, zone) } else { format!("{} {}", zone.date(at), clock(at, zone)) }
}

fn clock(at: Wall, zone: &Zone) -> String {
    zone.show_time(at)
}

/// A sentence ends.
fn closed(text: &str) -> String {
    if text.ends_with(['.', '!', '?', '…']) { text.to_string() } else { format!("{text}.") }
}
