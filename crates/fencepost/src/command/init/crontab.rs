//! Translates a crontab into a configuration. A line that cannot be translated is kept as a comment, with the reason.

use std::collections::BTreeMap;

use fencepost_core::schedule::Schedule;
use fencepost_core::zone::Zone;

use super::names::Names;
use crate::command::install::is_replaced;

/// What the translation depends on besides the crontab's text.
pub struct CrontabContext<'c> {
    /// Where the crontab is from, for messages.
    pub from: &'c str,
    /// Whether a column with the user precedes the command, as in /etc/crontab.
    pub with_user: bool,
    pub user: Option<String>,
    pub home: Option<String>,
    /// The time zone that cron uses.
    pub zone: Zone,
    /// Whether the installed cron applies `CRON_TZ` to the lines after it.
    pub obeys_cron_tz: bool,
}

/// A configuration, and the lines that were left out of it.
#[derive(Debug)]
pub struct Translation {
    pub text: String,
    pub jobs: Vec<String>,
    pub left_out: Vec<LeftOut>,
    /// Notes about differences that the crontab's author would not expect.
    pub notes: Vec<String>,
}

#[derive(Debug)]
pub struct LeftOut {
    pub number: usize,
    pub text: String,
    pub why: String,
}

/// A job as the crontab defines it.
#[derive(Debug)]
pub struct CronJob {
    /// Its line number, counted from 1.
    pub number: usize,
    pub line: String,
    pub schedule: String,
    pub zone: Zone,
    /// The command, for `sh -c` or for the given shell.
    pub command: String,
    pub shell: Option<String>,
    name: String,
    comments: Vec<String>,
    directory: Option<String>,
    environment: BTreeMap<String, String>,
}

/// One entry of the configuration, in the order of the crontab.
#[derive(Debug)]
enum CrontabEntry {
    Job(CronJob),
    LeftOut(LeftOut),
}

