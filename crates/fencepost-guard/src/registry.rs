//! Registers each wrapper, so that commands inside its run find the run without environment variables.
//!
//! Agents strip variables that look like secrets from the shells they start, or all variables. The wrapper therefore
//! writes the run's variables to a private file of this user. The file has three names: the marks of the wrapper's process
//! and of its keeper's, by which a descendant finds it, and the run's id. Both processes are registered: if one of them
//! dies, its children pass to an outer run's processes, and must not be taken for that run's.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use fencepost_core::record::Holder;
use fencepost_core::token::RunId;
use nix::fcntl::OFlag;
use nix::unistd::{geteuid, getppid};

use crate::child::Variables;
use crate::host::{self, Host};
use crate::publish::folder::Folder;

/// Variables of a run, by name.
pub type RunVariables = BTreeMap<String, String>;

/// Only these variables are registered.
const PREFIX: &str = "FENCEPOST_";

/// Name of the variable with the run's id.
const RUN: &str = "FENCEPOST_RUN";

/// Name of the variable with the state directory.
const STATE: &str = "FENCEPOST_STATE_DIR";

/// Name of the variable that marks the run of an agent's session.
const SESSION: &str = "FENCEPOST_SESSION";

/// Maximum size of an entry.
const ENTRY_BYTES_MAX: u64 = 256 << 10;

/// Maximum number of ancestors that are looked up.
const ANCESTORS_MAX: usize = 1000;

/// The entry of one wrapper. Dropping it removes the entry.
#[derive(Debug)]
pub struct Registration {
    /// The directory of the entries, or why there is none that is private.
    folder: Result<Folder, String>,
    names: Vec<String>,
    /// Variables besides those that the command gets.
    more: RunVariables,
    /// The mark of the agent's process, if the run is that of a session.
    agent: Option<String>,
}

impl Registration {
    /// Prepares the entry of this process and its keeper. Returns `None` if processes cannot be identified here: commands
    /// then find the run by their environment only.
    pub fn of_run(host: &Host, holder: &Holder, run: RunId, state: &Path) -> Option<Self> {
        let mut registration = Self::without_report(host, holder)?;
        registration.names.push(run.to_string());
        registration.more.extend(state.to_str().map(|state| (STATE.to_string(), state.to_string())));
        Some(registration)
    }

    /// The same for a command that reports to no run.
    pub fn without_report(host: &Host, holder: &Holder) -> Option<Self> {
        let processes = holder.processes.as_ref()?;
        let marks = [Some(processes.wrapper), processes.keeper].into_iter().flatten().map(|process| host.mark(process));
        let names = marks.collect::<Option<Vec<_>>>()?;
        let folder = first_private();
        Some(Self { folder, names, more: RunVariables::new(), agent: None })
    }

    /// The same for the run of an agent's session, whose commands are descendants of the agent.
    pub fn of_session(mut self, agent: String) -> Self {
        self.more.insert(SESSION.to_string(), "1".to_string());
        self.agent = Some(agent);
        self
    }

    /// Writes the variables that the run's command gets.
    ///
    /// Fails if the entry cannot be written. Its commands then find the run by their environment only.
    pub fn write(&self, variables: &Variables) -> io::Result<()> {
        let folder = self.folder.as_ref().map_err(|why| io::Error::other(why.clone()))?;
        let text = |text: &std::ffi::OsString| text.to_str().map(str::to_string);
        let kept: RunVariables = variables
            .iter()
            .filter_map(|(name, value)| Some((text(name)?, text(value.as_ref()?)?)))
            .filter(|(name, _)| name.starts_with(PREFIX))
            .chain(self.more.clone())
            .collect();
        let Some((first, others)) = self.names.split_first() else { return Ok(()) };
        let mut file = folder.overwrite(first, 0o600)?;
        file.write_all(&serde_json::to_vec(&kept).unwrap_or_default())?;
        for name in others {
            match folder.link(first, name) {
                // An earlier command of the same attempt wrote the entry.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                linked => linked?,
            }
        }
        self.agent.iter().try_for_each(|agent| link_agent(folder, first, agent))
    }
}

/// Names the entry by the agent's process. A second session of the same process makes it unclear whose commands its
/// descendants are: then they belong to no run.
fn link_agent(folder: &Folder, first: &str, agent: &str) -> io::Result<()> {
    match folder.link(first, agent) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        linked => return linked,
    }
    if is_same(folder, first, agent)? {
        return Ok(());
    }
    folder.unlink(agent)?;
    folder.create(agent, OFlag::O_WRONLY | OFlag::O_EXCL, 0o600)?.write_all(b"{}")
}

