//! Fenced writes: one file, its fence and its lock, and writers that come in every order and die at every step.
//!
//! The verdicts are those of the shipped [`judge`](fencepost_core::fence::judge). Around it stands what the file target does, one step for each thing that
//! another process or a power cut can come between. The names in a directory reach the disk only when it is flushed:
//! until then a power cut keeps any of the states since the last flush, of the fence and of the content separately. A
//! killed process leaves what it did for all to see, and nothing of it is sure to be on the disk.

pub mod invariants;
pub mod mutants;
pub mod settings;

use std::fmt;
use std::rc::Rc;

use fencepost_core::fence::{Fence, FenceVerdict, Write, WriteMode};
use fencepost_core::lease::Rules;
use fencepost_core::name::{Job, Name};
use fencepost_core::time::Wall;
use fencepost_core::token::{StoreId, Token};

use crate::explore::StateSpace;
use crate::rulebook::ChosenRules;
use crate::world::run_id;
use invariants::FenceViolation;

/// The bounds of one exploration.
#[derive(Clone, Copy, Debug)]
pub struct FenceSetting {
    pub name: &'static str,
    pub mode: WriteMode,
    pub writers: &'static [FenceWriter],
    pub budget: FenceBudget,
    pub flaw: Option<FenceFlaw>,
}

/// Who wants to write.
#[derive(Clone, Copy, Debug)]
pub struct FenceWriter {
    pub store: u8,
    pub token: u64,
    pub run: u8,
    /// How many writes, each of other bytes.
    pub writes: u8,
}

/// How often each kind of misfortune may still happen. A stall is none: a writer that does not move is stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FenceBudget {
    /// Writers that are killed. Each comes again with the same token and the same bytes.
    pub kills: u8,
    /// Power cuts, which end all writers.
    pub cuts: u8,
    /// Fences that are torn or lost at rest.
    pub damages: u8,
}

/// A known bug of the target, as a switch of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceFlaw {
    NoLock,
    EarlyUnlock,
    ContentFirst,
    /// The directory is not flushed between the fence and the content.
    FenceNotDurable,
    /// The fence's bytes are not flushed before its name is put in place.
    FenceUnflushed,
    /// The same for the content.
    ContentUnflushed,
    TornIsNone,
    LostIsNone,
    NoLineageCheck,
    NoRunCheck,
    /// A write that was accepted before is taken for arrived.
    ArrivalUnchecked,
    /// What is found of an interrupted write is built upon, though it may not be on the disk yet.
    ArrivalUnflushed,
}

impl FenceSetting {
    const fn new(name: &'static str, mode: WriteMode, writers: &'static [FenceWriter], budget: FenceBudget) -> Self {
        Self { name, mode, writers, budget, flaw: None }
    }

    const fn with(mut self, flaw: FenceFlaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    fn has(&self, flaw: FenceFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn write(&self, writer: u8, write: u8) -> Write {
        let FenceWriter { store, token, run, .. } = self.writers[usize::from(writer)];
        Write {
            store: StoreId(run_id(store).0),
            job: Job::shared(Name::new("report").expect("it is a name")),
            token: Token::new(token).expect("it is a token"),
            run: run_id(run),
            digest: format!("sha256:{writer}{write}"),
            op: None,
            mode: self.mode,
            replaces: true,
            adopt: false,
            at: Wall(0),
            host: String::new(),
        }
    }
}

/// A file that is replaced as a whole. The content is known by the fence it was accepted with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileState {
    Absent,
    Torn,
    Of(Rc<Fence>),
}

impl FileState {
    fn fence(&self) -> Option<&Fence> {
        if let Self::Of(fence) = self { Some(fence) } else { None }
    }
}

impl fmt::Display for FileState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.pad("absent"),
            Self::Torn => f.pad("torn"),
            Self::Of(fence) => f.pad(&format!("{}.{}", fence.token, fence.seq)),
        }
    }
}

/// One thing that a writer does to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// The fence, written and flushed under another name, gets its own.
    PutFence,
    /// The directory is flushed.
    Flush,
    /// The lock file says from now on that there is a fence.
    Mark,
    Unlock,
    /// The draft, written and flushed, gets the name of the content.
    Land,
    /// The writer says that it is done, and the lock is free.
    Report,
}