impl CrontabContext<'_> {
    pub fn translate(&self, text: &str) -> Translation {
        let (entries, mail, notes) = self.read(text);
        self.render(entries, &mail, notes)
    }

    /// Returns only the jobs.
    pub fn jobs(&self, text: &str) -> Vec<CronJob> {
        let jobs = self.read(text).0.into_iter().filter_map(|entry| match entry {
            CrontabEntry::Job(job) => Some(job),
            CrontabEntry::LeftOut(_) => None,
        });
        jobs.collect()
    }

    /// Reads jobs and left-out lines in order, mail addresses, and notes.
    fn read(&self, text: &str) -> (Vec<CrontabEntry>, Vec<String>, Vec<String>) {
        let mut names = Names::default();
        let mut environment: BTreeMap<String, String> = BTreeMap::new();
        let (mut entries, mut comments, mut inside) = (Vec::new(), Vec::new(), false);
        let (mut mail, mut notes) = (Vec::new(), Vec::new());
        for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
            if line.starts_with("# BEGIN fencepost ") || line.starts_with("# END fencepost ") {
                inside = line.starts_with("# BEGIN");
                continue;
            }
            if inside || is_replaced(line) {
                continue;
            }
            if let Some(comment) = line.strip_prefix('#') {
                comments.push(comment.trim().to_string());
            } else if line.is_empty() {
                comments.clear();
            } else if let Some((name, value)) = assignment(line) {
                if name == "MAILTO" && !mail.contains(&value) {
                    mail.push(value.clone());
                }
                if name.starts_with("FENCEPOST_") {
                    let why = "it is about fencepost itself: the store is the key `store` of this file, and the rest belongs in \
                               the environment of the program that starts fencepost"
                        .to_string();
                    entries.push(CrontabEntry::LeftOut(LeftOut { number, text: line.to_string(), why }));
                }
                if name == "CRON_TZ" && !self.obeys_cron_tz {
                    notes.push(format!(
                        "Line {number}: the cron that is installed here does not obey {line}. Its times are in {} time.",
                        self.zone
                    ));
                }
                environment.insert(name, value);
            } else {
                let comments = std::mem::take(&mut comments);
                let read = self.job((number, line), &environment, comments, &mut names);
                entries.push(match read {
                    Ok(job) => CrontabEntry::Job(job),
                    Err(why) => CrontabEntry::LeftOut(LeftOut { number, text: line.to_string(), why }),
                });
            }
        }
        (entries, mail, notes)
    }

    fn job(
        &self,
        (number, line): (usize, &str),
        environment: &BTreeMap<String, String>,
        comments: Vec<String>,
        names: &mut Names,
    ) -> Result<CronJob, String> {
        let mut rest = line;
        let mut take = |what: &str| {
            let (word, after) = rest.split_once(char::is_whitespace).ok_or(format!("it has no {what}"))?;
            rest = after.trim_start();
            Ok::<&str, String>(word)
        };
        let fields = if line.starts_with('@') { 1 } else { 5 };
        let mut words = Vec::new();
        for _ in 0..fields {
            words.push(take("command")?);
        }
        let user = if self.with_user { Some(take("command behind the user")?) } else { None };
        let schedule = words.join(" ");
        if schedule.eq_ignore_ascii_case("@reboot") {
            return Err(
                "it runs when the machine starts, and fencepost goes by the clock: leave it in the crontab".into()
            );
        }
        if let Some(user) = user.filter(|user| Some(*user) != self.user.as_deref()) {
            return Err(format!("it runs as {user}: make a configuration as that user"));
        }
        let (command, input) = percent(rest);
        let calls = crate::command::install::words(&command);
        let own = |word: &String| word == "fencepost" || word.ends_with("/fencepost");
        let own = calls.iter().position(own).map(|at| &calls[at + 1..]).unwrap_or_default();
        if own.iter().any(|word| word == "run" || word == "up") {
            return Err("it calls fencepost already".to_string());
        }
        let (mut environment, zone) = self.split(environment)?;
        let schedule = Schedule::parse(&schedule, &zone).map_err(|error| reason(&error))?.text().to_string();
        let shell = environment.remove("SHELL").filter(|shell| shell != "/bin/sh" && shell.starts_with('/'));
        let directory = environment.get("HOME").cloned().or_else(|| self.home.clone());
        let directory = directory.filter(|directory| directory.starts_with('/'));
        let name = names.of(&command);
        let command = match input {
            None => command,
            Some(input) => {
                let end = end_of(&input);
                format!("{{ {command}\n}} <<'{end}'\n{input}\n{end}\n")
            }
        };
        let line = line.to_string();
        Ok(CronJob { number, line, schedule, zone, command, shell, name, comments, directory, environment })
    }

    /// Splits the crontab's variables into those of the job and the zone of its schedule. `TZ` is an ordinary variable:
    /// no cron reads it for the schedule.
    fn split(&self, environment: &BTreeMap<String, String>) -> Result<(BTreeMap<String, String>, Zone), String> {
        let named = environment.get("CRON_TZ").filter(|_| self.obeys_cron_tz);
        let zone = match named.map(|name| name.trim_start_matches(':')).filter(|name| !name.is_empty()) {
            None => self.zone.clone(),
            Some(name) => Zone::parse(name).map_err(|error| reason(&error))?,
        };
        let of_cron = [
            "MAILTO",
            "MAILFROM",
            "CRON_TZ",
            "CRON_WITHIN",
            "RANDOM_DELAY",
            "LOGNAME",
            "USER",
            "CONTENT_TYPE",
            "CONTENT_TRANSFER_ENCODING",
        ];
        let kept = environment.iter().filter(|(name, _)| !of_cron.contains(&name.as_str()));
        let of_zone = (!self.obeys_cron_tz).then(|| environment.get_key_value("CRON_TZ")).flatten();
        let kept = kept.chain(of_zone).filter(|(name, _)| !name.starts_with("FENCEPOST_"));
        Ok((kept.map(|(name, value)| (name.clone(), value.clone())).collect(), zone))
    }

    fn render(&self, entries: Vec<CrontabEntry>, mail: &[String], notes: Vec<String>) -> Translation {
        let jobs: Vec<&CronJob> = entries
            .iter()
            .filter_map(|entry| match entry {
                CrontabEntry::Job(job) => Some(job),
                CrontabEntry::LeftOut(_) => None,
            })
            .collect();
        let zone = common(jobs.iter().map(|job| job.zone.name().to_string())).unwrap_or(self.zone.name().to_string());
        let directory = common(jobs.iter().map(|job| job.directory.clone())).flatten();
        let shared: BTreeMap<String, String> = jobs.first().map_or_else(BTreeMap::new, |first| {
            let in_all =
                |(name, value): &(&String, &String)| jobs.iter().all(|job| job.environment.get(*name) == Some(*value));
            first.environment.iter().filter(in_all).map(|(name, value)| (name.clone(), value.clone())).collect()
        });
        let mut out = format!(
            "# Made by `fencepost init` from {}, which was left as it is. When this is what you want:\n\
             #   fencepost validate\n\
             #   fencepost install crontab --write    (or systemd, or launchd)\n\
             # `install crontab --write` comments the lines of your crontab out that it replaces. Lines elsewhere, and all\n\
             # lines with systemd and launchd, are yours to remove: each job would start twice.\n\n\
             # The zone in which cron meant its times.\ntimezone = {}\n",
            comment(self.from),
            text(&zone)
        );
        notes.iter().for_each(|note| out.push_str(&format!("# {}\n", comment(note))));
        if directory.is_some() || !shared.is_empty() {
            out.push_str("\n[defaults]\n");
        }
        if let Some(directory) = &directory {
            out.push_str(&format!("working_directory = {}    # where cron runs jobs\n", text(directory)));
        }
        out.push_str(&variables(&shared));
        for address in mail {
            out.push_str(&match address.is_empty() {
                true => "\n# MAILTO was empty: what the jobs printed was thrown away.\n".to_string(),
                false => format!(
                    "\n# cron mailed what the jobs printed to {0}. To be told of failures only:\n# [notify]\n\
                     # on_error = {1}\n",
                    comment(address),
                    comment(&text(&format!("mail -s \"$FENCEPOST_JOB: $FENCEPOST_STATUS\" {address}"))),
                ),
            });
        }
        let (mut made, mut left_out) = (Vec::new(), Vec::new());
        for entry in entries {
            match entry {
                CrontabEntry::Job(job) => {
                    out.push_str(&job.render(&zone, directory.as_deref(), &shared));
                    made.push(job.name);
                }
                CrontabEntry::LeftOut(left) => {
                    out.push_str(&format!(
                        "\n# Left out, because {}:\n# {}\n",
                        comment(&left.why),
                        comment(&left.text)
                    ));
                    left_out.push(left);
                }
            }
        }
        Translation { text: out, jobs: made, left_out, notes }
    }
}

