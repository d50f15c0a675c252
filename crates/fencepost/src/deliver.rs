//! Delivers a notification to one recipient: a command, a webhook, a chat service, a monitor or the system's `mail`.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_guard::call::{RequestBody, call};
use fencepost_view::answer::{NotificationAnswer, NotificationEvent};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::config::{EXCERPT_VARIABLE, Recipient, Service};
use crate::notify::{Brief, open_log};
use crate::password;

/// Timeout of a call to a URL.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The most characters of a Discord message.
const DISCORD_CHARS_MAX: usize = 2000;

/// The most characters of a Slack message: Slack cuts longer ones.
const SLACK_CHARS_MAX: usize = 4000;

/// The most bytes of an ntfy message: ntfy turns a longer one into an attachment.
const NTFY_BYTES_MAX: usize = 4000;

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

impl Recipient {
    /// Sends the notification. The error has no secret.
    pub fn deliver(&self, brief: &Brief, notification: &NotificationAnswer) -> Result<(), String> {
        let readable = notification.readable();
        match self {
            Self::Command(command) => run_command(brief, &command.argv(), notification),
            Self::Service(Service::Mail, address) => mail(brief, address, notification),
            Self::Service(Service::Webhook, url) => post(url, JSON, &to_json(notification)),
            Self::Service(Service::Slack, url) => post(url, JSON, &json!({ "text": slack(&readable) }).to_string()),
            Self::Service(Service::Discord, url) => {
                // The output of a job must not mention people.
                let body =
                    json!({ "content": first(&readable, DISCORD_CHARS_MAX), "allowed_mentions": { "parse": [] } });
                post(url, JSON, &body.to_string())
            }
            Self::Service(Service::Ntfy, url) => {
                let (priority, tags) = ntfy_level(notification);
                let title = notification.title();
                let headers = [("Title", title.as_str()), ("Priority", priority), ("Tags", tags)];
                let text = fencepost_core::ledger::cut(&readable, NTFY_BYTES_MAX);
                let body = RequestBody { content_type: PLAIN_TEXT, bytes: text.as_bytes(), headers: &headers };
                call(url, Some(body), CALL_TIMEOUT)
            }
            Self::Service(Service::Healthchecks, url) => {
                let suffix = match notification.event {
                    NotificationEvent::Error | NotificationEvent::Halted | NotificationEvent::Missed => "/fail",
                    NotificationEvent::Recovered => "",
                    NotificationEvent::Skips | NotificationEvent::Drift | NotificationEvent::Test => "/log",
                };
                ping(url, suffix, &readable)
            }
        }
    }
}

/// Calls the URL of a monitor as Healthchecks documents it: a suffix for the event, the text as its log.
pub fn ping(base: &str, suffix: &str, text: &str) -> Result<(), String> {
    let (path, query) = base.split_once('?').map_or((base, ""), |(path, query)| (path, query));
    let mark = if query.is_empty() { "" } else { "?" };
    let url = format!("{}{suffix}{mark}{query}", path.trim_end_matches('/'));
    let body = RequestBody { content_type: PLAIN_TEXT, bytes: text.as_bytes(), headers: &[] };
    call(&url, (!text.is_empty()).then_some(body), CALL_TIMEOUT)
}

fn post(url: &str, content_type: &'static str, text: &str) -> Result<(), String> {
    call(url, Some(RequestBody { content_type, bytes: text.as_bytes(), headers: &[] }), CALL_TIMEOUT)
}

fn to_json(notification: &NotificationAnswer) -> String {
    serde_json::to_string(notification).expect("our own types serialize")
}

/// Text for Slack, with its three control characters escaped: output of a job must not mention people.
fn slack(text: &str) -> String {
    first(text, SLACK_CHARS_MAX).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The first characters of a text.
fn first(text: &str, chars_max: usize) -> String {
    match text.chars().count() > chars_max {
        true => text.chars().take(chars_max - 1).chain(['…']).collect(),
        false => text.to_string(),
    }
}

/// The priority and the tags of an ntfy message, by the words that ntfy documents.
fn ntfy_level(notification: &NotificationAnswer) -> (&'static str, &'static str) {
    match notification.event {
        NotificationEvent::Error | NotificationEvent::Halted | NotificationEvent::Missed => ("high", "rotating_light"),
        NotificationEvent::Skips | NotificationEvent::Drift => ("default", "warning"),
        NotificationEvent::Recovered => ("default", "white_check_mark"),
        NotificationEvent::Test => ("low", "test_tube"),
    }
}

/// Calls the system's `mail`. An address is no secret, so it may be an argument.
fn mail(brief: &Brief, address: &str, notification: &NotificationAnswer) -> Result<(), String> {
    let subject = format!("fencepost: {}", notification.title());
    let argv = ["mail", "-s", &subject, address].map(OsString::from);
    run_command(brief, &argv, notification)
}

/// The variables of a notification command, and the JSON fields they are filled from.
const VARIABLES: [(&str, &str); 10] = [
    ("FENCEPOST_JOB", "job"),
    ("FENCEPOST_RUN", "run"),
    ("FENCEPOST_EVENT", "event"),
    ("FENCEPOST_STATUS", "status"),
    ("FENCEPOST_SLOT", "slot"),
    ("FENCEPOST_DATE", "date"),
    ("FENCEPOST_TOKEN", "token"),
    ("FENCEPOST_EXIT_CODE", "exit_code"),
    ("FENCEPOST_MESSAGE", "text"),
    ("FENCEPOST_CONFIG", "config"),
];

/// Runs a command with the message on its standard input: text for people, an empty line, the JSON on one line.
fn run_command(brief: &Brief, argv: &[OsString], notification: &NotificationAnswer) -> Result<(), String> {
    let (program, arguments) = argv.split_first().ok_or("it is empty")?;
    let out = || open_log(&brief.state).map_or_else(|_| Stdio::null(), Stdio::from);
    let mut command = Command::new(program);
    command.args(arguments).envs(&brief.environment).process_group(0);
    password::keep_from(&mut command);
    command.env_remove(EXCERPT_VARIABLE);
    command.stdin(Stdio::piped()).stdout(out()).stderr(out());
    let fields = serde_json::to_value(notification).expect("our own types serialize");
    for (name, key) in VARIABLES {
        match &fields[key] {
            Value::Null => command.env_remove(name),
            Value::String(text) => command.env(name, text.replace('\0', " ")),
            other => command.env(name, other.to_string()),
        };
    }
    if let Some(directory) = &brief.directory {
        command.current_dir(directory);
    }
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("there is no program {program:?}"),
        _ => error.to_string(),
    })?;
    let text = format!("{}\n\n{}\n", notification.readable(), to_json(notification));
    if let Some(mut input) = child.stdin.take() {
        // A command that does not read its standard input must not block the notifier.
        std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
    }
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("it ended with {status}")),
            Ok(None) if begun.elapsed() < COMMAND_TIMEOUT => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
                let _ = child.wait();
                return Err(format!("it took longer than {} seconds", COMMAND_TIMEOUT.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_mentions_no_one_and_fits() {
        assert_eq!(slack("<!channel> a & b"), "&lt;!channel&gt; a &amp; b");
        let cut = first(&"é".repeat(3000), DISCORD_CHARS_MAX);
        assert_eq!((cut.chars().count(), cut.ends_with('…')), (2000, true));
        assert_eq!(first("short", 5), "short");
    }
}
