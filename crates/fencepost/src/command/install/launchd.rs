//! Agents of the user's launchd.

use std::collections::BTreeMap;

use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;

use super::clockwork::{Poll, machine_zone};
use super::units::TriggerFiles;
use super::{InstallScope, TriggerChange, TriggerSetting, home};
use crate::exit::Failure;

/// Maximum number of times of day listed one by one.
const TIMES_MAX: usize = 96;

const UP: &str = "fencepost.up";
const JOB: &str = "fencepost.job.";

/// Returns the agents' files before and after.
pub fn changes(setting: &TriggerSetting, scope: &InstallScope) -> Result<Vec<TriggerChange>, Failure> {
    let mut wanted = BTreeMap::new();
    if !scope.remove && !scope.per_job {
        let keys = "\t<key>RunAtLoad</key>\n\t<true/>\n\t<key>KeepAlive</key>\n\t<true/>\n";
        wanted.insert(format!("{UP}.plist"), agent(setting, UP, &["up"], keys));
    }
    for (name, schedule) in scope.jobs.iter().filter(|_| scope.per_job) {
        let label = format!("{JOB}{}", name.as_str().replace('/', "\u{2215}"));
        let text = agent(setting, &label, &["run", name.as_str()], &calendar(setting.now, schedule));
        wanted.insert(format!("{label}.plist"), text);
    }
    let mark = configured(&setting.config);
    kind(&|text| text.contains(&mark))?.changes(scope, wanted)
}

pub fn kind(is_for: &dyn Fn(&str) -> bool) -> Result<TriggerFiles<'_>, Failure> {
    Ok(TriggerFiles {
        directory: home()?.join("Library/LaunchAgents"),
        is_ours: |name, text| name.starts_with("fencepost.") && text.contains("<string>--config</string>"),
        is_for,
        job: job_of,
    })
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

fn agent(setting: &TriggerSetting, label: &str, verb: &[&str], keys: &str) -> String {
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
         \t<key>ProcessType</key>\n\t<string>Background</string>\n</dict>\n</plist>\n",
        label = escaped(label),
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
        return "\t<key>StartInterval</key>\n\t<integer>60</integer>\n".to_string();
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
