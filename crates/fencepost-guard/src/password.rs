//! The store's password: from the environment, or from a private file.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use fencepost_store::Secret;
use nix::libc::O_NONBLOCK;

/// Variable that holds the password. No child inherits it.
pub const VARIABLE: &str = "FENCEPOST_STORE_PASSWORD";

/// Variable that names a file with the password. A path is not a secret, so a child may inherit it.
pub const FILE_VARIABLE: &str = "FENCEPOST_STORE_PASSWORD_FILE";

/// Maximum length of a password.
const PASSWORD_BYTES_MAX: u64 = 4096;

const OTHERS: u32 = 0o007;
const GROUP_AND_OTHERS: u32 = 0o077;
const GROUP_WRITES: u32 = 0o020;

/// Reads the password from the environment: the variable itself, or the file it names.
pub fn from_environment() -> Result<Option<Secret>, String> {
    match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        // An error never shows the value.
        Some(value) => match value.into_string() {
            Ok(text) => Ok(Some(Secret::new(text))),
            Err(_) => Err(format!("{VARIABLE} is not UTF-8 text.")),
        },
        None => {
            let path = std::env::var_os(FILE_VARIABLE).filter(|path| !path.is_empty());
            path.map(|path| from_file(Path::new(&path), FILE_VARIABLE)).transpose()
        }
    }
}

/// Reads a password from a file that no other user can read. `asked` is the option, variable or key that named it.
pub fn from_file(path: &Path, asked: &str) -> Result<Secret, String> {
    let wrong = |why: String| format!("The password file {} ({asked}) {why}", path.display());
    let cannot = |error: std::io::Error| wrong(format!("cannot be read: {error}."));
    let file = File::options().read(true).custom_flags(O_NONBLOCK).open(path).map_err(cannot)?;
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() {
        return Err(wrong("is not a regular file.".to_string()));
    }
    // Root may give a group read access to the file, as for a service.
    let of_root = found.uid() == 0 && found.mode() & (OTHERS | GROUP_WRITES) == 0;
    if found.mode() & GROUP_AND_OTHERS != 0 && !of_root {
        return Err(wrong(format!(
            "is refused, because others than its owner can read or write it. Try: chmod 600 {}",
            path.display()
        )));
    }
    let mut text = String::new();
    file.take(PASSWORD_BYTES_MAX).read_to_string(&mut text).map_err(|_| wrong("is not UTF-8 text.".to_string()))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() || password.contains(['\n', '\0']) || text.len() as u64 >= PASSWORD_BYTES_MAX {
        return Err(wrong("does not hold a password: it is one line of text, and nothing else.".to_string()));
    }
    Ok(Secret::new(password))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    fn read(text: &str, mode: u32) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        fs::write(&path, text).unwrap();
        // If the tests run as root, the exception for files of root must not apply.
        nix::unistd::chown(&path, Some(nix::unistd::Uid::from_raw(65534)), None).ok();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        from_file(&path, "a test").map(|secret| secret.reveal().to_string())
    }

    #[test]
    fn a_password_is_one_line_of_a_private_file() {
        assert_eq!(read("s3cret\n", 0o600), Ok("s3cret".to_string()));
        assert_eq!(read("s3cret\r\n", 0o400), Ok("s3cret".to_string()));
        assert_eq!(read(" a b ", 0o600), Ok(" a b ".to_string()));
        for (text, mode, part) in [
            ("s3cret", 0o640, "chmod 600"),
            ("s3cret", 0o604, "chmod 600"),
            ("s3cret", 0o620, "chmod 600"),
            ("", 0o600, "one line"),
            ("\n", 0o600, "one line"),
            ("s3cret\nanother\n", 0o600, "one line"),
        ] {
            let wrong = read(text, mode).unwrap_err();
            assert!(wrong.contains(part) && !wrong.contains("s3cret"), "{wrong}");
        }
        assert!(from_file(Path::new("/dev/null"), "x").unwrap_err().contains("regular file"));
        assert!(from_file(Path::new("/no/such"), "x").unwrap_err().contains("cannot be read"));
    }
}
