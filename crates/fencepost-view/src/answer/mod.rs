//! The types that `--json` prints. The HTTP API, the MCP tools and the SDKs serialise the same ones.

mod demo;
mod error;
mod lease;
mod notification;
mod run;
mod setup;
mod store;
mod write;

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

pub use demo::{Aftermath, DemoAnswer, IncidentAnswer};
pub use error::{ErrorAnswer, ErrorDetail};
pub use lease::{HoldEvent, HoldLine, LeaseAnswer};
pub use notification::{
    MissedRange, NotificationAnswer, NotificationEvent, NotifiedRun, NotifyAnswer, RecipientResult, UnrecordedRun,
};
pub(crate) use run::unrecorded;
pub use run::{ConsumedUpstream, RecordedArtifact, RunAnswer};
pub use setup::{
    InitAnswer, InstallAnswer, InstallChange, InstalledDifference, JobMistakes, LeftOutLine, LogAnswer, LogList,
    MistakeAnswer, ServeTokenAnswer, ValidateAnswer, ValidatedJob,
};
pub use store::{
    CheckLine, CheckResult, CheckVerdict, LastStoreCheck, StoreAcceptAnswer, StoreCheckAnswer, StoreExportAnswer,
    StoreImportAnswer, StoreMoveAnswer, StoreRecoverAnswer, StoreStateAnswer, StoreUseAnswer,
};
pub use write::{
    DryRunAnswer, DryRunDecision, ForgetAnswer, GitHookAnswer, OnceAnswer, OnceState, PauseAllAnswer, PauseAnswer,
    PauseChange, PublishAnswer, RunNowAnswer, RunNowState, SaidAnswer,
};

/// The format of the answers. It serialises as the number 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerVersion;

impl Serialize for AnswerVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(1)
    }
}

impl JsonSchema for AnswerVersion {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AnswerVersion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "const": 1, "description": "The format of the answers." })
    }
}
