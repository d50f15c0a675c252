//! Questions about one job: the answer of a verb, with the parameters of the tool of `mcp` that has its name.

use fencepost_store::percent;
use fencepost_view::ReasonCode;
use fencepost_view::why::OUTPUT;
use fencepost_web::path::segment;
use fencepost_web::query::pairs;
use hyper::StatusCode;
use hyper::header;
use serde_json::{Map, Value, json};

use super::answer::ServeRequest;
use super::reply::{self, ServeReply};
use crate::command::mcp::arguments::{self, Kind};
use crate::command::mcp::question::{ToolReply, ask};
use crate::command::mcp::tools;

/// The most questions at once that ask the store themselves.
pub const QUESTIONS_MAX: usize = 8;

/// The most parameters of a request.
const PARAMETERS_MAX: usize = 50;

/// How many runs a list has, unless it is asked for another number.
const RUNS: usize = 50;

/// Attempts of one slot that a list in parts may have to pass over.
const ATTEMPTS_OF_A_SLOT: usize = 64;

/// The parameters of a request, decoded.
#[derive(Debug, Default)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub fn parse(query: &str) -> Result<Self, String> {
        let decode =
            |text: &str| percent::decode(text).ok_or_else(|| "A parameter is not percent-encoded UTF-8.".to_string());
        let decoded = pairs(query).map(|(name, value)| Ok((decode(&name)?, decode(&value)?)));
        let parameters: Vec<_> = decoded.collect::<Result<_, String>>()?;
        match parameters.len() > PARAMETERS_MAX {
            true => Err(format!("A request may have {PARAMETERS_MAX} parameters.")),
            false => Ok(Self(parameters)),
        }
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A whole number from 1 to `most`.
    pub fn whole(&self, name: &str, most: usize) -> Result<Option<usize>, String> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        number.map(Some).ok_or_else(|| format!("{name} is a whole number from 1 to {most}."))
    }

    /// Refuses parameters besides these, and each that is given twice.
    pub fn only(&self, known: &[&str]) -> Result<(), String> {
        for (at, (name, _)) in self.0.iter().enumerate() {
            let shown: String = name.chars().take(100).collect();
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
                return Err(format!("There is no parameter {shown:?} here. There are: {known}."));
            }
            if self.0[..at].iter().any(|(other, _)| other == name) {
                return Err(format!("{shown} is given twice."));
            }
        }
        Ok(())
    }
}

/// Answers a question about the job of the path.
pub async fn answer(asked: &ServeRequest<'_>, tool: &'static str) -> ServeReply {
    let (words, page) = match words(asked, tool) {
        Ok(found) => found,
        Err(why) => return reply::bad_request(&why),
    };
    if let Err(reply) = asked.board_with_job().await {
        return reply;
    }
    let Ok(_place) = asked.server.questions.acquire().await else {
        return reply::unavailable("The server is stopping.");
    };
    let global = asked.server.global_of(asked.caller);
    let Ok(mut told) = tokio::task::spawn_blocking(move || ask(&global, &words)).await else {
        return reply::unavailable("The question could not be answered. Ask again.");
    };
    if told.is_error {
        // A run whose output is not kept on this host is not there; the store has been asked before.
        return if tool == "logs" { reply::value(StatusCode::NOT_FOUND, &told.answer) } else { failed(&told) };
    }
    if asked.caller.client().is_none() {
        withhold(&mut told.answer);
    }
    let next = page.and_then(|page| page.cut(&mut told.answer));
    let reply = reply::tagged(asked.headers, reply::value_bytes(&told.answer));
    match next {
        Some(next) => {
            let path = format!("/api/v1/jobs/{}/runs", segment(asked.job.unwrap_or_default()));
            reply::with_header(reply, header::LINK, &format!("<{path}?{next}>; rel=\"next\""))
        }
        None => reply,
    }
}

