//! The guarded child, as the driver sees it: the keeper that runs it and the terminal it may need.

mod phase;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencepost_core::run::{Exit, Grant, Input, NotSpawned, Output};
use fencepost_core::time::Boot;
use fencepost_core::token::RunId;
use nix::libc::{EACCES, ENOENT, SIGCONT, SIGINT, SIGTSTP, SIGTTIN, SIGTTOU};

use self::phase::{ChildPhase, TreeState};
use crate::checks::Checks;
use crate::definition::JobDefinition;
use crate::drive::{GuardedWork, Note};
use crate::keeper::{self, Dismissed, Heard, Keeper, KeeperOrder, Report, Spawn, SpawnStep};
use crate::registry::{self, Registration};
use crate::report_file::{self, JobReport};
use crate::run_state::RunStateFile;
use crate::terminal::{self, Terminal};
use crate::upstream_check::{Pinned, UpstreamCheck};
use crate::without_keeper::CommandWithoutKeeper;

/// How long the wrapper waits for a silent keeper at the deadline before it kills the process tree itself: half the
/// grace, within these bounds. The other half is left for the kill.
const KEEPER_SILENCE_MIN: Duration = Duration::from_millis(50);
const KEEPER_SILENCE_MAX: Duration = Duration::from_secs(1);

/// A gap between two checks that is longer than this means that the machine or this process slept.
const SLEPT: Duration = Duration::from_secs(1);

/// Environment variables to set, or to remove if the value is `None`.
pub type Variables = Vec<(OsString, Option<OsString>)>;

/// Computes the child's environment from the grant, if there is one, and from the pinned copies.
pub type Environment = Box<dyn Fn(Option<&Grant>, &[Pinned]) -> Variables>;

/// How to start the child.
pub struct ChildPlan {
    pub argv: Vec<OsString>,
    /// A command that runs before the child, under the same lease.
    pub prepare: Option<Vec<OsString>>,
    /// The check of upstreams before the child starts and of artifacts after it has ended.
    pub check: Option<UpstreamCheck>,
    pub cwd: Option<OsString>,
    pub grace: Duration,
    pub leave_children: bool,
    /// The run is only observed: nothing stops the command, not even the death of its keeper.
    pub observe: bool,
    /// On a signal that asks the child to end, SIGKILL follows after the grace. Otherwise the signal is only passed on.
    pub ends_when_asked: bool,
    pub stdout: Option<OsString>,
    pub stderr: Option<OsString>,
    pub label: String,
    pub run: RunId,
    /// The file in which the job reports its outcome.
    pub said: PathBuf,
    /// The variables that depend on the grant.
    pub env: Environment,
    /// Where commands inside the run find these variables, if an agent strips the environment.
    pub registration: Option<Registration>,
    /// What hooks inside the run are told of it.
    pub state: Option<RunStateFile>,
    /// What the job's record keeps of its definition, if the run is good.
    pub definition: Option<JobDefinition>,
}

impl std::fmt::Debug for ChildPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChildPlan").field("argv", &self.argv).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct GuardedChild {
    plan: ChildPlan,
    /// `None` after the keeper died or was dismissed.
    keeper: Option<Keeper>,
    /// A keeper without a child. It exits while the driver makes the last swap.
    dismissed: Option<Dismissed>,
    /// The command of a run that is only observed, once its keeper has died.
    unkept: Option<CommandWithoutKeeper>,
    terminal: Option<Terminal>,
    phase: ChildPhase,
    group: Option<i32>,
    /// Set while this process and the child are stopped by job control. The child continues only after the lease is
    /// confirmed.
    suspended: Option<Suspended>,
    /// When the deadline was last checked.
    checked: Option<Boot>,
    /// When this process woke from a sleep that the keeper may not have noticed yet.
    awake_since: Option<Boot>,
    checks: Checks,
}

/// The state in which job control stopped this process and the child.
#[derive(Debug)]
struct Suspended {
    was_lent: bool,
}

