//! What goes into a run and what comes out of it.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::contract::{Judgement, Produced};
use crate::definition::DefinitionDigests;
use crate::lease::{Claim, Facts, Refusal};
use crate::ledger::{Barred, Consumed, Covered, Status};
use crate::name::Job;
use crate::record::{Record, StopAsked};
use crate::register::{Answer, StoreError};
use crate::said::{Published, Said};
use crate::slot::NotNow;
use crate::time::{Boot, Wall};
use crate::token::{RunId, Token};
use crate::transition::{Call, Reply};

/// What a run was asked to do. Fixed before it begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    pub job: Job,
    pub claim: Claim,
    pub grace: Duration,
    pub overlap: Overlap,
    /// How long to wait for the lease while it is held.
    pub wait: Option<Duration>,
    /// How long the child may run.
    pub timeout: Option<Duration>,
    /// Run without a lease if the store cannot be reached.
    pub run_without_store: bool,
    /// The runs inside which this one was started.
    pub inside: Vec<RunId>,
    pub stages: Stages,
    /// The exit code by which the job says that there was nothing.
    pub empty_exit: Option<i32>,
    /// A job that exits 0 without a report of its outcome has failed.
    pub must_record: bool,
    /// Decide and record everything, but skip, halt and stop nothing.
    pub observe: bool,
    /// Say so when this many good runs in a row have left the same artifacts.
    pub stuck_after: Option<u64>,
}

/// What is done under the lease besides the job itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stages {
    /// A command that runs before anything is looked at.
    pub prepare: bool,
    /// A look at the upstreams, and at the artifacts as they are before the job.
    pub inspect: bool,
    /// A look at the artifacts when the job has ended.
    pub survey: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overlap {
    Skip,
    Replace,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    Begin,
    Answered(Result<Answer<Reply>, StoreError>),
    Consulted(Facts),
    /// The moment [`Run::wake_at`] named has come, or passed.
    Tick,
    Spawned,
    NotSpawned(NotSpawned),
    /// The keeper received the order to start a command only after the deadline that came with it. Nothing was started.
    Stale,
    /// What the upstreams said.
    Inspected(Passage),
    /// What was found of the declared artifacts.
    Surveyed(Vec<Produced>),
    ChildEnded(Exit),
    /// What the job said of itself. It comes before [`Input::TreeEmpty`], when no process is left to say more.
    Said {
        said: Vec<Said>,
        /// Why that may not be all, and the file's path.
        unreadable: Option<String>,
        /// The job's definition as it is now, if it is configured.
        definition: Option<Box<DefinitionDigests>>,
    },
    /// Nothing of the tree is left, except what is named.
    TreeEmpty {
        escaped: Vec<String>,
    },
    /// The keeper began to end the tree because no renewal came in time.
    DeadlineReached,
    /// The keeper woke late and has stopped the tree until it hears whose lease it is.
    Frozen,
    /// This process was itself stopped, or is asked to look at its lease now.
    Woke,
    /// The keeper died. The driver has ended the tree by itself and says what is left of it.
    KeeperDied {
        escaped: Vec<String>,
    },
    /// A signal that asks this process to end.
    Interrupted(i32),
    /// A program gives up its claim. It has not been told of a grant, so no work has begun.
    GivenUp,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Call(Call),
    Consult(Option<Arc<Record>>),
    /// Run the command that comes before everything else; told as a child.
    Prepare {
        grant: Option<Grant>,
    },
    /// Look at the upstreams and at the artifacts as they are; answered by [`Input::Inspected`].
    Inspect {
        grant: Option<Grant>,
    },
    Spawn {
        grant: Option<Grant>,
    },
    /// Look at the artifacts as the job left them; answered by [`Input::Surveyed`].
    Survey,
    /// Tell the keeper its new deadline.
    Extend(Boot),
    /// The frozen tree may go on until this deadline.
    Thaw(Boot),
    /// TERM, the grace, KILL.
    Stop,
    /// KILL, now: the lease has passed on.
    Kill,
    /// Pass a signal on to the child.
    Forward(i32),
    Tell(Event),
    Finish(Finish),
}

impl Output {
    /// The grant of the stage that begins with this.
    pub fn grant(&self) -> Option<&Grant> {
        match self {
            Self::Prepare { grant } | Self::Inspect { grant } | Self::Spawn { grant } => grant.as_ref(),
            _ => None,
        }
    }
}

/// What a won claim gives the child.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    pub record: Arc<Record>,
    pub deadline: Boot,
}

/// What the upstreams let a run do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Passage {
    Proceed {
        upstreams: Vec<Consumed>,
    },
    /// Nothing to do: an upstream had nothing.
    Skip {
        barred: Vec<Barred>,
    },
    Halt {
        barred: Vec<Barred>,
    },
}

/// Something people or programs may want to know while it happens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Claimed {
        token: Token,
        grants: u64,
        slot: Wall,
        took_over: Option<TookOver>,
        /// Until when it may be relied on.
        deadline: Boot,
    },
    Waiting {
        record: Box<Record>,
        remaining: Option<Duration>,
    },
    AskedToStop {
        record: Arc<Record>,
    },
    /// The trigger is early by this much, and waits for its slot.
    Early {
        slot: Wall,
        wait: Duration,
    },
    Renewed {
        renewals: u64,
        deadline: Boot,
    },
    RenewalFailed {
        error: StoreError,
    },
    Stopping(StopCause),
    Frozen,
    Thawed,
    CompletionFailed {
        error: StoreError,
    },
    WithoutLease {
        error: StoreError,
    },
    /// What would have been done, were it not only observed.
    Observed {
        status: Status,
        reason: String,
    },
    /// Slots that nothing ran for, and that it is too late for.
    Missed {
        missed: Covered,
    },
    /// So many good runs in a row have left the very same artifacts.
    Stuck {
        count: u64,
    },
}

