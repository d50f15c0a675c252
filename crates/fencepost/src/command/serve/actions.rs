//! What changes something: run now, pause, resume, release. Each is this program as a child, with the verb's own rules.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use fencepost_guard::clock;
use fencepost_guard::state::state_directory;
use fencepost_view::ReasonCode;
use fencepost_view::time::UtcTime;
use fencepost_web::JobAction;
use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::Server;
use super::poller::TimedBoard;
use super::question::{Parameters, failed};
use super::reply::{self, ServeReply};
use super::tokens::Client;
use crate::args::Global;
use crate::command::mcp::question::ToolReply;
use crate::command::mcp::{order, run_now};
use crate::{report, show};

/// How long a request waits for a run that it started, in seconds. The run goes on.
const RUN_WAIT_SECONDS: u64 = 2;

/// The file in the state directory that names every action.
const RECORD: &str = "serve-actions.jsonl";

/// The longest note of a pause.
const NOTE_CHARACTERS_MAX: usize = 500;

/// The name of an action's answer in the schema.
pub fn answer_of(action: JobAction) -> &'static str {
    match action {
        JobAction::RunNow => "run_now",
        JobAction::Pause => "pause",
        JobAction::Resume => "resume",
        JobAction::Release => "lease",
    }
}

/// The fields that the form of an action may have.
pub fn fields_of(action: JobAction) -> &'static [&'static str] {
    match action {
        JobAction::Pause => &["for", "note"],
        JobAction::RunNow | JobAction::Resume | JobAction::Release => &[],
    }
}

/// A job as the verbs on this host name it.
#[derive(Debug)]
pub struct NamedJob {
    /// Its full name, for the record of actions.
    full: String,
    name: String,
    /// This host has its own.
    is_per_host: bool,
}

/// How the verbs name a job. They act on no other host's own, and start none that the configuration does not give this host.
pub fn named(board: &TimedBoard, action: JobAction, job: &str) -> Result<NamedJob, String> {
    let Some((name, host)) = job.split_once('@') else {
        return Ok(NamedJob { full: job.to_string(), name: job.to_string(), is_per_host: false });
    };
    if host != board.host {
        let there = action.command(job);
        return Err(format!(
            "{job} is the own job of {host}, and this server runs on {}. Nothing was done. On {host}: {there}",
            board.host
        ));
    }
    let is_configured = || board.board.status.jobs.iter().any(|known| known.job == job && known.configured);
    if action == JobAction::RunNow && !is_configured() {
        return Err(format!(
            "The server's configuration has no job {name} with per_host = true. Nothing was started. On {host}: {}",
            action.command(job)
        ));
    }
    Ok(NamedJob { full: job.to_string(), name: name.to_string(), is_per_host: true })
}

/// The words after `fencepost`.
fn words(action: JobAction, job: &NamedJob, client: &str, form: &Parameters) -> Vec<String> {
    let flag = job.is_per_host.then(|| "--per-host".to_string());
    let mut words = match action {
        JobAction::RunNow => vec!["run".to_string()],
        JobAction::Pause => {
            let note: String = form.text("note").unwrap_or_default().chars().take(NOTE_CHARACTERS_MAX).collect();
            let note = if note.is_empty() { format!("by {client}") } else { format!("{note} (by {client})") };
            let length = form.text("for").filter(|length| !length.is_empty());
            let length = length.map(|length| format!("--for={length}"));
            ["pause".to_string(), format!("--note={note}")].into_iter().chain(length).collect()
        }
        JobAction::Resume => vec!["resume".to_string()],
        JobAction::Release => ["lease", "release", "--force"].map(String::from).to_vec(),
    };
    words.extend(flag.into_iter().chain([job.name.clone()]));
    words
}

/// Carries out an action on a job that is known.
pub async fn act(server: &Server, action: JobAction, job: &NamedJob, client: &Client, form: &Parameters) -> ServeReply {
    if let Err(why) = record(action, &job.full, client) {
        return reply::error(
            StatusCode::SERVICE_UNAVAILABLE,
            ReasonCode::Failed,
            &format!("The action cannot be recorded ({why}), so nothing was done."),
        );
    }
    let (global, words) = (server.global.clone(), words(action, job, &client.name, form));
    let name = job.name.clone();
    let carried_out = tokio::task::spawn_blocking(move || carry_out(&global, action, &name, &words)).await;
    server.poller.look_soon();
    let Ok(told) = carried_out else {
        return reply::unavailable("The action may have been taken. Look at the job before you repeat it.");
    };
    match (told.is_error, reason(&told.answer)) {
        (_, Some(ReasonCode::Held | ReasonCode::Running)) => reply::value(StatusCode::CONFLICT, &told.answer),
        (false, _) => reply::value(StatusCode::OK, &told.answer),
        (true, _) if told.answer["state"].is_string() => reply::value(StatusCode::OK, &told.answer),
        // A job that this server cannot start: the form itself has nothing that could be wrong.
        (true, Some(ReasonCode::Usage)) if action == JobAction::RunNow => {
            reply::value(StatusCode::FORBIDDEN, &told.answer)
        }
        (true, _) => failed(&told),
    }
}

fn carry_out(global: &Global, action: JobAction, job: &str, words: &[String]) -> ToolReply {
    match action {
        JobAction::RunNow => {
            let given: Map<String, Value> =
                [("job".to_string(), json!(job)), ("wait_seconds".to_string(), json!(RUN_WAIT_SECONDS))]
                    .into_iter()
                    .collect();
            run_now::call(global, &given)
        }
        _ => order::carry_out(global, words),
    }
}

/// Why an answer came to nothing.
fn reason(answer: &Value) -> Option<ReasonCode> {
    let word = answer["error"]["reason"].as_str().or_else(|| answer["end"]["reason"].as_str())?;
    ReasonCode::ALL.iter().copied().find(|reason| reason.as_str() == word)
}

/// Writes down who asks for what, and when, before it is done.
fn record(action: JobAction, job: &str, client: &Client) -> std::io::Result<()> {
    let at = UtcTime(clock::now().wall);
    let line = json!({ "at": at, "client": client.name, "action": action.as_str(), "job": job });
    let state = state_directory().map_err(std::io::Error::other)?;
    let mut file = File::options().append(true).create(true).mode(0o600).open(state.join(RECORD))?;
    file.write_all(format!("{}\n", show::escaped(line.to_string())).as_bytes())?;
    report::say(&show::flat(&format!("{at}: {} asks for {} of {job}.", client.name, action.as_str())));
    Ok(())
}
