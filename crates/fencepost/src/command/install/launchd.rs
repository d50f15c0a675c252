//! Agents of the user's launchd.

use std::collections::BTreeMap;

use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;

use super::clockwork::{Poll, machine_zone};
use super::units::TriggerFiles;
use super::{At, InstallScope, TriggerChange, TriggerSetting, home, text};
use crate::exit::Failure;

/// Maximum number of times of day listed one by one.
const TIMES_MAX: usize = 96;

const UP: &str = "fencepost.up";
const JOB: &str = "fencepost.job.";
const SERVE: &str = "fencepost.serve";

/// Returns the agents' files before and after.
pub fn changes(setting: &TriggerSetting, scope: &InstallScope) -> Result<Vec<TriggerChange>, Failure> {
    let mut wanted = BTreeMap::new();
    let logs = text(home()?.join("Library/Logs").into_os_string(), "the path of your home directory")?;
    if !scope.remove && !scope.per_job {
        let keys = "\t<key>RunAtLoad</key>\n\t<true/>\n\t<key>KeepAlive</key>\n\t<true/>\n";
        wanted.insert(format!("{UP}.plist"), agent(setting, &logs, UP, &["up"], keys));
    }
    for (name, schedule) in scope.jobs.iter().filter(|_| scope.per_job) {
        let label = format!("{JOB}{}", name.as_str().replace('/', "\u{2215}"));
        let plist = agent(setting, &logs, &label, &["run", name.as_str()], &calendar(setting.now, schedule));
        wanted.insert(format!("{label}.plist"), plist);
    }
    let mark = configured(&setting.config);
    kind(&|text| text.contains(&mark))?.changes(scope, wanted)
}

pub fn kind(is_for: &dyn Fn(&str) -> bool) -> Result<TriggerFiles<'_>, Failure> {
    Ok(TriggerFiles {
        directory: home()?.join("Library/LaunchAgents"),
        is_ours: |name, text| {
            let is_server = name.strip_suffix(".plist") == Some(SERVE);
            name.starts_with("fencepost.") && !is_server && text.contains("<string>--config</string>")
        },
        is_for,
        job: job_of,
    })
}

/// The agent of the server, before and after.
pub fn server(setting: &TriggerSetting, words: &[String], here: &str, remove: bool) -> Result<TriggerChange, Failure> {
    let argv: Vec<&str> = words.iter().map(String::as_str).collect();
    let logs = text(home()?.join("Library/Logs").into_os_string(), "the path of your home directory")?;
    let keys = format!(
        "\t<key>RunAtLoad</key>\n\t<true/>\n\t<key>KeepAlive</key>\n\t<true/>\n\t<key>WorkingDirectory</key>\n\
         \t<string>{}</string>\n",
        escaped(here)
    );
    let plist = agent(setting, &logs, SERVE, &argv, &keys);
    let kind = TriggerFiles {
        directory: home()?.join("Library/LaunchAgents"),
        is_ours: |_, text| text.contains(&format!("<string>{SERVE}</string>")),
        is_for: &|_| true,
        job: job_of,
    };
    kind.single(&format!("{SERVE}.plist"), (!remove).then_some(plist))
}

/// The commands that the user still has to run. launchd keeps the old text of a loaded agent until `bootout`.
pub fn next_steps(changes: &[&TriggerChange]) -> Vec<String> {
    let mut steps = Vec::new();
    for change in changes {
        let At::File(path) = &change.at else { continue };
        let step = |verb: &str| format!("Now: launchctl {verb} gui/$(id -u) '{}'", path.display());
        if change.old.is_some() {
            steps.push(step("bootout"));
        }
        if change.new.is_some() {
            steps.push(step("bootstrap"));
        }
    }
    if changes.iter().any(|change| change.new.is_some()) {
        steps.push("These agents run only while you are logged in. Their output is in ~/Library/Logs.".to_string());
    }
    steps
}

/// The job of an agent, from its file name.
pub fn job_of(name: &str) -> Option<String> {
    Some(name.strip_prefix(JOB)?.strip_suffix(".plist")?.replace('\u{2215}', "/"))
}

/// The line by which an agent of fencepost names its configuration.
pub fn configured(config: &str) -> String {
    format!("<string>--config</string>\n\t\t<string>{}</string>", escaped(config))
}

/// The configuration that an agent of fencepost names.
pub fn config_of(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("<string>--config</string>")?;
    let (config, _) = rest.split_once("<string>")?.1.split_once("</string>")?;
    let plain = config.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
    Some(plain.replace("&amp;", "&"))
}

/// Writes an agent. `Interactive` is full speed: macOS confines a `Background` agent to the slow cores. The agent's output
/// goes to a file of the user's logs; without it launchd throws it away.
fn agent(setting: &TriggerSetting, logs: &str, label: &str, verb: &[&str], keys: &str) -> String {
    let log = format!("{logs}/{label}.log");
    let words: String =
        setting.argv(verb).iter().map(|word| format!("\t\t<string>{}</string>\n", escaped(word))).collect();
    let variable = |(name, value): &(String, String)| {
        format!("\t\t<key>{}</key>\n\t\t<string>{}</string>\n", escaped(name), escaped(value))
    };
    let variables: String = setting.environment.iter().map(variable).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
         \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n<plist version=\"1.0\">\n<dict>\n\t<key>Label</key>\n\
         \t<string>{label}</string>\n\t<key>ProgramArguments</key>\n\t<array>\n{words}\t</array>\n\
         \t<key>EnvironmentVariables</key>\n\t<dict>\n{variables}\t</dict>\n{keys}\t<key>AbandonProcessGroup</key>\n\t<true/>\n\
         \t<key>ProcessType</key>\n\t<string>Interactive</string>\n\t<key>StandardOutPath</key>\n\t<string>{log}</string>\n\
         \t<key>StandardErrorPath</key>\n\t<string>{log}</string>\n</dict>\n</plist>\n",
        label = escaped(label),
        log = escaped(&log),
    )
}

/// When launchd polls. launchd supports neither zones nor intervals that do not divide a day; `run` finds what is due.
pub fn calendar(now: Wall, schedule: &Schedule) -> String {
    let poll = Poll::of(schedule, &machine_zone(), now, true);
    let number = |key: &str, value: u32| format!("<key>{key}</key><integer>{value}</integer>");
    let times: Vec<String> = if poll.hours.len() * poll.minutes.len() <= TIMES_MAX && poll.hours.len() < 24 {
        let each = |hour: u32| poll.minutes.iter().map(move |minute| number("Hour", hour) + &number("Minute", *minute));
        poll.hours.iter().flat_map(|hour| each(*hour)).collect()
    } else if poll.minutes.len() < 60 {
        poll.minutes.iter().map(|minute| number("Minute", *minute)).collect()
    } else {
        // An empty entry is every minute. `StartInterval` would miss the firing that came during sleep.
        vec![String::new()]
    };
    let lines: String = times.iter().map(|time| format!("\t\t<dict>{time}</dict>\n")).collect();
    format!("\t<key>StartCalendarInterval</key>\n\t<array>\n{lines}\t</array>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_survive_xml() {
        assert_eq!(escaped("a&b<c>'\""), "a&amp;b&lt;c&gt;&apos;&quot;");
        assert_eq!(job_of("fencepost.job.news\u{2215}daily.plist").as_deref(), Some("news/daily"));
        assert_eq!(job_of("fencepost.up.plist"), None);
    }
}
