//! Installs jobs in the user's crontab, each between its own markers. Of the other lines, only those that the jobs
//! replace are commented out.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::process::{Command, Stdio};

use fencepost_core::name::Name;
use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_sys::flush;

use super::clockwork::{Poll, field, is_within_minutes, machine_zone, obeys_cron_tz, plain};
use super::originals::{self, Original};
use super::{At, InstallScope, TriggerChange, TriggerSetting, is_in_path};
use crate::calendar::YEAR;
use crate::config::Config;
use crate::exit::Failure;
use crate::place::Place;
use crate::show;

/// The longest line that every cron accepts.
const LINE_BYTES_MAX: usize = 990;

/// How many old crontabs are kept.
const BACKUPS_MAX: usize = 10;

const BEGIN: &str = "# BEGIN fencepost job ";
const END: &str = "# END fencepost job ";

/// Returns the crontab before and after. When it is written, the lines that the jobs were translated from are commented
/// out; `--remove` restores them.
pub fn change(
    setting: &TriggerSetting,
    scope: &InstallScope,
    config: &Config,
    is_written: bool,
) -> Result<TriggerChange, Failure> {
    let old = listed()?;
    let text = old.as_deref().unwrap_or_default();
    let parts = parts(text)?;
    let originals = if is_written && !scope.remove { replaced_by(text, scope, config, setting)? } else { Vec::new() };
    let zone = cron_zone(&parts);
    let mut wanted = Vec::new();
    for (name, schedule) in &scope.jobs {
        wanted.push((name.as_str().to_string(), block(setting, name, schedule, zone.as_ref())?));
    }
    let shown: String = wanted.iter().map(|(_, block)| block.as_str()).collect();
    let (mut new, mut number) = (String::new(), 0);
    for part in parts {
        match part {
            CrontabPart::Other(text) => {
                for line in text.split_inclusive('\n') {
                    number += 1;
                    new.push_str(&rewritten(setting, scope, &originals, (number, line)));
                }
            }
            CrontabPart::Block { job, config, text } => {
                number += text.lines().count();
                let is_ours = config == setting.config;
                match wanted.iter().position(|(name, _)| is_ours && *name == job) {
                    Some(at) => new.push_str(&wanted.remove(at).1),
                    None if is_ours && scope.names(&job) => {}
                    None => new.push_str(&text),
                }
            }
        }
    }
    if !new.is_empty() && !new.ends_with('\n') {
        new.push('\n');
    }
    new.extend(wanted.into_iter().map(|(_, block)| block));
    let new = Some(new).filter(|new| old.is_some() || !new.is_empty());
    Ok(TriggerChange { name: "your crontab".to_string(), at: At::Crontab, old, new, shown: Some(shown) })
}

/// Finds the lines that the jobs replace. Refuses a line whose job is not certain: the job would run twice, or never.
fn replaced_by(
    text: &str,
    scope: &InstallScope,
    config: &Config,
    setting: &TriggerSetting,
) -> Result<Vec<Original>, Failure> {
    let mut found = originals::find(text, config)?;
    found.retain(|original| scope.jobs.iter().any(|(name, _)| *name == original.job));
    let unclear: Vec<&Original> = found.iter().filter(|original| !original.is_certain).collect();
    if unclear.is_empty() { Ok(found) } else { Err(originals::unclear(&unclear, &setting.config)) }
}

/// Rewrites a line outside fencepost's blocks.
fn rewritten(
    setting: &TriggerSetting,
    scope: &InstallScope,
    originals: &[Original],
    (number, line): (usize, &str),
) -> String {
    if let Some(original) = originals.iter().find(|original| original.number == number) {
        return originals::replaced(&setting.config, &original.job, line);
    }
    match originals::restored(&setting.config, line) {
        Some((job, before)) if scope.remove && scope.names(job) => before.to_string(),
        _ => line.to_string(),
    }
}

/// A section of a crontab.
#[derive(Debug, PartialEq, Eq)]
pub enum CrontabPart {
    Other(String),
    Block { job: String, config: String, text: String },
}

