//! A command, run on a resource that cannot check a token itself. It is only gated, and at most once per token and
//! operation: the fence is advanced first, then the command runs.
//!
//! Fence and busy-lease stand in one record of the store ([`fencepost_core::busy`]). For as long as any process of the
//! command may live, a newer token waits; a lower one is refused. The keeper ends the tree by the lease's deadline,
//! whatever becomes of this process, and the next command is let in only when the tree is dead.

mod guard;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use fencepost_core::busy::{Busy, Change, Entry, Evidence, Intent, Outcome, RESOURCE_BYTES_MAX, State, Step, Watched};
use fencepost_core::fence::{Fence, Level};
use fencepost_core::lease::{Honest, Rules};
use fencepost_core::register::{Fate, StoreError};
use fencepost_core::time::Boot;
use fencepost_core::token::RunId;
use fencepost_store::Store;

use super::{PublishError, Receipt, Request, digest};
use crate::child::{Child, Plan, Variables};
use crate::clock;
use crate::host::Host;
use crate::keeper::Keeper;
use crate::terminal::Terminal;
use crate::worker::perform;
use guard::Guard;

/// Between two looks at a resource that is busy: short at first, because most commands are.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(20);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(250);

/// The command and the resource it is run on.
#[derive(Clone, Debug)]
pub struct Task {
    pub resource: String,
    pub argv: Vec<OsString>,
    /// How long the busy-lease lasts without a renewal.
    pub ttl: Duration,
    /// How long the command has between TERM and KILL.
    pub grace: Duration,
    /// How long to wait for another command on the same resource.
    pub wait: Duration,
    /// What the command is told besides who runs it.
    pub env: Variables,
}

/// A command that was let at the resource, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    pub receipt: Receipt,
    /// As a shell shows it: 128 + n for a signal, 127 and 126 for what could not be started.
    pub code: i32,
}

/// Where the record is, and who asks.
#[derive(Clone)]
pub struct Desk<'a> {
    pub store: Arc<dyn Store>,
    pub host: &'a Host,
}

impl std::fmt::Debug for Desk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("host", self.host).finish_non_exhaustive()
    }
}

/// Waits for its turn, runs the command, and lets the next one in when nothing of it is left.
///
/// The keeper was started before the store was opened; `tell` hears what goes on meanwhile.
pub fn publish(
    request: &Request,
    desk: &Desk<'_>,
    task: &Task,
    keeper: Keeper,
    tell: &mut dyn FnMut(&str),
) -> Result<Ran, PublishError> {
    let turn = RunId(uuid::Uuid::now_v7());
    let terminal = Terminal::detect();
    let entry = entry(request, desk, task, turn, &keeper)?;
    let taken = match enter(desk, task, entry, tell)? {
        Entered::Ran { busy, code } => {
            return Ok(Ran { receipt: receipt(busy.fence, true, Vec::new()), code });
        }
        Entered::Turn(taken) => *taken,
    };
    let plan = Plan {
        prepare: None,
        scout: None,
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
        // What the command says of itself is said to the run around us, which collects it.
        said: std::path::PathBuf::new(),
        env: environment(request, task),
    };
    Guard::new(desk, task, turn, taken, Child::new(plan, keeper, terminal))?.watch()
}

