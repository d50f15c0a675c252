//! Files that a run reads and writes: which paths a declaration matches, whether the run wrote them, and their
//! fingerprints.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use fencepost_core::artifact::{Artifact, Fingerprint};
use fencepost_core::contract::{ARTIFACTS_MAX, Lack, Produced, SeenArtifact};
use nix::libc::O_NONBLOCK;
use thiserror::Error;

use crate::publish::digest;

/// Resolution of file timestamps: the kernel's clock for them ticks every few milliseconds. A second write within one
/// tick may leave the same timestamp.
const TICK: Duration = Duration::from_millis(20);

/// The directory that artifacts are named from: the job's working directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base(PathBuf);

impl Base {
    /// Takes an absolute directory and resolves its symbolic links: one file then has one name.
    pub fn new(directory: &Path) -> Self {
        Self(directory.canonicalize().unwrap_or_else(|_| directory.to_path_buf()))
    }

    /// Resolves a path, as it is written or recorded, against this directory.
    pub fn locate(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Resolves a path for an error message: absolute, without `.` and `..`.
    pub fn shown(&self, path: &str) -> String {
        plain(&self.0.join(path)).display().to_string()
    }

    /// The name that the ledger records for a path: relative to the base, without `.` and `..`. A path written as
    /// absolute stays absolute, unless it lies below the base.
    pub fn name(&self, path: &Path) -> String {
        self.name_of(path, path.is_relative())
    }

    /// As [`Base::name`], for a path that is already absolute. `is_relative` says how it was written.
    pub fn name_of(&self, path: &Path, is_relative: bool) -> String {
        let whole = plain(&self.0.join(path));
        let below = whole.strip_prefix(&self.0).ok().filter(|below| !below.as_os_str().is_empty());
        match below {
            Some(below) => below.to_string_lossy().into_owned(),
            None if is_relative => self.way_to(&whole).to_string_lossy().into_owned(),
            None => whole.to_string_lossy().into_owned(),
        }
    }

    /// The relative path from the base to a file outside it.
    fn way_to(&self, whole: &Path) -> PathBuf {
        let shared = self.0.components().zip(whole.components()).take_while(|(here, there)| here == there).count();
        let up = self.0.components().skip(shared).map(|_| Component::ParentDir);
        up.chain(whole.components().skip(shared)).collect()
    }
}

/// Removes `.` and `..` from a path by its text alone: the file need not exist.
pub fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

/// An artifact that a job declares: a file, or a pattern that matches files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredArtifact {
    pub path: String,
    pub min_bytes: u64,
}

impl DeclaredArtifact {
    /// Reads `PATH[,min-bytes=N]`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (path, min_bytes) = match text.rsplit_once(",min-bytes=") {
            None => (text, 1),
            Some((path, number)) => {
                let wrong = || format!("{number:?} is not a number of bytes, as in out.csv,min-bytes=100");
                (path, number.parse().map_err(|_| wrong())?)
            }
        };
        if path.is_empty() {
            return Err("it names no file".to_string());
        }
        let declared = Self { path: path.to_string(), min_bytes };
        declared.check()?;
        Ok(declared)
    }

    /// Checks the syntax of the pattern, if it is one.
    pub fn check(&self) -> Result<(), String> {
        glob::Pattern::new(&self.path).map(drop).map_err(|error| format!("{:?} is not a pattern: {error}", self.path))
    }

    /// The files that match now, sorted.
    fn files(&self, base: &Base) -> io::Result<Vec<PathBuf>> {
        let path = base.locate(&self.path);
        if !self.path.contains(['*', '?', '[']) || path.symlink_metadata().is_ok() {
            return Ok(if path.try_exists()? { vec![path] } else { Vec::new() });
        }
        let base = glob::Pattern::escape(&base.0.to_string_lossy());
        let pattern = if self.path.starts_with('/') { self.path.clone() } else { format!("{base}/{}", self.path) };
        let found = glob::glob(&pattern).map_err(io::Error::other)?;
        let mut files = Vec::new();
        for path in found {
            let path = path.map_err(io::Error::from)?;
            if path.is_file() {
                files.push(path);
            }
        }
        Ok(files)
    }
}

