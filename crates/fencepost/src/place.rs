//! Where things are: the state directory and the store.

use std::env::VarError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::record::Record;
use fencepost_core::time::StoreClock;
use fencepost_core::token::RunId;
use fencepost_guard::host::Host;
use fencepost_guard::local::Local;
use fencepost_store::Store;
use fencepost_store::{OpenError, open, redacted};
use nix::unistd::{User, geteuid};

use crate::args::Global;
use crate::exit::Failure;
use crate::show;

/// The places a command speaks of, decided once.
#[derive(Debug)]
pub struct Place {
    pub state: PathBuf,
    /// The store's URL, which may hold a password: show it by `fencepost_store::redacted` only.
    pub store: String,
    pub host: Host,
}

impl Place {
    pub fn find(global: &Global) -> Result<Self, Failure> {
        let state = state_directory()?;
        let given = match &global.store {
            Some(url) => Some(url.clone()),
            None => text_variable("FENCEPOST_STORE")?,
        };
        let store = given.map_or_else(|| format!("sqlite:{}", state.join("store.db").display()), whole);
        Ok(Self { state, store, host: Host::this() })
    }

    /// Whether the store is certainly still to be made, so that nobody can hold anything in it.
    pub fn is_unmade(&self) -> bool {
        let path = self.store.strip_prefix("sqlite:").map(Path::new);
        path.is_some_and(|path| path.is_absolute() && path.try_exists().is_ok_and(|exists| !exists))
    }

    /// Whether the lease in a record is over though nobody released it.
    pub fn is_over(&self, record: &Record, clock: Option<&StoreClock>) -> bool {
        let is_dead = record.lease.as_ref().is_some_and(|lease| self.host.knows_dead(&lease.holder));
        is_dead || show::remaining(record, clock) == Some(Duration::ZERO)
    }

    /// The store's URL without its password.
    pub fn shown_store(&self) -> String {
        redacted(&self.store)
    }

    pub fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        match open(&self.store) {
            Ok(store) => Ok(Arc::from(store)),
            Err(OpenError::Usage(message)) => Err(Failure::Usage(message)),
            Err(OpenError::Store(error)) => Err(Failure::Store(error)),
        }
    }

    /// The private file in which a run's job says of itself what it has to say.
    pub fn said(&self, run: RunId) -> PathBuf {
        self.state.join("said").join(run.to_string())
    }

    pub fn local(&self) -> Local {
        Local::new(&self.state, self.host.clone())
    }
}

/// A lock whose place depends on `$HOME` is no lock: cron, sudo and a login shell disagree about it. So the default
/// comes from the user's passwd entry, and only `FENCEPOST_STATE_DIR` moves it.
fn state_directory() -> Result<PathBuf, Failure> {
    if let Some(directory) = std::env::var_os("FENCEPOST_STATE_DIR").filter(|value| !value.is_empty()) {
        let wrong = |why: &str| Failure::Usage(format!("FENCEPOST_STATE_DIR={}: {why}", directory.display()));
        let path = std::path::absolute(&directory).map_err(|error| wrong(&error.to_string()))?;
        return if path.to_str().is_some() { Ok(path) } else { Err(wrong("the path is not UTF-8 text")) };
    }
    let user = geteuid();
    if user.is_root() {
        return Ok(PathBuf::from("/var/lib/fencepost"));
    }
    match User::from_uid(user) {
        Ok(Some(entry)) if entry.dir.is_absolute() => Ok(entry.dir.join(".local/state/fencepost")),
        _ => Err(Failure::Other(format!(
            "Cannot find the home directory of user {user} in the passwd database. Set FENCEPOST_STATE_DIR to a \
             directory of your own that every run of this job uses."
        ))),
    }
}

/// A store that is named by a relative path is the same one for a child that goes elsewhere.
fn whole(url: String) -> String {
    let relative = url.strip_prefix("sqlite:").filter(|path| !path.is_empty() && !path.starts_with(['/', '~', ':']));
    let path = relative.and_then(|path| std::path::absolute(path).ok());
    path.as_ref().and_then(|path| path.to_str()).map_or(url.clone(), |path| format!("sqlite:{path}"))
}

/// A variable that is set but cannot be read is never taken for one that is not set.
fn text_variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(value)) => {
            Err(Failure::Usage(format!("{name}={} is not UTF-8 text.", value.display())))
        }
    }
}
