//! The JSON Schema of every answer, derived from the types.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::advise::AdviseAnswer;
use crate::answer::*;
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

/// One object with a schema per answer. The answers are named like the verbs; `$defs` holds the types that they share.
pub fn schema() -> Value {
    let mut list =
        SchemaList { generator: SchemaSettings::draft2020_12().for_serialize().into_generator(), answers: Map::new() };
    list.add::<ErrorAnswer>("error");
    list.add::<StatusAnswer>("status");
    list.add::<RunAnswer>("runs");
    list.add::<RunList>("runs, as one object");
    list.add::<WhyAnswer>("why");
    list.add::<PlanAnswer>("plan");
    list.add::<PlanAllAnswer>("plan, without a job");
    list.add::<OverdueAnswer>("overdue");
    list.add::<AdviseAnswer>("advise");
    list.add::<GateAnswer>("gate");
    list.add::<GraphAnswer>("graph");
    list.add::<LogAnswer>("logs");
    list.add::<LogList>("logs, as one object");
    list.add::<DryRunAnswer>("run --dry-run");
    list.add::<LeaseAnswer>("lease");
    list.add::<HoldLine>("lease hold");
    list.add::<RunNowAnswer>("run_now");
    list.add::<PublishAnswer>("publish");
    list.add::<GitHookAnswer>("publish git --hook");
    list.add::<OnceAnswer>("once");
    list.add::<OnceListAnswer>("once list");
    list.add::<OnceShowAnswer>("once show");
    list.add::<ForgetAnswer>("once forget");
    list.add::<ForgetAnswer>("forget");
    list.add::<RunAnswer>("record");
    list.add::<SaidAnswer>("record, inside a run");
    list.add::<PauseAnswer>("pause");
    list.add::<PauseAnswer>("resume");
    list.add::<PauseAllAnswer>("pause --all");
    list.add::<PauseAllAnswer>("resume --all");
    list.add::<StoreCheckAnswer>("store check");
    list.add::<StoreUseAnswer>("store use");
    list.add::<StoreMoveAnswer>("store move");
    list.add::<StoreExportAnswer>("store export");
    list.add::<StoreImportAnswer>("store import");
    list.add::<StoreAcceptAnswer>("store accept");
    list.add::<StoreRecoverAnswer>("store recover");
    list.add::<ValidateAnswer>("validate");
    list.add::<InitAnswer>("init");
    list.add::<InstallAnswer>("install");
    list.add::<DemoAnswer>("demo");
    list.add::<NotifyAnswer>("notify");
    list.add::<NotificationAnswer>("webhook");
    list.add::<UpEventLine>("up");
    list.add::<EventLine>("run --events");
    list.add::<SessionRequestLine>("session, request");
    list.add::<SessionReply>("session, answer");
    list.add::<SessionEventLine>("session, event");
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