impl GuardedChild {
    pub fn new(mut plan: ChildPlan, mut keeper: Keeper, terminal: Option<Terminal>) -> Self {
        keeper.get_ready();
        Self {
            checks: Checks::new(plan.check.take()),
            plan,
            keeper: Some(keeper),
            dismissed: None,
            unkept: None,
            terminal,
            phase: ChildPhase::Idle,
            group: None,
            suspended: None,
            checked: None,
            awake_since: None,
        }
    }

    /// Ends this process by SIGINT, as ctrl-C would have done without a handler: the calling script ends too, instead
    /// of running its next line. Does nothing without a terminal.
    pub fn end_like_ctrl_c(&self) {
        let _ = match &self.terminal {
            // The child runs in the foreground, so only the child got the signal.
            Some(_) if self.phase.is_foreground() => terminal::share(SIGINT),
            Some(terminal) if terminal.is_ours() => terminal::end_by(SIGINT),
            _ => Ok(()),
        };
    }

    fn order(&mut self, order: KeeperOrder) -> Vec<Input> {
        if let (Some(unkept), KeeperOrder::Signal(signal)) = (&self.unkept, &order) {
            unkept.send(*signal);
        }
        match self.keeper.as_mut().map(|keeper| keeper.send(&order)) {
            // The keeper is gone. Its last reports are read first, then its death is reported.
            Some(Err(error)) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                Vec::new()
            }
            Some(Err(_)) => self.keeper_died(),
            Some(Ok(())) | None => Vec::new(),
        }
    }

    fn spawn(&mut self, grant: Option<&Grant>, tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        let env = (self.plan.env)(grant, self.checks.inputs());
        self.work(grant.map(|grant| grant.deadline), env, tell)
    }

    /// Starts the `prepare` command. It does not get the terminal.
    fn prepare(&mut self, grant: Option<&Grant>, tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        let env = (self.plan.env)(grant, &[]);
        self.phase = ChildPhase::Preparing(TreeState::Running);
        self.start(grant.map(|grant| grant.deadline), env, tell)
    }

    /// Returns to the idle phase after the `prepare` command: the child is next.
    fn prepared(&mut self) {
        self.phase = ChildPhase::Idle;
        self.group = None;
    }

    /// Starts the child, in the terminal's foreground if this process owns the terminal.
    fn work(&mut self, deadline: Option<Boot>, env: Variables, tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        let foreground = self.terminal.as_ref().is_some_and(Terminal::is_for_reading);
        self.phase = ChildPhase::Working { tree: TreeState::Running, foreground };
        self.start(deadline, env, tell)
    }

    /// Orders the keeper to start the command of this phase.
    fn start(&mut self, deadline: Option<Boot>, env: Variables, tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        let is_preparing = self.phase.is_preparing();
        if let Some(text) = self.register(&env, tell) {
            self.phase = ChildPhase::Idle;
            return vec![Input::NotSpawned(NotSpawned { not_found: false, text })];
        }
        self.plan.state.iter_mut().for_each(|state| state.begin(deadline));
        let spawn = Spawn {
            label: self.plan.label.clone(),
            argv: self.running().to_vec(),
            env,
            cwd: self.plan.cwd.clone(),
            stdout: self.plan.stdout.clone(),
            stderr: self.plan.stderr.clone(),
            deadline,
            grace: self.plan.grace,
            foreground: self.phase.is_foreground(),
            leave_children: (self.plan.leave_children || self.plan.observe) && !is_preparing,
            more_to_come: is_preparing,
            observed: self.plan.observe,
        };
        if self.keeper.is_none() && self.plan.observe {
            return self.start_without_keeper(&spawn);
        }
        self.order(KeeperOrder::Spawn(Box::new(spawn)))
    }

    /// Writes the entry by which commands inside the run find it. Returns why the run must not start without one.
    fn register(&self, env: &Variables, tell: &mut dyn FnMut(Note)) -> Option<String> {
        let error = self.plan.registration.as_ref()?.write(env).err()?;
        let trouble = registry::judge_unwritten(&error, self.plan.observe);
        trouble.map(|trouble| tell(Note::Unregistered(trouble))).err()
    }

    /// Kills the process tree that the kernel handed to this process when the keeper died.
    fn keeper_died(&mut self) -> Vec<Input> {
        let Some(keeper) = self.keeper.take() else { return Vec::new() };
        if self.plan.observe {
            return self.adopt(keeper);
        }
        let escaped = keeper.sweep();
        self.take_terminal_back(true);
        vec![self.said(&mut |_| {}), Input::KeeperDied { escaped: named(&escaped) }]
    }

    /// Leaves an observed command running after its keeper died, and waits for it. A command that has not started yet
    /// starts without a keeper.
    fn adopt(&mut self, keeper: Keeper) -> Vec<Input> {
        let orphan = keeper.bury();
        if self.phase == ChildPhase::Idle {
            return Vec::new();
        }
        match orphan.and_then(|pid| CommandWithoutKeeper::adopt(pid).ok()) {
            Some(unkept) => self.unkept = Some(unkept),
            None => return vec![self.said(&mut |_| {}), Input::KeeperDied { escaped: Vec::new() }],
        }
        Vec::new()
    }

    fn start_without_keeper(&mut self, spawn: &Spawn) -> Vec<Input> {
        match CommandWithoutKeeper::start(spawn) {
            Ok(unkept) => self.unkept = Some(unkept),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                let text = cannot_run(self.running().first(), errno, &error.to_string());
                return vec![Input::NotSpawned(NotSpawned { not_found: errno == ENOENT, text })];
            }
        }
        vec![Input::Spawned]
    }

    fn hear_without_keeper(&mut self, tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        let Some(ended) = self.unkept.as_ref().and_then(CommandWithoutKeeper::ended) else { return Vec::new() };
        self.unkept = None;
        if self.phase.is_preparing() {
            self.prepared();
        } else {
            self.take_terminal_back(true);
        }
        let said = self.said(tell);
        match ended {
            Some(exit) => vec![Input::ChildEnded(exit), said, Input::TreeEmpty { escaped: Vec::new() }],
            None => vec![said, Input::KeeperDied { escaped: Vec::new() }],
        }
    }

    fn report(&mut self, report: Report, tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        match report {
            Report::Spawned { pid } => {
                self.group = Some(pid);
                if let (true, Some(terminal)) = (self.phase.is_foreground(), &mut self.terminal) {
                    let _ = terminal.lend(pid);
                }
                tell(Note::Spawned { pid });
                vec![Input::Spawned]
            }
            Report::Stale => {
                self.phase = ChildPhase::Idle;
                vec![Input::Stale]
            }
            Report::NotSpawned { step, errno, text } => self.not_spawned(step, errno, &text),
            Report::ChildStopped { signal } => {
                self.phase = self.phase.with(TreeState::stop);
                self.child_stopped(signal)
            }
            Report::ChildContinued => {
                self.phase = self.phase.with(TreeState::go_on);
                Vec::new()
            }
            Report::Frozen => {
                self.phase = self.phase.with(TreeState::reach_deadline);
                vec![Input::Frozen]
            }
            Report::DeadlineReached => {
                self.phase = self.phase.with(TreeState::reach_deadline);
                vec![Input::DeadlineReached]
            }
            Report::ChildEnded { exit } => {
                self.phase = self.phase.with(TreeState::end);
                self.take_terminal_back(matches!(exit, keeper::JobExit::Signal(_)));
                vec![Input::ChildEnded(match exit {
                    keeper::JobExit::Code(code) => Exit::Code(code),
                    keeper::JobExit::Signal(signal) => Exit::Signal(signal),
                })]
            }
            Report::LeftOvers { processes } => {
                tell(Note::LeftOvers(named(&processes)));
                Vec::new()
            }
            Report::Empty { escaped } if self.phase.is_preparing() && escaped.is_empty() => {
                self.prepared();
                vec![self.said(tell), Input::TreeEmpty { escaped: Vec::new() }]
            }
            Report::Empty { escaped } => {
                self.dismissed = self.keeper.take().map(Keeper::dismiss);
                vec![self.said(tell), Input::TreeEmpty { escaped: named(&escaped) }]
            }
        }
    }

    fn not_spawned(&mut self, step: SpawnStep, errno: i32, text: &str) -> Vec<Input> {
        let not_found = step == SpawnStep::Command && errno == ENOENT;
        let text = match step {
            SpawnStep::Directory => format!("Cannot enter its directory: {text}"),
            SpawnStep::Output => format!("Cannot open the file for its output: {text}"),
            SpawnStep::Command => cannot_run(self.running().first(), errno, text),
        };
        self.take_terminal_back(false);
        if self.phase.is_preparing() {
            self.prepared();
        }
        vec![Input::NotSpawned(NotSpawned { not_found, text })]
    }

    /// The command of this phase.
    fn running(&self) -> &[OsString] {
        if self.phase.is_preparing() { self.plan.prepare.as_deref().unwrap_or_default() } else { &self.plan.argv }
    }

    /// Reads the job's report after its last process has ended. Reports lines that cannot be trusted.
    fn said(&self, tell: &mut dyn FnMut(Note)) -> Input {
        self.plan.state.iter().for_each(RunStateFile::remove);
        let JobReport { said, troubles, unreadable } = report_file::collect(&self.plan.said, self.plan.run);
        if !troubles.is_empty() {
            tell(Note::Untrusted(troubles));
        }
        let definition = self.plan.definition.as_ref().map(|definition| Box::new(definition.digests()));
        Input::Said { said, unreadable, definition }
    }

    /// Gives the terminal to a child that asks for it, if this process owns it. If ctrl-Z stopped the child, stops this
    /// process too, as the shell that waits for it expects.
    fn child_stopped(&mut self, signal: i32) -> Vec<Input> {
        let wants_terminal = matches!(signal, SIGTTIN | SIGTTOU);
        if wants_terminal && self.terminal.as_ref().is_some_and(Terminal::is_ours) && self.lend_terminal() {
            return self.order(KeeperOrder::Signal(SIGCONT));
        }
        if wants_terminal || self.terminal.as_ref().is_some_and(Terminal::is_lent) {
            return self.suspend(signal);
        }
        Vec::new()
    }

    fn lend_terminal(&mut self) -> bool {
        match (&mut self.terminal, self.group) {
            (Some(terminal), Some(group)) => terminal.lend(group).is_ok(),
            _ => false,
        }
    }

    fn take_terminal_back(&mut self, restore: bool) {
        if let Some(terminal) = &mut self.terminal {
            let _ = terminal.take_back(restore);
        }
    }

    fn suspend(&mut self, signal: i32) -> Vec<Input> {
        let was_lent = self.terminal.as_ref().is_some_and(Terminal::is_lent);
        self.suspended = Some(Suspended { was_lent });
        self.take_terminal_back(false);
        let _ = terminal::share(signal);
        vec![Input::Woke]
    }

    /// Sends the keeper its new deadline. The lease is confirmed, so a suspended child continues.
    fn renew(&mut self, deadline: Boot, order: KeeperOrder) -> Vec<Input> {
        self.phase = self.phase.with(TreeState::renew);
        self.plan.state.iter_mut().for_each(|state| state.extend(deadline));
        let mut inputs = self.order(order);
        inputs.extend(self.resume());
        inputs
    }

    fn end(&mut self, order: KeeperOrder) -> Vec<Input> {
        self.phase = self.phase.with(TreeState::end);
        self.tell_stopping();
        self.order(order)
    }

    fn tell_stopping(&mut self) {
        self.plan.state.iter_mut().for_each(|state| state.stopping("the run was asked to stop"));
    }

    /// Continues a child that was suspended together with this process.
    fn resume(&mut self) -> Vec<Input> {
        let Some(suspended) = self.suspended.take() else { return Vec::new() };
        // `bg` continues this process in the background. The child stays there too, until it asks for the terminal.
        if suspended.was_lent && self.terminal.as_ref().is_some_and(Terminal::is_ours) {
            self.lend_terminal();
        }
        self.order(KeeperOrder::Signal(SIGCONT))
    }
}