/// Chooses a here-document delimiter that does not occur in the input.
fn end_of(input: &str) -> String {
    let mut end = "END_OF_INPUT".to_string();
    while input.lines().any(|line| line == end) {
        end.push('_');
    }
    end
}

impl CronJob {
    fn render(&self, zone: &str, directory: Option<&str>, shared: &BTreeMap<String, String>) -> String {
        let mut out = String::from("\n");
        self.comments.iter().for_each(|line| out.push_str(&format!("# {}\n", comment(line))));
        out.push_str(&format!(
            "# {}\n[job.{}]\nschedule = {}\n",
            comment(&self.line),
            key(&self.name),
            text(&self.schedule)
        ));
        if self.zone.name() != zone {
            out.push_str(&format!("timezone = {}\n", text(self.zone.name())));
        }
        let command = text(&self.command);
        out.push_str(&match &self.shell {
            None => format!("command = {command}\n"),
            Some(shell) => format!("command = [{}, \"-c\", {command}]\n", text(shell)),
        });
        if let Some(own) = self.directory.as_deref().filter(|own| Some(*own) != directory) {
            out.push_str(&format!("working_directory = {}\n", text(own)));
        }
        let own = self.environment.iter().filter(|(name, _)| !shared.contains_key(*name));
        out.push_str(&variables(&own.map(|(name, value)| (name.clone(), value.clone())).collect()));
        out
    }
}

/// Shows an error as the end of a sentence.
fn reason(error: &impl ToString) -> String {
    error.to_string().trim_end_matches('.').to_string()
}

/// Returns the value that all items share.
fn common<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

fn variables(environment: &BTreeMap<String, String>) -> String {
    if environment.is_empty() {
        return String::new();
    }
    let each: Vec<String> =
        environment.iter().map(|(name, value)| format!("{} = {}", key(name), text(value))).collect();
    format!("environment = {{ {} }}\n", each.join(", "))
}

/// Parses a line `NAME = VALUE`, without quotes.
fn assignment(line: &str) -> Option<(String, String)> {
    let unquoted = |text: &str| {
        let text = text.trim();
        let inner = ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
        inner.unwrap_or(text).to_string()
    };
    let (name, value) = line.split_once('=')?;
    let name = unquoted(name);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| (name, unquoted(value)))
}

/// Splits a crontab line into command and input: the first `%` begins the input, each further one is a newline in it.
fn percent(line: &str) -> (String, Option<String>) {
    let (mut parts, mut escaped) = (vec![String::new()], false);
    for c in line.chars() {
        match (c, parts.last_mut()) {
            ('%', Some(part)) if escaped => {
                part.pop();
                part.push('%');
            }
            ('%', _) => parts.push(String::new()),
            (c, Some(part)) => part.push(c),
            (_, None) => {}
        }
        escaped = c == '\\' && !escaped;
    }
    let command = parts.remove(0).trim_end().to_string();
    (command, (!parts.is_empty()).then(|| parts.join("\n")))
}

/// Quotes a text for TOML.
fn text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Writes a TOML key, quoted if necessary.
fn key(name: &str) -> String {
    let is_bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if is_bare { name.to_string() } else { text(name) }
}

/// Makes a text safe for a comment after `#`.
pub fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_are_lines_of_input() {
        assert_eq!(percent("a"), ("a".to_string(), None));
        assert_eq!(percent(r"date +\%F"), ("date +%F".to_string(), None));
        assert_eq!(percent("mail x%Hello,%%bye"), ("mail x".to_string(), Some("Hello,\n\nbye".to_string())));
        assert_eq!(percent(r"a \\% b"), (r"a \\".to_string(), Some(" b".to_string())));
    }

    #[test]
    fn assignments_are_told_from_jobs() {
        let some = |name: &str, value: &str| Some((name.to_string(), value.to_string()));
        assert_eq!(assignment("PATH=/bin:/usr/bin"), some("PATH", "/bin:/usr/bin"));
        assert_eq!(assignment("MAILTO = \"\""), some("MAILTO", ""));
        assert_eq!(assignment("'A' = 'b c'"), some("A", "b c"));
        assert_eq!(assignment("0 7 * * * A=b ./x"), None);
        assert_eq!(assignment("@daily A=b ./x"), None);
    }
}