use Act::{Flush, Land, Mark, PutFence, Unlock};
type ActList = &'static [Act];
const ACCEPTED: ActList = &[PutFence, Flush, Mark, Land, Flush, Act::Report];
const ACCEPTED_CONTENT_FIRST: ActList = &[Land, Flush, PutFence, Flush, Mark, Act::Report];
const ACCEPTED_NOT_DURABLE: ActList = &[PutFence, Mark, Land, Flush, Act::Report];
const ACCEPTED_EARLY_UNLOCK: ActList = &[PutFence, Flush, Mark, Unlock, Land, Flush, Act::Report];
const ARRIVED: ActList = &[Flush, Mark, Act::Report];
const ARRIVED_UNFLUSHED: ActList = &[Act::Report];
const NOT_ARRIVED: ActList = &[Flush, Mark, Land, Flush, Act::Report];
const NOT_ARRIVED_UNFLUSHED: ActList = &[Land, Flush, Act::Report];

/// How far a writer is with its write. Its draft lies ready from the beginning; no other writer ever sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum WriterStage {
    Rest,
    Locked,
    Doing { left: ActList, fence: Rc<Fence> },
}

#[derive(Clone, Debug, Hash)]
struct WriterProgress {
    write: u8,
    stage: WriterStage,
    /// It was killed in the middle of this write.
    interrupted: bool,
}

/// The world.
#[derive(Clone, Debug, Hash)]
pub struct FenceWorld {
    /// What a power cut may leave. The last is what every process sees.
    fences: Vec<FileState>,
    contents: Vec<FileState>,
    marked: bool,
    lock: Option<u8>,
    writers: Vec<WriterProgress>,
    budget: FenceBudget,
    ghost: FenceGhost,
}

/// What has happened, for the invariants only: no writer sees it.
#[derive(Clone, Debug, Default, Hash)]
struct FenceGhost {
    /// The newest write that was reported as done.
    reported: Option<Rc<Fence>>,
    /// Which write of each writer has landed first.
    landed: Vec<Option<u8>>,
    damaged: bool,
    /// Whether a writer was ever interrupted.
    interruptions: bool,
    violation: Option<FenceViolation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceStep {
    Lock {
        writer: u8,
    },
    /// Reads the fence and judges.
    Judge {
        writer: u8,
    },
    Do {
        writer: u8,
        act: Act,
    },
    Kill {
        writer: u8,
    },
    /// The power is cut, and of the states that may be on the disk it is these.
    Cut {
        fence: u8,
        content: u8,
    },
    TearFence,
    LoseFence,
}

impl fmt::Display for FenceStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock { writer } => write!(f, "writer {writer} takes the lock"),
            Self::Judge { writer } => write!(f, "writer {writer} reads the fence and judges"),
            Self::Do { writer, act } => write!(
                f,
                "writer {writer} {}",
                match act {
                    PutFence => "puts its fence in place",
                    Flush => "flushes the directory",
                    Mark => "marks the lock",
                    Unlock => "gives up the lock",
                    Land => "puts its content in place",
                    Act::Report => "reports that it is done",
                }
            ),
            Self::Kill { writer } => write!(f, "writer {writer} is killed"),
            Self::Cut { .. } => write!(f, "the power is cut"),
            Self::TearFence => write!(f, "the fence is torn"),
            Self::LoseFence => write!(f, "the fence is lost"),
        }
    }
}

impl StateSpace for FenceWorld {
    const TITLE: &'static str = "fenced writes";
    type Setting = FenceSetting;
    type Step = FenceStep;
    type Violation = FenceViolation;

