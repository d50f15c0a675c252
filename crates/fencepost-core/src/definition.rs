//! The definition of a job, by digests: the keys of its configuration, and the files that its command names.
//!
//! A good run leaves the digests in the job's record, so that a later look can tell what has changed since.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::format::Unknown;
use crate::time::Wall;

/// The most files of a definition. A record has little room.
pub const DEFINITION_FILES_MAX: usize = 4;

/// The first bytes of the SHA-256 of each part of a definition, in hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DefinitionDigests {
    /// By key of the configuration, of those that are given.
    pub keys: BTreeMap<String, String>,
    /// By the file's name as the command has it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
}

/// The definition of a job at its last good run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GoodDefinition {
    /// When that run ended, and where.
    pub at: Wall,
    pub host: String,
    #[serde(flatten)]
    pub digests: DefinitionDigests,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A part of a definition that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefinitionChange {
    Key(String),
    File(String),
}

impl DefinitionDigests {
    /// The parts that differ from these earlier digests. A file that was not part of the definition then is not compared: the
    /// key that names it differs.
    pub fn changes_since(&self, earlier: &Self) -> Vec<DefinitionChange> {
        let all = earlier.keys.keys().chain(self.keys.keys().filter(|key| !earlier.keys.contains_key(*key)));
        let keys = all.filter(|key| earlier.keys.get(*key) != self.keys.get(*key)).cloned().map(DefinitionChange::Key);
        let files = earlier.files.iter().filter(|(name, digest)| self.files.get(*name) != Some(digest));
        keys.chain(files.map(|(name, _)| DefinitionChange::File(name.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(keys: &[(&str, &str)], files: &[(&str, &str)]) -> DefinitionDigests {
        let map =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(name, digest)| ((*name).into(), (*digest).into())).collect();
        DefinitionDigests { keys: map(keys), files: map(files) }
    }

    #[test]
    fn a_key_or_file_that_is_new_other_or_gone_is_a_change() {
        let before = digests(&[("command", "1"), ("ttl", "1"), ("wait", "1")], &[("a.md", "1"), ("b.md", "1")]);
        let after = digests(&[("command", "2"), ("ttl", "1"), ("retries", "1")], &[("a.md", "2"), ("c.md", "1")]);
        let key = |name: &str| DefinitionChange::Key(name.into());
        let file = |name: &str| DefinitionChange::File(name.into());
        assert_eq!(
            after.changes_since(&before),
            [key("command"), key("wait"), key("retries"), file("a.md"), file("b.md")]
        );
        assert_eq!(before.changes_since(&before), []);
    }
}
