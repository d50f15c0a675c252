//! A run whose work a program does itself, in any language: the engine of `fencepost session` and of the SDK for Rust.
//!
//! The program orders ([`ProgramHandle`]), and learns what becomes of its lease ([`ProgramNews`]). There is no keeper and
//! nothing to kill, so a program that does not stop in time keeps its lease until the time-to-live is over: it is not
//! released, and not renewed.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use fencepost_core::run::{Event, Exit, Finish, Grant, Input, Output, Run, StopCause};
use fencepost_core::said::Said;
use fencepost_core::time::Boot;

use crate::checks::Checks;
use crate::clock;
use crate::drive::{Callee, DrivenRun, GuardedWork, Note};
use crate::local::Local;
use crate::upstream_check::{Pinned, UpstreamCheck};

/// What the ledger calls the program in the note of a run that it did not end in time.
const PROGRAM: &str = "the program that holds it";

/// What becomes of the lease.
#[derive(Clone, Debug)]
pub enum ProgramNews {
    /// The work may begin. The inputs are pinned copies of what the upstreams left.
    Granted {
        grant: Grant,
        inputs: Vec<Pinned>,
    },
    /// The lease is confirmed until a new deadline.
    Renewed {
        renewals: u64,
        deadline: Boot,
    },
    RenewalFailed {
        message: String,
    },
    /// The program is asked to end its work, and has until then. The lease is renewed meanwhile.
    Stop {
        why: StopCause,
        until: Boot,
    },
    /// The lease is no longer renewed, and will pass on or has. The program must not write any more.
    Lost {
        why: LossCause,
    },
}

/// Why a lease is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// The run decided it: no renewal was confirmed in time, or the record names another run.
    Decided(StopCause),
    /// The program was asked to stop and did not end within its grace.
    NotStopped,
}

impl LossCause {
    /// A short sentence without its end, for people.
    pub fn note(&self) -> String {
        match self {
            Self::Decided(cause) => cause.note().trim_start_matches("stopped: ").to_string(),
            Self::NotStopped => "the program was asked to stop and did not end within its grace".to_string(),
        }
    }
}

/// Receives the news, on the thread that drives the run. It must not block: the lease is renewed on the same thread.
pub type NewsSink = Arc<dyn Fn(ProgramNews) + Send + Sync>;

enum ProgramOrder {
    Said(Said),
    End(Exit),
    Cancel,
}

/// The program's side: reports while it works, and the end of the work.
#[derive(Clone)]
pub struct ProgramHandle {
    orders: Sender<ProgramOrder>,
    bell: Arc<UnixStream>,
}

impl std::fmt::Debug for ProgramHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProgramHandle").finish_non_exhaustive()
    }
}

impl ProgramHandle {
    /// Reports something that the last swap of the run records: a publish, an outcome, what a gate let through.
    pub fn say(&self, said: Said) {
        self.order(ProgramOrder::Said(said));
    }

    /// Ends the work. The last swap records how, and releases the lease. An order after the end of the run has no effect.
    pub fn end(&self, exit: Exit) {
        self.order(ProgramOrder::End(exit));
    }

    /// Gives up a claim that is not granted yet. A lease that the store grants at the same moment is released.
    pub fn cancel(&self) {
        self.order(ProgramOrder::Cancel);
    }

    fn order(&self, order: ProgramOrder) {
        if self.orders.send(order).is_ok() {
            // A full pipe rings already.
            let _ = (&*self.bell).write(&[1]);
        }
    }
}

/// The work of a program, as the driver sees it.
pub struct ProgramWork {
    orders: Receiver<ProgramOrder>,
    bell: UnixStream,
    checks: Checks,
    grace: Duration,
    news: NewsSink,
    state: ProgramState,
}

impl std::fmt::Debug for ProgramWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProgramWork").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgramState {
    /// The lease is not granted yet.
    Claiming,
    Working,
    /// It was asked to stop, and has until then.
    Stopping {
        until: Boot,
    },
    Ended,
}

