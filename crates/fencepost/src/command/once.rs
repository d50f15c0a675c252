//! `fencepost once`: the idempotency guard. It does an item of work once, however often it is requested.

use std::process::Command;
use std::time::Duration;

use fencepost_core::artifact::Fingerprint;
use fencepost_core::lease::{Claim, Honest, Intent};
use fencepost_core::ledger::{EndedBy, Ending, Status, Trigger};
use fencepost_core::name::Job;
use fencepost_core::run::Exit;
use fencepost_core::slot::{Choice, LeaseState, NotNow, OnUnknown};
use fencepost_guard::clock;
use fencepost_guard::transact::{TransactError, look, transact};
use fencepost_guard::unguarded::run_unguarded;
use fencepost_view::answer::{AnswerVersion, OnceAnswer, OnceState};
use fencepost_view::summary::Summary;
use fencepost_view::{ReasonCode, remaining};

use super::once_items;
use super::run::again::{self, Again};
use super::run::{AttemptEnd, RunAttempt};
use crate::args::{Global, OnceOptions};
use crate::calendar::SlotRule;
use crate::events::Events;
use crate::exit::{Code, Failure};
use crate::inside::Inside;
use crate::password;
use crate::place::Place;
use crate::rehearsal;
use crate::report::{self, Voice};
use crate::settings::Settings;
use crate::show;

pub fn run(global: &Global, options: &OnceOptions) -> Result<Code, Failure> {
    if let Some(verb) = options.about_items() {
        return once_items::run(global, verb, options);
    }
    if let Some(item) = &options.item {
        return Err(Failure::Usage(format!(
            "{item} is one word too many. A command comes after --, as in: fencepost once {} -- ./charge.sh",
            options.key
        )));
    }
    // An agent may have stripped the variables that name the store of the run around this.
    Inside::find()?;
    let on_unknown = Choose::parse(&options.on_unknown)?;
    if rehearsal::is_on() {
        return rehearse(global, options, &on_unknown);
    }
    let looked_at = again::looked_at();
    let params = options.params.as_ref().map(|path| fingerprint(path)).transpose()?;
    let first = match (&on_unknown, looked_at) {
        (Choose::Retry, _) => OnUnknown::Retry,
        (_, Some(token)) => OnUnknown::RetryAfter(token),
        (Choose::Halt | Choose::Verify(_), None) => OnUnknown::Halt,
    };
    let outcome = attempt(global, options, params, first)?;
    match on_unknown {
        Choose::Verify(command) if looked_at.is_none() && outcome.summary.is(ReasonCode::Unknown) => {
            verify(global, options, params, &command)
        }
        _ => {
            report(global, options, &outcome.summary);
            outcome.share_ctrl_c();
            Ok(code(&outcome.summary))
        }
    }
}

/// Says what would be done, with the exit code that it would have: an item that is done is not done again.
fn rehearse(global: &Global, options: &OnceOptions, on_unknown: &Choose) -> Result<Code, Failure> {
    let (place, key) = (Place::find(global)?, &options.key);
    let params = options.params.as_ref().map(|path| fingerprint(path)).transpose()?;
    let (record, clock) = match place.is_new()? {
        true => (None, None),
        false => look(place.open_to_read()?.as_ref(), &Job::once(key.clone()))?,
    };
    let word = options.argv.first().or(options.shell.as_ref()).map(|word| word.display().to_string());
    let command = word.unwrap_or_default();
    let is_held = record.as_ref().is_some_and(|record| {
        let lease = record.lease.as_ref().filter(|lease| !place.host.knows_dead(&lease.holder));
        lease.is_some() && remaining(record, clock.as_ref()) != Some(Duration::ZERO)
    });
    if is_held {
        rehearsal::tell(global, &format!("not run {command:?} for {key}: another process is doing it"), None, None);
        print(global, options, OnceState::InProgress, None, false);
        return Ok(Code::HELD);
    }
    let retry = matches!(on_unknown, Choose::Retry);
    let choice = Choice::Once { params, on_unknown: if retry { OnUnknown::Retry } else { OnUnknown::Halt } };
    let Err(why) = choice.choose::<Honest>(record.as_ref(), LeaseState::Over, clock::now().wall) else {
        rehearsal::tell(global, &format!("run {command:?} once for {key}"), None, None);
        return Ok(Code::DONE);
    };
    let what = match (&why, on_unknown) {
        (NotNow::Lost { .. }, Choose::Verify(verify)) => format!("ask {verify:?} whether {key} was done"),
        _ => format!("not run {command:?} for {key}: {}", why.words().trim_end_matches('.')),
    };
    rehearsal::tell(global, &what, None, None);
    Ok(match why {
        NotNow::Duplicate { exit_code, .. } => {
            print(global, options, OnceState::Done, exit_code, true);
            Code::of_child(exit_code.unwrap_or(0))
        }
        NotNow::Failed { exit_code, .. } => Code::of_child(exit_code),
        NotNow::Lost { .. } => Code::UNKNOWN.under_run(),
        _ => Code::FAILED,
    })
}

