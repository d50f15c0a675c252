//! What opening a store needs besides its URL.

use std::fmt;
use std::path::PathBuf;

/// A password. Only [`Secret::reveal`] returns it; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password itself, for a connection only.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What opening a store needs besides its URL.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Takes precedence over a password in the URL.
    pub password: Option<Secret>,
    /// A directory for data that can be fetched again, such as the clone of a git store. Default: the user's cache
    /// directory.
    pub cache: Option<PathBuf>,
    /// Opening and reading create nothing: a missing store is an error, or reads as empty.
    pub must_exist: bool,
}
