//! Finds the configuration, and checks that other users cannot change it.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fencepost_guard::state::home;
use fencepost_guard::trust::{self, Distrust};
use fencepost_store::User;
use nix::libc::O_NONBLOCK;

use super::excerpt;
use super::mistake::Source;
use crate::args::Global;
use crate::exit::Failure;

/// The file name of a configuration.
pub const FILE_NAME: &str = "fencepost.toml";

/// Variable that names the configuration. If it is empty, no configuration is used.
pub const VARIABLE: &str = "FENCEPOST_CONFIG";

/// Variable that names an excerpt of the configuration, as `up` accepted it. A run that `up` started reads the excerpt:
/// the file may be in the middle of an edit, and reading all of it would slow down each run with each further job.
pub const EXCERPT_VARIABLE: &str = "FENCEPOST_UP_CONFIG";

/// Maximum size of a configuration.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// Variable that names a configuration which `run` found by search. The job's own calls find it in `FENCEPOST_CONFIG`, and it
/// still counts as found.
pub const FOUND_VARIABLE: &str = "FENCEPOST_CONFIG_FOUND";

/// Which jobs `[defaults]`, `[notify]` and `[logs]` apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All jobs: the configuration was named, or is the user's or the machine's.
    AllJobs,
    /// The jobs that the configuration names: it was found in the working directory or above, where a cloned repository may have
    /// brought it. `store` and `timezone` still apply to all jobs.
    NamedJobs,
}

/// A configuration's path, and how far its settings reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub path: PathBuf,
    pub scope: Scope,
}

/// Finds the configuration of this command: the one that was named, or else the nearest in the working directory and
/// above it, the user's, or the machine's. If there is none, this costs a few file-system lookups.
pub fn find(global: &Global) -> Result<Option<Location>, Failure> {
    if let Some(named) = &global.config {
        return named_location(named).map(Some);
    }
    match std::env::var_os(VARIABLE) {
        Some(named) if named.is_empty() => return Ok(None),
        Some(named) => return named_location(Path::new(&named)).map(Some),
        None => {}
    }
    Ok(candidates().find(|candidate| candidate.path.symlink_metadata().is_ok()))
}

/// The paths where an unnamed configuration is looked for, in this order. A directory that every user may write, such
/// as `/tmp`, is left out.
pub fn candidates() -> impl Iterator<Item = Location> {
    let here = std::env::current_dir().ok();
    let above: Vec<PathBuf> = here
        .iter()
        .flat_map(|here| here.ancestors())
        .filter(|directory| !trust::is_open_to_all(directory))
        .map(|directory| directory.join(FILE_NAME))
        .collect();
    let located = |path| {
        let scope = if own().any(|own| own == path) { Scope::AllJobs } else { Scope::NamedJobs };
        Location { path, scope }
    };
    above.into_iter().map(located).chain(own().map(|path| Location { path, scope: Scope::AllJobs }))
}

/// The user's configuration and the machine's.
fn own() -> impl Iterator<Item = PathBuf> {
    let of_user = std::iter::once_with(directory_of_user).flatten().map(|directory| directory.join(FILE_NAME));
    of_user.chain([Path::new("/etc/fencepost").join(FILE_NAME)])
}

/// The directory of the user's own configuration.
pub fn directory_of_user() -> Option<PathBuf> {
    home().map(|home| home.join(".config/fencepost"))
}

/// Whether `up` started this run. Then SIGKILL follows a signal that asks the run to end: no person is there to send it.
pub fn is_under_up() -> bool {
    excerpt_path().is_some()
}

