//! The places a command works with: the state directory, the configuration and the store.

use std::env::VarError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fencepost_core::token::RunId;
use fencepost_guard::clock;
use fencepost_guard::drive::Callee;
use fencepost_guard::host::Host;
use fencepost_guard::local::Local;
use fencepost_guard::state::state_directory;
use fencepost_store::{
    Access, HostMemory, Properties, Secret, Store, StoreError, StoreHandle, Trouble, absolute, bare, must_name_a_store,
    properties, redacted,
};
use fencepost_view::View;

use crate::args::Global;
use crate::config::{self, Config, Scope};
use crate::exit::Failure;
use crate::password;
use crate::report::Voice;

/// The state directory, configuration and store of a command, determined once.
#[derive(Clone, Debug)]
pub struct Place {
    pub state: PathBuf,
    pub config: Option<Config>,
    /// The store's URL, which may hold a password: show it by `fencepost_store::redacted` only.
    pub store: String,
    pub host: Host,
    /// The source of the store's URL. It decides which password is used.
    named_by: NamedBy,
    /// A file with the store's password, named on the command line.
    password_file: Option<PathBuf>,
    /// The password in the environment belongs to another store.
    is_left_alone: bool,
}

/// The source of the store's URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedBy {
    CommandLine,
    Environment,
    Configuration,
    Default,
}

impl Place {
    pub fn find(global: &Global) -> Result<Self, Failure> {
        let state = state_directory()?;
        Self::with(global, state, Config::load(global)?)
    }

    /// A place without a configuration, for a command that creates the one named on the command line.
    pub fn without_configuration(global: &Global) -> Result<Self, Failure> {
        Self::with(global, state_directory()?, None)
    }

    fn with(global: &Global, state: PathBuf, config: Option<Config>) -> Result<Self, Failure> {
        let (store, named_by) = store(global, config.as_ref(), &state)?;
        if named_by == NamedBy::CommandLine {
            warn_of_password(global, &store);
        }
        let host = Host::known_in(&state);
        let place = Self { state, config, store, host, named_by, password_file: None, is_left_alone: false };
        place.warn_of_unsent_password(global);
        place.warn_of_exposed_password(global);
        Ok(place)
    }

    /// The same place with another store, named on the command line.
    pub fn elsewhere(&self, global: &Global, url: &str) -> Self {
        let url = std::env::current_dir().map_or(url.to_string(), |here| absolute(url, &here));
        warn_of_password(global, &url);
        let configured = self.config.as_ref().and_then(|config| config.top.store.as_ref());
        let named_by = match configured {
            Some(store) if store.value == url => NamedBy::Configuration,
            _ => NamedBy::CommandLine,
        };
        let (state, config, host) = (self.state.clone(), self.config.clone(), self.host.clone());
        Self { state, config, store: url, host, named_by, password_file: None, is_left_alone: false }
    }

    /// The same place. Its store does not get the password of the environment.
    pub fn left_alone(mut self) -> Self {
        self.is_left_alone = true;
        self
    }

    /// The properties that this kind of store declares.
    pub fn properties(&self) -> Properties {
        properties(&self.store)
    }

    /// The same place with a password file for its store.
    pub fn with_password_file(mut self, path: Option<&Path>) -> Self {
        self.password_file = path.map(Path::to_path_buf);
        self
    }

    /// The configuration's path, for messages.
    pub fn shown_config(&self) -> Option<String> {
        self.config.as_ref().map(|config| config.path.display().to_string())
    }

    /// Whether there is certainly no store yet, so no lease can be held in it. Fails if this host has used it before: then
    /// it is missing.
    pub fn is_new(&self) -> Result<bool, Failure> {
        Ok(self.handle_without_password().is_new()?)
    }

    /// Fails if the store does not exist: for commands whose answer would be the same for a missing store and an empty
    /// one.
    pub fn must_exist(&self) -> Result<(), Failure> {
        if !self.is_new()? {
            return Ok(());
        }
        let detail = format!(
            "There is no store at {}. The first run creates it. If it should be there, mount its disk or restore it.",
            self.shown_store()
        );
        Err(Failure::Store(StoreError::not_done(Trouble::Unavailable, detail)))
    }

