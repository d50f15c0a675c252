//! `run --rehearse`: runs the command without a lease, with fencepost's own writes left out. Nothing is claimed and nothing
//! is recorded in the store; what would have been written is kept in this host's logs.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::process::Command;

use fencepost_core::lease::{Honest, Rules};
use fencepost_core::name::Job;
use fencepost_core::run::Exit;
use fencepost_core::said::Said;
use fencepost_core::token::{RunId, StoreId};
use fencepost_guard::child::Variables;
use fencepost_guard::clock;
use fencepost_guard::registry::{self, Registration};
use fencepost_guard::report_file::{self, JobReport};
use fencepost_guard::run_state::RunStateFile;
use fencepost_guard::transact::look;
use fencepost_guard::unguarded::run_unguarded;

use super::attempt::tool_rules;
use super::environment::environment;
use crate::args::Global;
use crate::exit::{Code, Failure};
use crate::logs::Shelf;
use crate::place::Place;
use crate::rehearsal;
use crate::report::Voice;
use crate::settings::Settings;

pub fn run(global: &Global, place: &Place, job: &Job, settings: &Settings) -> Result<Code, Failure> {
    let run = crate::command::mint_run();
    let said = place.said(run);
    let variables = variables(place, settings, job, run)?;
    let holder = place.host.holder(std::process::id().cast_signed(), None);
    let registration = Registration::of_run(&place.host, &holder, run, &place.state);
    if let Some(Err(error)) = registration.as_ref().map(|registration| registration.write(&variables)) {
        let trouble =
            registry::judge_unwritten(&error, false).map_err(|why| Failure::Other(format!("{job}: {why}")))?;
        Voice::of(global).warn(&format!("{job}: {trouble}"));
    }
    let mut state = RunStateFile::beside(&said, run, settings.grace, tool_rules(settings));
    state.begin(None);
    let exit = execute(settings, &variables);
    state.remove();
    drop(registration);
    let JobReport { said, .. } = report_file::collect(&said, run);
    let lines = lines(job, &exit, &said);
    keep(place, job, settings, run, &lines, &said);
    if !global.quiet {
        lines.iter().for_each(|line| Voice::of(global).warn(line));
    }
    match exit {
        Ok(exit) => Ok(Code::of_child(exit.code())),
        Err(error) => Err(Failure::Other(format!("Cannot run {:?}: {error}.", settings.argv[0].display().to_string()))),
    }
}

/// The variables of the command: as in a run, with the token that the next run would get.
fn variables(place: &Place, settings: &Settings, job: &Job, run: RunId) -> Result<Variables, Failure> {
    let record = match place.is_new()? {
        true => None,
        false => look(place.open_to_read()?.as_ref(), job)?.0,
    };
    let last = record.as_ref().map(|record| record.token);
    let token = Honest::mint(last, clock::wall_now(), None)
        .ok_or_else(|| Failure::Other(format!("{job} has used up its tokens.")))?;
    let store = record.map_or(StoreId(run.0), |record| record.store);
    let own = [
        ("FENCEPOST_RUN", run.to_string()),
        ("FENCEPOST_TOKEN", token.to_string()),
        ("FENCEPOST_STORE_ID", store.to_string()),
        ("FENCEPOST_KEY", format!("rehearsal/{run}")),
        (rehearsal::VARIABLE, "1".to_string()),
    ];
    let said = (OsString::from("FENCEPOST_OUTCOME"), Some(place.said(run).into_os_string()));
    let own = own.into_iter().map(|(name, value)| (OsString::from(name), Some(OsString::from(value)))).chain([said]);
    let (own, mut all): (Variables, Variables) = (own.collect(), environment(place, settings, job, run)(None, &[]));
    all.retain(|(name, _)| own.iter().all(|(own, _)| own != name));
    all.extend(own);
    Ok(all)
}

/// Runs `prepare` and the command. Their own effects are real.
fn execute(settings: &Settings, variables: &Variables) -> io::Result<Exit> {
    let prepare = settings.options.prepare.as_ref().map(|prepare| prepare.value.argv());
    let mut exit = Exit::Code(0);
    for argv in prepare.into_iter().chain([settings.argv.clone()]) {
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = &settings.working_directory {
            command.current_dir(directory);
        }
        exit = run_unguarded(command)?;
        if exit != Exit::Code(0) {
            break;
        }
    }
    Ok(exit)
}

/// What happened, in words.
fn lines(job: &Job, exit: &io::Result<Exit>, said: &[Said]) -> Vec<String> {
    let ended = match exit {
        Ok(exit) => format!("its command exited {}", exit.code()),
        Err(error) => format!("its command could not be run: {error}"),
    };
    let mut lines = vec![format!("{job} rehearsed: {ended}. Nothing was claimed, written or recorded.")];
    for said in said {
        lines.push(match said {
            Said::Rehearsed(rehearsed) => format!("{job} would {}.", rehearsal::shown(rehearsed)),
            Said::Recorded(recorded) => format!("{job} would be recorded as {}.", recorded.word.as_str()),
            Said::Hooked(refusal) => format!("{job}: the hook refused {}.", refusal.what),
            Said::OtherContent(why) => format!("{job} would fail: {why}."),
            Said::Published(_) | Said::Gated(_) => continue,
        });
    }
    lines
}

/// Keeps the lines, and the differences, as a log of this host.
fn keep(place: &Place, job: &Job, settings: &Settings, run: RunId, lines: &[String], said: &[Said]) {
    let shelf = Shelf::of(place, job, &settings.options);
    let diffs = said.iter().filter_map(|said| match said {
        Said::Rehearsed(rehearsed) => rehearsed.diff.clone(),
        _ => None,
    });
    let text: Vec<String> = lines.iter().cloned().chain(diffs).collect();
    let path = shelf.path(clock::wall_now(), run);
    let written = DirBuilder::new().recursive(true).mode(0o700).create(&shelf.directory);
    let _ = written.and_then(|()| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        writeln!(file, "{}", text.join("\n"))
    });
}