    fn name(setting: &FenceSetting) -> &'static str {
        setting.name
    }

    /// With what then stands in the directory.
    fn tell(&self, _setting: &FenceSetting, step: FenceStep) -> String {
        format!("{:<44}  fence {:<10} content {}", step.to_string(), self.fence(), self.content())
    }

    fn begin(setting: &FenceSetting) -> Self {
        let fresh = WriterProgress { write: 0, stage: WriterStage::Rest, interrupted: false };
        Self {
            fences: vec![FileState::Absent],
            contents: vec![FileState::Absent],
            marked: false,
            lock: None,
            writers: vec![fresh; setting.writers.len()],
            budget: setting.budget,
            ghost: FenceGhost { landed: vec![None; setting.writers.len()], ..FenceGhost::default() },
        }
    }

    fn next(&self, setting: &FenceSetting) -> Vec<FenceStep> {
        let mut steps = Vec::new();
        for (writer, progress) in (0..).zip(&self.writers) {
            match &progress.stage {
                WriterStage::Rest => {
                    let wants = progress.write < setting.writers[usize::from(writer)].writes;
                    if wants && (self.lock.is_none() || setting.has(FenceFlaw::NoLock)) {
                        steps.push(FenceStep::Lock { writer });
                    }
                    continue;
                }
                WriterStage::Locked => steps.push(FenceStep::Judge { writer }),
                WriterStage::Doing { left, .. } => steps.push(FenceStep::Do { writer, act: left[0] }),
            }
            if self.budget.kills > 0 {
                steps.push(FenceStep::Kill { writer });
            }
        }
        if self.budget.cuts > 0 {
            for fence in 0..self.fences.len() as u8 {
                steps.extend((0..self.contents.len() as u8).map(|content| FenceStep::Cut { fence, content }));
            }
        }
        if self.budget.damages > 0 && *self.fence() != FileState::Absent {
            steps.extend([FenceStep::TearFence, FenceStep::LoseFence]);
        }
        steps
    }

    fn take(&self, setting: &FenceSetting, step: FenceStep) -> Self {
        let mut next = self.clone();
        match step {
            FenceStep::Lock { writer } => {
                next.lock = Some(writer);
                next.writers[usize::from(writer)].stage = WriterStage::Locked;
            }
            FenceStep::Judge { writer } => next.judge(setting, writer),
            FenceStep::Do { writer, act } => next.act(setting, writer, act),
            FenceStep::Kill { writer } => {
                next.budget.kills -= 1;
                next.interrupt(writer);
            }
            FenceStep::Cut { fence, content } => {
                next.budget.cuts -= 1;
                next.fences = vec![self.fences[usize::from(fence)].clone()];
                next.contents = vec![self.contents[usize::from(content)].clone()];
                (0..setting.writers.len() as u8).for_each(|writer| next.interrupt(writer));
            }
            FenceStep::TearFence => next.damage(FileState::Torn),
            FenceStep::LoseFence => next.damage(FileState::Absent),
        }
        next
    }

    fn wrong(&self, _setting: &FenceSetting) -> impl Iterator<Item = FenceViolation> {
        self.violations()
    }
}

impl FenceWorld {
    fn fence(&self) -> &FileState {
        self.fences.last().expect("there is always a state")
    }

    fn content(&self) -> &FileState {
        self.contents.last().expect("there is always a state")
    }

    fn interrupt(&mut self, writer: u8) {
        let progress = &mut self.writers[usize::from(writer)];
        if progress.stage != WriterStage::Rest {
            progress.stage = WriterStage::Rest;
            progress.interrupted = true;
            self.ghost.interruptions = true;
        }
        self.unlock(writer);
    }

    fn unlock(&mut self, writer: u8) {
        self.lock = self.lock.filter(|holder| *holder != writer);
    }

    fn damage(&mut self, entry: FileState) {
        self.budget.damages -= 1;
        self.ghost.damaged = true;
        self.fences = vec![entry];
    }

    /// The write is over, one way or the other.
    fn finish(&mut self, writer: u8) {
        let progress = &mut self.writers[usize::from(writer)];
        *progress = WriterProgress { write: progress.write + 1, stage: WriterStage::Rest, interrupted: false };
        self.unlock(writer);
    }

