//! Where a file, its fence and its lock are, and what may be said of that place.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use fencepost_core::fence::{Fence, Level};
use fencepost_store::file_system::shared_file_system;

use crate::publish::{PublishError, digest};

/// The places that belong to one file. Symbolic links are followed first, so that all names of a file share a fence.
pub(super) struct Place {
    pub artifact: PathBuf,
    pub directory: PathBuf,
    pub fence: PathBuf,
    pub lock: PathBuf,
    /// The sort of shared file system it is on, where `flock` may mean nothing to other machines.
    pub shared: Option<&'static str>,
    in_work_tree: bool,
}

/// Folders that are carried to other machines behind our back: there is no place where a check could be made.
const SYNC_FOLDERS: [(&str, &str); 9] = [
    ("Dropbox", "Dropbox"),
    (".dropbox.cache", "Dropbox"),
    ("OneDrive", "OneDrive"),
    ("Google Drive", "Google Drive"),
    ("GoogleDrive", "Google Drive"),
    ("My Drive", "Google Drive"),
    ("Mobile Documents", "iCloud Drive"),
    ("CloudStorage", "a cloud provider"),
    ("iCloud Drive", "iCloud Drive"),
];

/// Files by which a folder says that it is synchronised.
const SYNC_MARKS: [(&str, &str); 3] =
    [(".stfolder", "Syncthing"), (".dropbox", "Dropbox"), (".849C9593-D756-4E56-8D6E-42412F2A707B", "OneDrive")];

impl Place {
    pub fn find(path: &Path) -> Result<Self, PublishError> {
        let artifact = real_path(path)?;
        let directory = artifact.parent().unwrap_or(Path::new("/")).to_path_buf();
        let name = artifact.file_name().unwrap_or_default().to_os_string();
        if let Some(service) = sync_folder(&directory) {
            return Err(PublishError::Usage(format!(
                "{} is in a folder that {service} carries to other machines by itself, so that no check can be made \
                 where the write lands. Publish to a plain directory, a git remote or a database instead.",
                artifact.display()
            )));
        }
        let shared = shared_file_system(&directory).map_err(|error| {
            PublishError::Failed(format!("Cannot look at {} ({error}); nothing was changed.", directory.display()))
        })?;
        let in_work_tree = directory.ancestors().any(|above| above.join(".git").exists());
        let beside = |suffix: &str| directory.join(hidden(&name, suffix));
        Ok(Self { fence: beside("fence"), lock: beside("lock"), artifact, shared, in_work_tree, directory })
    }

    /// Whether the lock holds wherever the file can be written from.
    pub fn level(&self) -> Level {
        if self.shared.is_some() { Level::Gated } else { Level::Atomic }
    }

    /// A name for new content that no two writers share.
    pub fn draft(&self) -> PathBuf {
        let name = self.artifact.file_name().unwrap_or_default();
        self.directory.join(hidden(name, &format!("new-{}", uuid::Uuid::now_v7().simple())))
    }

    pub fn fence_draft(&self) -> PathBuf {
        let mut draft = OsString::from(&self.fence);
        draft.push("-new");
        PathBuf::from(draft)
    }

    /// What the fence remembers. Torn, empty, foreign or missing where it was: none of these is "no fence".
    pub fn seen(&self, adopt: bool) -> Result<Option<Fence>, PublishError> {
        let bytes = match fs::read(&self.fence) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound && (adopt || !self.was_fenced()) => return Ok(None),
            Err(error) => return Err(self.unreadable(&error)),
        };
        match Fence::decode(&bytes) {
            Ok(fence) => Ok(Some(fence)),
            Err(_) if adopt => Ok(None),
            Err(why) => Err(self.unreadable(&why)),
        }
    }

    fn unreadable(&self, why: &dyn std::fmt::Display) -> PublishError {
        PublishError::Failed(format!(
            "The fence of {} cannot be read: {} ({why}). Nothing was changed, because without it nobody knows which token \
             wrote last. Restore it together with the file; or, if no older run can still be alive, publish once with \
             --adopt.",
            self.artifact.display(),
            self.fence.display()
        ))
    }

    /// The lock file says whether there ever was a fence, so that one that was lost is not taken for a first write.
    fn was_fenced(&self) -> bool {
        fs::metadata(&self.lock).is_ok_and(|lock| lock.len() > 0)
    }

    pub fn mark_fenced(&self) -> io::Result<()> {
        if self.was_fenced() {
            return Ok(());
        }
        let mut lock = OpenOptions::new().append(true).open(&self.lock)?;
        lock.write_all(b"fenced\n")?;
        lock.sync_all()
    }

    pub fn content_digest(&self) -> Option<String> {
        digest::read(&mut File::open(&self.artifact).ok()?).ok()
    }

    /// Removes what writers that died have left. A living one holds a lock on its own.
    pub fn sweep(&self, own: &Path) {
        let prefix = hidden(self.artifact.file_name().unwrap_or_default(), "new-");
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            let ours = entry.file_name().as_encoded_bytes().starts_with(prefix.as_encoded_bytes());
            if ours && path != own && File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
                let _ = fs::remove_file(&path);
            }
        }
        let _ = fs::remove_file(self.fence_draft());
    }

    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some(kind) = self.shared {
            remarks.push(format!(
                "{} is on {kind}: the check is only gated, because a lock may not hold between machines.",
                self.artifact.display()
            ));
        }
        if self.in_work_tree {
            remarks.push(format!(
                "{} is in a git work tree: only this copy is fenced, not what is pushed. Use publish git for that.",
                self.artifact.display()
            ));
        }
        remarks
    }
}

/// The mode bits that new files are not given, as the process was started with.
pub(super) fn umask() -> u32 {
    // Asking for the mask means setting it; it is put back at once, and a command has one thread.
    let mask = nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    nix::sys::stat::umask(mask);
    mask.bits() as u32
}

/// Follows symbolic links to the file that would be written, which need not exist yet.
fn real_path(path: &Path) -> Result<PathBuf, PublishError> {
    let usage = |why: String| PublishError::Usage(format!("Cannot publish to {}: {why}.", path.display()));
    match fs::canonicalize(path) {
        Ok(real) if real.is_file() => return Ok(real),
        Ok(real) if real.is_dir() => return Err(usage("it is a directory. Use publish tree for a directory".into())),
        Ok(_) => return Err(usage("it is not a regular file".into())),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(usage(error.to_string())),
    }
    if fs::symlink_metadata(path).is_ok() {
        return Err(usage("it is a symbolic link to a file that does not exist".into()));
    }
    let name = path.file_name().ok_or_else(|| usage("it names no file".into()))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = fs::canonicalize(parent).map_err(|error| usage(format!("its directory: {error}")))?;
    Ok(parent.join(name))
}

fn sync_folder(directory: &Path) -> Option<&'static str> {
    let by_name = directory.iter().find_map(|part| {
        let name = part.to_string_lossy();
        let matches = |folder: &str| name == folder || name.starts_with(&format!("{folder} -"));
        SYNC_FOLDERS.iter().find(|(folder, _)| matches(folder)).map(|(_, service)| *service)
    });
    let by_mark = || {
        directory.ancestors().find_map(|above| {
            SYNC_MARKS.iter().find(|(mark, _)| above.join(mark).exists()).map(|(_, service)| *service)
        })
    };
    by_name.or_else(by_mark)
}

fn hidden(name: &std::ffi::OsStr, suffix: &str) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".fencepost-");
    hidden.push(suffix);
    hidden
}
