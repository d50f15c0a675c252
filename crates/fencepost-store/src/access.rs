//! What opening a store may need beside its URL.

use std::fmt;
use std::path::PathBuf;

/// A password. It shows itself to nobody who does not ask for it by name.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password itself. It belongs into a connection and nowhere else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What opening a store may need beside its URL.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Goes before a password in the URL.
    pub password: Option<Secret>,
    /// A directory for what can be fetched again, such as the clone of a git store. Without one the user's own is used.
    pub cache: Option<PathBuf>,
    /// Opening and reading create nothing: a store that is missing is an error, or reads as empty.
    pub must_exist: bool,
}
