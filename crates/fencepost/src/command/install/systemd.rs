//! Units of the user's systemd.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;

use super::clockwork::{CronField, Poll, listed, plain};
use super::units::TriggerFiles;
use super::{At, InstallScope, TriggerChange, TriggerSetting, home};
use crate::calendar::YEAR;
use crate::exit::Failure;
use crate::report::Voice;

/// The unit of `up`.
pub const UP: &str = "fencepost.service";

/// The unit of a server.
const SERVE: &str = "fencepost-serve.service";
const OF_SERVER: &str = "a server";

const MARK: &str = "# Written by `fencepost install` for ";

/// Prefix of a job's units.
const JOB: &str = "fencepost-job-";

/// Returns the units' files before and after.
pub fn changes(setting: &TriggerSetting, scope: &InstallScope) -> Result<Vec<TriggerChange>, Failure> {
    let mut wanted = BTreeMap::new();
    if !scope.remove && !scope.per_job {
        wanted.insert(UP.to_string(), up(setting));
    }
    for (name, schedule) in scope.jobs.iter().filter(|_| scope.per_job) {
        let unit = unit_name(name.as_str());
        wanted.insert(format!("{unit}.service"), service(setting, name.as_str()));
        wanted.insert(format!("{unit}.timer"), timer(setting, name.as_str(), schedule));
    }
    let mark = format!("{MARK}{}\n", setting.config);
    kind(&|text| text.starts_with(&mark))?.changes(scope, wanted)
}

pub fn kind(is_for: &dyn Fn(&str) -> bool) -> Result<TriggerFiles<'_>, Failure> {
    Ok(TriggerFiles { directory: directory()?, is_ours: |_, text| text.starts_with(MARK), is_for, job: job_of })
}

/// The configuration that a unit of fencepost names.
pub fn config_of(text: &str) -> Option<&str> {
    text.strip_prefix(MARK)?.lines().next()
}

/// The job of a unit, from its file name.
pub fn job_of(name: &str) -> Option<String> {
    let (stem, _) = name.strip_prefix(JOB)?.rsplit_once('.')?;
    Some(stem.replace(r"\x2f", "/"))
}

/// Every character of a job's name except the slash is valid in a unit's name.
fn unit_name(job: &str) -> String {
    format!("{JOB}{}", job.replace('/', r"\x2f"))
}

fn directory() -> Result<PathBuf, Failure> {
    let configured = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    Ok(configured.map_or_else(|| home().map(|home| home.join(".config")), Ok)?.join("systemd/user"))
}

/// Whether a unit is enabled and started by name. Timers start the services of jobs.
pub fn is_started(name: &str) -> bool {
    name.ends_with(".timer") || [UP, SERVE].contains(&name)
}

/// Stops and disables a unit before its file is removed. Otherwise systemd would keep starting the loaded unit.
pub fn disable(change: &TriggerChange, voice: Voice) {
    let At::File(path) = &change.at else { return };
    let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| is_started(name)) else { return };
    let mut command = Command::new("systemctl");
    command.args(["--user", "disable", "--now", name]).stdin(Stdio::null()).stdout(Stdio::null());
    let why = match command.output() {
        Ok(output) if output.status.success() => return,
        Ok(output) => crate::show::flat(String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => error.to_string(),
    };
    // Without a manager to call, removes the links that enable the unit, as `disable` does.
    for target in ["default.target.wants", "timers.target.wants"] {
        let _ = std::fs::remove_file(path.with_file_name(target).join(name));
    }
    voice.warn(&format!(
        "{name} could not be stopped by systemctl: {why}. Its file is removed all the same. If it is still running: \
         systemctl --user stop '{name}'"
    ));
}

