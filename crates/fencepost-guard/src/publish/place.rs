//! The place of a published file or tree, and the checks of it.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fencepost_core::fence::Level;
use fencepost_store::file_system::{shared_file_system, sync_folder};
use nix::sys::statvfs::statvfs;

use super::PublishError;
use super::folder::Folder;
use super::walk::{PathDistrust, PathWalk, walk};

/// The mark in the names of fencepost's own files beside a target.
const OURS: &str = ".fencepost-";

/// The most bytes by which fencepost's names exceed the target's: `.`, `.fencepost-new-` and 32 digits.
const LONGER_BYTES: usize = 48;

/// The place of one target. Its other files are in the same directory, so a rename suffices.
pub(super) struct TargetPlace {
    /// For messages. Every operation uses the open directory and the name.
    pub target: PathBuf,
    pub folder: Folder,
    pub name: OsString,
    distrust: Option<PathDistrust>,
    /// The kind of shared file system it is on, where `flock` may have no effect on other machines.
    shared: Option<&'static str>,
    in_work_tree: bool,
}

impl TargetPlace {
    /// Finds the place of a file. Follows symbolic links first, so all names of a file share a fence.
    pub fn of_file(path: &Path) -> Result<Self, PublishError> {
        let walked = walk(path, true)?;
        match walked.folder.metadata_of(&walked.name) {
            Ok(found) if found.is_dir() => {
                return Err(usage(path, "it is a directory. Use publish tree for a directory"));
            }
            Ok(found) if !found.is_file() => return Err(usage(path, "it is not a regular file")),
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed("look at", &walked.folder.shown(&walked.name), &error));
            }
            _ => {}
        }
        Self::at(walked)
    }

    /// Finds the place of a tree. Its name is itself a symbolic link, which is switched; only the links before it are
    /// followed.
    pub fn of_tree(path: &Path) -> Result<Self, PublishError> {
        Self::at(walk(path, false)?)
    }

    fn at(walked: PathWalk) -> Result<Self, PublishError> {
        let PathWalk { folder, name, distrust } = walked;
        let (target, directory) = (folder.shown(&name), folder.path().to_path_buf());
        check_name(&target, &directory)?;
        if let Some((service, sign)) = sync_folder(&directory) {
            return Err(PublishError::Usage(format!(
                "{} is in a folder that {service} carries to other machines by itself (by the sign of {}), so that no \
                 check can be made where the write lands. Publish to a plain directory, a git remote or a database \
                 instead.",
                target.display(),
                sign.display()
            )));
        }
        let shared = shared_file_system(&directory).map_err(|error| failed("look at", &directory, &error))?;
        let in_work_tree = directory.ancestors().any(|above| above.join(".git").exists());
        Ok(Self { target, folder, name, distrust, shared, in_work_tree })
    }

    /// Refuses a place where another user could redirect the write.
    pub fn check_trust(&self) -> Result<(), PublishError> {
        self.distrust.as_ref().map_or(Ok(()), |distrust| Err(distrust.refusal(&self.target)))
    }

    /// Returns whether the lock excludes every machine that can write the target.
    pub fn level(&self) -> Level {
        if self.shared.is_some() { Level::Gated } else { Level::Atomic }
    }

    /// Returns a hidden name of fencepost's beside the target.
    pub fn hidden(&self, suffix: &str) -> OsString {
        let mut hidden = OsString::from(".");
        hidden.push(&self.name);
        hidden.push(OURS);
        hidden.push(suffix);
        hidden
    }

    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some(kind) = self.shared {
            remarks.push(format!(
                "{} is on {kind}: the check is only gated, because a lock may not hold between machines.",
                self.target.display()
            ));
        }
        if self.in_work_tree {
            remarks.push(format!(
                "{} is in a git work tree: only this copy is fenced, not what is pushed. Use publish git for that.",
                self.target.display()
            ));
        }
        remarks
    }
}

/// Makes the error for a failure before the content was touched.
pub(super) fn failed(what: &str, path: &Path, error: &io::Error) -> PublishError {
    PublishError::Failed(format!(
        "Cannot {what} {} ({error}); the content is as it was. {}",
        path.display(),
        next(error)
    ))
}

/// Returns the next step for an error.
pub(super) fn next(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "The directory must be writable, because the new content, the fence and the lock stand in it."
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "Make room, then publish again.",
        ErrorKind::ResourceBusy => {
            "If the file itself is a mount point, as in a container, mount its directory instead: a mount point cannot be \
             replaced."
        }
        _ => "Mend that, then publish again: the same write under the same token is applied once.",
    }
}

pub(super) fn usage(path: &Path, why: impl std::fmt::Display) -> PublishError {
    PublishError::Usage(format!("Cannot publish to {}: {why}.", path.display()))
}

