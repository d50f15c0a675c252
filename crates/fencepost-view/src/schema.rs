//! The JSON Schema of every answer, derived from the types.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::advise::AdviseAnswer;
use crate::answer::*;
use crate::board::BoardEvent;
use crate::event::EventLine;
use crate::gate::GateAnswer;
use crate::graph::GraphAnswer;
use crate::items::{OnceListAnswer, OnceShowAnswer};
use crate::overdue::OverdueAnswer;
use crate::plan::{PlanAllAnswer, PlanAnswer};
use crate::runs::RunList;
use crate::session::{SessionEventLine, SessionReply, SessionRequestLine};
use crate::status::StatusAnswer;
use crate::up::UpEventLine;
use crate::why::WhyAnswer;

/// An answer that the schema lists. Nothing else is printed by `--json` or served.
pub trait ListedAnswer: Serialize {}

/// Declares the answers, each type with its names in the schema.
macro_rules! answers {
    ($($type:ty: $($name:literal),+;)*) => {
        $(impl ListedAnswer for $type {})*

        fn add_all(list: &mut SchemaList) {
            $($(list.add::<$type>($name);)+)*
        }
    };
}

answers! {
    ErrorAnswer: "error";
    StatusAnswer: "status";
    RunAnswer: "runs", "record";
    RunList: "runs, as one object";
    WhyAnswer: "why";
    PlanAnswer: "plan";
    PlanAllAnswer: "plan, without a job";
    OverdueAnswer: "overdue";
    AdviseAnswer: "advise";
    GateAnswer: "gate";
    GraphAnswer: "graph";
    LogAnswer: "logs";
    LogList: "logs, as one object";
    DryRunAnswer: "run --dry-run";
    LeaseAnswer: "lease";
    HoldLine: "lease hold";
    RunNowAnswer: "run_now";
    PublishAnswer: "publish";
    GitHookAnswer: "publish git --hook";
    OnceAnswer: "once";
    OnceListAnswer: "once list";
    OnceShowAnswer: "once show";
    ForgetAnswer: "forget", "once forget";
    SaidAnswer: "record, inside a run";
    PauseAnswer: "pause", "resume";
    PauseAllAnswer: "pause --all", "resume --all";
    StoreCheckAnswer: "store check";
    StoreStateAnswer: "store, as a server sees it";
    StoreUseAnswer: "store use";
    StoreMoveAnswer: "store move";
    StoreExportAnswer: "store export";
    StoreImportAnswer: "store import";
    StoreAcceptAnswer: "store accept";
    StoreRecoverAnswer: "store recover";
    ValidateAnswer: "validate";
    InitAnswer: "init";
    InstallAnswer: "install";
    DemoAnswer: "demo";
    NotifyAnswer: "notify";
    NotificationAnswer: "webhook";
    UpEventLine: "up";
    EventLine: "run --events";
    ServeTokenAnswer: "serve token";
    BoardEvent<'_>: "serve, event";
    SessionRequestLine: "session, request";
    SessionReply: "session, answer";
    SessionEventLine: "session, event";
}

/// One object with a schema per answer. The answers are named like the verbs; `$defs` holds the types that they share.
pub fn schema() -> Value {
    let mut list =
        SchemaList { generator: SchemaSettings::draft2020_12().for_serialize().into_generator(), answers: Map::new() };
    add_all(&mut list);
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The answers of fencepost --json, and its events",
        "answers": list.answers,
        "$defs": list.generator.take_definitions(true),
    })
}

/// A schema of its own for a value that is one of the named answers, with the types that they share.
pub fn schema_of(answers: &[&str]) -> Value {
    let whole = schema();
    let any: Vec<&Value> = answers.iter().map(|name| &whole["answers"][*name]).collect();
    let mut wanted = BTreeMap::new();
    any.iter().for_each(|answer| collect(answer, &whole["$defs"], &mut wanted));
    let mut schema = json!({ "type": "object", "anyOf": any, "$defs": wanted });
    strip_number_formats(&mut schema);
    schema
}

/// Removes the formats of numbers (`uint64`). They are not of JSON Schema, and validators warn of each.
fn strip_number_formats(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let is_number =
                |format: &str| ["uint", "int", "float", "double"].iter().any(|kind| format.starts_with(kind));
            if fields.get("format").and_then(Value::as_str).is_some_and(is_number) {
                fields.remove("format");
            }
            fields.values_mut().for_each(strip_number_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_number_formats),
        _ => {}
    }
}

/// Adds the types that a schema refers to, and those that they refer to.
fn collect<'a>(schema: &'a Value, all: &'a Value, wanted: &mut BTreeMap<&'a str, &'a Value>) {
    match schema {
        Value::Object(fields) => {
            let name = fields.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/"));
            if let Some(name) = name.filter(|name| !wanted.contains_key(name)) {
                wanted.insert(name, &all[name]);
                collect(&all[name], all, wanted);
            }
            fields.values().for_each(|field| collect(field, all, wanted));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, all, wanted)),
        _ => {}
    }
}

struct SchemaList {
    generator: SchemaGenerator,
    answers: Map<String, Value>,
}

impl SchemaList {
    fn add<T: JsonSchema>(&mut self, name: &str) {
        self.answers.insert(name.to_string(), self.generator.subschema_for::<T>().to_value());
    }
}
