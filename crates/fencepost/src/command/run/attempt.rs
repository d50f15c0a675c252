//! One attempt at a run, in phases: prepare its files and store, claim, drive it to its end, settle, report it, decide
//! whether another attempt follows.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use fencepost_core::lease::{Claim, Honest};
use fencepost_core::ledger::{Status, Trigger};
use fencepost_core::name::Job;
use fencepost_core::record::Holder;
use fencepost_core::run::Run;
use fencepost_core::slot::{Choice, LeaseState};
use fencepost_core::token::RunId;
use fencepost_core::waiting::WaitingRun;
use fencepost_guard::child::{ChildPlan, GuardedChild};
use fencepost_guard::definition::JobDefinition;
use fencepost_guard::drive::{Note, drive};
use fencepost_guard::keeper::Keeper;
use fencepost_guard::pin::Pins;
use fencepost_guard::registry::{self, Registration};
use fencepost_guard::run_state::{RunStateFile, ToolRules};
use fencepost_guard::signals::Signals;
use fencepost_guard::terminal::Terminal;
use fencepost_guard::transact::{Unsettled, look, settle};
use fencepost_guard::{clock, retention};
use fencepost_store::Store;
use fencepost_view::event::{RunEnd, RunEvent};
use fencepost_view::run_end::RunContext;
use fencepost_view::summary::Summary;
use nix::libc::SIGINT;

use super::again::{Again, Before, Next};
use super::capture::{Capture, keep_files};
use super::environment::environment;
use super::listener::{ClaimedSlot, Listener};
use super::output::RunOutput;
use super::{check, opened, terms};
use crate::args::Global;
use crate::command::hook::{GUARD_COMMANDS, session};
use crate::config;
use crate::drift;
use crate::events::Events;
use crate::exit::{Code, Failure};
use crate::inside;
use crate::notify::Teller;
use crate::options::{Given, OnUnknownInput};
use crate::place::Place;
use crate::report::{self, Voice};
use crate::settings::Settings;

/// One attempt, as requested.
pub struct RunAttempt<'a> {
    pub global: &'a Global,
    pub settings: Settings,
    pub place: Place,
    pub job: Job,
    pub run: RunId,
    pub again: Again,
}

/// The result of an attempt.
pub struct AttemptEnd {
    pub code: Code,
    pub summary: Summary,
    pub(super) next: Option<Next>,
    pub(super) child: GuardedChild,
    is_interrupted: bool,
}

impl AttemptEnd {
    /// Ends this process by SIGINT if ctrl-C ended the run. Call it after everything is recorded and printed.
    pub fn share_ctrl_c(&self) {
        if self.is_interrupted {
            report::flush();
            self.child.end_like_ctrl_c();
        }
    }
}

/// What an attempt uses, once everything is prepared.
struct Prepared {
    begun: Instant,
    signals: Signals,
    store: Arc<dyn Store>,
    output: Option<RunOutput>,
    capture: Option<Capture>,
    /// Keeps the copies of the inputs until the run has ended.
    _pins: Option<Pins>,
    holder: Holder,
    child: GuardedChild,
}