/// Refuses names that belong to fencepost, or that leave no room for its own.
fn check_name(target: &Path, directory: &Path) -> Result<(), PublishError> {
    let name = target.file_name().unwrap_or_default();
    if name.to_string_lossy().contains(OURS) {
        return Err(usage(target, format!("names with {OURS:?} belong to fencepost itself")));
    }
    let in_tree = |part: &OsStr| part.as_bytes().ends_with(b".fencepost-versions");
    if directory.iter().any(in_tree) {
        return Err(usage(target, "it is part of a tree that is published as a whole. Publish the tree again"));
    }
    let longest = statvfs(directory).map_or(255, |found| found.name_max()) as usize;
    if name.len() + LONGER_BYTES > longest {
        let most = longest.saturating_sub(LONGER_BYTES);
        return Err(usage(
            target,
            format!(
                "its name has {} bytes, and the fence beside it needs room for a longer one: {most} is the most",
                name.len()
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn refusal(place: Result<TargetPlace, PublishError>) -> String {
        match place {
            Err(PublishError::Usage(why)) => why,
            Err(other) => panic!("{other}"),
            Ok(place) => panic!("{} was not refused", place.target.display()),
        }
    }

    #[test]
    fn symbolic_links_lead_to_the_file_they_mean_whether_it_exists_or_not() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        for (link, target) in [
            ("one", "real/file"),
            ("two", "one"),
            ("real/up", "../two"),
            ("far", root.join("real/up").to_str().unwrap()),
        ] {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
        for link in ["one", "two", "real/up", "far"] {
            assert_eq!(
                TargetPlace::of_file(&root.join(link)).unwrap().target,
                root.join("real/file"),
                "{link}, dangling"
            );
        }
        fs::write(root.join("real/file"), "").unwrap();
        assert_eq!(TargetPlace::of_file(&root.join("far")).unwrap().target, root.join("real/file"));
        std::os::unix::fs::symlink("round", root.join("round")).unwrap();
        assert!(refusal(TargetPlace::of_file(&root.join("round"))).contains("circle"));
    }

    #[test]
    fn a_path_that_names_no_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("sub")).unwrap();
        nix::unistd::mkfifo(&directory.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (path, why) in [
            ("sub", "publish tree"),
            ("new/", "name"),
            ("new/.", "name"),
            ("sub/..", "name"),
            ("pipe", "regular"),
            ("missing/file", "directory"),
            (".a.fencepost-fence", "fencepost itself"),
            ("a.fencepost-new-1", "fencepost itself"),
        ] {
            let refused = refusal(TargetPlace::of_file(&directory.path().join(path)));
            assert!(refused.contains(why), "{path}: {refused}");
        }
        let versions = directory.path().join(".site.fencepost-versions");
        fs::create_dir(&versions).unwrap();
        assert!(refusal(TargetPlace::of_file(&versions.join("page"))).contains("as a whole"));
    }

    #[test]
    fn a_name_must_leave_room_for_ours() {
        let directory = tempfile::tempdir().unwrap();
        assert!(TargetPlace::of_file(&directory.path().join("n".repeat(255 - LONGER_BYTES))).is_ok());
        let refused = refusal(TargetPlace::of_file(&directory.path().join("n".repeat(256 - LONGER_BYTES))));
        assert!(refused.contains("207 is the most"), "{refused}");
    }

    #[test]
    fn folders_that_are_carried_away_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for name in [
            "Dropbox",
            "Dropbox (Work)",
            "OneDrive - Contoso",
            "My Drive",
            "Mobile Documents",
            "CloudStorage",
            "Google Drive",
        ] {
            let deep = directory.path().join(name).join("deep");
            fs::create_dir_all(&deep).unwrap();
            assert!(refusal(TargetPlace::of_file(&deep.join("file"))).contains("other machines"), "{name}");
        }
        for name in ["Dropboxes", "OneDrives", "drive", "dropbox"] {
            let plain = directory.path().join(name);
            fs::create_dir_all(plain.join(".dropbox")).unwrap();
            assert!(TargetPlace::of_file(&plain.join("file")).is_ok(), "{name}");
        }
        for mark in [".stfolder", ".dropbox.cache"] {
            let marked = directory.path().join(format!("with{mark}"));
            fs::create_dir_all(marked.join(mark)).unwrap();
            fs::create_dir_all(marked.join("deep")).unwrap();
            assert!(refusal(TargetPlace::of_file(&marked.join("deep/file"))).contains(mark));
        }
        let marked = directory.path().join("marked");
        fs::create_dir(&marked).unwrap();
        fs::write(marked.join(".dropbox"), "").unwrap();
        assert!(refusal(TargetPlace::of_file(&marked.join("file"))).contains("Dropbox"));
    }

    #[test]
    fn on_a_shared_file_system_the_check_is_only_gated_and_that_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let place = |shared| TargetPlace { shared, ..TargetPlace::of_file(&directory.path().join("b")).unwrap() };
        assert_eq!(place(None).level(), Level::Atomic);
        assert!(place(None).remarks().is_empty());
        assert_eq!(place(Some("NFS")).level(), Level::Gated);
        assert!(place(Some("NFS")).remarks()[0].contains("only gated"));
    }
}
