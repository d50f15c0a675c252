//! Why a command was not carried out, and the exit code that says so.

use fencepost_core::register::{StoreError, Trouble};
use fencepost_guard::state::StateDirectoryError;
use fencepost_store::OpenError;
use fencepost_view::ReasonCode;
use fencepost_view::ViewError;
pub use fencepost_view::exit_code::Code;

/// Why a command was not carried out.
#[derive(Debug)]
pub enum Failure {
    /// The command line or the configuration is wrong.
    Usage(String),
    Store(StoreError),
    Other(String),
}

impl Failure {
    /// The exit code. `run` and `once` keep usage errors apart from the codes of their command.
    pub fn code(&self, under_run: bool) -> Code {
        match self {
            Self::Usage(_) if !under_run => Code::USAGE,
            Self::Usage(_) | Self::Store(_) | Self::Other(_) => Code::FAILED,
        }
    }

    /// The word that programs branch on.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Usage(_) => ReasonCode::Usage,
            Self::Store(_) => ReasonCode::StoreFailed,
            Self::Other(_) => ReasonCode::Failed,
        }
    }

    pub fn message(&self) -> &str {
        match self {
            Self::Usage(message) | Self::Other(message) => message,
            Self::Store(error) => &error.detail,
        }
    }
}

impl Failure {
    /// The failure as an error of the store that could not be opened.
    pub fn into_store_error(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Usage(message) | Self::Other(message) => StoreError::not_done(Trouble::Unavailable, message),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<StateDirectoryError> for Failure {
    fn from(error: StateDirectoryError) -> Self {
        match error {
            StateDirectoryError::Refused(message) => Self::Usage(message),
            StateDirectoryError::Unknown(message) => Self::Other(message),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Usage(message) => Self::Usage(message),
            OpenError::Store(error) => Self::Store(error),
        }
    }
}

impl From<ViewError> for Failure {
    fn from(error: ViewError) -> Self {
        match error {
            ViewError::Store(error) => Self::Store(error),
            ViewError::Question(message) => Self::Usage(message),
        }
    }
}
