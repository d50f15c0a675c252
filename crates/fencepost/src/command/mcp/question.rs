//! Tools that read: the answer of the verb, computed in this process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_view::answer::ErrorAnswer;
use fencepost_view::schema::ListedAnswer;
use fencepost_view::text::{clean, without_escapes};
use serde_json::{Value, json};

use crate::args::{Global, Verb};
use crate::command::logs::{self, LogBounds};
use crate::command::plan::Planned;
use crate::command::{advise, gate, overdue, parsed, plan, runs, status, why};
use crate::duration;
use crate::exit::Failure;
use crate::inside::Inside;
use crate::place::{Place, within};

/// How long a question may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The most questions that may hang at once: each keeps a thread until its store answers.
const HANGING_MAX: usize = 32;

/// The lines that `logs` shows of one job.
const LOG_LINES: usize = 200;

/// The most bytes that are shown of each log.
const LOG_BYTES_MAX: u64 = 256 * 1024;

/// The longest answer. A longer one would be of no use to an agent.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// What a tool answers.
#[derive(Debug)]
pub struct ToolReply {
    /// The typed answer, or the typed error.
    pub answer: Value,
    /// For people, if the answer alone does not say it.
    pub text: Option<String>,
    pub is_error: bool,
}

impl ToolReply {
    pub fn failed(failure: &Failure) -> Self {
        let code = failure.code(false).0;
        let answer = value(&ErrorAnswer::new(code, failure.reason(), failure.message()));
        Self { answer, text: Some(failure.message().to_string()), is_error: true }
    }

    /// The result of `tools/call`.
    pub fn into_result(self) -> Value {
        let answer = cleaned(self.answer);
        let json = answer.to_string();
        if json.len() > ANSWER_BYTES_MAX {
            return Self::failed(&too_long(json.len())).into_result();
        }
        let mut content = vec![json!({ "type": "text", "text": json })];
        if let Some(text) = self.text {
            content.insert(0, json!({ "type": "text", "text": shown(&text) }));
        }
        json!({ "content": content, "structuredContent": answer, "isError": self.is_error })
    }
}

/// Answers the question that a command line asks.
pub fn ask(global: &Global, words: &[String]) -> ToolReply {
    let global = global.clone();
    match parsed(words).and_then(|verb| bounded(move || answer(&global, &verb))) {
        Ok(answer) => ToolReply { answer, text: None, is_error: false },
        Err(failure) => ToolReply::failed(&failure),
    }
}

/// Computes something that asks the store, and gives up after a while. The store may hang.
pub fn bounded<T: Send + 'static>(
    question: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    static GOING: AtomicUsize = AtomicUsize::new(0);
    let patience = patience();
    let late = || {
        Failure::Other(format!(
            "The store did not answer within {}. Nothing was changed. Try again, or look for the cause: fencepost store check",
            duration::show(patience)
        ))
    };
    if GOING.load(Ordering::Relaxed) >= HANGING_MAX {
        return Err(late());
    }
    GOING.fetch_add(1, Ordering::Relaxed);
    let answer = within(patience, move || {
        let answer = question();
        GOING.fetch_sub(1, Ordering::Relaxed);
        answer
    });
    answer.unwrap_or_else(|| Err(late()))
}

fn patience() -> Duration {
    // Tests cannot wait so long. Release builds do not read this variable.
    #[cfg(debug_assertions)]
    if let Some(patience) =
        std::env::var("FENCEPOST_TEST_MCP_PATIENCE").ok().and_then(|text| duration::parse(&text).ok())
    {
        return patience;
    }
    PATIENCE
}

/// The answer of a verb that only reads.
fn answer(global: &Global, verb: &Verb) -> Result<Value, Failure> {
    let place = || Place::find(global);
    Ok(match verb {
        Verb::Status(options) => value(&status::answer(global, options)?.0),
        Verb::Runs(options) => value(&runs::answer(&place()?, options)?),
        Verb::Why(options) => value(&why::answer(&place()?, options)?),
        Verb::Plan(options) => match plan::answer(&place()?, options)? {
            Planned::One(plan) => value(plan.as_ref()),
            Planned::All(all) => value(&all),
        },
        Verb::Overdue(options) => value(&overdue::answer(&place()?, options)?),
        Verb::Advise(options) => value(&advise::answer(&place()?, options)?),
        Verb::Gate(options) => {
            let inside = Inside::find()?;
            value(&gate::check(&place()?, options, inside.as_ref().map(|inside| &inside.job.name), None)?.answer)
        }
        Verb::Logs(options) => {
            value(&logs::answer(&place()?, options, Some(LogBounds { lines: LOG_LINES, bytes: LOG_BYTES_MAX }))?)
        }
        other => return Err(Failure::Other(format!("{other:?} is no question."))),
    })
}

/// An answer as JSON.
pub fn value(answer: &impl ListedAnswer) -> Value {
    serde_json::to_value(answer).expect("our own types serialize")
}

/// Strips what a terminal would obey from every text: an answer quotes jobs, notes and output.
fn cleaned(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(shown(&text)),
        Value::Array(values) => values.into_iter().map(cleaned).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (shown(&name), cleaned(value))).collect(),
        other => other,
    }
}

fn shown(text: &str) -> String {
    clean(&without_escapes(text)).into_owned()
}

fn too_long(bytes: usize) -> Failure {
    Failure::Usage(format!(
        "The answer has {bytes} bytes, which is too long. Ask for less: name a job, or give a smaller limit or fewer lines."
    ))
}
