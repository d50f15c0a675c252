//! The store's password: where it may come from, and which processes may see it.
//!
//! The most specific source takes precedence: a URL on the command line, the environment, the configuration, and last
//! the store's own client (`.pgpass`, git's credential helpers).

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use fencepost_guard::password;
use fencepost_store::{Secret, bare, redacted};

use crate::exit::Failure;

pub use fencepost_guard::password::{FILE_VARIABLE, VARIABLE};

/// Variable that names the store, and may hold a password in its URL.
pub const STORE_VARIABLE: &str = "FENCEPOST_STORE";

/// Whether a URL holds a password, or text that may be one.
pub fn is_in(url: &str) -> bool {
    redacted(url) != url
}

/// Reads the password from the environment: the variable itself, or the file it names.
pub fn from_environment() -> Result<Option<Secret>, Failure> {
    password::from_environment().map_err(Failure::Usage)
}

/// Reads a password from a file that no other user can read. `asked` is the option or key that named it.
pub fn from_file(path: &Path, asked: &str) -> Result<Secret, Failure> {
    password::from_file(path, asked).map_err(Failure::Usage)
}

/// The variables that a child must not inherit, with their replacements.
pub fn kept_from_children() -> Vec<(OsString, Option<OsString>)> {
    let url = std::env::var(STORE_VARIABLE).ok().filter(|url| is_in(url)).map(|url| OsString::from(bare(&url)));
    let store = url.map(|url| (OsString::from(STORE_VARIABLE), Some(url)));
    store.into_iter().chain([(OsString::from(VARIABLE), None)]).collect()
}

/// Removes the password from the environment of a child.
pub fn keep_from(child: &mut Command) {
    for (name, value) in kept_from_children() {
        match value {
            Some(value) => child.env(name, value),
            None => child.env_remove(name),
        };
    }
}