/// Returns the exit code. If the command exits 0 and the run still ends as an error, it is unknown whether the effect
/// happened; code 1 would mean that it did not.
fn code(summary: &Summary) -> Code {
    let is_unclear = summary.reason.is_none() && summary.code != 0 && summary.exit_code == Some(0);
    if is_unclear { Code::UNKNOWN.under_run() } else { Code(summary.code) }
}

/// What to do if it is unknown whether the effect happened.
enum Choose {
    Halt,
    Retry,
    /// Run this command to find out.
    Verify(String),
}

impl Choose {
    fn parse(text: &str) -> Result<Self, Failure> {
        match text.split_once('=') {
            None if text == "halt" => Ok(Self::Halt),
            None if text == "retry" => Ok(Self::Retry),
            Some(("verify", command)) if !command.is_empty() => Ok(Self::Verify(command.to_string())),
            _ => Err(Failure::Usage(format!("--on-unknown {text}: it is halt, retry or verify=CMD."))),
        }
    }
}

fn fingerprint(path: &std::path::Path) -> Result<Fingerprint, Failure> {
    let cannot = |why: &str| Failure::Usage(format!("--params {}: {why}.", path.display()));
    match fencepost_guard::artifact::read(path) {
        Ok((_, fingerprint)) => Ok(fingerprint),
        Err(fencepost_guard::artifact::FingerprintError::Missing) => Err(cannot("there is no such file")),
        Err(fencepost_guard::artifact::FingerprintError::Unsteady) => Err(cannot("it changes while it is read")),
        Err(fencepost_guard::artifact::FingerprintError::Failed(error)) => Err(cannot(&error.to_string())),
    }
}

/// Claims, renews and completes like a job, for a single slot.
fn attempt(
    global: &Global,
    options: &OnceOptions,
    params: Option<Fingerprint>,
    on_unknown: OnUnknown,
) -> Result<AttemptEnd, Failure> {
    let place = Place::find(global)?;
    let settings = Settings::of_once(options, SlotRule::Once { params, on_unknown }, &place.store)?;
    let run = super::mint_run();
    let job = Job::once(options.key.clone());
    let mut events = Events::open(None, job.to_string(), run)?;
    let again = Again::alone();
    // The JSON answer describes the item of work, not the run.
    let quiet = Global { json: false, ..global.clone() };
    let attempt = RunAttempt { global: &quiet, settings, place, job, run, again };
    attempt.guard(&mut events, None)
}