impl GuardedWork for GuardedChild {
    fn perform(&mut self, output: Output, tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        match output {
            Output::Prepare { grant } => self.prepare(grant.as_ref(), tell),
            Output::Inspect { grant } => self.checks.inspect(grant.as_ref()),
            Output::Spawn { grant } => self.spawn(grant.as_ref(), tell),
            Output::Survey => self.checks.survey(),
            Output::Extend(deadline) => self.renew(deadline, KeeperOrder::Deadline(deadline)),
            Output::Thaw(deadline) => self.renew(deadline, KeeperOrder::Thaw(deadline)),
            Output::Stop => self.end(KeeperOrder::Stop),
            Output::Kill => self.end(KeeperOrder::Kill),
            Output::Forward(_) if self.plan.ends_when_asked => self.end(KeeperOrder::Stop),
            Output::Forward(signal) => {
                self.tell_stopping();
                let mut inputs = self.order(KeeperOrder::Signal(signal));
                // A stopped child does not handle SIGTERM until it continues.
                if self.phase.tree() == Some(TreeState::Stopped) {
                    inputs.extend(self.order(KeeperOrder::Signal(SIGCONT)));
                }
                inputs
            }
            Output::Call(_) | Output::Consult(_) | Output::Tell(_) | Output::Finish(_) => Vec::new(),
        }
    }

