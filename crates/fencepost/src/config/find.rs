//! Where the configuration is, and whether it may be trusted.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fencepost_store::User;
use nix::unistd::geteuid;

use super::mistake::Source;
use crate::args::Global;
use crate::exit::Failure;

/// What a configuration is called, wherever it is looked for.
pub const FILE_NAME: &str = "fencepost.toml";

/// Variable that names the configuration; set to nothing, there is none.
pub const VARIABLE: &str = "FENCEPOST_CONFIG";

/// Variable that names a copy of the configuration, as it was when `up` accepted it: its runs go by that, whatever is
/// being written into the file meanwhile.
pub const COPY_VARIABLE: &str = "FENCEPOST_UP_CONFIG";

/// The most bytes a configuration may have.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// The configuration that this command is about: the first of those that were named, that lie in the working directory
/// or above it, the user's and the machine's. Where there is none, this is a few looks at the file system.
pub fn find(global: &Global) -> Result<Option<PathBuf>, Failure> {
    if let Some(named) = &global.config {
        return absolute(named).map(Some);
    }
    match std::env::var_os(VARIABLE) {
        Some(named) if named.is_empty() => return Ok(None),
        Some(named) => return absolute(Path::new(&named)).map(Some),
        None => {}
    }
    Ok(candidates().find(|path| path.try_exists().unwrap_or(false)))
}

/// Where a configuration that nobody named is looked for, in this order.
pub fn candidates() -> impl Iterator<Item = PathBuf> {
    let here = std::env::current_dir().ok();
    let above: Vec<PathBuf> = here.iter().flat_map(|here| here.ancestors()).map(|at| at.join(FILE_NAME)).collect();
    let of_user = || std::iter::once_with(home).flatten().map(|home| home.join(".config/fencepost").join(FILE_NAME));
    let of_machine = Path::new("/etc/fencepost").join(FILE_NAME);
    above.into_iter().chain(of_user()).chain([of_machine])
}

/// The home directory of the user's passwd entry: cron, sudo and a login shell disagree about `$HOME`.
pub fn home() -> Option<PathBuf> {
    User::current().map(|user| user.home.clone()).filter(|home| home.is_absolute())
}

/// Whether `up` started this run. It has nobody else to end what does not end when it is asked to.
pub fn is_under_up() -> bool {
    std::env::var_os(COPY_VARIABLE).is_some_and(|copy| !copy.is_empty())
}

/// Reads the file, or the copy of it that `up` made, unless somebody else could have written it: it says what is run in
/// our name.
pub fn read(path: &Path) -> Result<Source, Failure> {
    match std::env::var_os(COPY_VARIABLE) {
        Some(copy) if !copy.is_empty() => Ok(Source::new(path.to_path_buf(), read_file(Path::new(&copy))?.text)),
        _ => read_file(path),
    }
}

fn read_file(path: &Path) -> Result<Source, Failure> {
    let cannot =
        |error: &io::Error| Failure::Usage(format!("Cannot read the configuration {}: {error}", path.display()));
    // A pipe would be waited for, so that it is looked at before it is opened, and again after.
    regular(path, &std::fs::metadata(path).map_err(|error| missing(path, &error))?)?;
    let mut file = File::open(path).map_err(|error| cannot(&error))?;
    let metadata = file.metadata().map_err(|error| cannot(&error))?;
    regular(path, &metadata)?;
    trusted(path, &metadata)?;
    let mut bytes = Vec::new();
    file.by_ref().take(CONFIG_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| cannot(&error))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        Failure::Usage(format!("{}:{}: this line is not UTF-8 text.", path.display(), line + 1))
    })?;
    Ok(Source::new(path.to_path_buf(), text))
}

fn absolute(named: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(named)
        .map_err(|error| Failure::Usage(format!("Cannot find the configuration {}: {error}", named.display())))
}

fn missing(path: &Path, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => " It was asked for by --config or FENCEPOST_CONFIG, so that none other is taken.",
        _ => "",
    };
    Failure::Usage(format!("Cannot read the configuration {}: {error}.{hint}", path.display()))
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

fn trusted(path: &Path, metadata: &Metadata) -> Result<(), Failure> {
    let refused = |why: &str, way_out: String| {
        let shown = path.display();
        Err(Failure::Usage(format!("The configuration {shown} is refused, because {why}. {way_out}")))
    };
    let owner = metadata.uid();
    if owner != 0 && owner != geteuid().as_raw() {
        let why = format!("it belongs to user {owner}, who is neither root nor you: it says what is run in your name");
        return refused(&why, "Name one of your own by --config.".to_string());
    }
    if metadata.mode() & OTHERS_WRITE != 0 {
        let way_out = format!("Try: chmod go-w {}", path.display());
        return refused("others than its owner can write it: it says what is run in your name", way_out);
    }
    for directory in directories(path) {
        let mode = std::fs::metadata(&directory).map_or(0, |metadata| metadata.mode());
        if mode & WORLD_WRITES != 0 && mode & STICKY == 0 {
            let why = format!("anybody could replace it: everybody can write the directory {}", directory.display());
            return refused(&why, format!("Try: chmod o-w {}", directory.display()));
        }
    }
    Ok(())
}

const OTHERS_WRITE: u32 = 0o022;
const WORLD_WRITES: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// The directory that holds the file, and where the file is a link, the one that holds what it leads to.
fn directories(path: &Path) -> Vec<PathBuf> {
    let canonical = std::fs::canonicalize(path).ok();
    let mut directories: Vec<_> = [Some(path), canonical.as_deref()]
        .into_iter()
        .flatten()
        .filter_map(Path::parent)
        .map(Path::to_path_buf)
        .collect();
    directories.dedup();
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_comes_first_then_the_users_then_the_machines() {
        let here = std::env::current_dir().unwrap();
        let places: Vec<PathBuf> = candidates().collect();
        assert_eq!(places[0], here.join(FILE_NAME));
        assert_eq!(places[1], here.parent().unwrap().join(FILE_NAME));
        let home = home().unwrap().join(".config/fencepost").join(FILE_NAME);
        let [.., root, of_user, of_machine] = &places[..] else { panic!("{places:?}") };
        assert_eq!(root, Path::new("/fencepost.toml"));
        assert_eq!((of_user, of_machine.as_path()), (&home, Path::new("/etc/fencepost/fencepost.toml")));
    }
}
