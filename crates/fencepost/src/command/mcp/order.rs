//! Tools that write: this program as a child, with the verb's own command line.
//!
//! A run forks its keeper while its process has one thread, so it cannot be made in this process. The child prints the typed
//! answer, and says on standard error what a person would read.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fencepost_view::answer::{AnswerVersion, OnceAnswer, OnceState};
use serde_json::{Map, Value};

use super::arguments::{text, value, words};
use super::message::RpcError;
use super::question::{ToolReply, value as json};
use super::tools::Tool;
use crate::args::Global;
use crate::command::mint_run;
use crate::command::serve::tokens;
use crate::duration;
use crate::exit::Failure;

/// How long a write may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long `publish_file` waits for another write to the same file.
const PUBLISH_WAIT: &str = "--wait=20s";

/// How long a call waits for a command, unless it says so.
const WAIT_SECONDS: u64 = 20;

/// How much of the output of a child is read, from its end.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;

/// How often a child is looked at.
const POLL: Duration = Duration::from_millis(10);

/// Makes the write that a call asks for.
pub fn give(global: &Global, tool: &Tool, given: &Map<String, Value>) -> Result<ToolReply, RpcError> {
    let mut words = words(tool, given);
    let (mut payload, mut wait) = (None, PATIENCE);
    match tool.name {
        "publish_file" => {
            payload = text(given, "content");
            if payload.is_some() == text(given, "from").is_some() {
                return Err(RpcError::params("publish_file takes either content or from."));
            }
            words.push(PUBLISH_WAIT.to_string());
        }
        "once" => {
            let is_listed = value(given, "command").and_then(Value::as_array).is_some_and(|words| !words.is_empty());
            if is_listed == text(given, "shell").is_some() {
                return Err(RpcError::params("once takes either command or shell."));
            }
            wait = waits(given);
        }
        _ => {}
    }
    let made = Order::start(global, &words, payload.unwrap_or_default()).and_then(|order| order.outcome(wait));
    Ok(match made {
        Ok(OrderProgress::Going(child)) if tool.name == "once" => {
            reap(child);
            in_progress(text(given, "key").unwrap_or_default())
        }
        made => settled(tool.name, made),
    })
}

/// Carries out a verb that writes, and ends by itself.
pub fn carry_out(global: &Global, words: &[String]) -> ToolReply {
    let verb = words.first().map(String::as_str).unwrap_or_default();
    settled(verb, Order::start(global, words, "").and_then(|order| order.outcome(PATIENCE)))
}

/// The reply to a write that has ended, or that is stopped now.
fn settled(name: &str, made: io::Result<OrderProgress>) -> ToolReply {
    match made {
        Ok(OrderProgress::Ended(ended)) => ended.reply(name),
        Ok(OrderProgress::Going(mut child)) => {
            let _ = child.kill();
            reap(child);
            ToolReply::failed(&Failure::Other(format!(
                "{name} did not end within {} and was stopped. It may have taken effect. Look before you repeat it: status, runs",
                duration::show(PATIENCE)
            )))
        }
        Err(error) => ToolReply::failed(&Failure::Other(format!("Cannot start {name}: {error}. Nothing was changed."))),
    }
}

/// How long a call waits for a command to end.
pub fn waits(given: &Map<String, Value>) -> Duration {
    Duration::from_secs(value(given, "wait_seconds").and_then(Value::as_u64).unwrap_or(WAIT_SECONDS))
}

/// This program with the options that the server was started with.
pub fn command(global: &Global) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env_remove(tokens::VARIABLE);
    if let Some(config) = &global.config {
        command.arg("--config").arg(config);
    }
    if let Some(store) = &global.store {
        command.args(["--store", store]);
    }
    Ok(command)
}

/// Held while a child is started: descriptors that one child inherits must not leak into another.
pub static STARTING: Mutex<()> = Mutex::new(());

/// Waits for the end of a child that no call waits for.
fn reap(mut child: Child) {
    std::thread::spawn(move || child.wait());
}