    /// What the target takes for the fence, if it can go on at all.
    fn seen(&self, setting: &FenceSetting) -> Option<Option<Rc<Fence>>> {
        match self.fence() {
            FileState::Of(fence) => Some(Some(fence.clone())),
            FileState::Torn => setting.has(FenceFlaw::TornIsNone).then_some(None),
            FileState::Absent => (!self.marked || setting.has(FenceFlaw::LostIsNone)).then_some(None),
        }
    }

    fn judge(&mut self, setting: &FenceSetting, writer: u8) {
        let write = setting.write(writer, self.writers[usize::from(writer)].write);
        let Some(seen) = self.seen(setting) else { return self.finish(writer) };
        self.note_reading(seen.is_none());
        let shown = seen.map(|seen| {
            let mut shown = (*seen).clone();
            if setting.has(FenceFlaw::NoLineageCheck) {
                (shown.store, shown.job) = (write.store, write.job.clone());
            }
            if setting.has(FenceFlaw::NoRunCheck) {
                shown.run = write.run;
            }
            shown
        });
        let (left, fence) = match ChosenRules::judge(shown.as_ref(), &write) {
            Err(refused) => {
                self.note_refusal(setting, &write, &refused);
                return self.finish(writer);
            }
            Ok(FenceVerdict::Accept(fence)) => (
                match setting.flaw {
                    Some(FenceFlaw::ContentFirst) => ACCEPTED_CONTENT_FIRST,
                    Some(FenceFlaw::FenceNotDurable) => ACCEPTED_NOT_DURABLE,
                    Some(FenceFlaw::EarlyUnlock) => ACCEPTED_EARLY_UNLOCK,
                    _ => ACCEPTED,
                },
                fence,
            ),
            Ok(FenceVerdict::AlreadyApplied(fence)) => {
                let there = self.content().fence().is_some_and(|content| content.digest == fence.digest);
                let arrived = there || setting.has(FenceFlaw::ArrivalUnchecked);
                let left = match (arrived, setting.has(FenceFlaw::ArrivalUnflushed)) {
                    (true, false) => ARRIVED,
                    (true, true) => ARRIVED_UNFLUSHED,
                    (false, false) => NOT_ARRIVED,
                    (false, true) => NOT_ARRIVED_UNFLUSHED,
                };
                (left, fence)
            }
        };
        self.writers[usize::from(writer)].stage = WriterStage::Doing { left, fence: Rc::new(fence) };
    }

    fn act(&mut self, setting: &FenceSetting, writer: u8, act: Act) {
        let WriterStage::Doing { left, fence } = &mut self.writers[usize::from(writer)].stage else {
            unreachable!("only who does something is let do it")
        };
        *left = &left[1..];
        let fence = fence.clone();
        match act {
            PutFence => {
                self.note_fence(&fence);
                put(&mut self.fences, fence, setting.has(FenceFlaw::FenceUnflushed));
            }
            Flush => {
                flush(&mut self.fences, setting.has(FenceFlaw::FenceUnflushed));
                flush(&mut self.contents, setting.has(FenceFlaw::ContentUnflushed));
                self.ghost.damaged &= self.fence().fence().is_none();
            }
            Mark => self.marked = true,
            Unlock => self.unlock(writer),
            Land => {
                self.note_landing(setting, writer, &fence);
                put(&mut self.contents, fence, setting.has(FenceFlaw::ContentUnflushed));
            }
            Act::Report => {
                self.ghost.reported = Some(fence);
                self.finish(writer);
            }
        }
    }
}

/// Gives a file its name. If its bytes were not flushed before, a power cut may leave the name with half of them.
fn put(states: &mut Vec<FileState>, fence: Rc<Fence>, unflushed: bool) {
    let torn = unflushed.then_some(FileState::Torn);
    for state in torn.into_iter().chain([FileState::Of(fence)]) {
        states.retain(|known| *known != state);
        states.push(state);
    }
}

/// Flushes the directory: what every process sees is on the disk. The bytes of its files are not flushed by it.
fn flush(states: &mut Vec<FileState>, unflushed: bool) {
    let last = states.len() - 1;
    let torn = unflushed && states.contains(&FileState::Torn);
    states.drain(..last);
    if torn && states[0] != FileState::Torn {
        states.insert(0, FileState::Torn);
    }
}
