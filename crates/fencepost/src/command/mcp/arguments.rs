//! The arguments of a tool: their schema, and the command line of the verb that they stand for.

use fencepost_core::ledger::Status;
use serde_json::{Map, Value, json};

use super::message::RpcError;
use super::tools::Tool;

/// The longest text on a command line.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The most texts in a list.
const TEXTS_MAX: usize = 1000;

/// An argument of a tool.
#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    pub spot: Spot,
    pub is_required: bool,
    pub about: &'static str,
}

/// The values that an argument takes.
#[derive(Debug)]
pub enum Kind {
    Text,
    OneOf(&'static [&'static str]),
    Whole {
        least: u64,
        most: u64,
    },
    Flag,
    /// A list of texts.
    Texts,
    /// A list of ends of runs.
    Statuses,
}

impl Kind {
    /// Whether it takes a list.
    pub fn is_list(&self) -> bool {
        matches!(self, Self::Texts | Self::Statuses)
    }
}

fn status_words() -> [&'static str; Status::ALL.len()] {
    Status::ALL.map(Status::as_str)
}

/// Where an argument stands on the command line.
#[derive(Debug)]
pub enum Spot {
    /// A word, in the order of the table.
    Word,
    Option(&'static str),
    /// The command, after `--`.
    Command,
    /// Nowhere: the tool itself reads it.
    Own,
}

/// The JSON Schema of a tool's arguments.
pub fn schema(tool: &Tool) -> Value {
    let property = |parameter: &Parameter| {
        let mut schema = match &parameter.kind {
            Kind::Text => json!({ "type": "string" }),
            Kind::OneOf(words) => json!({ "type": "string", "enum": words }),
            Kind::Whole { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Texts => json!({ "type": "array", "items": { "type": "string" }, "maxItems": TEXTS_MAX }),
            Kind::Statuses => {
                let word = json!({ "type": "string", "enum": status_words() });
                json!({ "type": "array", "items": word, "maxItems": TEXTS_MAX })
            }
        };
        schema["description"] = json!(parameter.about);
        (parameter.name.to_string(), schema)
    };
    let properties: Map<String, Value> = tool.parameters.iter().map(property).collect();
    let required: Vec<&str> =
        tool.parameters.iter().filter(|parameter| parameter.is_required).map(|parameter| parameter.name).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// Refuses arguments that do not fit the schema.
pub fn check(tool: &Tool, given: &Map<String, Value>) -> Result<(), RpcError> {
    for name in given.keys() {
        if !tool.parameters.iter().any(|parameter| parameter.name == name) {
            let known: Vec<&str> = tool.parameters.iter().map(|parameter| parameter.name).collect();
            let shown: String = name.chars().take(100).collect();
            return Err(RpcError::params(format!(
                "{} has no argument {shown:?}. It takes: {}.",
                tool.name,
                known.join(", ")
            )));
        }
    }
    tool.parameters.iter().try_for_each(|parameter| match value(given, parameter.name) {
        Some(value) => fits(parameter, value),
        None if parameter.is_required => Err(wrong(tool, parameter, "is missing")),
        None => Ok(()),
    })
}

/// The words after `fencepost` that mean the same as the call. The arguments fit the schema.
pub fn words(tool: &Tool, given: &Map<String, Value>) -> Vec<String> {
    let mut words: Vec<String> = tool.verb.iter().map(ToString::to_string).collect();
    let (mut last, mut command) = (Vec::new(), Vec::new());
    for parameter in tool.parameters {
        let Some(value) = value(given, parameter.name) else { continue };
        match parameter.spot {
            Spot::Own => {}
            Spot::Word => last.extend(texts(value)),
            Spot::Command => command = texts(value),
            Spot::Option(option) if value == &Value::Bool(true) => words.push(option.to_string()),
            Spot::Option(_) if value.is_boolean() => {}
            // In one word: a value that begins with a dash is not taken for an option.
            Spot::Option(option) => words.extend(texts(value).iter().map(|text| format!("{option}={text}"))),
        }
    }
    words.append(&mut last);
    if !command.is_empty() {
        words.push("--".to_string());
        words.append(&mut command);
    }
    words
}

/// A text argument.
pub fn text<'a>(given: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    value(given, name).and_then(Value::as_str)
}

/// An argument, unless it is left out or null.
pub fn value<'a>(given: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    given.get(name).filter(|value| !value.is_null())
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::String(text) => vec![text.clone()],
        other => vec![other.to_string()],
    }
}

fn fits(parameter: &Parameter, value: &Value) -> Result<(), RpcError> {
    let is_good = match (&parameter.kind, value) {
        (Kind::Text, Value::String(text)) => return sound(parameter, text),
        (Kind::OneOf(words), Value::String(text)) => words.contains(&text.as_str()),
        (Kind::Whole { least, most }, value) => value.as_u64().is_some_and(|number| (least..=most).contains(&&number)),
        (Kind::Flag, value) => value.is_boolean(),
        // The verb refuses a word that is none.
        (Kind::Texts | Kind::Statuses, Value::Array(values)) if values.len() <= TEXTS_MAX => {
            return values.iter().try_for_each(|value| match value {
                Value::String(text) => sound(parameter, text),
                _ => Err(refused(parameter, "is a list of strings")),
            });
        }
        _ => false,
    };
    let expected = match &parameter.kind {
        Kind::Text => "is a string".to_string(),
        Kind::OneOf(words) => format!("is one of {}", words.join(", ")),
        Kind::Whole { least, most } => format!("is a whole number from {least} to {most}"),
        Kind::Flag => "is true or false".to_string(),
        Kind::Texts | Kind::Statuses => format!("is a list of at most {TEXTS_MAX} strings"),
    };
    if is_good { Ok(()) } else { Err(refused(parameter, &expected)) }
}

/// Refuses a text that cannot stand on a command line.
fn sound(parameter: &Parameter, text: &str) -> Result<(), RpcError> {
    match parameter.spot {
        Spot::Own => Ok(()),
        _ if text.contains('\0') => Err(refused(parameter, "must not contain a NUL character")),
        _ if text.len() > TEXT_BYTES_MAX => Err(refused(parameter, "is too long: it may have 64 KiB")),
        Spot::Word if text.starts_with('-') => Err(refused(parameter, "must not begin with a dash")),
        Spot::Word if text.is_empty() => Err(refused(parameter, "must not be empty")),
        _ => Ok(()),
    }
}

fn refused(parameter: &Parameter, why: &str) -> RpcError {
    RpcError::params(format!("{} {why}.", parameter.name))
}

fn wrong(tool: &Tool, parameter: &Parameter, why: &str) -> RpcError {
    RpcError::params(format!("{}: {} {why}.", tool.name, parameter.name))
}
