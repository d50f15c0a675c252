//! The JSON Schema of every answer, derived from the types.

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
    list.add::<WhyAnswer>("why");
    list.add::<PlanAnswer>("plan");
    list.add::<PlanAllAnswer>("plan, without a job");
    list.add::<OverdueAnswer>("overdue");
    list.add::<AdviseAnswer>("advise");
    list.add::<GateAnswer>("gate");
    list.add::<GraphAnswer>("graph");
    list.add::<LogAnswer>("logs");
    list.add::<DryRunAnswer>("run --dry-run");
    list.add::<LeaseAnswer>("lease");
    list.add::<HoldLine>("lease hold");
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
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The answers of fencepost --json, and its events",
        "answers": list.answers,
        "$defs": list.generator.take_definitions(true),
    })
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