/// Says what would come of it, and touches nothing.
pub fn dry_run(request: &Request, desk: &Desk<'_>, task: &Task) -> Result<Receipt, PublishError> {
    use fencepost_core::busy::{Moment, Turn};
    use fencepost_core::fence::{Strict, Verdict, judge};
    use fencepost_core::time::Reference;
    use fencepost_core::token::Nonce;

    check(task)?;
    let asked = clock::now();
    let answer = desk.store.read(&fencepost_core::name::Key::resource(&task.resource));
    let answer = answer.map_err(|error| failed(task, "look at", &error))?;
    let busy = answer.value.map(|entry| Busy::decode(&entry.bytes, &task.resource)).transpose();
    let busy = busy.map_err(|why| {
        failed(
            task,
            "look at",
            &fencepost_core::transition::unreadable(&format!("the record of {}", task.resource), &why),
        )
    })?;
    let reference = answer.clock.map(|clock| Reference { clock, asked: asked.boot });
    let turn = RunId(uuid::Uuid::now_v7());
    let write = request.write(task.digest(), false);
    let holder = desk.host.holder_by_hand();
    let entry = Entry { resource: task.resource.clone(), turn, write: write.clone(), ttl: task.ttl, holder };
    let moment = Moment {
        now: asked.boot,
        wall: asked.wall,
        reference: reference.as_ref(),
        nonce: Nonce { by: turn, write: 0 },
    };
    let evidence = busy.as_ref().map(|busy| evidence(desk.host, busy, None)).unwrap_or_default();
    let judged = judge::<Strict>(busy.as_ref().map(|busy| &busy.fence), &write);
    match (entry.decide(busy.as_ref(), &evidence, &moment), judged) {
        (Turn::Refused(refused), _) | (_, Err(refused)) => Err(PublishError::Refused { refused, level: Level::Gated }),
        (turn, Ok(Verdict::Accept(fence) | Verdict::AlreadyApplied(fence))) => {
            let waits = matches!(turn, Turn::Wait(_)).then(|| busy.as_ref().map(|busy| waiting(task, busy)));
            Ok(receipt(
                fence,
                matches!(turn, Turn::Ran { .. } | Turn::Unknown(_)),
                waits.flatten().into_iter().collect(),
            ))
        }
    }
}

impl Task {
    /// The digest of the command: each word behind its length, so that no two commands are written alike.
    fn digest(&self) -> String {
        let words = self.argv.iter().flat_map(|word| {
            let length = (word.len() as u64).to_be_bytes();
            length.into_iter().chain(word.as_bytes().iter().copied()).collect::<Vec<u8>>()
        });
        digest::of(&words.collect::<Vec<u8>>())
    }
}

/// A turn that was taken, and until when it holds.
struct Taken {
    fence: Fence,
    deadline: Boot,
    sent: Boot,
    writes: u32,
}

enum Entered {
    Turn(Box<Taken>),
    Ran { busy: Box<Busy>, code: i32 },
}

fn entry(request: &Request, desk: &Desk<'_>, task: &Task, turn: RunId, keeper: &Keeper) -> Result<Entry, PublishError> {
    check(task)?;
    Ok(Entry {
        resource: task.resource.clone(),
        turn,
        write: request.write(task.digest(), false),
        ttl: task.ttl,
        holder: desk.host.holder(std::process::id().cast_signed(), keeper.mark()),
    })
}

fn check(task: &Task) -> Result<(), PublishError> {
    if task.resource.is_empty() || task.resource.len() > RESOURCE_BYTES_MAX {
        let length = task.resource.len();
        let text = format!("--resource takes 1 to {RESOURCE_BYTES_MAX} bytes, and this has {length}.");
        return Err(PublishError::Usage(text));
    }
    Ok(())
}

