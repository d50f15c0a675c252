//! The runs of this host that wait, a small file each in the state directory. A run that need not wait writes none.

use std::fs;

use fencepost_core::waiting::WaitingRun;
use fencepost_store::HostMemory;

use crate::host::Host;

const DIRECTORY: &str = "waiting";

/// The runs that wait, for those who ask what is going on.
#[derive(Clone, Debug)]
pub struct WaitingRuns {
    memory: HostMemory,
    host: Host,
}

/// A run waits until this is dropped.
#[derive(Debug)]
pub struct WaitingMark {
    memory: HostMemory,
    name: String,
}

impl WaitingRuns {
    pub(crate) fn new(memory: HostMemory, host: Host) -> Self {
        Self { memory, host }
    }

    /// Notes that a run waits. A failure is ignored: the note is for people only.
    pub fn note(&self, waiting: &WaitingRun) -> WaitingMark {
        self.sweep();
        let name = format!("{DIRECTORY}/{}", waiting.run);
        let _ = self.memory.keep(&name, waiting);
        WaitingMark { memory: self.memory.clone(), name }
    }

    /// The runs that wait now, the longest first. One that is known to be dead does not.
    pub fn list(&self) -> Vec<WaitingRun> {
        let names = self.names();
        let found = names.iter().filter_map(|name| self.memory.recall::<WaitingRun>(name));
        let mut waiting: Vec<_> = found.filter(|waiting| !self.host.knows_dead(&waiting.holder)).collect();
        waiting.sort_by_key(|waiting| waiting.since);
        waiting
    }

    /// Removes the notes of runs that died while they waited.
    fn sweep(&self) {
        for name in self.names() {
            let waiting = self.memory.recall::<WaitingRun>(&name);
            if waiting.is_some_and(|waiting| self.host.knows_dead(&waiting.holder)) {
                let _ = self.memory.forget(&name);
            }
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.memory.path(DIRECTORY)).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some(format!("{DIRECTORY}/{}", entry.file_name().to_str()?))).collect()
    }
}

impl Drop for WaitingMark {
    fn drop(&mut self) {
        let _ = self.memory.forget(&self.name);
    }
}
