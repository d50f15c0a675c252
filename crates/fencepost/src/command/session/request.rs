//! Requests: read from a line, and turned into the command line of the verb that they stand for. So the values are read by
//! the one grammar and the one table of options.

use fencepost_view::session::{
    ClaimRequest, GateRequest, OnceRequest, PublishRequest, RequestId, SessionRequest, SessionRequestLine,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::args::publish::PublishVerb;
use crate::args::{GateOptions, OnceOptions, RunOptions, Verb};
use crate::command::parsed;
use crate::exit::Failure;
use crate::options::{JobOptions, OptionSet};

/// A line that is no request, with the id that its answer gets.
#[derive(Debug)]
pub struct UnreadRequest {
    pub id: Option<RequestId>,
    pub message: String,
}

/// Reads a request.
pub fn read(line: &[u8]) -> Result<(RequestId, SessionRequest), UnreadRequest> {
    let unread = |id, message: String| UnreadRequest { id, message };
    let value: Value =
        serde_json::from_slice(line).map_err(|error| unread(None, format!("This is not JSON: {error}.")))?;
    let Value::Object(fields) = &value else {
        return Err(unread(None, "A request is a JSON object on one line.".to_string()));
    };
    let id = fields.get("id").and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
    let Some(id) = id else {
        return Err(unread(None, "A request has an id: a string, or a whole number from 0 on.".to_string()));
    };
    if !fields.get("request").is_some_and(Value::is_string) {
        return Err(unread(Some(id), "A request has the field \"request\", which is a string.".to_string()));
    }
    match serde_json::from_value::<SessionRequestLine>(value.clone()) {
        Ok(line) => Ok((line.id, line.request)),
        Err(error) => {
            let of = culprit(fields).map_or_else(String::new, |field| format!(" in the field {field:?}"));
            Err(unread(Some(id), format!("This request cannot be read: {error}{of}.")))
        }
    }
}

/// The field without which the request could be read.
fn culprit(fields: &Map<String, Value>) -> Option<&String> {
    fields.keys().find(|field| {
        let rest = fields.iter().filter(|(name, _)| name != field).map(|(name, value)| (name.clone(), value.clone()));
        serde_json::from_value::<SessionRequestLine>(Value::Object(rest.collect())).is_ok()
    })
}

/// The options of a claim, as `run` takes them.
pub fn claim(request: &ClaimRequest) -> Result<RunOptions, Failure> {
    let flag = |field: &str| {
        let info = JobOptions::INFO.iter().find(|info| info.key == field);
        info.map_or_else(|| field.to_string(), |info| info.flag.to_string())
    };
    let fields = fields(request);
    match parsed(&words(&["run"], fields, &["job"], &[], flag)?)? {
        Verb::Run(options) => Ok(*options),
        other => Err(Failure::Other(format!("{other:?} is no claim."))),
    }
}

/// The options of an item of work, as `once` takes them.
pub fn once(request: &OnceRequest) -> Result<OnceOptions, Failure> {
    let own = ["params", "on_unknown", "retry_after"];
    match parsed(&words(&["once"], fields(request), &["key"], &own, dashed)?)? {
        Verb::Once(options) => Ok(*options),
        other => Err(Failure::Other(format!("{other:?} is no item of work."))),
    }
}

/// The options of a gate.
pub fn gate(request: &GateRequest) -> Result<GateOptions, Failure> {
    match parsed(&words(&["gate"], fields(request), &["upstreams"], &["claim"], dashed)?)? {
        Verb::Gate(options) => Ok(options),
        other => Err(Failure::Other(format!("{other:?} is no gate."))),
    }
}

/// The options of a fenced write, with its content.
pub fn publish(request: &PublishRequest) -> Result<PublishVerb, Failure> {
    let positional: &[&str] = match request.kind.as_str() {
        "file" => &["path"],
        "tree" => &["source", "path"],
        "http" | "s3" => &["url"],
        "redis" => &["key"],
        "git" | "sql" => &[],
        other => {
            return Err(Failure::Usage(format!(
                "There is no target {other:?}: it is file, tree, git, http, sql, redis or s3. A command is fenced by: fencepost \
                 publish exec"
            )));
        }
    };
    let words = words(&["publish", &request.kind], fields(request), positional, &["claim", "kind", "data"], dashed)?;
    let mut verb = match parsed(&words)? {
        Verb::Publish(verb) => verb,
        other => return Err(Failure::Other(format!("{other:?} is no write."))),
    };
    match (verb.payload(), &request.data, &request.from) {
        (Some(payload), Some(data), None) => payload.data = Some(data.clone().into_bytes()),
        (Some(_), None, Some(_)) | (None, None, None) => {}
        (Some(_), ..) => return Err(Failure::Usage("A write takes either data or from.".to_string())),
        (None, ..) => return Err(Failure::Usage(format!("{} takes no data.", request.kind))),
    }
    Ok(verb)
}

/// The option of a field: its own name with dashes.
fn dashed(field: &str) -> String {
    match field {
        "timezone" => "tz".to_string(),
        other => other.replace('_', "-"),
    }
}

/// The fields that a request has.
fn fields(request: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(request) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a request is an object"),
    }
}

