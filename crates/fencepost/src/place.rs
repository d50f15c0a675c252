//! Where things are: the state directory, the configuration and the store.

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
use nix::unistd::geteuid;

use crate::args::Global;
use crate::config::{self, Config};
use crate::exit::Failure;
use crate::show;

/// The places a command speaks of, decided once.
#[derive(Debug)]
pub struct Place {
    pub state: PathBuf,
    pub config: Option<Config>,
    /// The store's URL, which may hold a password: show it by `fencepost_store::redacted` only.
    pub store: String,
    pub host: Host,
}

impl Place {
    pub fn find(global: &Global) -> Result<Self, Failure> {
        let state = state_directory()?;
        let config = Config::load(global)?;
        let store = store(global, config.as_ref(), &state)?;
        Ok(Self { state, config, store, host: Host::this() })
    }

    /// The configuration's path, for people.
    pub fn shown_config(&self) -> Option<String> {
        self.config.as_ref().map(|config| config.path.display().to_string())
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
    config::home().map(|home| home.join(".local/state/fencepost")).ok_or_else(|| {
        Failure::Other(format!(
            "Cannot find the home directory of user {user} in the passwd database. Set FENCEPOST_STATE_DIR to a \
             directory of your own that every run of this job uses."
        ))
    })
}

/// The store's URL: the one of the command line, of the environment, of the configuration, or the embedded one.
fn store(global: &Global, config: Option<&Config>, state: &Path) -> Result<String, Failure> {
    let given = match &global.store {
        Some(url) => Some(url.clone()),
        None => text_variable("FENCEPOST_STORE")?,
    };
    if let Some(url) = given {
        return Ok(std::env::current_dir().map_or(url.clone(), |here| whole(url, &here)));
    }
    let configured = config.and_then(|config| config.store.as_ref()).map(|store| store.value.clone());
    Ok(configured.unwrap_or_else(|| format!("sqlite:{}", state.join("store.db").display())))
}

/// A store that is named by a relative path is the same one for a child that goes elsewhere.
pub fn whole(url: String, directory: &Path) -> String {
    let (scheme, path) = match url.split_once(':') {
        Some((scheme @ ("sqlite" | "dir"), path)) => (scheme, path),
        _ => return url,
    };
    if path.is_empty() || path.starts_with(['/', '~', ':']) {
        return url;
    }
    let path = std::path::absolute(directory.join(path)).ok();
    path.as_ref().and_then(|path| path.to_str()).map_or(url.clone(), |path| format!("{scheme}:{path}"))
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