/// Identity, size and modification time of a file. A write changes the stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// The declared files as they were before a run.
#[derive(Clone, Debug, Default)]
pub struct Snapshot(BTreeMap<PathBuf, Stamp>);

impl Snapshot {
    pub fn take(declared: &[DeclaredArtifact], base: &Base) -> Self {
        let mut stamps = BTreeMap::new();
        let mut newest = None;
        for path in declared.iter().filter_map(|declared| declared.files(base).ok()).flatten() {
            if let Ok(metadata) = fs::metadata(&path) {
                newest = newest.max(metadata.modified().ok());
                stamps.insert(path, Stamp::of(&metadata));
            }
        }
        wait_out_the_tick(newest);
        Self(stamps)
    }

    fn shows(&self, path: &Path, stamp: Stamp) -> bool {
        self.0.get(path) == Some(&stamp)
    }
}

/// Waits until the next tick of the file clock: a write in the same tick as the last one would not change the stamp.
fn wait_out_the_tick(newest: Option<SystemTime>) {
    let age = newest.and_then(|newest| newest.elapsed().ok());
    if let Some(age) = age.filter(|age| *age < TICK) {
        std::thread::sleep(TICK - age);
    }
}

/// Inspects every declared artifact after the run.
pub fn survey(declared: &[DeclaredArtifact], base: &Base, before: &Snapshot) -> Vec<Produced> {
    declared.iter().map(|declared| look(declared, base, before)).collect()
}

fn look(declared: &DeclaredArtifact, base: &Base, before: &Snapshot) -> Produced {
    let shown = base.shown(&declared.path);
    let is_relative = Path::new(&declared.path).is_relative();
    let lacking = |files, lack| Produced { declared: shown.clone(), files, lack: Some(lack) };
    let paths = match declared.files(base) {
        Ok(paths) => paths,
        Err(error) => return lacking(Vec::new(), Lack::Unreadable { why: error.to_string() }),
    };
    if paths.is_empty() {
        return lacking(Vec::new(), Lack::Missing);
    }
    // Hashes only the written files of a pattern. If none was written, it hashes the old ones.
    let (written, old): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| is_written(path, before));
    let is_touched = !written.is_empty();
    let paths = if is_touched { written } else { old };
    if paths.len() > ARTIFACTS_MAX {
        return lacking(Vec::new(), Lack::TooMany { count: paths.len() });
    }
    let mut files = Vec::new();
    let mut lack = (!is_touched).then_some(Lack::Untouched);
    for path in paths {
        let name = base.name_of(&path, is_relative);
        match read(&path) {
            Ok((size, sha256)) => {
                if size < declared.min_bytes {
                    let too_small = Lack::TooSmall { path: name.clone(), size, min_bytes: declared.min_bytes };
                    lack = lack.or(Some(too_small));
                }
                files.push(SeenArtifact {
                    artifact: Artifact { path: name, size, sha256, unknown: Default::default() },
                    touched: is_touched,
                });
            }
            Err(FingerprintError::Unsteady) => lack = Some(Lack::Unsteady { path: name }),
            Err(FingerprintError::Missing) => lack = Some(Lack::Missing),
            Err(FingerprintError::Failed(error)) => lack = Some(Lack::Unreadable { why: format!("{name}: {error}") }),
        }
    }
    Produced { declared: shown, files, lack }
}

fn is_written(path: &Path, before: &Snapshot) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !before.shows(path, Stamp::of(&metadata)))
}

/// Why a file has no fingerprint.
#[derive(Debug, Error)]
pub enum FingerprintError {
    #[error("there is no such file")]
    Missing,
    /// The file changed during the hash, twice in a row.
    #[error("it changed twice while it was hashed")]
    Unsteady,
    #[error("it cannot be read: {0}")]
    Failed(io::Error),
}

impl From<io::Error> for FingerprintError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Failed(error),
        }
    }
}

/// Returns the size and the fingerprint of a file. If the file changes meanwhile, reads it once more.
pub fn read(path: &Path) -> Result<(u64, Fingerprint), FingerprintError> {
    for _ in 0..2 {
        if let Some(read) = read_once(path)? {
            return Ok(read);
        }
    }
    Err(FingerprintError::Unsteady)
}