/// Runs the verify command. If the effect happened, records the item as done; otherwise does it now.
fn verify(global: &Global, options: &OnceOptions, params: Option<Fingerprint>, command: &str) -> Result<Code, Failure> {
    // The verification covers the attempts so far, not attempts that begin later.
    let place = Place::find(global)?;
    let (record, _) = look(place.open_to_read()?.as_ref(), &Job::once(options.key.clone()))?;
    let asked_about = record.map(|record| record.token).unwrap_or_default();
    let mut child = Command::new("/bin/sh");
    child.args(["-c", command]).env("FENCEPOST_KEY", options.key.as_str());
    password::keep_from(&mut child);
    let answer = run_unguarded(child).map_err(|error| Failure::Other(format!("Cannot ask {command:?}: {error}")))?;
    let voice = Voice::of(global);
    match answer {
        Exit::Code(0) => {
            voice.tell(&format!("{}: the effect is there, says {command:?}.", options.key));
            record_done(global, options, params)?;
            print(global, options, OnceState::Done, Some(0), true);
            Ok(Code::DONE)
        }
        Exit::Code(1) => {
            voice.tell(&format!("{}: the effect is not there, says {command:?}.", options.key));
            // Another attempt needs a new process: the keeper is forked before there are threads.
            Err(again::exec_looked_at(asked_about))
        }
        other => {
            voice.warn(&format!(
                "{}: {command:?} ended with {}, which says neither that the effect is there (0) nor that it is not (1). \
                 Nothing was run.",
                options.key,
                other.code()
            ));
            print(global, options, OnceState::Unknown, None, false);
            Ok(Code::UNKNOWN.under_run())
        }
    }
}

fn record_done(global: &Global, options: &OnceOptions, params: Option<Fingerprint>) -> Result<(), Failure> {
    let place = Place::find(global)?;
    let run = super::mint_run();
    let claim = Claim {
        run,
        ttl: crate::config::TTL,
        holder: place.host.holder_by_hand(),
        slot: Choice::Once { params, on_unknown: OnUnknown::Retry },
        zone: "UTC".to_string(),
        trigger: Trigger::Manual,
    };
    let ending = Ending {
        exit_code: Some(0),
        ..Ending::new(Status::Ok, EndedBy::Fencepost).with_note("verified: the effect of an earlier attempt is there")
    };
    let job = Job::once(options.key.clone());
    let intent = Intent::Record { claim, ending };
    match transact(place.open()?.as_ref(), &place.local(), &job, intent, run) {
        Ok(_) => Ok(()),
        Err(TransactError::Store(error)) => Err(Failure::Store(error)),
        Err(TransactError::Refused(refusal)) => Err(Failure::Other(format!("{}: {refusal}", options.key))),
    }
}

/// Prints the state of the item of work.
fn report(global: &Global, options: &OnceOptions, summary: &Summary) {
    use ReasonCode::{
        CannotExecute, Done, Fenced, Held, KeeperDied, Lost, NoOutput, NotFound, Running, Timeout, Unknown, Unrecorded,
    };
    let print = |state, exit_code, replayed| print(global, options, state, exit_code, replayed);
    match summary.reason {
        Some(Done | Running) => print(OnceState::Done, summary.exit_code, true),
        Some(Held) => {
            Voice::of(global).warn(&format!("{}: another process is doing it. Nothing was run.", options.key));
            print(OnceState::InProgress, None, false);
        }
        Some(Unknown) => {
            Voice::of(global).warn(summary.message.as_deref().unwrap_or_default());
            print(OnceState::Unknown, None, false);
        }
        None | Some(NoOutput) => {
            let state = match summary.status {
                Status::Ok | Status::Empty => OnceState::Done,
                _ if summary.exit_code.is_none_or(is_unknown) => OnceState::Unknown,
                _ => OnceState::Failed,
            };
            print(state, summary.exit_code, false);
        }
        Some(NotFound | CannotExecute) => print(OnceState::Failed, Some(i32::from(summary.code)), false),
        Some(Lost | Timeout | KeeperDied) if !summary.started => {
            print(OnceState::Failed, Some(i32::from(summary.code)), false);
        }
        Some(Lost | Timeout | KeeperDied | Fenced | Unrecorded) => print(OnceState::Unknown, None, false),
        // Nothing was run, and the state of the item of work is not known.
        Some(_) if global.json => report::finish_json(summary),
        Some(_) => {}
    }
}

/// Whether a nonzero exit code leaves it unknown whether the effect happened: a signal does.
fn is_unknown(code: i32) -> bool {
    !(1..=128).contains(&code)
}

fn print(global: &Global, options: &OnceOptions, state: OnceState, exit_code: Option<i32>, replayed: bool) {
    if global.json {
        show::json(&OnceAnswer { v: AnswerVersion, key: options.key.to_string(), state, exit_code, replayed });
    }
}