fn is_same(folder: &Folder, first: &str, name: &str) -> io::Result<bool> {
    Ok(folder.metadata_of(first)?.ino() == folder.metadata_of(name)?.ino())
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Ok(folder) = &self.folder else { return };
        let own =
            |agent: &&String| self.names.first().is_some_and(|first| is_same(folder, first, agent).unwrap_or(false));
        if let Some(agent) = self.agent.as_ref().filter(own) {
            let _ = folder.unlink(agent);
        }
        for name in &self.names {
            let _ = folder.unlink(name);
        }
    }
}

/// Returns the variables of the nearest run around this process, by its ancestors. Empty if that run has no lease.
pub fn of_ancestors(host: &Host) -> Option<RunVariables> {
    let folders: Vec<Folder> = places().into_iter().filter_map(|place| private(&place, false).ok()).collect();
    if folders.is_empty() {
        return None;
    }
    let mut pid = getppid().as_raw();
    for _ in 0..ANCESTORS_MAX {
        let process = host::process(pid)?;
        let mark = host.mark(process)?;
        if let Some(found) = folders.iter().find_map(|folder| entry(folder, &mark)) {
            return Some(found);
        }
        pid = host::parent(pid)?;
    }
    None
}

/// What to say about a run whose entry could not be written: `Err` if it must not start. Inside another run, a command without
/// variables would find that run, and write under its name.
pub fn judge_unwritten(error: &io::Error, observe: bool) -> Result<String, String> {
    let why = format!("the entry by which its commands find this run cannot be written: {error}.");
    let next =
        format!("look at the directories: ls -ld {}", places().map(|place| place.display().to_string()).join(" "));
    match of_ancestors(&Host::this()) {
        Some(_) if !observe => Err(format!(
            "{why} It is inside another run, which its commands would find instead. Nothing was run. Make room, or {next}"
        )),
        _ => Ok(format!("{why} Commands whose variables an agent strips do not find it. Make room, or {next}")),
    }
}

/// Whether the variables are those of an agent's session, or of several at once.
pub fn is_of_session(variables: &RunVariables) -> bool {
    variables.is_empty() || variables.contains_key(SESSION)
}

/// Returns the variables of a run of this user on this host, by its id.
pub fn of_id(run: RunId) -> Option<RunVariables> {
    let folders = places().into_iter().filter_map(|place| private(&place, false).ok());
    folders.into_iter().find_map(|folder| entry(&folder, &run.to_string()))
}

/// Removes entries of wrappers that died.
pub fn prune(host: &Host) {
    for folder in places().into_iter().filter_map(|place| private(&place, false).ok()) {
        let names = folder.names().unwrap_or_default();
        let names: Vec<&str> = names.iter().filter_map(|name| name.to_str()).collect();
        for name in names.iter().filter(|name| host.has_ended(name) == Some(true)) {
            let _ = folder.unlink(name);
        }
        for name in names.iter().filter(|name| name.parse::<RunId>().is_ok()) {
            if folder.metadata_of(name).is_ok_and(|found| found.nlink() == 1) {
                let _ = folder.unlink(name);
            }
        }
    }
}

/// Where entries may be. `/run/user/UID` comes and goes with the user's sessions, so a reader looks at both.
fn places() -> [PathBuf; 2] {
    let user = geteuid();
    [format!("/run/user/{user}/fencepost").into(), format!("/tmp/fencepost-{user}").into()]
}

/// Opens the first place that is private, or makes it.
fn first_private() -> Result<Folder, String> {
    let mut troubles = Vec::new();
    for place in places() {
        match private(&place, true) {
            Ok(folder) => return Ok(folder),
            Err(error) => troubles.push(format!("{}: {error}", place.display())),
        }
    }
    Err(troubles.join("; "))
}

/// Opens the directory if it belongs to this user and to no one else.
fn private(path: &Path, create: bool) -> io::Result<Folder> {
    if create
        && let Err(error) = DirBuilder::new().mode(0o700).create(path)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    let folder = Folder::open(path)?;
    let found = folder.metadata()?;
    let is_private = found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
    if is_private { Ok(folder) } else { Err(io::Error::other("others than its owner could use it")) }
}

/// Reads an entry. One that cannot be understood still ends the search: an outer run is another run.
fn entry(folder: &Folder, name: &str) -> Option<RunVariables> {
    let file = folder.open_file(name, OFlag::O_RDONLY).ok()?;
    let mut bytes = Vec::new();
    let is_file = file.metadata().is_ok_and(|found| found.is_file());
    let read = if is_file { file.take(ENTRY_BYTES_MAX).read_to_end(&mut bytes) } else { Ok(0) };
    let variables: RunVariables = read.ok().and_then(|_| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    Some(if variables.contains_key(RUN) { variables } else { RunVariables::new() })
}