impl ProgramWork {
    /// `grace` is how long the program has to end its work once it must: it is told that its lease is lost this much before
    /// the lease can pass on.
    pub fn new(
        check: Option<UpstreamCheck>,
        grace: Duration,
        news: NewsSink,
    ) -> std::io::Result<(Self, ProgramHandle)> {
        let (bell, rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        rope.set_nonblocking(true)?;
        let (sender, orders) = channel();
        let program = Self { orders, bell, checks: Checks::new(check), grace, news, state: ProgramState::Claiming };
        Ok((program, ProgramHandle { orders: sender, bell: Arc::new(rope) }))
    }

    /// Drives a run to its end. `tell` hears what people and programs are told of a run.
    pub fn drive(self, run: Run, store: Callee, local: &Local, tell: &mut dyn FnMut(Note)) -> Finish {
        ProgramRun::new(self, run, store).finish(local, tell)
    }

    /// Begins the work, unless the lease has to be confirmed first.
    fn begin(&mut self, grant: Option<Grant>) -> Vec<Input> {
        let Some(grant) = grant else { return vec![Input::Spawned] };
        if grant.deadline.before(self.grace) <= clock::boot_now() {
            return vec![Input::Stale];
        }
        if self.is_given_up() {
            self.state = ProgramState::Ended;
            return vec![Input::GivenUp];
        }
        self.state = ProgramState::Working;
        (self.news)(ProgramNews::Granted { grant, inputs: self.checks.inputs().to_vec() });
        vec![Input::Spawned]
    }

    /// Ends the work from the program's side.
    fn end(&mut self, exit: Exit) -> Vec<Input> {
        match std::mem::replace(&mut self.state, ProgramState::Ended) {
            ProgramState::Claiming | ProgramState::Ended => Vec::new(),
            ProgramState::Working | ProgramState::Stopping { .. } => {
                vec![Input::ChildEnded(exit), Input::TreeEmpty { escaped: Vec::new() }]
            }
        }
    }

    /// Ends a claim that the program gives up. It does so only before it has heard of a grant, so it has not begun to work.
    fn cancel(&mut self) -> Vec<Input> {
        match std::mem::replace(&mut self.state, ProgramState::Ended) {
            ProgramState::Ended => Vec::new(),
            ProgramState::Claiming | ProgramState::Working | ProgramState::Stopping { .. } => vec![Input::GivenUp],
        }
    }

    /// Whether the program has given up while the store granted the lease. No other order can come before the grant is told.
    fn is_given_up(&self) -> bool {
        matches!(self.orders.try_recv(), Ok(ProgramOrder::Cancel))
    }

    /// The program has not ended in time. It may still be at work, so the lease is not released.
    fn leave(&mut self) -> Vec<Input> {
        self.state = ProgramState::Ended;
        vec![Input::TreeEmpty { escaped: vec![PROGRAM.to_string()] }]
    }

    fn obey(&mut self, order: ProgramOrder) -> Vec<Input> {
        match order {
            ProgramOrder::Said(said) => vec![Input::Said { said: vec![said], unreadable: None, definition: None }],
            ProgramOrder::End(exit) => self.end(exit),
            ProgramOrder::Cancel => self.cancel(),
        }
    }

    /// When the work must have ended.
    fn ends_by(&self, deadline: Boot) -> Option<Boot> {
        let last = deadline.before(self.grace);
        match self.state {
            ProgramState::Claiming | ProgramState::Ended => None,
            ProgramState::Working => Some(last),
            ProgramState::Stopping { until } => Some(until.min(last)),
        }
    }
}

/// The news of a decision of the run. That the deadline was reached or the lease is another's ends it; everything else leaves
/// the program its grace.
fn told(event: &Event, grace: Duration) -> Option<ProgramNews> {
    match event {
        Event::Renewed { renewals, deadline } => {
            Some(ProgramNews::Renewed { renewals: *renewals, deadline: *deadline })
        }
        Event::RenewalFailed { error } => Some(ProgramNews::RenewalFailed { message: error.detail.clone() }),
        Event::Stopping(why @ (StopCause::Timeout | StopCause::Replaced(_))) => {
            Some(ProgramNews::Stop { why: why.clone(), until: clock::boot_now() + grace })
        }
        Event::Stopping(why) => Some(ProgramNews::Lost { why: LossCause::Decided(why.clone()) }),
        _ => None,
    }
}

/// The run of a program, which one thread may claim and another drive on.
#[derive(Debug)]
pub struct ProgramRun {
    work: ProgramWork,
    driven: DrivenRun,
}

impl ProgramRun {
    pub fn new(work: ProgramWork, run: Run, store: Callee) -> Self {
        Self { work, driven: DrivenRun::new(run, store) }
    }

    /// Drives the run until the work may begin. Returns how it ended, if it may not.
    pub fn claim(&mut self, local: &Local, tell: &mut dyn FnMut(Note)) -> Option<Finish> {
        self.go_on(local, tell, Run::is_running)
    }

    /// Drives the run to its end.
    pub fn finish(&mut self, local: &Local, tell: &mut dyn FnMut(Note)) -> Finish {
        loop {
            if let Some(finish) = self.go_on(local, tell, |_| false) {
                return finish;
            }
        }
    }

    fn go_on(&mut self, local: &Local, tell: &mut dyn FnMut(Note), is_enough: impl Fn(&Run) -> bool) -> Option<Finish> {
        let (news, grace) = (Arc::clone(&self.work.news), self.work.grace);
        let mut tell = |note: Note| {
            if let Note::Event(event) = &note
                && let Some(told) = told(event, grace)
            {
                news(told);
            }
            tell(note);
        };
        self.driven.go_on(local, None, &mut self.work, &mut tell, is_enough)
    }