/// Splits a crontab into its sections. Mismatched markers are an error: they were edited by hand.
pub fn parts(text: &str) -> Result<Vec<CrontabPart>, Failure> {
    let damaged = |number: usize, what: &str| {
        Failure::Usage(format!(
            "Line {number} of your crontab {what}. Repair or remove these markers with crontab -e; nothing was changed."
        ))
    };
    let mut parts = Vec::new();
    let mut open: Option<(String, String, usize)> = None;
    let mut other = String::new();
    for (number, line) in text.split_inclusive('\n').enumerate().map(|(at, line)| (at + 1, line)) {
        let bare = line.trim_end();
        match (&mut open, bare.strip_prefix(BEGIN), bare.strip_prefix(END)) {
            (Some(_), Some(_), _) => return Err(damaged(number, "begins a job inside another")),
            (None, Some(head), _) => {
                if !other.is_empty() {
                    parts.push(CrontabPart::Other(std::mem::take(&mut other)));
                }
                open = Some((head.to_string(), line.to_string(), number));
            }
            (Some((head, text, _)), None, Some(tail)) if tail == head => {
                text.push_str(line);
                let (job, config) = head.split_once(" of ").ok_or_else(|| damaged(number, "names no configuration"))?;
                parts.push(CrontabPart::Block { job: job.to_string(), config: config.to_string(), text: text.clone() });
                open = None;
            }
            (_, None, Some(_)) => return Err(damaged(number, "ends a job that was not begun")),
            (Some((_, text, _)), None, None) => text.push_str(line),
            (None, None, None) => other.push_str(line),
        }
    }
    if let Some((_, _, number)) = open {
        return Err(damaged(number, "begins a job that never ends"));
    }
    if !other.is_empty() {
        parts.push(CrontabPart::Other(other));
    }
    Ok(parts)
}

/// The time zone that cron uses; none if the crontab sets one that the installed cron obeys. Every cron treats `TZ` as
/// a variable of the jobs.
fn cron_zone(parts: &[CrontabPart]) -> Option<Zone> {
    let sets_zone = |line: &str| line.split_once('=').is_some_and(|(name, _)| name.trim() == "CRON_TZ");
    let is_set = parts.iter().any(|part| matches!(part, CrontabPart::Other(text) if text.lines().any(sets_zone)));
    if is_set && obeys_cron_tz() { None } else { Some(machine_zone()) }
}

/// Writes a job's lines with their markers.
fn block(setting: &TriggerSetting, name: &Name, schedule: &Schedule, zone: Option<&Zone>) -> Result<String, Failure> {
    let (expression, remark) = expression(schedule, zone, setting.now);
    let mut words = vec!["/usr/bin/env".to_string()];
    words.extend(setting.environment.iter().map(|(name, value)| quoted(&format!("{name}={value}"))));
    words.extend(setting.argv(&["run", name.as_str()]).iter().map(|word| quoted(word)));
    let command = words.join(" ");
    if command.len() > LINE_BYTES_MAX {
        return Err(Failure::Usage(format!(
            "The line for {name} would have {} bytes, and cron takes {LINE_BYTES_MAX}: PATH is too long. Install with a \
             shorter one, as in: PATH=/usr/local/bin:/usr/bin:/bin fencepost install crontab",
            command.len()
        )));
    }
    let head = format!("{name} of {}", setting.config);
    let remark = remark.map(|remark| format!("# {remark}\n")).unwrap_or_default();
    Ok(format!("{BEGIN}{head}\n# {}\n{remark}{expression} {command}\n{END}{head}\n", show::flat(&schedule.describe())))
}

/// Returns the five fields, and the reason if they only poll for the schedule.
pub fn expression(schedule: &Schedule, zone: Option<&Zone>, now: Wall) -> (String, Option<String>) {
    let fields = plain(schedule.text());
    let is_here = zone.is_some_and(|zone| zone.name() == schedule.zone().name());
    let why = match (&fields, zone) {
        (None, _) => "cron cannot say that".to_string(),
        (Some(_), None) => "this crontab sets CRON_TZ".to_string(),
        (Some(_), Some(zone)) if !is_here => format!("cron goes by {zone} time here"),
        (Some(fields), Some(_)) => match schedule.dst_within(now, YEAR) {
            None => {
                let texts: Vec<&str> = fields.iter().map(|field| field.text.as_str()).collect();
                return (texts.join(" "), None);
            }
            Some(_) => "the clocks change at that time of day".to_string(),
        },
    };
    let poll = Poll::of(schedule, zone.unwrap_or(schedule.zone()), now, true);
    // cron starts a listed hour once when the clocks repeat it. An interval is due in both.
    let is_any_hour = zone.is_none() || (schedule.is_interval() && schedule.dst_within(now, YEAR).is_some());
    let hours = if is_any_hour { "*".to_string() } else { field(&poll.hours, 24) };
    let remark = match is_within_minutes(schedule, now) {
        true => {
            "It is due more often than cron can start it: most slots will be missed. Use `fencepost up`.".to_string()
        }
        false => format!("Started more often, because {why}; `run` does only what is due."),
    };
    (format!("{} {hours} * * *", field(&poll.minutes, 60)), Some(remark))
}

