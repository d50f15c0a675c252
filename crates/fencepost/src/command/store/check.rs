//! `fencepost store check`: tests what the guarantees depend on, by running it where possible.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use fencepost_core::lease::CLOCK_GAP_MAX;
use fencepost_guard::clock;
use fencepost_store::conformance::{self, Check, Effort};
use fencepost_store::{Key, OpenError, Soundness, Store, StoreClock, StoreError, StoreHandle, Swapped, Trouble};
use fencepost_view::answer::{CheckLine, CheckResult, StoreCheckAnswer};

use super::last;
use crate::args::Global;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::show;

/// How many calls a median is computed from.
const CALLS: usize = 9;

/// Skipped: a scan of a thousand keys takes a thousand swaps, and no decision depends on it.
const LEFT_OUT: &[&str] = &["scan limit"];

/// Properties known only from the settings, on which guarantees depend.
const DECISIVE: &[&str] = &["durability", "file system"];

/// Checks the store and prints the results.
pub fn run(global: &Global, place: &Place) -> Result<Code, Failure> {
    let report = examine(global, place)?;
    if global.json {
        show::json(&report);
    } else {
        describe(&report);
    }
    Ok(code(&report))
}

fn code(report: &StoreCheckAnswer) -> Code {
    if report.is_ok() { Code::DONE } else { Code::REFUSED }
}

/// Checks the store, with progress on a terminal. This host remembers the result.
pub fn examine(global: &Global, place: &Place) -> Result<StoreCheckAnswer, Failure> {
    let handle = place.handle()?;
    let examined = tested(global, place, &handle);
    match &examined {
        Ok(report) => last::keep(&handle, &report.checks, code(report)),
        Err(failure @ Failure::Store(error)) => {
            let line = CheckLine::new("reach", CheckResult::Failed, error.detail.clone());
            last::keep(&handle, &[line], failure.code(false));
        }
        // The command line is wrong: there was no check.
        Err(Failure::Usage(_) | Failure::Other(_)) => {}
    }
    examined
}

fn tested(global: &Global, place: &Place, handle: &StoreHandle) -> Result<StoreCheckAnswer, Failure> {
    let mut checks = Vec::new();
    let progress = CheckProgress::of(global);
    match handle.check() {
        Err(OpenError::Usage(text)) => return Err(Failure::Usage(text)),
        // A check does not create a store that this host does not know.
        Err(OpenError::Store(error)) if error.trouble == Trouble::Corrupt || handle.is_new().is_err() => {
            return Err(Failure::Store(error));
        }
        Err(OpenError::Store(error)) => checks.push(CheckLine::new("reach", CheckResult::Failed, error.detail)),
        Ok(()) => checks.extend(tried(handle, &progress)?),
    }
    progress.clear();
    let report = StoreCheckAnswer::new(place.shown_store(), checks);
    if report.is_ok() {
        handle.note_proved();
    }
    Ok(report)
}

/// Results of using the store.
fn tried(handle: &StoreHandle, progress: &CheckProgress) -> Result<Vec<CheckLine>, Failure> {
    let open = || match handle.open_unchecked() {
        Ok(store) => Ok(Box::new(store) as Box<dyn Store>),
        Err(OpenError::Store(error)) => Err(error),
        Err(OpenError::Usage(text)) => Err(StoreError::not_done(Trouble::Refused, text)),
    };
    let failed = |error: StoreError| vec![CheckLine::new("reach", CheckResult::Failed, error.detail)];
    progress.say("reach");
    let mut lines = match handle.open_unchecked() {
        Err(OpenError::Usage(text)) => return Err(Failure::Usage(text)),
        Err(OpenError::Store(error)) => return Ok(failed(error)),
        Ok(store) => match reach(store.as_ref()) {
            Err(error) => return Ok(failed(error)),
            Ok(lines) => lines,
        },
    };
    lines.extend(prove(&open, progress));
    progress.say("settings");
    lines.extend(declarations(handle).unwrap_or_else(|unknown| vec![unknown]));
    Ok(lines)
}

