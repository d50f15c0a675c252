//! `run_now`: starts `run JOB --now`, and tells how far the run has come.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fencepost_core::name::Name;
use fencepost_guard::spawned_run::SpawnedRun;
use fencepost_view::answer::{AnswerVersion, RunNowAnswer, RunNowState};
use fencepost_view::event::{EventLine, RunEvent};
use fencepost_view::text::flat;
use serde_json::{Map, Value};

use super::arguments::text;
use super::order::{self, STARTING};
use super::question::{ToolReply, value};
use crate::args::Global;
use crate::exit::Failure;
use crate::place::Place;

/// How often the run is looked at.
const POLL: Duration = Duration::from_millis(20);

/// How often a run is looked at that no call waits for.
const SLOW_POLL: Duration = Duration::from_secs(1);

pub fn call(global: &Global, given: &Map<String, Value>) -> ToolReply {
    let job = text(given, "job").unwrap_or_default();
    match start(global, job) {
        Ok(started) => started.watch(job, order::waits(given)),
        Err(failure) => ToolReply::failed(&failure),
    }
}

/// Starts a job that has a command in the configuration. No other: an agent names a job, and not what it does.
fn start(global: &Global, job: &str) -> Result<StartedRun, Failure> {
    let name = Name::new(job).map_err(|error| Failure::Usage(error.to_string()))?;
    let place = Place::find(global)?;
    let Some(config) = &place.config else {
        return Err(Failure::Usage(
            "There is no configuration, and so no job that could be started. Write one: fencepost init".to_string(),
        ));
    };
    config.refuse_broken(&name)?;
    let path = config.path.display();
    if !config.jobs.contains_key(&name) {
        return Err(config.unknown(&name));
    }
    let keys = config.job(&name);
    if keys.command.is_none() {
        return Err(Failure::Usage(format!(
            "The job {name} has no command in {path}, so it cannot be started from here. Set `command` there."
        )));
    }
    // A job without slots has none that could be early.
    let has_slots = keys.schedule.is_some() || keys.every.is_some() || keys.slot.is_some();
    StartedRun::spawn(global, job, has_slots)
        .map_err(|error| Failure::Other(format!("Cannot start {name}: {error}. Nothing was changed.")))
}

/// A run that was started, and what it says on standard error.
struct StartedRun {
    run: SpawnedRun,
    stderr: File,
}

impl StartedRun {
    fn spawn(global: &Global, job: &str, has_slots: bool) -> std::io::Result<Self> {
        let mut command = order::command(global)?;
        let stderr = order::unnamed()?;
        command.args(["run", job]).args(has_slots.then_some("--now"));
        // The output goes to the job's log.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr.try_clone()?);
        let _starting = STARTING.lock();
        let run = SpawnedRun::start(command, |command, fd| {
            command.args(["--events", &format!("fd:{fd}")]);
        })?;
        Ok(Self { run, stderr })
    }

    fn watch(self, job: &str, wait: Duration) -> ToolReply {
        let Self { mut run, stderr } = self;
        let begun = Instant::now();
        let mut seen = RunNowAnswer {
            v: AnswerVersion,
            job: job.to_string(),
            state: RunNowState::Running,
            run: None,
            pid: Some(run.pid()),
            end: None,
        };
        loop {
            // Its events are complete once it has ended.
            let ended = run.ended();
            run.lines().iter().for_each(|line| note(&mut seen, line));
            match ended {
                Some(code) => return end(seen, code, &stderr),
                None if begun.elapsed() >= wait => {
                    std::thread::spawn(move || {
                        while run.ended().is_none() {
                            drop(run.lines());
                            std::thread::sleep(SLOW_POLL);
                        }
                    });
                    return ToolReply { answer: value(&seen), text: Some(going(job)), is_error: false };
                }
                None => std::thread::sleep(POLL),
            }
        }
    }
}

fn note(seen: &mut RunNowAnswer, line: &str) {
    let Ok(EventLine { run, event, .. }) = serde_json::from_str(line) else { return };
    // A retry is a run of its own.
    seen.run = Some(run.to_string());
    seen.end = match event {
        RunEvent::Ended(end) => Some(end),
        _ => None,
    };
}

fn going(job: &str) -> String {
    format!("{job} is running, and goes on. Its output: logs. How it ended: runs.")
}

fn end(seen: RunNowAnswer, code: i32, stderr: &File) -> ToolReply {
    let Some(end) = &seen.end else {
        // It failed before it could write an event.
        let said = order::end(stderr).ok().and_then(|text| order::told(&text));
        let silent = || format!("{} did not start (exit {code}). See what is wrong: fencepost validate", seen.job);
        return ToolReply::failed(&Failure::Other(said.unwrap_or_else(silent)));
    };
    let mut text = vec![format!("{} ended: {} (exit {}).", seen.job, end.status, end.exit_code)];
    text.extend(end.message.as_deref().map(flat));
    if !end.last_output.is_empty() {
        text.push(format!("Last lines of its output:\n{}", end.last_output.join("\n")));
    }
    if code != 0 {
        text.push("Ask why about it.".to_string());
    }
    let answer = RunNowAnswer { state: RunNowState::Ended, pid: None, ..seen };
    ToolReply { answer: value(&answer), text: Some(text.join(" ")), is_error: code != 0 }
}
