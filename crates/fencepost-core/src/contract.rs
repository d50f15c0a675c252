//! The outcome contract: how exit code, the job's report and its artifacts determine the outcome.
//!
//! The job reports `ok` and `empty`; they are never guessed from an existing file.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::ledger::{EndedBy, Status};

/// The most artifacts of one run. A job with more publishes one artifact that lists them.
pub const ARTIFACTS_MAX: usize = 256;

/// The most bytes of the list of artifacts: it must fit into any store.
const LIST_BYTES_MAX: usize = 32 * 1024;

/// The outcomes a job may report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    Ok,
    Empty,
    Error,
}

impl Word {
    pub const ALL: [Self; 3] = [Self::Ok, Self::Empty, Self::Error];

    pub fn as_str(self) -> &'static str {
        self.status().as_str()
    }

    pub fn status(self) -> Status {
        match self {
            Self::Ok => Status::Ok,
            Self::Empty => Status::Empty,
            Self::Error => Status::Error,
        }
    }
}

/// A report by `fencepost record`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recorded {
    pub word: Word,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
}

/// The state of one declared artifact after the run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Produced {
    /// The declared path or pattern.
    pub declared: String,
    /// The matching files.
    pub files: Vec<SeenArtifact>,
    /// Why they do not fulfil the declaration, if they do not.
    pub lack: Option<Lack>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeenArtifact {
    pub artifact: Artifact,
    /// Whether it was written since the run began, with the same bytes or others.
    pub touched: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Lack {
    Missing,
    Untouched,
    TooSmall {
        path: String,
        size: u64,
        min_bytes: u64,
    },
    /// It changed while it was hashed, twice.
    Unsteady {
        path: String,
    },
    Unreadable {
        why: String,
    },
    TooMany {
        count: usize,
    },
}

impl Lack {
    /// The description that follows the declared path.
    pub fn words(&self) -> String {
        match self {
            Self::Missing => "is missing".to_string(),
            Self::Untouched => "was not written by this run".to_string(),
            Self::TooSmall { path, size, min_bytes } => {
                format!("is too small: {path} has {size} bytes, and at least {min_bytes} are expected")
            }
            Self::Unsteady { path } => {
                format!("was still being written when the run had ended: {path} changed while it was hashed, twice")
            }
            Self::Unreadable { why } => format!("cannot be read: {why}"),
            Self::TooMany { count } => {
                format!(
                    "stands for {count} files, and a run leaves at most {ARTIFACTS_MAX}; declare one that lists them"
                )
            }
        }
    }

    /// Whether the job may declare it intended. A file that cannot be hashed may not.
    fn may_be_meant(&self) -> bool {
        matches!(self, Self::Missing | Self::Untouched | Self::TooSmall { .. })
    }
}

/// The verdict on a child that ended by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Judgement {
    pub status: Status,
    pub ended_by: EndedBy,
    pub note: Option<String>,
    pub artifacts: Vec<Artifact>,
    /// What the command did not keep to, although it may have exited 0.
    pub breach: Option<Breach>,
}

/// What a command declares and does not keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Breach {
    /// A declared artifact is missing, untouched, or contradicts the report; or a report is missing.
    NoOutput,
    /// A publish was asked to write other content than was rehearsed.
    OtherContent,
}

impl Judgement {
    /// The verdict on a child that ended well and did not report its outcome, although it has to.
    pub fn unreported() -> Self {
        Self::of(Breach::NoOutput, "the job has to report its outcome (must_record) and did not".to_string())
    }

    pub fn of(breach: Breach, note: String) -> Self {
        Self {
            status: Status::Error,
            ended_by: EndedBy::Fencepost,
            note: Some(note),
            artifacts: Vec::new(),
            breach: Some(breach),
        }
    }
}

