//! `fencepost init`: writes a first configuration, from a crontab if asked. The crontab itself is never changed.

mod crontab;
mod names;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fencepost_store::User;
use fencepost_sys::flush;
use fencepost_view::answer::{AnswerVersion, InitAnswer, LeftOutLine};

pub use self::crontab::{CronJob, comment};
use self::crontab::{LeftOut, Translation};
use super::install;
use crate::args::Global;
use crate::args::operate::InitOptions;
use crate::config::{self, FILE_NAME, Reading, Source};
use crate::exit::{Code, Failure};
use crate::show;

/// Writable only by its owner: its commands run with the owner's rights.
const MODE: u32 = 0o644;

/// Name of the user's own crontab in messages.
const YOURS: &str = "your crontab";

pub fn run(global: &Global, options: &InitOptions) -> Result<Code, Failure> {
    let output = options.output.clone().unwrap_or_else(|| PathBuf::from(FILE_NAME));
    let is_stdout = output.as_os_str() == "-";
    let path = std::path::absolute(&output)
        .map_err(|error| Failure::Usage(format!("Cannot write {}: {error}", output.display())))?;
    if !is_stdout && path.symlink_metadata().is_ok() {
        return Err(there_already(&path));
    }
    let translation = match options.from.as_deref() {
        None => None,
        Some("crontab") => {
            let text = install::crontab_listed()?.ok_or_else(|| Failure::Usage("You have no crontab.".to_string()))?;
            Some(translate(&text, YOURS, options.with_user))
        }
        Some(other) => match other.strip_prefix("crontab=") {
            Some(file) if !file.is_empty() => {
                let text = std::fs::read_to_string(file)
                    .map_err(|error| Failure::Usage(format!("Cannot read the crontab {file}: {error}")))?;
                Some(translate(&text, file, options.with_user))
            }
            _ => return Err(Failure::Usage(format!("--from {other:?} is crontab, or crontab=FILE."))),
        },
    };
    let text = translation.as_ref().map_or_else(|| BEGINNING.to_string(), |translation| translation.text.clone());
    check(&path, &text)?;
    if is_stdout {
        show::text(&text);
        return Ok(Code::DONE);
    }
    write(&path, &text)?;
    report(global, &path, translation.as_ref());
    Ok(Code::DONE)
}

fn translate(text: &str, from: &str, with_user: bool) -> Translation {
    context(from, with_user).translate(text)
}

fn context(from: &str, with_user: bool) -> crontab::CrontabContext<'_> {
    let user = User::current().map(|user| user.name.clone());
    let home = config::home().map(|home| home.display().to_string());
    let (zone, obeys_cron_tz) = (install::machine_zone(), install::obeys_cron_tz());
    crontab::CrontabContext { from, with_user, user, home, zone, obeys_cron_tz }
}

/// Translates the lines of the user's crontab that do not start fencepost.
pub fn jobs_of_crontab(text: &str) -> Vec<CronJob> {
    context(YOURS, false).jobs(text)
}

/// Validates the configuration before it is written.
fn check(path: &Path, text: &str) -> Result<(), Failure> {
    let source = Source::new(path.to_path_buf(), text.to_string());
    match Reading::of_source(source).faultless() {
        Ok(_) => Ok(()),
        Err(failure) => Err(Failure::Other(format!(
            "The crontab could not be translated into a valid configuration; nothing was written. {}",
            failure.message()
        ))),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path);
    let written = opened.and_then(|mut file| {
        let written = file.write_all(text.as_bytes()).and_then(|()| flush(&file));
        if written.is_err() {
            let _ = std::fs::remove_file(path);
        }
        written
    });
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => there_already(path),
        _ => Failure::Other(format!("Cannot write {}: {error}", path.display())),
    })
}

fn there_already(path: &Path) -> Failure {
    Failure::Usage(format!("{} is there already, and is left as it is. Name another by --output.", path.display()))
}

fn report(global: &Global, path: &Path, translation: Option<&Translation>) {
    let jobs = translation.map(|translation| translation.jobs.as_slice()).unwrap_or_default();
    let left_out = translation.map(|translation| translation.left_out.as_slice()).unwrap_or_default();
    if global.json {
        let line =
            |left: &LeftOut| LeftOutLine { line: left.number, text: left.text.clone(), reason: left.why.clone() };
        return show::json(&InitAnswer {
            v: AnswerVersion,
            config: path.display().to_string(),
            jobs: jobs.to_vec(),
            left_out: left_out.iter().map(line).collect(),
        });
    }
    if global.quiet {
        return;
    }
    let count = |number: usize, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let made = match translation {
        None => String::new(),
        Some(_) => format!(" with {}", count(jobs.len(), "job")),
    };
    show::line(&format!("Wrote {}{made}.", path.display()));
    for left in left_out {
        show::line(&format!("Left out line {}: {} ({})", left.number, show::flat(&left.text), left.why));
    }
    for note in translation.map(|translation| translation.notes.as_slice()).unwrap_or_default() {
        show::line(note);
    }
    next_steps(path, jobs.first().map_or(FIRST_JOB, String::as_str));
}

/// The commands that show something right after the file is written.
fn next_steps(path: &Path, job: &str) {
    let is_found = std::env::current_dir().is_ok_and(|here| here.join(FILE_NAME) == path);
    let option = if is_found { String::new() } else { format!(" --config {}", path.display()) };
    show::line("Next:");
    for (command, what) in [
        ("validate".to_string(), "check it, and show when each job is due"),
        (format!("run {job} --now"), "run a job at once"),
        ("status".to_string(), "see how it ended"),
        ("install crontab --dry-run".to_string(), "what would start the jobs (or systemd, launchd)"),
    ] {
        show::line(&format!("  {:44}  {what}", format!("fencepost {command}{option}")));
    }
}

/// The job of the configuration that is written without a crontab.
const FIRST_JOB: &str = "hello";

/// The configuration written without a crontab.
const BEGINNING: &str = r#"# fencepost.toml: which jobs there are, when they are due and what they need.
# Check it by `fencepost validate`, run a job at once by `fencepost run hello --now`, and have them
# all started by `fencepost install systemd --write` (or launchd, or crontab).

# The zone in which times of day and days are meant.
timezone = "UTC"

# What holds for all jobs.
[defaults]
ttl = "5m"          # how long a lease lasts without a renewal
# timeout = "1h"    # end a job that runs longer

# Who is notified: mail:ADDRESS, slack:URL, discord:URL, ntfy:URL, healthchecks:URL, a webhook's URL, or
# a command, which reads the message on its standard input. Try it by `fencepost notify --test hello`.
# [notify]
# on_error = "mail:you@example.org"
# on_recovered = "https://hooks.example.org/…"

[job.hello]
schedule = "0 7 * * *"      # every day at 07:00; or every = "45m"
command = "echo hello"      # a string is run by sh -c, an array is not

# A job that works on what another left:
# [job.report]
# schedule = "30 7 * * *"
# needs = [{ job = "hello", when = "same-day" }]
# command = ["./report.sh", "--daily"]
# produces = ["data/report.csv"]
# catch_up = 1              # how many missed slots are made up for
"#;
