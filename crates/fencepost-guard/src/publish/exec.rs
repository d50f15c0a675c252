//! Runs a command on a resource that cannot check a token itself. The command is only gated, and runs at most once per
//! token and operation: the fence advances first, then the command runs.
//!
//! It is a run over the resource's record: the claim judges the fence and takes the lease in one swap, the same driver
//! renews the lease, and the same keeper ends the process tree by its deadline. While another command runs, a newer
//! token waits; a lower one is refused. The next command starts only when the tree is dead.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::Duration;

use fencepost_core::fence::{Fence, FenceVerdict, Level};
use fencepost_core::history::Aside;
use fencepost_core::lease::{Claim, Context, Honest, NoTurn, Refusal, Rules};
use fencepost_core::ledger::Trigger;
use fencepost_core::name::{Job, RESOURCE_BYTES_MAX};
use fencepost_core::record::{Holder, Record};
use fencepost_core::register::{Fate, StoreError};
use fencepost_core::run::{Event, Finish, Overlap, Run, Stages, StopCause, Terms};
use fencepost_core::slot::Choice;
use fencepost_core::time::Reference;
use fencepost_core::token::{Nonce, RunId};

use super::{PublishError, Receipt, WriteRequest, digest};
use crate::child::{ChildPlan, Environment, GuardedChild, Variables};
use crate::clock;
use crate::drive::{Callee, Note, drive};
use crate::host::Host;
use crate::keeper::Keeper;
use crate::local::Local;
use crate::registry::Registration;
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::transact::look;

/// The command and the resource that it changes.
#[derive(Clone, Debug)]
pub struct FencedCommand {
    pub resource: String,
    pub argv: Vec<OsString>,
    /// How long the lease lasts without a renewal.
    pub ttl: Duration,
    /// How long the command has between TERM and KILL.
    pub grace: Duration,
    /// How long to wait for another command on the same resource.
    pub wait: Duration,
    /// The command's variables besides those that name its run.
    pub env: Variables,
    /// The writer was named by hand: a run around the command is not its run.
    pub is_by_hand: bool,
}

/// A command that ran on the resource, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    pub receipt: Receipt,
    /// The exit code of a shell: 128 + n for a signal, 127 and 126 for a command that could not be started.
    pub code: i32,
}

/// The store that holds the record, and this host.
#[derive(Debug)]
pub struct FencedHost<'a> {
    pub store: Callee,
    pub host: &'a Host,
    pub local: &'a Local,
}