fn read_once(path: &Path) -> Result<Option<(u64, Fingerprint)>, FingerprintError> {
    let mut file = open_regular(path)?;
    let metadata = file.metadata()?;
    let before = (Stamp::of(&metadata), metadata.ctime(), metadata.ctime_nsec());
    let (sha256, size) = digest::fingerprint(&mut file)?;
    // Looks up the path again: if another file replaced this one, the next reader gets that file.
    let metadata = fs::metadata(path)?;
    let after = (Stamp::of(&metadata), metadata.ctime(), metadata.ctime_nsec());
    Ok((before == after && size == metadata.size()).then_some((size, sha256)))
}

/// Opens a regular file. Reading a pipe or a device may block forever.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    match () {
        () if kind.is_file() => Ok(file),
        () if kind.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        () => Err(io::Error::other("it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_recorded_relative_to_its_base() {
        let place = tempfile::tempdir().unwrap();
        let base = Base::new(place.path());
        let inside = place.path().canonicalize().unwrap();
        for (path, name) in [("a/b", "a/b"), ("./a", "a"), ("a/../b", "b"), ("/etc/hosts", "/etc/hosts")] {
            assert_eq!(base.name(Path::new(path)), name);
        }
        assert_eq!(base.name(&inside.join("x/y")), "x/y");
        // A path beside the base stays relative: two machines with different roots record the same name.
        assert_eq!(base.name(Path::new("../other")), "../other");
        assert_eq!(base.name(Path::new("a/../../other/./x")), "../other/x");
        assert_eq!(base.name_of(&inside.parent().unwrap().join("other"), true), "../other");
        assert_eq!(base.shown("../other"), inside.parent().unwrap().join("other").to_str().unwrap());
    }

    #[test]
    fn a_file_is_written_if_it_was_replaced_rewritten_or_made() {
        let place = tempfile::tempdir().unwrap();
        let base = Base::new(place.path());
        for name in ["same", "rewritten", "replaced"] {
            fs::write(place.path().join(name), "old").unwrap();
        }
        let declared: Vec<_> =
            ["same", "rewritten", "replaced", "made", "none"].map(|path| DeclaredArtifact::parse(path).unwrap()).into();
        let before = Snapshot::take(&declared, &base);
        fs::write(place.path().join("rewritten"), "old").unwrap();
        fs::write(place.path().join("new"), "old").unwrap();
        fs::rename(place.path().join("new"), place.path().join("replaced")).unwrap();
        fs::write(place.path().join("made"), "new").unwrap();
        let lacks: Vec<_> = survey(&declared, &base, &before).into_iter().map(|produced| produced.lack).collect();
        assert_eq!(lacks, [Some(Lack::Untouched), None, None, None, Some(Lack::Missing)]);
    }

    #[test]
    fn a_pattern_stands_for_what_was_written_of_it() {
        let place = tempfile::tempdir().unwrap();
        let base = Base::new(place.path());
        fs::write(place.path().join("a.md"), "a").unwrap();
        let declared = [DeclaredArtifact::parse("*.md,min-bytes=2").unwrap()];
        let before = Snapshot::take(&declared, &base);
        fs::write(place.path().join("b.md"), "bb").unwrap();
        let produced = survey(&declared, &base, &before).remove(0);
        assert_eq!(produced.lack, None);
        let names: Vec<_> = produced.files.iter().map(|seen| seen.artifact.path.as_str()).collect();
        assert_eq!(names, ["b.md"]);
        fs::write(place.path().join("c.md"), "c").unwrap();
        let too_small = Lack::TooSmall { path: "c.md".to_string(), size: 1, min_bytes: 2 };
        assert_eq!(survey(&declared, &base, &before).remove(0).lack, Some(too_small));
    }

    #[test]
    fn a_directory_a_pipe_and_a_device_are_not_artifacts() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [place.path(), &pipe, Path::new("/dev/zero")] {
            assert!(matches!(read(path), Err(FingerprintError::Failed(_))), "{path:?}");
        }
    }
}
