//! `fencepost up`: schedules the jobs of the configuration on this machine.
//!
//! It is only a trigger. At a slot's time it starts `fencepost run JOB`, which plans and claims inside the lease. Any
//! number of machines may do the same.

mod line;
mod lookout;
mod program;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use fencepost_core::agenda::{Agenda, AgendaAction, AgendaInput, End, Look, STEP_WITHIN, StartId, Told};
use fencepost_core::name::Name;
use fencepost_core::time::{Boot, Wall, millis};
use fencepost_guard::clock;
use fencepost_guard::signals::{ReceivedSignal, Signals};
use fencepost_guard::spawned_run::SpawnedRun;
use fencepost_view::ReasonCode;
use fencepost_view::event::{EventLine, RunEnd, RunEvent};
use fencepost_view::up::UpEvent;
use nix::errno::Errno;
use nix::libc::{SIGHUP, SIGTERM};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::line::{Printer, UpLine};
use self::lookout::Lookout;
use self::program::{Excerpt, Program};
use crate::args::{Global, UpOptions};
use crate::config::{EXCERPT_VARIABLE, FOUND_VARIABLE};
use crate::duration;
use crate::exit::{Code, Failure};
use crate::rehearsal;
use crate::show;

/// Default time to wait for running jobs when `up` is stopped.
const STOP_WITHIN: Duration = Duration::from_secs(60);

/// Polling interval of the configuration file.
const WATCH_EVERY: Duration = Duration::from_secs(2);

pub fn run(global: &Global, options: &UpOptions) -> Result<Code, Failure> {
    rehearsal::refuse("up")?;
    let cannot = |what: &str, error: io::Error| Failure::Other(format!("Cannot {what}: {error}"));
    let program = Program::load(global, &options.jobs)?;
    // Signals are handled before there is a thread that could receive one.
    let signals = Signals::of_daemon().map_err(|error| cannot("listen to signals", error))?;
    let lookout = Lookout::start().map_err(|error| cannot("start the thread that reads records", error))?;
    let binary = std::env::current_exe().map_err(|error| cannot("find this program", error))?;
    let now = clock::now();
    let agenda = match options.once {
        true => Agenda::once(program.tasks(), program.limits(), now),
        false => Agenda::new(program.tasks(), program.limits(), now),
    };
    let printer = Printer::new(global, &program);
    let mut up = Up {
        global,
        options,
        binary,
        program,
        agenda,
        signals,
        lookout,
        printer,
        children: BTreeMap::new(),
        watched: now.boot,
        stop: None,
        first_failure: Code::DONE,
        store_failed: false,
    };
    Ok(up.go_on())
}

struct Up<'a> {
    global: &'a Global,
    options: &'a UpOptions,
    binary: std::path::PathBuf,
    program: Program,
    agenda: Agenda,
    signals: Signals,
    lookout: Lookout,
    printer: Printer,
    children: BTreeMap<StartId, Running>,
    /// When the file was last checked.
    watched: Boot,
    stop: Option<Stop>,
    /// The first nonzero code of a run.
    first_failure: Code,
    store_failed: bool,
}

/// A run in progress.
struct Running {
    job: Name,
    process: SpawnedRun,
    /// Removed with the run.
    _excerpt: Excerpt,
    begun: Boot,
    slot: Option<String>,
    /// Its last event.
    ended: Option<RunEnd>,
    has_lease: bool,
}

/// A request to stop `up`.
struct Stop {
    until: Boot,
    /// Whether running jobs were also asked to end.
    is_final: bool,
}