    /// Asks the store a question, together with this host's own knowledge.
    pub fn ask<T>(&self, store: &dyn Store, ask: impl FnOnce(&View<'_>) -> T) -> T {
        ask(&View {
            store,
            store_url: self.shown_store(),
            config: self.shown_config(),
            broken: self.config.iter().flat_map(Config::broken_answers).collect(),
            now: clock::now().wall,
            waiting: self.local().waiting().list(),
            is_dead: &|holder| self.host.knows_dead(holder),
        })
    }

    /// Runs `question` on a thread, and gives up after `patience`. A store that hangs keeps its thread until the program ends.
    pub fn ask_within<T: Send + 'static>(
        &self,
        patience: Duration,
        question: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let place = self.clone();
        within(patience, move || question(&place))
    }

    /// The store's URL without its password.
    pub fn shown_store(&self) -> String {
        redacted(&self.store)
    }

    /// The store's URL for a child, which gets no password.
    pub fn bare_store(&self) -> String {
        bare(&self.store)
    }

    /// Opens the store to change something in it. Every verb, `up` and the notifier open a store by [`StoreHandle`].
    pub fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        Ok(self.handle()?.open()?)
    }

    /// Opens the store read-only. Creates and writes nothing.
    pub fn open_to_read(&self) -> Result<Arc<dyn Store>, Failure> {
        Ok(self.handle()?.open_to_read()?)
    }

    /// The store with its password and with this host's memory of it.
    pub fn handle(&self) -> Result<StoreHandle, Failure> {
        Ok(handle(&self.store, self.password()?, &self.state))
    }

    /// The store as this host remembers it.
    pub fn handle_without_password(&self) -> StoreHandle {
        handle(&self.store, None, &self.state)
    }

    /// The password of the store. Its source depends on how the store was named.
    pub fn password(&self) -> Result<Option<Secret>, Failure> {
        let typed = self.named_by == NamedBy::CommandLine && password::is_in(&self.store);
        if self.properties().is_path {
            return Ok(None);
        }
        if let Some(file) = &self.password_file {
            return password::from_file(file, "named on the command line").map(Some);
        }
        if typed {
            return Ok(None);
        }
        if self.is_sent_the_environments()
            && let Some(password) = password::from_environment()?
        {
            return Ok(Some(password));
        }
        // The password file of the configuration belongs to the configuration's store, and is used for no other.
        let of_config = self.config.as_ref().filter(|_| self.named_by == NamedBy::Configuration);
        let file = of_config.and_then(|config| config.top.store_password_file.as_ref());
        file.map(|file| password::from_file(&file.value, "store_password_file")).transpose()
    }

    /// Whether the password of the environment is meant for this store. It is not sent to a store that only a configuration found
    /// by search names: a cloned repository may have brought that.
    pub fn is_sent_the_environments(&self) -> bool {
        !self.is_left_alone && !self.is_named_by_search()
    }

    fn is_named_by_search(&self) -> bool {
        let is_found = self.config.as_ref().is_some_and(|config| config.scope == Scope::NamedJobs);
        // Inside a run the variable is set by fencepost and names the store of the configuration.
        let is_inside = std::env::var_os(config::FOUND_VARIABLE).is_some();
        let by_user = !is_inside && std::env::var_os(password::STORE_VARIABLE).is_some_and(|url| !url.is_empty());
        self.named_by == NamedBy::Configuration && is_found && !by_user
    }

    /// Variables that pass the configuration to a child: its own calls use the same one, with the same scope.
    pub fn told_configuration(&self) -> Vec<(OsString, Option<OsString>)> {
        let Some(config) = &self.config else { return Vec::new() };
        let path = OsString::from(&config.path);
        let found = (config.scope == Scope::NamedJobs).then(|| path.clone());
        vec![(config::VARIABLE.into(), Some(path)), (config::FOUND_VARIABLE.into(), found)]
    }

    fn warn_of_exposed_password(&self, global: &Global) {
        let exposed = self.config.as_ref().and_then(|config| config.exposed_password().map(|why| config.render(&why)));
        if let Some(text) = exposed {
            Voice::of(global).warn(&format!("warning: {text}"));
        }
    }

    /// Warns if a password is set that this store does not get.
    fn warn_of_unsent_password(&self, global: &Global) {
        let Some(config) = self.config.as_ref().filter(|config| config.top.store_password_file.is_none()) else {
            return;
        };
        let set = [password::VARIABLE, password::FILE_VARIABLE].into_iter().find(|name| {
            let value = std::env::var_os(name);
            value.is_some_and(|value| !value.is_empty())
        });
        if let Some(name) = set.filter(|_| self.is_named_by_search() && !self.properties().is_path) {
            Voice::of(global).warn(&format!(
                "{name} is not sent to {}: the configuration that names this store was found by search. To send it, name the \
                 configuration: --config {}",
                self.shown_store(),
                config.path.display()
            ));
        }
    }

    /// The private file in which a run's job reports its outcome.
    pub fn said(&self, run: RunId) -> PathBuf {
        self.state.join("said").join(run.to_string())
    }

    /// The store as a driver calls it.
    pub fn callee(&self, store: &Arc<dyn Store>) -> Callee {
        Callee { store: Arc::clone(store), is_prompt: self.properties().is_embedded }
    }

    pub fn local(&self) -> Local {
        Local::new(&self.state, self.host.clone())
    }
}