/// A child that was started.
struct Order {
    child: Child,
    stdout: File,
    stderr: File,
}

enum OrderProgress {
    Ended(Ended),
    Going(Child),
}

/// What a child said.
struct Ended {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Order {
    /// Starts the child in a process group of its own, so a signal to the agent's group does not end it half-way. Its output goes
    /// to files: it may outlive this server, and a pipe would break.
    fn start(global: &Global, words: &[String], payload: &str) -> io::Result<Self> {
        let mut command = command(global)?;
        let (stdin, stdout, stderr) = (unnamed()?, unnamed()?, unnamed()?);
        (&stdin).write_all(payload.as_bytes())?;
        (&stdin).seek(SeekFrom::Start(0))?;
        command.arg("--json").args(words).process_group(0);
        command.stdin(stdin).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        let _starting = STARTING.lock();
        Ok(Self { child: command.spawn()?, stdout, stderr })
    }

    fn outcome(mut self, wait: Duration) -> io::Result<OrderProgress> {
        let begun = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) => {
                    return Ok(OrderProgress::Ended(Ended {
                        status,
                        stdout: end(&self.stdout)?,
                        stderr: end(&self.stderr)?,
                    }));
                }
                None if begun.elapsed() >= wait => return Ok(OrderProgress::Going(self.child)),
                None => std::thread::sleep(POLL),
            }
        }
    }
}

impl Ended {
    fn reply(self, name: &str) -> ToolReply {
        let said = told(&self.stderr);
        let Some((answer, printed)) = typed(&self.stdout) else {
            let message = said.unwrap_or_else(|| format!("{name} ended with {} and said nothing.", self.status));
            return ToolReply::failed(&Failure::Other(message));
        };
        let is_error = !self.status.success();
        // What a command printed is an answer only of `once`.
        let printed = Some(printed.trim_end()).filter(|printed| !printed.is_empty() && name == "once");
        let text: Vec<&str> = said.as_deref().into_iter().chain(printed).collect();
        ToolReply { answer, text: Some(text.join("\n")).filter(|text| !text.is_empty()), is_error }
    }
}

/// What fencepost said on standard error, if anything.
pub fn told(stderr: &str) -> Option<String> {
    Some(stderr.replace("fencepost: ", "").trim().to_string()).filter(|said| !said.is_empty())
}

/// The answer that fencepost printed last, and what its command printed before. The command may have left its last line
/// without an end.
fn typed(stdout: &str) -> Option<(Value, &str)> {
    let line = stdout.trim_end().rfind('\n').map_or(0, |end| end + 1);
    let start = line + stdout[line..].rfind("{\"v\":")?;
    let answer: Value = serde_json::from_str(stdout[start..].trim_end()).ok()?;
    Some((answer, &stdout[..start]))
}

fn in_progress(key: &str) -> ToolReply {
    let answer = OnceAnswer {
        v: AnswerVersion,
        key: key.to_string(),
        state: OnceState::InProgress,
        exit_code: None,
        replayed: false,
    };
    let text = "The command is still going, and goes on. Call once again with the same key: it does not run twice.";
    ToolReply { answer: json(&answer), text: Some(text.to_string()), is_error: false }
}

/// A private file without a name.
pub fn unnamed() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!(".fencepost-mcp-{}", mint_run()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// The last part of a file.
pub fn end(mut file: &File) -> io::Result<String> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(OUTPUT_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_answer_follows_what_the_command_printed() {
        assert_eq!(typed("{\"v\":1}\n"), Some((json!({ "v": 1 }), "")));
        assert_eq!(typed("a\nb{\"v\":1,\"x\":\"y\"}\n"), Some((json!({ "v": 1, "x": "y" }), "a\nb")));
        assert_eq!(typed("{\"v\":0}\n{\"v\":1}"), Some((json!({ "v": 1 }), "{\"v\":0}\n")));
        assert_eq!(typed("nothing\n"), None);
        assert_eq!(typed(""), None);
    }
}