/// The unit of the server, before and after.
pub fn server(setting: &TriggerSetting, words: &[String], here: &str, remove: bool) -> Result<TriggerChange, Failure> {
    let argv: Vec<&str> = words.iter().map(String::as_str).collect();
    let unit = format!(
        "{MARK}{OF_SERVER}\n[Unit]\nDescription=fencepost: the server\n\n[Service]\nType=exec\nExecStart={command}\n\
         {environment}WorkingDirectory={here}\nRestart=on-failure\nRestartSec=5\n\
         # Jobs that it was asked to run go on without it.\nKillMode=process\n\n[Install]\nWantedBy=default.target\n",
        command = command(&setting.argv(&argv)),
        environment = environment(setting),
        here = specifiers(here),
    );
    let mark = format!("{MARK}{OF_SERVER}\n");
    kind(&|text| text.starts_with(&mark))?.single(SERVE, (!remove).then_some(unit))
}

fn up(setting: &TriggerSetting) -> String {
    let stop = setting.stop_within.as_secs().saturating_add(30);
    format!(
        "{MARK}{config}\n[Unit]\nDescription=fencepost: the jobs of {shown}\n\n[Service]\nType=exec\n\
         ExecStart={command}\n{environment}ExecReload=/bin/kill -HUP $MAINPID\nRestart=on-failure\nRestartSec=30\n\
         # Its jobs are ended by itself, each with the time that it is given.\nKillMode=mixed\nTimeoutStopSec={stop}\n\n\
         [Install]\nWantedBy=default.target\n",
        config = setting.config,
        shown = specifiers(&setting.config),
        command = command(&setting.argv(&["up"])),
        environment = environment(setting),
    )
}

fn service(setting: &TriggerSetting, job: &str) -> String {
    format!(
        "{MARK}{config}\n[Unit]\nDescription=fencepost: {job}\n\n[Service]\nType=oneshot\nExecStart={command}\n{environment}\
         # What fencepost tells others after the run is a process that may still be going.\nKillMode=process\n",
        config = setting.config,
        command = command(&setting.argv(&["run", job])),
        environment = environment(setting),
    )
}

fn timer(setting: &TriggerSetting, job: &str, schedule: &Schedule) -> String {
    let (calendar, is_exact) = on_calendar(schedule, setting.now);
    let lines: String = calendar.iter().map(|line| format!("OnCalendar={line}\n")).collect();
    let remark = if is_exact { "" } else { "# Started more often than that; `run` does only what is due.\n" };
    format!(
        "{MARK}{config}\n[Unit]\nDescription=fencepost: {job}, {words}\n\n[Timer]\n{remark}{lines}AccuracySec=1s\n\
         Persistent=true\n\n[Install]\nWantedBy=timers.target\n",
        config = setting.config,
        words = specifiers(&crate::show::flat(&schedule.describe())),
    )
}

/// Returns the `OnCalendar` lines, and whether they express the schedule exactly.
pub fn on_calendar(schedule: &Schedule, now: Wall) -> (Vec<String>, bool) {
    let zone = schedule.zone();
    let exact = plain(schedule.text()).filter(|_| schedule.dst_within(now, YEAR).is_none());
    if let Some(fields) = exact {
        return (exactly(&fields, zone), true);
    }
    // systemd starts a repeated local time once. An interval is due twice then, so it is written in UTC.
    let zone = if schedule.is_interval() { Zone::utc() } else { zone.clone() };
    let poll = Poll::of(schedule, &zone, now, false);
    let time = format!("{}:{}:{}", set(&poll.hours, 24), set(&poll.minutes, 60), set(&poll.seconds, 60));
    (vec![format!("*-*-* {time} {}", zone.name())], false)
}