/// Judges a child by its exit code, its last report and its artifacts. `before`: the artifacts of the last good run.
pub fn judge(
    exit_code: i32,
    empty_exit: Option<i32>,
    said: Option<&Recorded>,
    produced: &[Produced],
    before: &[Artifact],
) -> Judgement {
    let note = said.and_then(|said| said.note.clone());
    let plain =
        |status, note| Judgement { status, ended_by: EndedBy::Child, note, artifacts: Vec::new(), breach: None };
    let broken = |note| Judgement::of(Breach::NoOutput, note);
    let word = match said.map(|said| said.word) {
        _ if empty_exit == Some(exit_code) => Some(Word::Empty),
        // A non-zero exit code overrides any report.
        _ if exit_code != 0 => return plain(Status::Error, note),
        Some(Word::Error) => return plain(Status::Error, note.or(Some("the job said so".to_string()))),
        other => other,
    };
    if word == Some(Word::Empty) {
        return match changed(produced, said, before) {
            None => plain(Status::Empty, note),
            Some(path) => broken(format!("the job said that there was nothing, but it wrote {path}")),
        };
    }
    let lacking = produced.iter().find_map(|produced| Some((produced, produced.lack.as_ref()?)));
    match lacking {
        Some((produced, lack)) if word.is_none() || !lack.may_be_meant() => {
            broken(format!("no output: {} {}", produced.declared, lack.words()))
        }
        _ => match artifacts(produced, said) {
            Ok(artifacts) => Judgement { artifacts, ..plain(Status::Ok, note) },
            Err(too_many) => broken(format!("the list of its artifacts {}", too_many.words())),
        },
    }
}

/// The first file that differs from the last good run's although the job reported `empty`.
fn changed<'a>(produced: &'a [Produced], said: Option<&'a Recorded>, before: &[Artifact]) -> Option<&'a str> {
    let files = produced.iter().flat_map(|produced| &produced.files).filter(|seen| seen.touched);
    let files = files.map(|seen| &seen.artifact).chain(said.iter().flat_map(|said| &said.artifacts));
    let mut other = files.filter(|artifact| !before.contains(artifact));
    let unsteady = produced.iter().find_map(|produced| match &produced.lack {
        Some(Lack::Unsteady { path }) => Some(path.as_str()),
        _ => None,
    });
    other.next().map(|artifact| artifact.path.as_str()).or(unsteady)
}

/// The artifacts of the run: declared files that it wrote and files it named itself. If it reported `ok` without
/// writing, the declared files as they are.
fn artifacts(produced: &[Produced], said: Option<&Recorded>) -> Result<Vec<Artifact>, Lack> {
    let mut artifacts: Vec<Artifact> = Vec::new();
    for produced in produced {
        let any_touched = produced.files.iter().any(|seen| seen.touched);
        let left = produced.files.iter().filter(|seen| seen.touched || !any_touched);
        artifacts.extend(left.map(|seen| seen.artifact.clone()));
    }
    artifacts.extend(said.iter().flat_map(|said| said.artifacts.iter().cloned()));
    // The last entry for a path counts. Declared files are hashed last, but may be named twice.
    let mut kept: Vec<Artifact> = Vec::new();
    for artifact in artifacts {
        if kept.iter().all(|known| known.path != artifact.path) {
            kept.push(artifact);
        }
    }
    fits(&kept).then_some(kept).ok_or_else(|| Lack::TooMany { count: artifacts_count(produced, said) })
}

/// Whether a list of artifacts fits into the ledger.
pub fn fits(artifacts: &[Artifact]) -> bool {
    let bytes: usize = artifacts.iter().map(|artifact| artifact.path.len() + LINE_BYTES).sum();
    artifacts.len() <= ARTIFACTS_MAX && bytes <= LIST_BYTES_MAX
}

/// The size of a list entry besides its path.
const LINE_BYTES: usize = 120;