    /// When the run has to be driven again, if the program gives no order before.
    pub fn due(&self) -> Option<Boot> {
        self.driven.due(&self.work)
    }
}

impl GuardedWork for ProgramWork {
    fn perform(&mut self, output: Output, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        match output {
            Output::Spawn { grant } => self.begin(grant),
            Output::Inspect { grant } => self.checks.inspect(grant.as_ref()),
            Output::Survey => self.checks.survey(),
            Output::Stop if self.state == ProgramState::Working => {
                self.state = ProgramState::Stopping { until: clock::boot_now() + self.grace };
                Vec::new()
            }
            // The lease has passed on. What the program still does, the fence refuses.
            Output::Kill => self.end(Exit::Code(0)),
            Output::Stop | Output::Forward(_) | Output::Extend(_) | Output::Thaw(_) => Vec::new(),
            // A program has no command to prepare.
            Output::Prepare { .. } => Vec::new(),
            Output::Call(_) | Output::Consult(_) | Output::Tell(_) | Output::Finish(_) => Vec::new(),
        }
    }

    fn hear(&mut self, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        let mut inputs = self.checks.hear();
        while matches!(self.bell.read(&mut [0; 256]), Ok(read) if read > 0) {}
        while let Ok(order) = self.orders.try_recv() {
            inputs.extend(self.obey(order));
        }
        inputs
    }

    fn signalled(&mut self, _signal: i32, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        Vec::new()
    }

    /// There is no keeper: the program learns of the loss before the lease can pass on.
    fn check(&mut self, deadline: Option<Boot>, now: Boot, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        if deadline.and_then(|deadline| self.ends_by(deadline)).is_none_or(|by| now < by) {
            return Vec::new();
        }
        let mut inputs = match self.state {
            // A run that was already asked to stop keeps its cause.
            ProgramState::Stopping { .. } => {
                (self.news)(ProgramNews::Lost { why: LossCause::NotStopped });
                Vec::new()
            }
            _ => vec![Input::DeadlineReached],
        };
        inputs.extend(self.leave());
        inputs
    }

    fn due(&self, deadline: Boot) -> Option<Boot> {
        self.ends_by(deadline)
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.checks.fds().chain([self.bell.as_fd()]).collect()
    }

    fn is_alone(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use fencepost_core::lease::Claim;
    use fencepost_core::ledger::{Status, Trigger};
    use fencepost_core::name::{Job, Name};
    use fencepost_core::run::{Kept, Overlap, Stages, Terms};
    use fencepost_core::slot::Choice;
    use fencepost_core::token::RunId;
    use fencepost_store::layer::{Faulty, InjectedFault};
    use fencepost_store::{MemoryStore, Store};

    use super::*;
    use crate::host::Host;
    use crate::transact::look;

    fn terms(job: &Job) -> Terms {
        let claim = Claim {
            run: RunId(uuid::Uuid::now_v7()),
            ttl: Duration::from_secs(600),
            holder: Host::this().holder_of_program(),
            slot: Choice::At(clock::wall_now()),
            zone: "UTC".to_string(),
            trigger: Trigger::Manual,
        };
        Terms {
            job: job.clone(),
            claim,
            grace: Duration::from_secs(10),
            overlap: Overlap::Skip,
            wait: None,
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

    /// A claim that its program gives up before its swap, or at the moment of its grant.
    fn drive_given_up(store: &Arc<Faulty<MemoryStore>>, job: &Job, is_granted: bool) -> Finish {
        let directory = tempfile::tempdir().unwrap();
        let local = Local::new(directory.path(), Host::this());
        let own: Arc<std::sync::OnceLock<ProgramHandle>> = Arc::default();
        let sink: NewsSink = {
            let own = Arc::clone(&own);
            Arc::new(move |news| {
                if matches!(news, ProgramNews::Granted { .. }) {
                    own.wait().cancel();
                }
            })
        };
        let (work, handle) = ProgramWork::new(None, Duration::from_secs(10), sink).unwrap();
        if !is_granted {
            handle.cancel();
        }
        own.set(handle).unwrap();
        let callee = Callee { store: Arc::clone(store) as Arc<dyn Store>, is_prompt: false };
        work.drive(Run::new(terms(job)), callee, &local, &mut |_| {})
    }

    fn given_up(swap_takes: Duration, is_granted: bool) {
        let job = Job::shared(Name::new("j").unwrap());
        let store = Arc::new(Faulty::new(MemoryStore::new()));
        // The first claim of a store also writes the store's id.
        drive_given_up(&store, &job, is_granted);
        store.on_swaps([InjectedFault::Delay(swap_takes)]);
        let finish = drive_given_up(&store, &job, is_granted);
        assert_eq!(finish, Finish::GivenUp { recorded: Kept::Recorded });
        let record = look(store.as_ref(), &job).unwrap().0.unwrap();
        let last = record.ledger.last().unwrap();
        assert!(record.lease.is_none(), "{record:?}");
        assert_eq!((last.status, last.unstarted, last.tries.unwrap_or_default()), (Status::Error, true, 0));
        assert_eq!(last.note.as_deref(), Some("the program gave up its claim before it began"));
    }

    #[test]
    fn a_lease_that_a_slow_store_grants_after_the_claim_was_given_up_is_released() {
        given_up(Duration::from_secs(3), false);
    }

    #[test]
    fn a_claim_that_is_given_up_at_the_moment_of_its_grant_uses_no_attempt() {
        given_up(Duration::ZERO, true);
    }
}