    fn hear(&mut self, tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        let mut inputs = self.checks.hear();
        inputs.extend(self.hear_without_keeper(tell));
        while let Some(keeper) = &mut self.keeper {
            match keeper.receive() {
                Heard::Report(report) => inputs.extend(self.report(report, tell)),
                Heard::Nothing | Heard::Left => break,
                Heard::Gone => inputs.extend(self.keeper_died()),
            }
        }
        inputs
    }

    fn signalled(&mut self, signal: i32, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        if self.phase == ChildPhase::Idle && signal != SIGTSTP {
            return Vec::new();
        }
        let mut inputs = self.order(KeeperOrder::Signal(signal));
        if signal == SIGTSTP {
            inputs.extend(self.suspend(signal));
        }
        inputs
    }

    /// Enforces the deadline in place of a keeper that is stopped or hangs.
    fn check(&mut self, deadline: Option<Boot>, now: Boot, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        if self.checked.replace(now).is_some_and(|before| now.since(before) > SLEPT) {
            self.awake_since = Some(now);
        }
        match deadline.and_then(|deadline| self.due(deadline)) {
            Some(due) if now >= due => self.keeper_died(),
            _ => Vec::new(),
        }
    }

    fn due(&self, deadline: Boot) -> Option<Boot> {
        let grace = self.plan.grace;
        let due = match self.phase.tree().filter(|_| self.keeper.is_some())? {
            TreeState::AtDeadline | TreeState::EndingAtDeadline => return None,
            TreeState::Ending => deadline + KEEPER_SILENCE_MAX,
            TreeState::Running | TreeState::Stopped => {
                deadline.before(grace) + (grace / 2).clamp(KEEPER_SILENCE_MIN, KEEPER_SILENCE_MAX)
            }
        };
        Some(self.awake_since.map_or(due, |since| due.max(since + KEEPER_SILENCE_MAX)))
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let keeper = self.keeper.as_ref().map(Keeper::fd);
        let unkept = self.unkept.as_ref().map(CommandWithoutKeeper::fd);
        keeper.into_iter().chain(unkept).chain(self.checks.fds()).collect()
    }
}

/// Says which command cannot be run, why, and the most likely remedy.
fn cannot_run(command: Option<&OsString>, errno: i32, text: &str) -> String {
    let command = command.cloned().unwrap_or_default();
    let path = Path::new(&command);
    let is_path = command.as_bytes().contains(&b'/');
    let advice = match errno {
        ENOENT if command.as_bytes().contains(&b' ') => {
            ". It is one word with a space in it; to have a shell split it, give it by -c"
        }
        ENOENT if !is_path => ". It was looked for in the directories of PATH; cron's PATH is short, so give its path",
        ENOENT if path.exists() => ". It exists, but the interpreter that its first line names does not",
        ENOENT if !path.is_absolute() => ". It was looked for from the job's working directory; give its absolute path",
        EACCES if path.is_file() => ". If it is a script or a program, make it executable: chmod +x",
        _ => "",
    };
    format!("Cannot run {:?}: {text}{advice}.", command.display().to_string())
}

fn named(processes: &[keeper::NamedProcess]) -> Vec<String> {
    processes.iter().map(|p| format!("{} (pid {}, uid {})", p.name, p.pid, p.uid)).collect()
}
