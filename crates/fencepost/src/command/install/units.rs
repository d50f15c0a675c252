//! Trigger files in a directory shared with other programs: which exist, and which should.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{At, InstallScope, TriggerChange};
use crate::exit::Failure;

/// The trigger files of one scheduler, in one directory.
pub struct TriggerFiles<'k> {
    pub directory: PathBuf,
    /// Whether fencepost wrote a file with this name and text, for any configuration.
    pub is_ours: fn(&str, &str) -> bool,
    /// Whether the file is for this configuration.
    pub is_for: &'k dyn Fn(&str) -> bool,
    /// The job of a file, from its name; none if it starts `up`.
    pub job: fn(&str) -> Option<String>,
}

impl TriggerFiles<'_> {
    /// Compares the existing files with the wanted ones.
    pub fn changes(
        &self,
        scope: &InstallScope,
        mut wanted: BTreeMap<String, String>,
    ) -> Result<Vec<TriggerChange>, Failure> {
        let mut changes = Vec::new();
        for (name, old) in texts(&self.directory) {
            let new = wanted.remove(&name);
            let is_ours = (self.is_ours)(&name, &old) && (self.is_for)(&old);
            match (&new, is_ours) {
                (None, true) if self.is_meant(&name, scope) => {}
                (None, _) => continue,
                (Some(_), true) => {}
                (Some(_), false) => {
                    let path = self.directory.join(&name);
                    let why = match (self.is_ours)(&name, &old) {
                        true => "was written for another configuration",
                        false => "was not written by fencepost",
                    };
                    let hint = "Remove it first, or rename the job.";
                    return Err(Failure::Usage(format!("{} {why}. {hint}", path.display())));
                }
            }
            changes.push(self.change(&name, Some(old), new));
        }
        changes.extend(wanted.into_iter().map(|(name, new)| self.change(&name, None, Some(new))));
        changes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(changes)
    }

    /// One file of its own, besides those of jobs.
    pub fn single(&self, name: &str, new: Option<String>) -> Result<TriggerChange, Failure> {
        let path = self.directory.join(name);
        let old = std::fs::read_to_string(&path).ok();
        if old.as_ref().is_some_and(|old| !(self.is_ours)(name, old) || !(self.is_for)(old)) {
            return Err(Failure::Usage(format!("{} was not written by fencepost. Remove it first.", path.display())));
        }
        Ok(self.change(name, old, new))
    }

    fn change(&self, name: &str, old: Option<String>, new: Option<String>) -> TriggerChange {
        let path = self.directory.join(name);
        let shown = new.as_ref().map(|new| match name.ends_with(".plist") {
            true => new.clone(),
            false => format!("# {}\n{new}\n", path.display()),
        });
        TriggerChange { name: path.display().to_string(), at: At::File(path), old, new, shown }
    }

    /// Whether a file that is no longer wanted is removed.
    fn is_meant(&self, name: &str, scope: &InstallScope) -> bool {
        match (self.job)(name) {
            None => scope.remove && !scope.per_job,
            Some(job) => scope.names(&job) && (scope.per_job || scope.remove),
        }
    }
}

/// Reads the text files of a directory, by name.
pub fn texts(directory: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = directory.read_dir() else { return BTreeMap::new() };
    let text = |path: PathBuf| Some((path.file_name()?.to_str()?.to_string(), std::fs::read_to_string(&path).ok()?));
    entries.filter_map(|entry| text(entry.ok()?.path())).collect()
}