fn excerpt_path() -> Option<PathBuf> {
    std::env::var_os(EXCERPT_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Reads the file, or the excerpt of it that `up` made. Refuses a file that other users could have written: it decides which
/// commands run in the user's name.
pub fn read(path: &Path) -> Result<Source, Failure> {
    let Some(excerpt_path) = excerpt_path() else { return read_file(path) };
    Ok(excerpt::read(path.to_path_buf(), read_file(&excerpt_path)?.text))
}

fn read_file(path: &Path) -> Result<Source, Failure> {
    let cannot = |error: &io::Error| {
        let shown = path.display();
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                format!(
                    " Let this user read it: chmod u+r {shown}, or use none by setting FENCEPOST_CONFIG= to nothing."
                )
            }
            _ => String::new(),
        };
        Failure::Usage(format!("Cannot read the configuration {shown}: {error}. Nothing was run or changed.{hint}"))
    };
    let checked = trust::check(path).map_err(|why| distrusted(path, &why))?;
    regular(path, &checked)?;
    let mut file = File::options().read(true).custom_flags(O_NONBLOCK).open(path).map_err(|error| cannot(&error))?;
    let opened = file.metadata().map_err(|error| cannot(&error))?;
    if (opened.dev(), opened.ino()) != (checked.dev(), checked.ino()) {
        return Err(Failure::Usage(format!(
            "The configuration {} was replaced while it was being checked. Run the command again.",
            path.display()
        )));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(CONFIG_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        Failure::Usage(format!("{}:{}: this line is not UTF-8 text.", path.display(), line + 1))
    })?;
    Ok(Source::new(path.to_path_buf(), text))
}

fn named_location(named: &Path) -> Result<Location, Failure> {
    let path = std::path::absolute(named)
        .map_err(|error| Failure::Usage(format!("Cannot find the configuration {}: {error}", named.display())))?;
    let was_found = std::env::var_os(FOUND_VARIABLE).is_some_and(|found| Path::new(&found) == path);
    Ok(Location { path, scope: if was_found { Scope::NamedJobs } else { Scope::AllJobs } })
}

fn regular(path: &Path, metadata: &Metadata) -> Result<(), Failure> {
    let shown = path.display();
    if metadata.is_dir() {
        return Err(Failure::Usage(format!("{shown} is a directory. Name the file, as in {shown}/{FILE_NAME}.")));
    }
    if !metadata.is_file() {
        return Err(Failure::Usage(format!("The configuration {shown} is not a regular file.")));
    }
    if metadata.len() >= CONFIG_BYTES_MAX {
        return Err(Failure::Usage(format!("The configuration {shown} is too large to be one.")));
    }
    Ok(())
}

/// The error for a configuration that other users could have written: it decides which commands run in the user's name.
/// Skipping it would silently let the job use another store.
fn distrusted(path: &Path, why: &Distrust) -> Failure {
    let shown = path.display();
    let (reason, repair) = match why {
        Distrust::Unreadable(error) => {
            let hint = match error.kind() {
                io::ErrorKind::NotFound if path.is_symlink() => " It is a symbolic link to a file that does not exist.",
                io::ErrorKind::NotFound => " No other one is used in place of what --config or FENCEPOST_CONFIG names.",
                _ => "",
            };
            return Failure::Usage(format!("Cannot read the configuration {shown}: {error}.{hint}"));
        }
        Distrust::Owner { path: at, owner } => {
            let what = if at == path { "it".to_string() } else { at.display().to_string() };
            (format!("{what} belongs to {}, who is neither root nor you", User::shown(*owner)), String::new())
        }
        Distrust::File { path: at } => {
            let what = if at == path { "it".to_string() } else { at.display().to_string() };
            (format!("others than its owner can write {what}"), format!(" Try: chmod go-w {}.", at.display()))
        }
        Distrust::Directory { path: at } => {
            let at = at.display();
            (
                format!("other users can replace it, because they can write the directory {at}"),
                format!(" Try: chmod go-w {at}."),
            )
        }
    };
    let or_use = if repair.is_empty() { "Use" } else { "Or use" };
    Failure::Usage(format!(
        "The configuration {shown} is refused: {reason}. It decides which commands run in your name.{repair} {or_use} a \
         configuration of your own by --config FILE, or none by setting {VARIABLE}= to nothing."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_comes_first_then_the_users_then_the_machines() {
        let here = std::env::current_dir().unwrap();
        let places: Vec<PathBuf> = candidates().map(|candidate| candidate.path).collect();
        assert_eq!(places[0], here.join(FILE_NAME));
        assert_eq!(places[1], here.parent().unwrap().join(FILE_NAME));
        let home = home().unwrap().join(".config/fencepost").join(FILE_NAME);
        let [.., root, of_user, of_machine] = &places[..] else { panic!("{places:?}") };
        assert_eq!(root, Path::new("/fencepost.toml"));
        assert_eq!((of_user, of_machine.as_path()), (&home, Path::new("/etc/fencepost/fencepost.toml")));
    }
}
