//! The files of a job's definition: scripts and prompts that its command names, by digest.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;

use fencepost_core::definition::{DEFINITION_FILES_MAX, DefinitionDigests};
use fencepost_core::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::artifact::open_regular;

/// The largest file of a definition. Scripts and prompts are smaller; a run must not take longer by a large one.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// How many words of a command are tried as names of files, and how long such a name may be.
const WORDS_MAX: usize = 32;
const NAME_BYTES_MAX: usize = 200;

/// The length of a digest in the record.
const DIGEST_BYTES: usize = 8;

/// Directories of the system's programs: an update of the system is no change of a job.
const SYSTEM_DIRECTORIES: [&str; 5] = ["/bin/", "/sbin/", "/usr/", "/lib/", "/dev/"];

/// A job's definition: the digests of its keys, and where to look for the files that its command names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDefinition {
    pub keys: BTreeMap<String, String>,
    /// Words of the command that may be names of files.
    words: Vec<String>,
    directory: PathBuf,
}

/// A file that was part of the definition, as it is now.
#[derive(Debug)]
pub enum DefinitionFile {
    Read(String),
    Gone,
    Unreadable(String),
}

impl JobDefinition {
    /// `command` is the program and its arguments. Files that the job makes are no part of its definition.
    pub fn new(keys: BTreeMap<String, String>, command: &[String], made: &[String], directory: PathBuf) -> Self {
        let is_made = |word: &String| {
            made.iter().any(|path| path == word || glob::Pattern::new(path).is_ok_and(|made| made.matches(word)))
        };
        let mut words: Vec<String> = Vec::new();
        for word in command.iter().flat_map(|argument| words_of(argument)) {
            if words.len() < WORDS_MAX && !words.contains(&word) && !is_made(&word) {
                words.push(word);
            }
        }
        Self { keys, words, directory }
    }

    /// The digests as they are now. Words that are no small regular file are left out.
    pub fn digests(&self) -> DefinitionDigests {
        let files = self.words.iter().filter_map(|word| match self.file(word) {
            DefinitionFile::Read(digest) => Some((word.clone(), digest)),
            DefinitionFile::Gone | DefinitionFile::Unreadable(_) => None,
        });
        DefinitionDigests { keys: self.keys.clone(), files: files.take(DEFINITION_FILES_MAX).collect() }
    }

    /// Where a file of the definition lies.
    pub fn locate(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn file(&self, name: &str) -> DefinitionFile {
        match self.read(name) {
            Ok(digest) => DefinitionFile::Read(digest),
            Err(error) if error.kind() == io::ErrorKind::NotFound => DefinitionFile::Gone,
            Err(error) => DefinitionFile::Unreadable(error.to_string()),
        }
    }

    fn read(&self, name: &str) -> io::Result<String> {
        let file = open_regular(&self.locate(name))?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > FILE_BYTES_MAX {
            true => Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes"))),
            false => Ok(digest(&bytes)),
        }
    }
}

/// The digest of a part of a definition.
pub fn digest(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes)[..DIGEST_BYTES])
}

/// What may be the name of a file in an argument: the argument itself, and each of its words, if it is a script or a prompt. The
/// target of a redirection is written, not read.
fn words_of(argument: &str) -> Vec<String> {
    let mut words = vec![(argument.to_string(), false)];
    let (mut word, mut is_written) = (String::new(), false);
    for c in argument.chars().chain([' ']) {
        if !c.is_whitespace() && !"\"'`$(){}<>|;&=@,".contains(c) {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            words.push((std::mem::take(&mut word), std::mem::take(&mut is_written)));
        }
        is_written |= c == '>';
    }
    let written: Vec<String> =
        words.iter().filter(|(_, is_written)| *is_written).map(|(word, _)| word.clone()).collect();
    let read = words.into_iter().filter(|(_, is_written)| !is_written).map(|(word, _)| word);
    let names = read.map(|word| word.trim_end_matches(['.', ':', '!', '?']).to_string());
    names.filter(|name| is_name(name) && !written.contains(name)).collect()
}

fn is_name(word: &str) -> bool {
    let is_of_system = SYSTEM_DIRECTORIES.iter().any(|directory| word.starts_with(directory));
    (1..=NAME_BYTES_MAX).contains(&word.len())
        && !word.contains(char::is_control)
        && !word.starts_with('-')
        && !is_of_system
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_a_command_names_are_found() {
        let place = tempfile::tempdir().unwrap();
        for name in ["job.sh", "prompt.md", "with space.md", "out.txt", "made.md", "more.md"] {
            std::fs::write(place.path().join(name), name).unwrap();
        }
        std::fs::create_dir(place.path().join("data")).unwrap();
        std::fs::write(place.path().join("large.bin"), vec![0; FILE_BYTES_MAX as usize + 1]).unwrap();
        let found = |command: &[&str]| {
            let command: Vec<String> = command.iter().map(ToString::to_string).collect();
            let made = ["made.*".to_string()];
            let definition = JobDefinition::new(BTreeMap::new(), &command, &made, place.path().to_path_buf());
            definition.digests().files.into_keys().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found(&["./job.sh", "--prompt", "prompt.md"]), "./job.sh prompt.md");
        assert_eq!(found(&["/bin/sh", "-c", "claude -p \"$(cat prompt.md)\" > out.txt"]), "prompt.md");
        assert_eq!(found(&["/bin/sh", "-c", "./job.sh <more.md >>out.txt 2>&1"]), "./job.sh more.md");
        assert_eq!(found(&["claude", "-p", "Do what prompt.md says. Then read more.md."]), "more.md prompt.md");
        assert_eq!(found(&["curl", "-d", "@prompt.md", "--file=more.md"]), "more.md prompt.md");
        assert_eq!(
            found(&["cat", "with space.md", "made.md", "data", "large.bin", "/usr/bin/env", "none"]),
            "with space.md"
        );
    }

    #[test]
    fn a_file_is_read_gone_or_unreadable() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a"), "x").unwrap();
        let definition = JobDefinition::new(BTreeMap::new(), &[], &[], place.path().to_path_buf());
        assert!(matches!(definition.file("a"), DefinitionFile::Read(read) if read == digest(b"x") && read.len() == 16));
        assert!(matches!(definition.file("b"), DefinitionFile::Gone));
        assert!(matches!(definition.file("."), DefinitionFile::Unreadable(_)));
    }
}