fn artifacts_count(produced: &[Produced], said: Option<&Recorded>) -> usize {
    let declared: usize = produced.iter().map(|produced| produced.files.len()).sum();
    declared + said.map_or(0, |said| said.artifacts.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::Fingerprint;
    use alloc::vec;

    fn artifact(path: &str, bytes: u8) -> Artifact {
        Artifact { path: path.to_string(), size: 1, sha256: Fingerprint([bytes; 32]), unknown: Default::default() }
    }

    fn produced(lack: Option<Lack>, touched: bool) -> Vec<Produced> {
        let files = match lack {
            Some(Lack::Missing) => Vec::new(),
            _ => vec![SeenArtifact { artifact: artifact("out", 2), touched }],
        };
        vec![Produced { declared: "out".to_string(), files, lack }]
    }

    fn said(word: Word) -> Option<Recorded> {
        Some(Recorded { word, note: None, artifacts: Vec::new() })
    }

    /// Every exit code, word and state of the artifact.
    #[test]
    fn the_contract_cell_by_cell() {
        use Status::{Empty, Error, Ok};
        let too_small = || Some(Lack::TooSmall { path: "out".to_string(), size: 1, min_bytes: 2 });
        let unsteady = || Some(Lack::Unsteady { path: "out".to_string() });
        let states = [
            ("undeclared", Vec::new()),
            ("written", produced(None, true)),
            ("untouched", produced(Some(Lack::Untouched), false)),
            ("missing", produced(Some(Lack::Missing), false)),
            ("too small", produced(too_small(), true)),
            ("unsteady", produced(unsteady(), true)),
        ];
        let words = [None, Some(Word::Ok), Some(Word::Empty), Some(Word::Error)];
        // A row per state; the columns are: nothing said, ok, empty and error, each with exit 0.
        let expected = [
            [(Ok, false), (Ok, false), (Empty, false), (Error, false)],
            [(Ok, false), (Ok, false), (Error, true), (Error, false)],
            [(Error, true), (Ok, false), (Empty, false), (Error, false)],
            [(Error, true), (Ok, false), (Empty, false), (Error, false)],
            [(Error, true), (Ok, false), (Error, true), (Error, false)],
            [(Error, true), (Error, true), (Error, true), (Error, false)],
        ];
        for ((state, produced), row) in states.iter().zip(expected) {
            for (word, (status, breaks)) in words.iter().zip(row) {
                let said = word.and_then(said);
                let judged = judge(0, None, said.as_ref(), produced, &[]);
                assert_eq!((judged.status, judged.breach.is_some()), (status, breaks), "{state}, {word:?}");
                let failed = judge(3, None, said.as_ref(), produced, &[]);
                assert_eq!((failed.status, failed.breach.is_some()), (Error, false), "{state}, {word:?}, exit 3");
                let by_exit = judge(3, Some(3), said.as_ref(), produced, &[]);
                let as_said = judge(0, None, self::said(Word::Empty).as_ref(), produced, &[]);
                assert_eq!(by_exit.status, as_said.status, "{state}, {word:?}, the exit code for empty");
            }
        }
    }

    #[test]
    fn the_same_bytes_written_again_are_no_change() {
        let produced = produced(None, true);
        let empty = said(Word::Empty);
        assert_eq!(judge(0, None, empty.as_ref(), &produced, &[artifact("out", 2)]).status, Status::Empty);
        assert_eq!(judge(0, None, empty.as_ref(), &produced, &[artifact("out", 1)]).status, Status::Error);
    }

    #[test]
    fn an_untouched_file_that_is_vouched_for_is_recorded() {
        let judged = judge(0, None, said(Word::Ok).as_ref(), &produced(Some(Lack::Untouched), false), &[]);
        assert_eq!(judged.artifacts, [artifact("out", 2)]);
    }

    #[test]
    fn only_what_was_written_is_recorded_of_a_pattern() {
        let files = vec![
            SeenArtifact { artifact: artifact("old", 1), touched: false },
            SeenArtifact { artifact: artifact("new", 2), touched: true },
        ];
        let produced = [Produced { declared: "*".to_string(), files, lack: None }];
        assert_eq!(judge(0, None, None, &produced, &[]).artifacts, [artifact("new", 2)]);
    }
}
