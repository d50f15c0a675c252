//! Failures, as programs read them.

use schemars::JsonSchema;
use serde::Serialize;

use super::AnswerVersion;
use crate::vocabulary::ReasonCode;

/// A command that failed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ErrorAnswer {
    pub v: AnswerVersion,
    pub error: ErrorDetail,
}

impl ErrorAnswer {
    pub fn new(code: u8, reason: ReasonCode, message: impl Into<String>) -> Self {
        ErrorDetail { code, reason, message: message.into(), key: None }.into()
    }
}

impl From<ErrorDetail> for ErrorAnswer {
    fn from(error: ErrorDetail) -> Self {
        Self { v: AnswerVersion, error }
    }
}

/// What failed, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErrorDetail {
    /// The exit code.
    pub code: u8,
    pub reason: ReasonCode,
    pub message: String,
    /// The key of the record that cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}
