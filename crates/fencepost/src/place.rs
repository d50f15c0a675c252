//! Where things are: the state directory and the store.

use std::path::PathBuf;
use std::sync::Arc;

use fencepost_core::token::RunId;
use fencepost_guard::host::Host;
use fencepost_guard::local::Local;
use fencepost_store::Store;
use fencepost_store::{OpenError, open, redacted};
use nix::unistd::{User, geteuid};

use crate::args::Global;
use crate::exit::Failure;

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
        let given = global.store.clone().or_else(|| text_variable("FENCEPOST_STORE"));
        let store = given.unwrap_or_else(|| format!("sqlite:{}", state.join("store.db").display()));
        Ok(Self { state, store, host: Host::this() })
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
        return std::path::absolute(&directory)
            .map_err(|error| Failure::Usage(format!("FENCEPOST_STATE_DIR={}: {error}", directory.display())));
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

fn text_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