/// Runs `question` on a thread, and gives up after `patience`. A question that hangs keeps its thread until the program ends.
pub fn within<T: Send + 'static>(patience: Duration, question: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(question());
    });
    receiver.recv_timeout(patience).ok()
}

/// The store at `url`, with this host's memory of it in the state directory.
pub fn handle(url: &str, password: Option<Secret>, state: &Path) -> StoreHandle {
    let access = Access { password, cache: Some(state.join("cache")), must_exist: false };
    StoreHandle::new(url, access).remembering(HostMemory::new(state))
}

/// Warns of a password on the command line: every user of the machine can list processes with their arguments.
fn warn_of_password(global: &Global, url: &str) {
    // A URL without a known scheme is refused later, with advice.
    if password::is_in(url) && must_name_a_store(url).is_ok() {
        Voice::of(global).warn(&format!(
            "The password in {} can be read by everybody on this machine while the command runs (ps). Put it into a file \
             of your own and name that by {} or store_password_file.",
            redacted(url),
            password::FILE_VARIABLE
        ));
    }
}

/// The store's URL: the one of the command line, of the environment, of the configuration, or the embedded one.
fn store(global: &Global, config: Option<&Config>, state: &Path) -> Result<(String, NamedBy), Failure> {
    let here = |url: String| std::env::current_dir().map_or(url.clone(), |here| absolute(&url, &here));
    if let Some(url) = &global.store {
        return Ok((here(url.clone()), NamedBy::CommandLine));
    }
    let configured = config.and_then(|config| config.top.store.as_ref()).map(|store| store.value.clone());
    match (text_variable(password::STORE_VARIABLE)?, configured) {
        // A run passed this URL on without its password: it is the configuration's store.
        (Some(url), Some(configured)) if url == configured || url == bare(&configured) => {
            Ok((configured, NamedBy::Configuration))
        }
        (Some(url), _) => Ok((here(url), NamedBy::Environment)),
        (None, Some(configured)) => Ok((configured, NamedBy::Configuration)),
        (None, None) => Ok((format!("sqlite:{}", state.join("store.db").display()), NamedBy::Default)),
    }
}

/// Reads an environment variable. One that is not UTF-8 is an error, and not the same as unset.
pub fn text_variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(value)) => {
            Err(Failure::Usage(format!("{name}={} is not UTF-8 text.", value.display())))
        }
    }
}