/// Quotes a word for the shell, and escapes `%`, which cron reads as a newline.
fn quoted(word: &str) -> String {
    let is_plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:=,+@".contains(c));
    let text = if is_plain { word.to_string() } else { format!("'{}'", word.replace('\'', r"'\''")) };
    text.replace('%', r"\%")
}

/// Reads the user's crontab, if there is one.
pub fn listed() -> Result<Option<String>, Failure> {
    let output = Command::new("crontab")
        .arg("-l")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::Other(format!("Cannot call crontab: {error}. Is cron installed here?")))?;
    let said = String::from_utf8_lossy(&output.stderr).to_ascii_lowercase();
    if !output.status.success() {
        if said.contains("no crontab") || said.contains("no such file") {
            return Ok(None);
        }
        return Err(Failure::Other(format!("crontab -l failed: {}", show::flat(&said))));
    }
    match String::from_utf8(output.stdout) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(Failure::Other("Your crontab is not UTF-8 text, and is left alone.".to_string())),
    }
}

/// Why the crontab cannot be read. Where there is no cron, there is no crontab.
pub fn unread() -> Option<String> {
    let listed = || listed().err().map(|failure| failure.message().to_string());
    if is_in_path("crontab") { listed() } else { None }
}

/// Installs a new crontab and keeps a backup of the old one.
pub fn write(place: &Place, old: Option<&str>, new: &str) -> Result<(), Failure> {
    if let Some(old) = old {
        back_up(place, old)?;
    }
    let failed = |why: String| Failure::Other(format!("Your crontab was not changed: {why}"));
    let spawned =
        Command::new("crontab").arg("-").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| failure_of_call(&error))?;
    let written = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(new.as_bytes()));
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() || written.is_err() {
        return Err(failed(show::flat(&String::from_utf8_lossy(&output.stderr))));
    }
    match listed()? {
        Some(found) if found == new => Ok(()),
        None if new.is_empty() => Ok(()),
        _ => Err(Failure::Other(
            "crontab says that it took the new crontab, but shows another one. The old one is in the state directory."
                .to_string(),
        )),
    }
}

fn failure_of_call(error: &std::io::Error) -> Failure {
    Failure::Other(format!("Cannot call crontab: {error}. Is cron installed here?"))
}

fn back_up(place: &Place, old: &str) -> Result<(), Failure> {
    let directory = place.state.join("crontab");
    let cannot = |error: std::io::Error| {
        Failure::Other(format!("Cannot keep the old crontab in {}: {error}", directory.display()))
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(cannot)?;
    let path = directory.join(format!("{}.{}", clock::now().wall.0, std::process::id()));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(cannot)?;
    file.write_all(old.as_bytes()).and_then(|()| flush(&file)).map_err(cannot)?;
    let mut kept: Vec<_> = directory.read_dir().map_err(cannot)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    kept.sort();
    let too_many = kept.len().saturating_sub(BACKUPS_MAX);
    kept.into_iter().take(too_many).for_each(|oldest| drop(std::fs::remove_file(oldest)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_shell_and_cron() {
        assert_eq!(quoted("/usr/bin/x"), "/usr/bin/x");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's 5%"), r"'it'\''s 5\%'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_crontab_comes_apart_and_together_again() {
        let text = "MAILTO=a\n# BEGIN fencepost job a of /x y.toml\n* * * * * a\n# END fencepost job a of /x y.toml\nz";
        let parts = parts(text).unwrap();
        assert_eq!(parts.len(), 3);
        assert!(matches!(&parts[1], CrontabPart::Block { job, config, .. } if job == "a" && config == "/x y.toml"));
        let again: String = parts
            .iter()
            .map(|part| match part {
                CrontabPart::Other(text) | CrontabPart::Block { text, .. } => text.as_str(),
            })
            .collect();
        assert_eq!(again, text);
        for damaged in [
            "# BEGIN fencepost job a of x\n",
            "# END fencepost job a of x\n",
            "# BEGIN fencepost job a of x\n# BEGIN fencepost job b of x\n",
            "# BEGIN fencepost job a of x\n# END fencepost job b of x\n",
        ] {
            assert!(super::parts(damaged).is_err(), "{damaged}");
        }
    }
}