/// Takes the turn, after whoever has it now; or says why not.
fn enter(desk: &Desk<'_>, task: &Task, entry: Entry, tell: &mut dyn FnMut(&str)) -> Result<Entered, PublishError> {
    let mut change = Change::new(&task.resource, entry.turn, Intent::Enter(Box::new(entry)), 0);
    let give_up = clock::boot_now() + task.wait;
    let mut pause = LOOK_PAUSE_MIN;
    let mut watched = None;
    let mut told = None;
    loop {
        let outcome =
            carry(desk, &mut change, &mut watched).map_err(|error| failed(task, "take its turn at", &error))?;
        match outcome {
            Outcome::Stands { busy, sent } => {
                let deadline = Honest::deadline(sent, task.ttl);
                let writes = change.writes();
                return Ok(Entered::Turn(Box::new(Taken { fence: busy.fence, deadline, sent, writes })));
            }
            Outcome::Wait { busy, .. } if clock::boot_now() < give_up => {
                if told != Some(busy.turn) {
                    tell(&waiting(task, &busy));
                    told = Some(busy.turn);
                }
                sleep(pause.min(give_up.since(clock::boot_now())));
                pause = (pause * 2).min(LOOK_PAUSE_MAX);
            }
            Outcome::Wait { busy, remaining } => return Err(still_busy(task, &busy, remaining)),
            Outcome::Ran { busy, code } => return Ok(Entered::Ran { busy, code }),
            Outcome::Unknown { busy, cause } => {
                return Err(PublishError::Failed(format!(
                    "This command was started on {} before, under the same token, and {cause} before it ended: it may have \
                     happened, in whole or in part. It was not run again. Look at {} by hand, then give it another --op \
                     or let the next run do it.",
                    task.resource, busy.resource
                )));
            }
            Outcome::Refused(refused) => return Err(PublishError::Refused { refused, level: Level::Gated }),
            Outcome::Lost { .. } => unreachable!("a turn that was not taken cannot be lost"),
        }
    }
}

/// Carries a change to its end, on the spot.
fn carry(desk: &Desk<'_>, change: &mut Change, watched: &mut Option<Watched>) -> Result<Outcome, StoreError> {
    let mut step = change.begin(clock::now());
    loop {
        step = match step {
            Step::Call(call) => {
                let answer = perform(desk.store.as_ref(), &call);
                let now = clock::now();
                let mut consult = |busy: &Busy| {
                    *watched = busy.watch(*watched, now.boot);
                    evidence(desk.host, busy, *watched)
                };
                change.answered(now, answer, &mut consult)
            }
            Step::Done(outcome) => return Ok(outcome),
            Step::Failed(error) => return Err(error),
        }
    }
}

fn evidence(host: &Host, busy: &Busy, watched: Option<Watched>) -> Evidence {
    let is_dead = matches!(&busy.state, State::Running(running) if host.knows_dead(&running.holder));
    Evidence { is_dead, watched }
}

/// Who the command is run for. A job of a run knows already; by hand it is told here.
fn environment(request: &Request, task: &Task) -> crate::child::Environment {
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
    Box::new(move |_, _| variables.clone())
}

fn receipt(fence: Fence, already_applied: bool, remarks: Vec<String>) -> Receipt {
    Receipt { level: Level::Gated, fence, already_applied, remarks }
}

fn waiting(task: &Task, busy: &Busy) -> String {
    format!("{} is busy with a command of {}; waiting for its end.", task.resource, at_it(busy))
}

fn still_busy(task: &Task, busy: &Busy, remaining: Option<Duration>) -> PublishError {
    let ends = match remaining {
        Some(left) => format!(" If it is not renewed, its turn ends in {} s.", left.as_secs() + 1),
        None => String::new(),
    };
    PublishError::Failed(format!(
        "{} is still busy with a command of {}, after waiting {} s; nothing was run.{ends} Wait longer by --wait, or end \
         that command.",
        task.resource,
        at_it(busy),
        task.wait.as_secs()
    ))
}

fn at_it(busy: &Busy) -> String {
    let Busy { fence, state, .. } = busy;
    let process = match state {
        State::Running(running) => running.holder.pid().map(|pid| format!(", pid {pid}")),
        State::Ended { .. } | State::NotStarted => None,
    };
    format!("token {} (run {} on {}{})", fence.token, fence.run, fence.host, process.unwrap_or_default())
}

fn failed(task: &Task, what: &str, error: &StoreError) -> PublishError {
    let fate = match error.fate {
        Fate::NotDone => "nothing was run and nothing was changed",
        Fate::Unknown => "nothing was run, though its fence may have been advanced",
    };
    PublishError::Failed(format!("Cannot {what} {}: {error} As for the command, {fate}. Try again.", task.resource))
}