/// Waits for its turn, runs the command, and admits the next one when no process of it is left.
///
/// The caller starts the keeper before it opens the store; `tell` receives a sentence if the command has to wait.
pub fn publish(
    request: &WriteRequest,
    desk: FencedHost<'_>,
    task: &FencedCommand,
    keeper: Keeper,
    tell: &mut dyn FnMut(&str),
) -> Result<Ran, PublishError> {
    check(task)?;
    request.check(&task.digest())?;
    let turn = RunId(uuid::Uuid::now_v7());
    let terminal = Terminal::detect();
    let mut signals = Signals::listen()
        .map_err(|error| PublishError::Failed(format!("Cannot listen to signals: {error}. Nothing was run.")))?;
    let holder = desk.host.holder(std::process::id().cast_signed(), keeper.mark());
    let registration = if task.is_by_hand { Registration::without_report(desk.host, &holder) } else { None };
    let run = Run::new(terms(task, claim(request, task, turn, holder)));
    let granted = Rc::default();
    let plan = plan(request, task, turn, Rc::clone(&granted), registration);
    let mut child = GuardedChild::new(plan, keeper, terminal);
    let mut remarks = Vec::new();
    let finish = drive(run, desk.store, desk.local, Some(&mut signals), &mut child, &mut |note| match note {
        Note::Event(Event::Waiting { record, .. }) => tell(&waiting(task, &record)),
        Note::LeftOvers(processes) => remarks.push(format!(
            "The command left these running on {}, and they were ended: {}.",
            task.resource,
            processes.join(", ")
        )),
        _ => {}
    });
    if let Finish::Interrupted(signal) = finish {
        // Nothing ran. The process ends as it would have without a signal handler.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
    ended(task, finish, granted.take(), remarks)
}

/// Decides as a claim would, and changes nothing in the store.
pub fn dry_run(request: &WriteRequest, desk: &FencedHost<'_>, task: &FencedCommand) -> Result<Receipt, PublishError> {
    check(task)?;
    request.check(&task.digest())?;
    let (turn, job) = (RunId(uuid::Uuid::now_v7()), Job::of_resource(&task.resource));
    let asked = clock::boot_now();
    let (record, clock) = look(desk.store.store.as_ref(), &job).map_err(|error| failed(task, "look at", &error))?;
    let now = clock::now();
    let facts = desk.local.facts(record.as_ref(), now.boot);
    let reference = clock.map(|clock| Reference { clock, asked });
    let context = Context {
        job: &job,
        now,
        nonce: Nonce { by: turn, write: 0 },
        reference: reference.as_ref(),
        date: None,
        facts: &facts,
        store: None,
        aside: Aside::default(),
    };
    let claim = claim(request, task, turn, desk.host.holder_by_hand());
    let refusal = match claim.choose::<Honest>(record.as_ref(), &context) {
        Err(Refusal::NoTurn(NoTurn::Refused(refused))) => {
            return Err(PublishError::Refused { refused, level: Level::Gated });
        }
        chosen => chosen.err(),
    };
    let seen = record.as_ref().and_then(|record| record.fence.as_ref());
    let (FenceVerdict::Accept(fence) | FenceVerdict::AlreadyApplied(fence)) =
        Honest::judge(seen, &request.write(task.digest(), false))
            .map_err(|refused| PublishError::Refused { refused, level: Level::Gated })?;
    match refusal {
        None => Ok(receipt(fence, false, Vec::new())),
        Some(Refusal::NoTurn(_)) => Ok(receipt(fence, true, Vec::new())),
        Some(Refusal::Held { record, .. }) => Ok(receipt(fence, false, vec![waiting(task, &record)])),
        Some(other) => Err(not_granted(task, &other)),
    }
}

impl FencedCommand {
    /// Returns the digest of the command: each word is preceded by its length, so no two commands encode alike.
    fn digest(&self) -> String {
        let words = self.argv.iter().flat_map(|word| {
            let length = (word.len() as u64).to_be_bytes();
            length.into_iter().chain(word.as_bytes().iter().copied()).collect::<Vec<u8>>()
        });
        digest::of(&words.collect::<Vec<u8>>())
    }
}

fn check(task: &FencedCommand) -> Result<(), PublishError> {
    if task.resource.is_empty() || task.resource.len() > RESOURCE_BYTES_MAX {
        let length = task.resource.len();
        let text = format!("--resource takes 1 to {RESOURCE_BYTES_MAX} bytes, and this has {length}.");
        return Err(PublishError::Usage(text));
    }
    Ok(())
}

fn claim(request: &WriteRequest, task: &FencedCommand, turn: RunId, holder: Holder) -> Claim {
    Claim {
        run: turn,
        ttl: task.ttl,
        holder,
        slot: Choice::Fenced(Box::new(request.write(task.digest(), false))),
        zone: "UTC".to_string(),
        trigger: Trigger::Manual,
    }
}

fn terms(task: &FencedCommand, claim: Claim) -> Terms {
    Terms {
        job: Job::of_resource(&task.resource),
        claim,
        grace: task.grace,
        overlap: Overlap::Skip,
        wait: Some(task.wait),
        timeout: None,
        run_without_store: false,
        inside: Vec::new(),
        stages: Stages::default(),
        empty_exit: None,
        must_record: false,
        observe: false,
        stuck_after: None,
    }
}

fn plan(
    request: &WriteRequest,
    task: &FencedCommand,
    turn: RunId,
    granted: Rc<RefCell<Option<Fence>>>,
    registration: Option<Registration>,
) -> ChildPlan {
    ChildPlan {
        prepare: None,
        check: None,
        argv: task.argv.clone(),
        cwd: None,
        grace: task.grace,
        leave_children: false,
        observe: false,
        ends_when_asked: false,
        stdout: None,
        stderr: None,
        label: format!("publish exec on {}", task.resource),
        run: turn,
        // The outer run collects the command's own reports.
        said: std::path::PathBuf::new(),
        env: environment(request, task, granted),
        registration,
        state: None,
        definition: None,
    }
}

/// Names the run that the command belongs to. A job of a run has these variables already; for a command run by hand
/// they are set here. The grant contains the fence that the claim wrote, which the receipt shows.
fn environment(request: &WriteRequest, task: &FencedCommand, granted: Rc<RefCell<Option<Fence>>>) -> Environment {
    let writer = request.writer.clone();
    let mut variables: Variables = [
        ("FENCEPOST_JOB", writer.job.to_string()),
        ("FENCEPOST_RUN", writer.run.to_string()),
        ("FENCEPOST_TOKEN", writer.token.to_string()),
        ("FENCEPOST_STORE_ID", writer.store.to_string()),
        ("FENCEPOST_RESOURCE", task.resource.clone()),
    ]
    .into_iter()
    .map(|(name, value)| (name.into(), Some(value.into())))
    .collect();
    variables.extend(task.env.iter().cloned());
    Box::new(move |grant, _| {
        granted.replace(grant.and_then(|grant| grant.record.fence.clone()));
        variables.clone()
    })
}

/// Translates the end of the run into the command's result.
fn ended(
    task: &FencedCommand,
    finish: Finish,
    granted: Option<Fence>,
    mut remarks: Vec<String>,
) -> Result<Ran, PublishError> {
    let resource = &task.resource;
    let (code, escaped) = match finish {
        Finish::Ended { exit, escaped, .. } => (exit.code(), escaped),
        Finish::Unrecorded { exit, error, escaped } => {
            remarks.push(format!(
                "The command ended, but that could not be written down: {error} {resource} stays busy until the turn \
                 ends by itself."
            ));
            (exit.code(), escaped)
        }
        Finish::NotSpawned(why) => {
            remarks.push(format!("{}. Nothing was run.", why.text.trim_end_matches('.')));
            (if why.not_found { 127 } else { 126 }, Vec::new())
        }
        Finish::Stopped { why, started, .. } => return Err(stopped(task, &why, started)),
        Finish::Held { record, remaining } => return Err(still_busy(task, &record, remaining)),
        Finish::StoreFailed(error) => return Err(failed(task, "take its turn at", &error)),
        Finish::Refused(Refusal::NoTurn(no_turn)) => return no_turn_at(task, no_turn),
        Finish::Refused(refusal) => return Err(not_granted(task, &refusal)),
        other => return Err(PublishError::Failed(format!("Nothing was run on {resource}: {other:?}"))),
    };
    if !escaped.is_empty() {
        remarks.push(format!(
            "{} could not be ended, so that {resource} stays busy until the turn ends by itself. End it by hand.",
            escaped.join(", ")
        ));
    }
    match granted {
        Some(fence) => Ok(Ran { receipt: receipt(fence, false, remarks), code }),
        None => Err(PublishError::Failed(format!("The record of {resource} shows no fence after its claim."))),
    }
}

fn no_turn_at(task: &FencedCommand, no_turn: NoTurn) -> Result<Ran, PublishError> {
    match no_turn {
        NoTurn::Applied { fence, code } => Ok(Ran { receipt: receipt(*fence, true, Vec::new()), code }),
        NoTurn::Refused(refused) => Err(PublishError::Refused { refused, level: Level::Gated }),
        NoTurn::Unknown { cause } => {
            let cause = cause.map_or("its turn was ended".to_string(), |cause| cause.to_string());
            Err(PublishError::Failed(format!(
                "This command was started on {0} before, under the same token, and {cause} before it ended: it may have \
                 happened, in whole or in part. It was not run again. Look at {0} by hand, then give it another --op \
                 or let the next run do it.",
                task.resource
            )))
        }
    }
}

fn stopped(task: &FencedCommand, why: &StopCause, started: bool) -> PublishError {
    let resource = &task.resource;
    let why = match why {
        StopCause::Deadline => "its turn could not be renewed in time".to_string(),
        StopCause::Taken { .. } => "its turn had passed to another".to_string(),
        StopCause::WokeLate => "it woke past the end of its turn and could not confirm it".to_string(),
        StopCause::KeeperDied => "its keeper process died".to_string(),
        StopCause::Timeout | StopCause::Replaced(_) => why.note(),
    };
    PublishError::Failed(if started {
        format!(
            "The command on {resource} was stopped because {why}. It may have happened in part. Look at {resource}, then \
             run it again under a new token."
        )
    } else {
        format!("The command on {resource} was not started, because {why} before that. Nothing was run. Publish again.")
    })
}

fn receipt(fence: Fence, already_applied: bool, remarks: Vec<String>) -> Receipt {
    Receipt { level: Level::Gated, fence, already_applied, remarks }
}

fn waiting(task: &FencedCommand, record: &Record) -> String {
    format!("{} is busy with a command of {}; waiting for its end.", task.resource, at_it(record))
}

fn still_busy(task: &FencedCommand, record: &Record, remaining: Option<Duration>) -> PublishError {
    let ends = match remaining {
        Some(left) => format!(" If it is not renewed, its turn ends in {} s.", left.as_secs() + 1),
        None => String::new(),
    };
    PublishError::Failed(format!(
        "{} is still busy with a command of {}, after waiting {} s; nothing was run.{ends} Wait longer by --wait, or end \
         that command.",
        task.resource,
        at_it(record),
        task.wait.as_secs()
    ))
}

fn at_it(record: &Record) -> String {
    let Some(Fence { token, run, host, .. }) = &record.fence else { return "an unknown run".to_string() };
    let pid = record.lease.as_ref().and_then(|lease| lease.holder.pid());
    let process = pid.map_or(String::new(), |pid| format!(", pid {pid}"));
    format!("token {token} (run {run} on {host}{process})")
}

fn failed(task: &FencedCommand, what: &str, error: &StoreError) -> PublishError {
    let fate = match error.fate {
        Fate::NotDone => "nothing was run and nothing was changed",
        Fate::Unknown => "nothing was run, though its fence may have been advanced",
    };
    PublishError::Failed(format!("Cannot {what} {}: {error} As for the command, {fate}. Try again.", task.resource))
}

fn not_granted(task: &FencedCommand, refusal: &Refusal) -> PublishError {
    PublishError::Failed(format!("Cannot take its turn at {}: {refusal} Nothing was run.", task.resource))
}