impl RunAttempt<'_> {
    pub fn guard(self, events: &mut Events, mut teller: Option<&mut Teller>) -> Result<AttemptEnd, Failure> {
        let mut prepared = self.prepare()?;
        let (mut summary, claimed) = self.drive(&mut prepared, events, teller.as_deref_mut());
        summary.last_output = self.show_output(&mut prepared, &summary, claimed);
        let in_a_row = self.settle(&prepared, &summary);
        events.end(&events.line(RunEvent::Ended(RunEnd::of(&summary))));
        let next = self.next(&prepared, &summary, claimed);
        if let Some(teller) = teller {
            match next.as_ref().is_some_and(Next::is_retry) {
                true => teller.retry(&summary),
                false => teller.end(&summary, self.again.retries_done(), in_a_row),
            }
        }
        if claimed.is_some_and(|claimed| retention::is_due(claimed.grants)) {
            let voice = if self.global.verbose { self.voice() } else { Voice::Nothing };
            look_after(prepared.store.as_ref(), &self.job, voice);
            registry::prune(&self.place.host);
        }
        Ok(self.outcome(prepared, summary, next))
    }

    fn voice(&self) -> Voice {
        Voice::of(self.global)
    }

    /// Starts the keeper, opens the store and creates the files of the run.
    fn prepare(&self) -> Result<Prepared, Failure> {
        let Self { settings, place, job, run, .. } = self;
        // The keeper is forked before the store is opened: no database handle crosses a fork, and no thread exists yet.
        let keeper = Keeper::start().map_err(|error| Failure::Other(format!("Cannot start the keeper: {error}")))?;
        let terminal = Terminal::detect();
        let begun = Instant::now();
        let signals =
            Signals::listen().map_err(|error| Failure::Other(format!("Cannot listen to signals: {error}")))?;
        let store = opened(place, settings)?;
        let output = RunOutput::prepare(settings, place, *run)?;
        let capture = Capture::prepare(settings, place, job, *run).unwrap_or_else(|error| {
            self.voice().warn(&format!("{job}: its output cannot be logged: {error}. The job runs anyway."));
            None
        });
        let pins =
            (!settings.needs.is_empty()).then(|| Pins::new(&place.state, *run)).transpose().map_err(|error| {
                Failure::Other(format!(
                    "Cannot make a place for what the job reads in {}: {error}",
                    place.state.display()
                ))
            })?;
        let inside = inside::runs();
        let holder = Holder { inside, ..place.host.holder(std::process::id() as i32, keeper.mark()) };
        let plan = self.plan(&store, output.as_ref(), capture.as_ref(), pins.as_ref(), &holder)?;
        let child = GuardedChild::new(plan, keeper, terminal);
        Ok(Prepared { begun, signals, store, output, capture, _pins: pins, holder, child })
    }

    /// Builds the plan to start the command.
    fn plan(
        &self,
        store: &Arc<dyn Store>,
        output: Option<&RunOutput>,
        capture: Option<&Capture>,
        pins: Option<&Pins>,
        holder: &Holder,
    ) -> Result<ChildPlan, Failure> {
        let Self { settings, place, job, run, .. } = self;
        let kept = |path: fn(&Capture) -> &PathBuf| capture.map(|capture| OsString::from(path(capture)));
        let held_back = |path: fn(&RunOutput) -> &PathBuf| output.map(|output| OsString::from(path(output)));
        Ok(ChildPlan {
            argv: settings.argv.clone(),
            prepare: settings.options.prepare.as_ref().map(|prepare| prepare.value.argv()),
            check: check(settings, place, store, pins, Some(self.waiting(holder)))?,
            cwd: settings.working_directory.clone().map(PathBuf::into_os_string),
            grace: settings.grace,
            leave_children: settings.options.leave_children(),
            observe: settings.options.observe(),
            ends_when_asked: config::is_under_up(),
            stdout: held_back(|output| &output.stdout).or_else(|| kept(|capture| &capture.stdout)),
            stderr: held_back(|output| &output.stderr).or_else(|| kept(|capture| &capture.stderr)),
            label: job.to_string(),
            run: *run,
            said: place.said(*run),
            env: environment(place, settings, job, *run),
            registration: self.registration(holder),
            definition: self.definition(),
            state: Some(RunStateFile::beside(&place.said(*run), *run, settings.grace, tool_rules(settings))),
        })
    }

    /// The definition of a job of the configuration. A session has no command.
    fn definition(&self) -> Option<JobDefinition> {
        let Self { settings, place, job, .. } = self;
        let config = place.config.as_ref().filter(|_| settings.is_configured && settings.session.is_none())?;
        let command: Vec<String> = settings.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Some(drift::definition(config, &job.name, &command))
    }

    /// Where commands inside the run find it. The commands of a session are descendants of its agent, not of this run.
    fn registration(&self, holder: &Holder) -> Option<Registration> {
        let registration = Registration::of_run(&self.place.host, holder, self.run, &self.place.state)?;
        let session = self.settings.session.as_ref().and_then(|path| session::read(path).ok());
        Some(match session.and_then(|session| session.agent) {
            Some(agent) => registration.of_session(agent),
            None => registration,
        })
    }

    /// This run while it waits for its lease.
    fn waiting(&self, holder: &Holder) -> WaitingRun {
        let Self { settings, place, job, run, .. } = self;
        let since = clock::now().wall;
        WaitingRun {
            store: place.shown_store(),
            job: job.to_string(),
            run: *run,
            holder: holder.clone(),
            waits_for: vec![job.to_string()],
            then: None,
            since,
            until: settings.options.wait.value().map(|wait| since + wait),
        }
    }

    fn claim(&self, holder: Holder) -> Claim {
        let Self { settings, run, again, .. } = self;
        // What a session's agent leaves running may outlive this process: its lease ends by its time-to-live.
        let holder = if settings.session.is_some() { Holder { processes: None, ..holder } } else { holder };
        Claim {
            run: *run,
            ttl: settings.ttl,
            holder,
            slot: again.choice(settings, clock::now().wall),
            zone: settings.zone.name().to_string(),
            trigger: Trigger::Manual,
        }
    }

    /// Claims the lease, runs the command under it and records its end.
    fn drive(
        &self,
        prepared: &mut Prepared,
        events: &mut Events,
        teller: Option<&mut Teller>,
    ) -> (Summary, Option<ClaimedSlot>) {
        let Self { settings, place, job, .. } = self;
        let Prepared { signals, store, capture, holder, child, .. } = prepared;
        let run = Run::new(terms(settings, job.clone(), self.claim(holder.clone())));
        let mut listener = Listener {
            attempt: self,
            store: store.as_ref(),
            capture: capture.as_ref(),
            events,
            teller,
            claimed: None,
            awake: None,
            waiting: self.waiting(holder),
            mark: None,
        };
        let mut tell = |note: Note| listener.hear(&note);
        let finish = drive(run, place.callee(store), &place.local(), Some(signals), child, &mut tell);
        let asked =
            RunContext { job, skip_exit: settings.options.skip_exit(), now: clock::now().wall, zone: &settings.zone };
        (asked.summary(finish), listener.claimed)
    }

    /// Keeps the command's output, and shows held-back output if the command failed. Returns the last lines of a failed
    /// command, if its output is kept.
    fn show_output(&self, prepared: &mut Prepared, summary: &Summary, claimed: Option<ClaimedSlot>) -> Vec<String> {
        let Self { settings, place, job, run, .. } = self;
        let mut lines = prepared.capture.take().map(Capture::finish).unwrap_or_default();
        if let Some(output) = prepared.output.take() {
            if let Some(ClaimedSlot { slot, .. }) = claimed {
                lines = keep_files(settings, place, job, *run, slot, [&output.stdout, &output.stderr]);
            }
            // Only a skip by the barrier has output: that of its prepare command.
            output.show_if(summary.code != 0 && summary.status != Status::SkippedBarrier);
        }
        lines.retain(|_| summary.is_explained_by_output());
        lines
    }

    /// Prints the result, and writes what the run's last swap could not record. Returns the number of consecutive
    /// overlaps.
    fn settle(&self, prepared: &Prepared, summary: &Summary) -> Option<u64> {
        let Self { place, job, run, .. } = self;
        let store = prepared.store.as_ref();
        self.voice().finish(&job.to_string(), summary);
        if self.global.json {
            report::finish_json(summary);
        }
        let left = Unsettled { refused: summary.unrecorded_refusal(), skip: summary.skip };
        settle(store, &place.local(), job, *run, &place.host.name, left).unwrap_or_else(|error| {
            self.voice().warn(&format!("{job} was skipped, but the skip could not be counted: {error}"));
            None
        })
    }

    /// Returns the attempt that follows, unless a signal asked the run to end.
    fn next(&self, prepared: &Prepared, summary: &Summary, claimed: Option<ClaimedSlot>) -> Option<Next> {
        let is_session = self.settings.session.is_some();
        if is_session || is_interrupted(summary) || prepared.signals.asked_to_end().is_some() {
            return None;
        }
        let before = Before { summary, slot: claimed.map(|claimed| claimed.slot), took: prepared.begun.elapsed() };
        self.again.next(&self.settings, &before, |choice| would_run(prepared.store.as_ref(), &self.job, choice))
    }

    /// Waits for the next attempt's backoff. A signal may interrupt it.
    fn outcome(&self, prepared: Prepared, summary: Summary, next: Option<Next>) -> AttemptEnd {
        let Prepared { mut signals, store, child, .. } = prepared;
        let (code, is_interrupted) = (self.again.code(&summary), is_interrupted(&summary));
        drop(store);
        match next.as_ref().map(|next| next.wait(&mut signals)) {
            Some(Err(signal)) => {
                let (code, is_interrupted) = (Code::of_signal(signal), signal == SIGINT);
                AttemptEnd { code, summary, next: None, child, is_interrupted }
            }
            _ => AttemptEnd { code, summary, next, child, is_interrupted },
        }
    }
}

