//! What the wrapper tells hooks inside its run: until when the lease may be relied on, whether the run is ending, and the
//! job's rules for tools. A private file beside the job's report, replaced whole at each change.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencepost_core::time::Boot;
use fencepost_core::token::RunId;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use serde::{Deserialize, Serialize};

/// Maximum size of the file.
const STATE_BYTES_MAX: u64 = 256 << 10;

/// A job's rules for the tools of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRules {
    /// Additions to the tools that write, and exceptions that begin with `!`.
    pub write_tools: Vec<String>,
    /// Commands that have a fenced equivalent.
    pub guard_commands: Vec<String>,
    /// The agent has to report the outcome before it stops.
    pub must_report: bool,
    /// Input that cannot be understood passes.
    pub pass_unknown: bool,
    /// The run is only observed: nothing is refused.
    pub observe: bool,
}

/// The state of a run, for commands inside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunState {
    pub run: RunId,
    /// Until when the lease may be relied on.
    pub deadline: Option<Boot>,
    /// How long before the deadline the command is ended.
    pub grace: Duration,
    /// Why the run is ending, if it is.
    pub stopping: Option<String>,
    pub rules: ToolRules,
}

/// The file, as its wrapper writes it. A failed write is noticed by its reader: a state that is missing or old refuses.
#[derive(Debug)]
pub struct RunStateFile {
    path: PathBuf,
    state: RunState,
}

impl RunStateFile {
    /// The state file beside a report.
    pub fn beside(report: &Path, run: RunId, grace: Duration, rules: ToolRules) -> Self {
        Self { path: path(report), state: RunState { run, deadline: None, grace, stopping: None, rules } }
    }

    /// A command starts, with this deadline if there is a lease.
    pub fn begin(&mut self, deadline: Option<Boot>) {
        self.state.deadline = deadline;
        self.write();
    }

    pub fn extend(&mut self, deadline: Boot) {
        self.state.deadline = Some(deadline);
        self.write();
    }

    /// The command is asked to end. The first reason counts.
    pub fn stopping(&mut self, why: &str) {
        self.state.stopping.get_or_insert_with(|| why.to_string());
        self.write();
    }

    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    fn write(&self) {
        let bytes = serde_json::to_vec(&self.state).unwrap_or_default();
        if replace(&self.path, &bytes).is_err() {
            // An old state could promise more than there is.
            self.remove();
        }
    }
}

/// Reads the state of a run, given its report.
pub fn read(report: &Path) -> io::Result<RunState> {
    let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path(report))?;
    let mut bytes = Vec::new();
    file.take(STATE_BYTES_MAX).read_to_end(&mut bytes)?;
    serde_json::from_slice(&bytes).map_err(io::Error::from)
}

fn path(report: &Path) -> PathBuf {
    report.with_extension("state")
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("state-new");
    let create = || {
        let flags = O_NOFOLLOW | O_NONBLOCK;
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).custom_flags(flags).open(&draft)
    };
    let mut file = match create() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap_or(path))?;
            create()?
        }
        created => created?,
    };
    file.write_all(bytes)?;
    fs::rename(&draft, path)
}