impl Up<'_> {
    fn go_on(&mut self) -> Code {
        self.printer.print(&self.program.introduction(self.agenda.tasks()));
        self.program.broken(None).iter().for_each(|line| self.printer.print(line));
        self.step(AgendaInput::Tick);
        loop {
            if self.is_over() {
                self.printer.print(&UpLine::of_up(UpEvent::Stopped {}));
                return self.code();
            }
            self.printer.show_next(&self.agenda, self.children.len());
            self.nap();
            self.hear_signals();
            self.watch();
            for (job, look, next_in) in self.lookout.answers() {
                if let (Look::Failed { exit_code }, Code::DONE) = (&look, self.first_failure) {
                    self.first_failure = Code(u8::try_from(*exit_code).unwrap_or(Code::FAILED.0));
                }
                self.step(AgendaInput::Looked { job, look, next_in });
            }
            self.hear_children();
            self.keep_stop();
            self.step(AgendaInput::Tick);
        }
    }

    fn is_over(&self) -> bool {
        let is_done = self.options.once && (self.agenda.is_idle() || self.agenda.is_store_away());
        (self.stop.is_some() || is_done) && self.children.is_empty()
    }

    fn code(&self) -> Code {
        match self.options.once {
            true if self.first_failure == Code::DONE && self.store_failed => Code::FAILED,
            true if self.first_failure == Code::DONE && self.program.has_broken() => Code::USAGE,
            true => self.first_failure,
            false => Code::DONE,
        }
    }

    fn step(&mut self, input: AgendaInput) {
        for output in self.agenda.step(clock::now(), input) {
            match output {
                AgendaAction::Look(job) => self.lookout.look(self.program.request(&job, self.agenda.is_store_away())),
                AgendaAction::Start { job, id } => self.start(job, id),
                AgendaAction::Tell(told) => self.tell(&told),
            }
        }
    }

    fn start(&mut self, job: Name, id: StartId) {
        match self.try_start(&job, id) {
            Ok((process, excerpt)) => {
                let begun = clock::boot_now();
                let running =
                    Running { job, process, _excerpt: excerpt, begun, slot: None, ended: None, has_lease: true };
                self.children.insert(id, running);
            }
            Err(error) => {
                let event = UpEvent::NotStarted { message: error.to_string() };
                self.printer.print(&UpLine::of_job(&job, event));
                self.step(AgendaInput::Ended { id, end: End::NotStarted });
            }
        }
    }

    fn try_start(&self, job: &Name, id: StartId) -> io::Result<(SpawnedRun, Excerpt)> {
        let excerpt = self.program.excerpt(job, id)?;
        let process = SpawnedRun::start(self.command(job, &excerpt), |command, fd| {
            command.args(["--events", &format!("fd:{fd}")]);
        })?;
        Ok((process, excerpt))
    }

    /// Builds `run JOB` with the accepted configuration.
    fn command(&self, job: &Name, excerpt: &Excerpt) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("--config").arg(self.program.path()).arg("-q");
        if let Some(store) = &self.global.store {
            command.args(["--store", store]);
        }
        command.args(["run", job.as_str(), "--by-up"]).stdin(Stdio::null());
        command.env(EXCERPT_VARIABLE, &excerpt.path);
        if self.program.is_found() {
            command.env(FOUND_VARIABLE, self.program.path());
        }
        if self.program.keeps_output(job) {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        command
    }

    fn hear_children(&mut self) {
        let ids: Vec<StartId> = self.children.keys().copied().collect();
        for id in ids {
            let Some(running) = self.children.get_mut(&id) else { continue };
            // Its output is complete once it has ended.
            let ended = running.process.ended();
            let lines = running.process.lines();
            let told: Vec<UpLine> = lines.iter().filter_map(|line| running.note(line)).collect();
            told.iter().for_each(|line| self.printer.print(line));
            if let Some(code) = ended
                && let Some(running) = self.children.remove(&id)
            {
                self.ended(id, &running, code);
            }
        }
    }

    fn ended(&mut self, id: StartId, running: &Running, code: i32) {
        let end = running.end();
        self.store_failed |= matches!(end, End::Away(_));
        if !matches!(end, End::Away(_)) && running.ended.is_none() {
            self.printer.print(&UpLine::of_job(&running.job, UpEvent::Died { exit: code }));
        }
        if self.first_failure == Code::DONE {
            self.first_failure = Code(u8::try_from(code).unwrap_or(Code::FAILED.0));
        }
        self.step(AgendaInput::Ended { id, end });
    }

    fn tell(&mut self, told: &Told) {
        let line = match told {
            Told::Slept(length) => UpLine::of_up(UpEvent::Slept { r#for: duration::show(*length) }),
            Told::Stepped(by) => UpLine::of_up(UpEvent::ClockStepped { by_ms: *by }),
            Told::StoreAway { error } => {
                self.store_failed = true;
                UpLine::of_up(UpEvent::StoreAway { message: error.clone() })
            }
            Told::StoreBack { away_for } => UpLine::of_up(UpEvent::StoreBack { after: duration::show(*away_for) }),
            Told::Queued(job) => UpLine::of_job(job, UpEvent::Queued { running: self.agenda.running() }),
        };
        self.printer.print(&line);
    }

    fn hear_signals(&mut self) {
        for signal in self.signals.pending() {
            match signal {
                ReceivedSignal::End(SIGHUP) => self.reload(true),
                ReceivedSignal::End(signal) => self.asked_to_end(signal),
                ReceivedSignal::Continued | ReceivedSignal::Other(_) => {}
            }
        }
    }

    fn asked_to_end(&mut self, signal: i32) {
        match &self.stop {
            None => {
                let within = self.program.stop_within().unwrap_or(STOP_WITHIN);
                self.stop = Some(Stop { until: clock::boot_now() + within, is_final: false });
                let (running, within) = (self.children.len(), duration::show(within));
                self.printer.print(&UpLine::of_up(UpEvent::Stopping { signal, running, within }));
                self.step(AgendaInput::Stop);
            }
            Some(Stop { is_final: false, .. }) => self.end_children(),
            Some(_) => {}
        }
    }

    fn keep_stop(&mut self) {
        let is_due = |stop: &Stop| !stop.is_final && clock::boot_now() >= stop.until;
        if self.stop.as_ref().is_some_and(is_due) {
            self.end_children();
        }
    }

    /// Asks the running jobs to end through their wrappers, which record the end and release the leases.
    fn end_children(&mut self) {
        if let Some(stop) = &mut self.stop {
            stop.is_final = true;
        }
        for running in self.children.values() {
            self.printer.print(&UpLine::of_job(&running.job, UpEvent::Ending { pid: running.process.pid() }));
            running.process.signal(SIGTERM);
        }
    }

    /// Checks whether the configuration was changed.
    fn watch(&mut self) {
        let now = clock::boot_now();
        if now.since(self.watched) < WATCH_EVERY || self.options.once {
            return;
        }
        self.watched = now;
        if self.program.is_changed() {
            self.reload(false);
        }
    }

    /// Reloads the configuration. A mistake in a job keeps that job's last good settings, any other the whole old one.
    fn reload(&mut self, is_asked: bool) {
        match self.program.reloaded(self.global, &self.options.jobs) {
            Ok(program) => {
                let before = std::mem::replace(&mut self.program, program);
                self.printer.adapt(&self.program);
                let (jobs, by) = (self.program.tasks().len(), if is_asked { "signal" } else { "change" });
                self.printer.print(&UpLine::of_up(UpEvent::Reloaded { jobs, by }));
                self.program.broken(Some(&before)).iter().for_each(|line| self.printer.print(line));
                self.step(AgendaInput::Reload { tasks: self.program.tasks(), limits: self.program.limits() });
            }
            Err(failure) => {
                let event = UpEvent::ReloadRefused { message: failure.message().to_string() };
                self.printer.print(&UpLine::of_up(event));
            }
        }
    }

    fn nap(&self) {
        let now = clock::now();
        let stop = self.stop.as_ref().filter(|stop| !stop.is_final).map(|stop| stop.until);
        let due = self.agenda.wake_at(now).into_iter().chain(stop).min();
        // Wakes one millisecond late: the clock is finer than the deadline, which must have passed.
        let until = due.map_or(STEP_WITHIN, |at| at.since(now.boot) + Duration::from_millis(1));
        let timeout = PollTimeout::try_from(until.min(STEP_WITHIN)).unwrap_or(PollTimeout::ZERO);
        let mut fds =
            vec![PollFd::new(self.signals.fd(), PollFlags::POLLIN), PollFd::new(self.lookout.fd(), PollFlags::POLLIN)];
        // A run whose last event has come is awaited by SIGCHLD: its pipe is at end of file and always readable.
        let speaking = self.children.values().filter(|running| running.ended.is_none());
        fds.extend(speaking.map(|running| PollFd::new(running.process.fd(), PollFlags::POLLIN)));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

impl Running {
    /// Handles an event, and returns a line if it is worth one.
    fn note(&mut self, text: &str) -> Option<UpLine> {
        let EventLine { run, event, .. } = serde_json::from_str(text).ok()?;
        let line = match event {
            RunEvent::Claimed { slot, token, took_over, .. } => {
                self.begun = clock::boot_now();
                self.ended = None;
                self.has_lease = true;
                self.slot = Some(slot.clone());
                let took_over = took_over.map(|before| before.reason);
                UpLine::of_job(&self.job, UpEvent::Started { slot, run, token, took_over })
            }
            RunEvent::Missed { slot_from: from, slot_to: to, count } => {
                UpLine::of_job(&self.job, UpEvent::Missed { count, from, to })
            }
            RunEvent::Ended(end) => self.note_end(end),
            other => {
                let event = self.passed_on(other)?;
                UpLine::of_job(&self.job, event)
            }
        };
        Some(line)
    }

    fn note_end(&mut self, end: RunEnd) -> UpLine {
        use ReasonCode::{Done, Failed, NotDue, Running};
        let is_quiet = matches!(end.reason, Some(Running | Done | NotDue | Failed));
        let event = UpEvent::Ended {
            status: end.status,
            slot: self.slot.take(),
            exit: end.exit_code,
            took_ms: millis(clock::boot_now().since(self.begun)),
            reason: end.reason,
            message: end.message.clone(),
            last_output: end.last_output.last().map(|line| show::flat(line)),
        };
        self.ended = Some(end);
        UpLine::of_job(&self.job, event).quiet_if(is_quiet)
    }

    /// Returns an event that is printed under its own name. The others are for programs that read the run's own events.
    fn passed_on(&mut self, event: RunEvent) -> Option<UpEvent> {
        let (name, message, reason) = match event {
            RunEvent::RenewalFailed { message } => ("renewal_failed", Some(message), None),
            RunEvent::Stopping { reason, message } => ("stopping", Some(message), Some(reason)),
            RunEvent::Frozen => ("frozen", None, None),
            RunEvent::Thawed => ("thawed", None, None),
            RunEvent::CompletionFailed { message } => ("completion_failed", Some(message), None),
            RunEvent::WithoutLease { message } => {
                self.has_lease = false;
                ("without_lease", Some(message), None)
            }
            RunEvent::Stuck { .. } => ("stuck", None, None),
            RunEvent::LeftOvers { .. } => ("left_overs", None, None),
            _ => return None,
        };
        Some(UpEvent::PassedOn { name, message, reason })
    }

    /// Derives the agenda's view of the end from the last event.
    fn end(&self) -> End {
        let Some(ended) = &self.ended else { return End::Died };
        match ended.reason {
            Some(ReasonCode::StoreFailed) => {
                End::Away(ended.message.clone().unwrap_or_else(|| "the store failed".to_string()))
            }
            Some(ReasonCode::Held | ReasonCode::Running) => End::Elsewhere,
            Some(ReasonCode::NotDue | ReasonCode::Done | ReasonCode::Failed) => End::NotDue,
            _ if !self.has_lease => End::WithoutLease,
            _ => End::Done,
        }
    }
}

/// Formats a timestamp for lines.
fn stamp(now: Wall, zone: &fencepost_core::zone::Zone) -> String {
    show::second_in(now, zone).replacen(' ', "T", 1)
}

/// Finds the first unknown name. Without an error its job would silently never run.
fn unknown(names: &[Name], known: &BTreeSet<Name>) -> Option<Name> {
    names.iter().find(|name| !known.contains(*name)).cloned()
}