/// The words after `fencepost` that mean the same as a request. Fields that are not words come as options in one word: a
/// value that begins with a dash is not taken for an option.
fn words(
    verb: &[&str],
    mut fields: Map<String, Value>,
    positional: &[&str],
    own: &[&str],
    flag: impl Fn(&str) -> String,
) -> Result<Vec<String>, Failure> {
    let mut last = Vec::new();
    for name in positional {
        let value = fields.remove(*name).ok_or_else(|| Failure::Usage(format!("The field {name:?} is missing.")))?;
        last.extend(texts(&value));
    }
    if let Some(wrong) = last.iter().find(|text| text.starts_with('-') || text.is_empty()) {
        return Err(Failure::Usage(format!("{wrong:?} is empty or begins with a dash.")));
    }
    let mut words: Vec<String> = verb.iter().map(ToString::to_string).collect();
    for (name, value) in fields.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
        match value {
            Value::Bool(true) => words.push(format!("--{}", flag(name))),
            Value::Bool(false) => {}
            other => words.extend(texts(other).iter().map(|text| format!("--{}={text}", flag(name)))),
        }
    }
    words.append(&mut last);
    match words.iter().any(|word| word.contains('\0')) {
        true => Err(Failure::Usage("A value must not contain a NUL character.".to_string())),
        false => Ok(words),
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::String(text) => vec![text.clone()],
        other => vec![other.to_string()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{ONCE, RUN};

    /// The fields of a request by the schema.
    fn properties(name: &str) -> Vec<String> {
        let schema = fencepost_view::schema::schema();
        let fields = schema["$defs"][name]["properties"].as_object().expect("an object").keys().cloned();
        fields.collect()
    }

    #[test]
    fn every_field_of_a_claim_is_an_option_of_the_table() {
        for field in properties("ClaimRequest") {
            let is_option = JobOptions::INFO.iter().any(|info| info.key == field && info.is_for(RUN));
            assert!(is_option || ["job", "now", "again"].contains(&field.as_str()), "{field}");
        }
        for field in ["ttl", "grace", "timeout", "wait"] {
            assert!(JobOptions::INFO.iter().any(|info| info.key == field && info.is_for(ONCE)), "{field}");
        }
    }

    #[test]
    fn a_request_becomes_the_command_line_of_its_verb() {
        let line =
            br#"{"id":1,"request":"claim","job":"j","ttl":"10m","needs":["a","b@any"],"now":true,"retries":2,"x":0}"#;
        let Ok((RequestId::Number(1), SessionRequest::Claim(request))) = read(line) else { panic!("it is a claim") };
        let options = claim(&request).unwrap();
        assert_eq!((options.job.as_str(), options.now, options.typed.0.needed().len()), ("j", true, 2));
        assert_eq!(options.typed.0.retries(), 2);
        let line = br#"{"id":"x","request":"publish","claim":1,"kind":"file","path":"p","data":"--x","op":"-o"}"#;
        let Ok((_, SessionRequest::Publish(request))) = read(line) else { panic!("it is a write") };
        let mut verb = publish(&request).unwrap();
        assert_eq!(verb.common().op.as_deref(), Some("-o"));
        assert_eq!(verb.payload().unwrap().data.as_deref(), Some(&b"--x"[..]));
    }

    #[test]
    fn what_is_no_request_says_why_and_keeps_its_id() {
        let id = |line: &str| read(line.as_bytes()).unwrap_err().id;
        for line in ["{", "[]", "3", "{}", r#"{"id":null,"request":"hello"}"#, r#"{"id":-1,"request":"hello"}"#] {
            assert_eq!(id(line), None, "{line}");
        }
        for line in
            [r#"{"id":7}"#, r#"{"id":7,"request":1}"#, r#"{"id":7,"request":"x"}"#, r#"{"id":7,"request":"claim"}"#]
        {
            assert_eq!(id(line), Some(RequestId::Number(7)), "{line}");
        }
    }
}