/// The command line of a question, and which part of a long answer is wanted.
fn words(asked: &ServeRequest<'_>, name: &'static str) -> Result<(Vec<String>, Option<RunsPage>), String> {
    let tool = tools::find(name).ok_or_else(|| format!("There is no question {name}."))?;
    let page = if name == "runs" { Some(RunsPage::of(&asked.parameters)?) } else { None };
    let mut given = Map::new();
    for (name, text) in asked.parameters.0.iter().filter(|(name, _)| page.is_none() || name != "cursor") {
        let kind = tool.parameters.iter().find(|parameter| parameter.name == name).map(|parameter| &parameter.kind);
        let value = match kind {
            Some(Kind::Whole { .. }) => text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number)),
            Some(Kind::Flag) if text == "true" || text.is_empty() => json!(true),
            Some(Kind::Flag) if text == "false" => json!(false),
            Some(kind) if kind.is_list() => {
                let list = given.entry(name.as_str()).or_insert_with(|| json!([]));
                list.as_array_mut().ok_or("A list is expected.")?.push(json!(text));
                continue;
            }
            _ => json!(text),
        };
        if name == "job" || given.insert(name.clone(), value).is_some() {
            return Err(format!("{} is given twice.", name.chars().take(100).collect::<String>()));
        }
    }
    given.insert("job".to_string(), json!(asked.job));
    if let Some(page) = &page {
        page.widen(&mut given);
    }
    // A list in parts is longer than a tool may ask for; its length was checked before.
    let limit = page.as_ref().and_then(|_| given.remove("limit"));
    arguments::check(tool, &given).map_err(|error| error.message)?;
    given.extend(limit.map(|limit| ("limit".to_string(), limit)));
    Ok((arguments::words(tool, &given), page))
}

/// A part of a list of runs, by the run that it comes after.
#[derive(Debug)]
struct RunsPage {
    limit: usize,
    /// The slot and the id of the run before.
    after: Option<(String, String)>,
    /// The other parameters.
    rest: String,
}

impl RunsPage {
    fn of(parameters: &Parameters) -> Result<Self, String> {
        let limit = parameters.whole("limit", 500)?.unwrap_or(RUNS);
        let after = parameters.text("cursor").map(|cursor| {
            let known = cursor.split_once('~').filter(|(slot, run)| !slot.is_empty() && !run.is_empty());
            known.map(|(slot, run)| (slot.to_string(), run.to_string()))
        });
        let after = match after {
            Some(None) => return Err("The cursor is not one that this server gave.".to_string()),
            Some(after) => after,
            None => None,
        };
        let rest = parameters.0.iter().filter(|(name, _)| !["cursor", "limit"].contains(&name.as_str()));
        let rest = rest.map(|(name, value)| format!("{}={}&", segment(name), segment(value))).collect();
        Ok(Self { limit, after, rest })
    }

    /// Asks for as many runs as are needed to find this part and to know whether there are more.
    fn widen(&self, given: &mut Map<String, Value>) {
        let over = 1 + self.after.as_ref().map_or(0, |_| ATTEMPTS_OF_A_SLOT);
        given.insert("limit".to_string(), json!(self.limit + over));
        if let Some((slot, _)) = &self.after {
            given.insert("until".to_string(), json!(slot));
        }
    }

    /// Cuts the answer down to this part, and says how to ask for the next.
    fn cut(&self, answer: &mut Value) -> Option<String> {
        let runs = answer.get_mut("runs")?.as_array_mut()?;
        if let Some((_, after)) = &self.after {
            let before = runs.iter().position(|run| run["run"] == **after);
            runs.drain(..before.map_or(0, |at| at + 1));
        }
        let is_all = runs.len() <= self.limit;
        runs.truncate(self.limit);
        let last = runs.last().filter(|_| !is_all)?;
        let cursor = format!("{}~{}", last["slot"].as_str()?, last["run"].as_str()?);
        Some(format!("{}limit={}&cursor={}", self.rest, self.limit, segment(&cursor)))
    }
}

/// Removes what jobs printed: every user of this host may ask without a token.
fn withhold(answer: &mut Value) {
    let Some(fields) = answer.as_object_mut() else { return };
    let has_output = fields.remove("last_output").is_some();
    if let Some(sentences) = fields.get_mut("sentences").and_then(Value::as_array_mut).filter(|_| has_output) {
        sentences.retain(|sentence| sentence["about"] != OUTPUT);
    }
}

/// A failed question, with the status of its reason.
pub fn failed(told: &ToolReply) -> ServeReply {
    let reason = told.answer["error"]["reason"].as_str().unwrap_or_default();
    let is = |code: ReasonCode| reason == code.as_str();
    let status = match () {
        () if is(ReasonCode::Usage) => StatusCode::BAD_REQUEST,
        () if is(ReasonCode::Held) || is(ReasonCode::Running) => StatusCode::CONFLICT,
        () => StatusCode::SERVICE_UNAVAILABLE,
    };
    reply::value(status, &told.answer)
}