fn exactly([minute, hour, day, month, week]: &[CronField; 5], zone: &Zone) -> Vec<String> {
    const WEEK: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    let time = format!("{}:{}:00 {}", set(&hour.set, 24), set(&minute.set, 60), zone.name());
    let months = set(&month.set, 12);
    let weekdays: Vec<&str> = week.set.iter().filter_map(|day| WEEK.get(*day as usize).copied()).collect();
    let weekdays = if week.is_full { String::new() } else { format!("{} ", weekdays.join(",")) };
    let days = set(&day.set, 31);
    let is_either = !day.is_star && !week.is_star && !day.is_full && !week.is_full;
    match is_either {
        true => vec![format!("*-{months}-{days} {time}"), format!("{weekdays}*-{months}-* {time}")],
        false => vec![format!("{weekdays}*-{months}-{days} {time}")],
    }
}

fn set(members: &BTreeSet<u32>, size: usize) -> String {
    match members.len() == size {
        true => "*".to_string(),
        false => listed(&members.iter().copied().collect::<Vec<_>>()),
    }
}

fn environment(setting: &TriggerSetting) -> String {
    let line = |(name, value): &(String, String)| {
        format!(
            "Environment=\"{}\"\n",
            specifiers(&format!("{name}={value}").replace('\\', r"\\").replace('"', "\\\""))
        )
    };
    setting.environment.iter().map(line).collect()
}

fn command(argv: &[String]) -> String {
    argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// Quotes a word of a command line: systemd replaces neither specifiers nor variables in it.
fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:=,+@".contains(c));
    if is_plain {
        return word.to_string();
    }
    format!("\"{}\"", specifiers(&word.replace('\\', r"\\").replace('"', "\\\"").replace('$', "$$")))
}

fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_word_is_replaced() {
        assert_eq!(quoted("/a/b"), "/a/b");
        assert_eq!(quoted("a b"), "\"a b\"");
        assert_eq!(quoted(r#"50% of $HOME "x\y""#), r#""50%% of $$HOME \"x\\y\"""#);
    }

    #[test]
    fn names_come_back() {
        for job in ["a", "a-b", "news/daily", "a.b:c_d"] {
            assert_eq!(job_of(&format!("{}.timer", unit_name(job))).as_deref(), Some(job));
        }
        assert_eq!(job_of(UP), None);
    }

    #[test]
    fn schedules_become_calendars() {
        let now = Zone::utc().parse_time("2026-01-10T00:00:00Z").unwrap();
        for (schedule, zone, calendar, is_exact) in [
            ("0 7 * * *", "Asia/Tokyo", vec!["*-*-* 7:0:00 Asia/Tokyo"], true),
            ("*/15 9-11 * * MON-FRI", "UTC", vec!["Mon,Tue,Wed,Thu,Fri *-*-* 9,10,11:0,15,30,45:00 UTC"], true),
            ("0 0 1 * MON", "UTC", vec!["*-*-1 0:0:00 UTC", "Mon *-*-* 0:0:00 UTC"], true),
            ("0 0 */10 * MON", "UTC", vec!["Mon *-*-1,11,21,31 0:0:00 UTC"], true),
            ("@hourly", "UTC", vec!["*-*-* *:0:00 UTC"], true),
            ("every 45m", "Asia/Tokyo", vec!["*-*-* *:0,15,30,45:0 UTC"], false),
            ("0 6 L * *", "UTC", vec!["*-*-* 6:0:0 UTC"], false),
            ("30 2 * * *", "America/New_York", vec!["*-*-* 2,3:0,30:0 America/New_York"], false),
            ("*/30 * * * *", "America/New_York", vec!["*-*-* *:0,30:0 UTC"], false),
            ("*/20 1 * * *", "America/New_York", vec!["*-*-* 5,6:0,20,40:0 UTC"], false),
            ("*/20 9 * * *", "America/New_York", vec!["*-*-* 9:0,20,40:00 America/New_York"], true),
        ] {
            let schedule = Schedule::parse(schedule, &Zone::parse(zone).unwrap()).unwrap();
            let calendar: Vec<String> = calendar.into_iter().map(String::from).collect();
            assert_eq!(on_calendar(&schedule, now), (calendar, is_exact), "{schedule}");
        }
    }
}