/// Whether SIGINT ended the command, or ended the run before its command started.
fn is_interrupted(summary: &Summary) -> bool {
    summary.signal == Some(SIGINT)
}

/// Removes old entries of the job's history. If this fails, a later run does it.
pub fn look_after(store: &dyn Store, job: &Job, voice: Voice) {
    match retention::look_after(store, job) {
        Ok(0) => {}
        Ok(count) => voice.tell(&format!("{job}: removed {count} old entries of its history.")),
        Err(error) => voice.tell(&format!("{job}: old entries of its history could not be removed: {error}")),
    }
}

/// Whether a choice leads to a run now or soon. None if the store is unavailable.
fn would_run(store: &dyn Store, job: &Job, choice: &Choice) -> Option<bool> {
    let (record, clock) = look(store, job).ok()?;
    let now = clock.map_or_else(|| clock::now().wall, |clock| clock.wall);
    Some(choice.choose::<Honest>(record.as_ref(), LeaseState::Stands, now).is_ok())
}

/// What the hooks of agents inside a run go by.
pub(super) fn tool_rules(settings: &Settings) -> ToolRules {
    let options = &settings.options;
    let guarded = || GUARD_COMMANDS.map(str::to_string).to_vec();
    ToolRules {
        write_tools: options.write_tools.value().unwrap_or_default(),
        guard_commands: options.guard_commands.value().unwrap_or_else(guarded),
        must_report: options.must_record() || !settings.produces.is_empty(),
        pass_unknown: options.on_unknown_input() == OnUnknownInput::Pass,
        observe: options.observe(),
    }
}