/// The run before, which did not release.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TookOver {
    pub run: RunId,
    /// Why it could be taken over, as the ledger says it.
    pub note: String,
}

/// Why fencepost ended the child.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StopCause {
    /// No renewal could be confirmed in time.
    Deadline,
    /// The record says that the lease is another's.
    Taken {
        record: Option<Box<Record>>,
    },
    /// It woke past its deadline and could not reach the store within the grace.
    WokeLate,
    Timeout,
    Replaced(StopAsked),
    KeeperDied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// SIGINT, which a terminal sends to the command alone.
    pub(super) const CTRL_C: Self = Self::Signal(2);

    /// The code a shell would show.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NotSpawned {
    pub not_found: bool,
    pub text: String,
}

/// How it all ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Finish {
    /// The child ran to an end under its lease, and that is recorded.
    Ended {
        exit: Exit,
        judgement: Box<Judgement>,
        escaped: Vec<String>,
    },
    /// An upstream kept the job from working. `recorded` says whether the store knows.
    Barred {
        halt: bool,
        barred: Vec<Barred>,
        recorded: Kept,
    },
    /// A publish of this run was refused, so it counts as fenced off, also if the child ended well. `recorded` says
    /// whether its own last swap told the store.
    Fenced {
        exit: Option<Exit>,
        refused: Box<Published>,
        recorded: Kept,
        escaped: Vec<String>,
    },
    /// fencepost ended the child, or did not start it. `recorded` says whether the store knows.
    Stopped {
        why: StopCause,
        /// Whether the command may have started. Otherwise it certainly did not.
        started: bool,
        exit: Option<Exit>,
        recorded: Kept,
        escaped: Vec<String>,
    },
    NotSpawned(NotSpawned),
    /// Another holds the lease; nothing was run.
    Held {
        record: Box<Record>,
        remaining: Option<Duration>,
    },
    /// There is no slot to run: it is done, or not due, or the job is paused.
    NotNow(NotNow),
    /// The holder is a run inside which this one was started.
    Nested,
    /// The store failed before anything was run.
    StoreFailed(StoreError),
    /// The claim was refused for a reason that waiting does not mend.
    Refused(Refusal),
    /// The child ended, but the store did not confirm that it was told. The fate of the error says whether it may know.
    Unrecorded {
        exit: Exit,
        error: StoreError,
        escaped: Vec<String>,
    },
    /// It ran without a lease, as asked.
    WithoutLease {
        exit: Exit,
        judgement: Box<Judgement>,
        escaped: Vec<String>,
    },
    Interrupted(i32),
    /// A program gave up its claim before any work began. `recorded` says whether a lease that it had got is released.
    GivenUp {
        recorded: Kept,
    },
}

/// Why a run ends before its work begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Interruption {
    /// A signal asked this process to end.
    Signal(i32),
    /// The program gave up its claim, and goes on.
    GivenUp,
}

impl Interruption {
    /// What is recorded if there is a lease already.
    pub(super) fn unstarted(self) -> NotSpawned {
        let text = match self {
            Self::Signal(signal) => format!("interrupted by signal {signal} before it started"),
            Self::GivenUp => "the program gave up its claim before it began".to_string(),
        };
        NotSpawned { not_found: false, text }
    }

    pub(super) fn finish(self, recorded: Kept) -> Finish {
        match self {
            Self::Signal(signal) => Finish::Interrupted(signal),
            Self::GivenUp => Finish::GivenUp { recorded },
        }
    }
}

/// Whether the store knows how a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// By the run's own last swap, or by the run that took its lease over.
    Recorded,
    /// The run held no lease, so there was nothing to record.
    NoLease,
    /// The store failed. The fate of the error says whether it may know all the same.
    Failed(StoreError),
}

impl Kept {
    pub fn is_recorded(&self) -> bool {
        *self == Self::Recorded
    }
}

impl StopCause {
    pub fn status(&self) -> Status {
        match self {
            Self::Timeout => Status::Timeout,
            Self::KeeperDied => Status::Error,
            Self::Deadline | Self::Taken { .. } | Self::WokeLate | Self::Replaced(_) => Status::Lost,
        }
    }

    /// A short sentence for the ledger.
    pub fn note(&self) -> String {
        match self {
            Self::Deadline => "stopped: the lease could not be renewed in time".to_string(),
            Self::Taken { record: Some(record) } if record.lease.is_none() => {
                "stopped: the lease had passed on, or was taken away".to_string()
            }
            Self::Taken { .. } => "stopped: the lease had passed to another".to_string(),
            Self::WokeLate => "stopped: woke past its deadline and could not confirm its lease".to_string(),
            Self::Timeout => "stopped: it ran longer than its timeout".to_string(),
            Self::Replaced(asked) => format!("stopped: replaced by run {} on {}", asked.by, asked.host),
            Self::KeeperDied => "stopped: its keeper died".to_string(),
        }
    }

    /// The same for a command that was never started.
    pub fn note_unstarted(&self) -> String {
        let why = match self {
            Self::Deadline | Self::WokeLate => "its lease could not be confirmed in time".to_string(),
            other => other.note().trim_start_matches("stopped: ").to_string(),
        };
        format!("not started: {why}")
    }
}