/// Checks whether the store responds, how fast, and its clock.
fn reach(store: &dyn Store) -> Result<Vec<CheckLine>, StoreError> {
    let key = Key::probe(&format!("check-{}", uuid::Uuid::now_v7().simple()), "latency");
    let (mut reads, mut swaps, mut clocks) = (Vec::new(), Vec::new(), Vec::new());
    let mut version = None;
    for round in 0..CALLS {
        let (wall, begun) = (clock::wall_now(), Instant::now());
        let read = store.read(&key)?;
        reads.push(begun.elapsed());
        clocks.extend(read.clock.map(|clock| (clock, wall, begun.elapsed())));
        let begun = Instant::now();
        match store.swap(&key, version.as_ref(), Some(round.to_string().as_bytes()))?.value {
            Swapped::Won(next) => version = next,
            Swapped::Lost(current) => version = current.map(|entry| entry.version),
        }
        swaps.push(begun.elapsed());
    }
    let _ = store.swap(&key, version.as_ref(), None)?;
    let detail = format!(
        "A read takes {}, a swap {} (median of {CALLS}).",
        milliseconds(median(&mut reads)),
        milliseconds(median(&mut swaps))
    );
    let mut lines = vec![CheckLine::new("latency", CheckResult::Proved, detail)];
    lines.extend(offset(&clocks));
    lines.push(resolution(store, &key, !clocks.is_empty())?);
    Ok(lines)
}

/// The offset of the store's date from ours, by the fastest reading.
fn offset(clocks: &[(StoreClock, fencepost_store::Wall, Duration)]) -> Option<CheckLine> {
    let (clock, before, took) = clocks.iter().min_by_key(|(_, _, took)| *took)?;
    let here = *before + *took / 2;
    let (apart, way) = match clock.wall.0 - here.0 {
        ahead @ 0.. => (Duration::from_millis(ahead.unsigned_abs()), "ahead of"),
        behind => (Duration::from_millis(behind.unsigned_abs()), "behind"),
    };
    let detail = format!("The store's clock is {} {way} this host's, give or take {}.", milliseconds(apart), {
        milliseconds(*took / 2)
    });
    Some(match apart > CLOCK_GAP_MAX {
        false => CheckLine::new("clock offset", CheckResult::Proved, detail),
        true => {
            let detail = format!("{detail} Nothing is granted with more than 24 hours between them.");
            CheckLine::new("clock offset", CheckResult::Failed, detail)
        }
    })
}

/// The smallest observed step of the store's clock.
fn resolution(store: &dyn Store, key: &Key, has_clock: bool) -> Result<CheckLine, StoreError> {
    let name = "clock resolution";
    if !has_clock {
        let detail = "The store has no clock: a lease whose holder died ends once an observer has watched it for a whole \
                      time-to-live.";
        return Ok(CheckLine::new(name, CheckResult::Declared, detail));
    }
    let begun = Instant::now();
    let mut last: Option<StoreClock> = None;
    let mut smallest: Option<u64> = None;
    while begun.elapsed() < Duration::from_millis(1500) && smallest.is_none_or(|step| step > 5) {
        let Some(clock) = store.read(key)?.clock else { break };
        let step = last.filter(|last| last.era == clock.era).map(|last| clock.tick.saturating_sub(last.tick));
        smallest = step.filter(|step| *step > 0).into_iter().chain(smallest).min();
        last = Some(clock);
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(match smallest {
        None => CheckLine::new(name, CheckResult::Failed, "The store's clock stood still for a second and a half."),
        Some(step) => CheckLine::new(
            name,
            CheckResult::Proved,
            format!("The store's clock advances in steps of {step} ms or less."),
        ),
    })
}

/// Runs the short form of the conformance suite. Stops at a store that fails to answer.
fn prove(open: conformance::Opener<'_>, progress: &CheckProgress) -> Vec<CheckLine> {
    let mut lines = Vec::new();
    for check in conformance::checks().filter(|check| !LEFT_OUT.contains(&check.name)) {
        progress.say(check.name);
        match check.run_with(open, Effort::Brief) {
            Ok(()) => lines.push(CheckLine::new(check.name, CheckResult::Proved, proved(check))),
            Err(violation) if violation.failed.is_some() => {
                lines.push(CheckLine::new(check.name, CheckResult::Unknown, violation.detail));
                break;
            }
            Err(violation) => {
                let detail = format!("{} It should be so: {}", violation.detail, violation.sentence);
                lines.push(CheckLine::new(check.name, CheckResult::Failed, detail));
            }
        }
    }
    lines
}

fn proved(check: &Check) -> String {
    match check.name {
        "create race" => "32 writers came at once to make one key: one won, and the others were told so.".to_string(),
        "counter race" => "8 writers counted one key up, 48 times in all: it stands at exactly 48.".to_string(),
        "other handles" => "What one client wrote, the next read of another showed.".to_string(),
        _ => check.sentence.to_string(),
    }
}

/// Properties that cannot be tested by running, from the store's settings.
/// Or the line that says why they are unknown.
pub fn declarations(handle: &StoreHandle) -> Result<Vec<CheckLine>, CheckLine> {
    let unknown = |why| CheckLine::new("durability", CheckResult::Unknown, why);
    let declared = handle.declared().map_err(|error| match error {
        OpenError::Usage(text) => unknown(text),
        OpenError::Store(error) => unknown(error.detail),
    })?;
    let line = |declared: fencepost_store::Property| {
        let result = match declared.standing {
            Soundness::Sound | Soundness::Weak => CheckResult::Declared,
            Soundness::Unsound => CheckResult::Failed,
            Soundness::Unknown => CheckResult::Unknown,
        };
        // The suite has a chapter named "clock", about how it runs.
        let name = if declared.name == "clock" { "kind of clock" } else { declared.name };
        let is_decisive = DECISIVE.contains(&name);
        CheckLine {
            is_weak: declared.standing == Soundness::Weak,
            is_decisive,
            ..CheckLine::new(name, result, declared.detail)
        }
    };
    Ok(declared.into_iter().map(line).collect())
}

/// The promises of GUARANTEES.md, and the checks that each depends on.
const PROMISES: &[(&str, &[&str])] = &[
    (
        "P1  tokens of a job strictly increase",
        &[
            "create",
            "stale swap",
            "other handles",
            "versions",
            "versions after removal",
            "create race",
            "counter race",
            "clock offset",
        ],
    ),
    ("P2  a fenced target never goes back", &["create race", "stale swap", "clock offset"]),
    (
        "P3  every slot ends in one recorded state",
        &["values", "largest value", "reopen", "durability", "file system", "replication"],
    ),
    ("P4  a job proceeds on the right record only", &["read", "other handles", "keys"]),
    ("P5  one run at a time, as far as clocks allow", &["create race", "clock resolution", "clock", "kind of clock"]),
];

fn describe(report: &StoreCheckAnswer) {
    show::line(&format!("store  {}", report.url));
    show::line("");
    for line in &report.checks {
        let result = match line.result {
            CheckResult::Proved => "proved",
            CheckResult::Declared => "declared",
            CheckResult::Unknown => "UNKNOWN",
            CheckResult::Failed => "FAILED",
        };
        show::line(&format!("{result:9} {:22} {}", line.name, show::flat(&line.detail)));
    }
    show::line("");
    for (promise, rests_on) in PROMISES {
        show::line(&format!("{promise:46} {}", verdict(report, rests_on)));
    }
    show::line("");
    show::line(match report.is_ok() {
        true => "ok: it may be used.",
        false => "refused: it must not be used.",
    });
}

fn verdict(report: &StoreCheckAnswer, rests_on: &[&str]) -> String {
    let lines = || report.checks.iter().filter(|line| rests_on.contains(&line.name.as_str()));
    let named = |lines: Vec<&CheckLine>| lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>().join(", ");
    let against: Vec<&CheckLine> = lines().filter(|line| line.result == CheckResult::Failed).collect();
    let unknown: Vec<&CheckLine> = lines().filter(|line| line.result == CheckResult::Unknown).collect();
    let weak: Vec<&CheckLine> = lines().filter(|line| line.is_weak).collect();
    if !against.is_empty() {
        format!("NOT KEPT, because of: {}", named(against))
    } else if lines().next().is_none() {
        "unknown: it could not be tried".to_string()
    } else if !unknown.is_empty() {
        format!("unknown, because of: {}", named(unknown))
    } else if !weak.is_empty() {
        format!("kept, as far as is declared of: {}", named(weak))
    } else {
        "kept".to_string()
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn milliseconds(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 10.0 => format!("{seconds:.0} s"),
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.1} ms", seconds * 1000.0),
    }
}

/// Shows the current check on a terminal.
struct CheckProgress(bool);

impl CheckProgress {
    fn of(global: &Global) -> Self {
        Self(!global.quiet && !global.json && std::io::stderr().is_terminal())
    }

    fn say(&self, what: &str) {
        if self.0 {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[Kchecking: {what} …");
        }
    }

    fn clear(&self) {
        if self.0 {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}
