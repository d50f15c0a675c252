//! The pre-push hook that refuses a bare `git push` from inside a run. Agents type that themselves, and the push would
//! not be fenced.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fencepost_sys::flush;

use super::cli::{LocalClone, PUSHING};
use crate::publish::PublishError;

const BEGIN: &str = "# >>> fencepost: pushes from inside a run are fenced >>>";
const END: &str = "# <<< fencepost <<<";
/// The name of a hook that is no shell script, while fencepost's hook has its place.
const CHAINED: &str = "pre-push.fencepost-chained";
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ksh", "zsh"];

/// The result of a change, and the hook's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    pub path: PathBuf,
    /// Whether anything was changed.
    pub changed: bool,
    /// Whether `core.hooksPath` names the hooks' directory, which other repositories may then share.
    pub shared: bool,
}

/// Installs the check before the repository's existing pre-push hook.
pub fn install(repository: &Path) -> Result<Installed, PublishError> {
    let place = HookPlace::find(repository)?;
    let text = match place.current()? {
        InstalledHook::None => format!("#!/bin/sh\n{}", block()),
        InstalledHook::Ours(text) | InstalledHook::Shell(text) => with_block(&text),
        InstalledHook::Foreign => {
            if fs::symlink_metadata(&place.chained).is_ok() {
                return Err(PublishError::Failed(format!(
                    "{} was replaced since fencepost chained {}; nothing was changed. Remove the one that is not wanted, \
                     then try again.",
                    place.hook.display(),
                    place.chained.display()
                )));
            }
            fs::rename(&place.hook, &place.chained).map_err(|error| place.failed(&error))?;
            format!("#!/bin/sh\n{}hook=\"${{0%/*}}/{CHAINED}\"\n[ ! -x \"$hook\" ] || exec \"$hook\" \"$@\"\n", block())
        }
    };
    place.put(&text)
}

/// Removes the check, and leaves the rest unchanged.
pub fn remove(repository: &Path) -> Result<Installed, PublishError> {
    let place = HookPlace::find(repository)?;
    let InstalledHook::Ours(text) = place.current()? else { return Ok(place.done(false)) };
    let rest = without_block(&text);
    let gone = |result: io::Result<()>| result.map(|()| place.done(true)).map_err(|error| place.failed(&error));
    if rest.contains(CHAINED) && fs::symlink_metadata(&place.chained).is_ok() {
        return gone(fs::rename(&place.chained, &place.hook));
    }
    if rest.trim() == "#!/bin/sh" {
        return gone(fs::remove_file(&place.hook));
    }
    place.put(&rest)
}

struct HookPlace {
    hook: PathBuf,
    chained: PathBuf,
    shared: bool,
}

enum InstalledHook {
    None,
    /// A shell script with fencepost's check in it.
    Ours(String),
    /// A shell script, which receives the check and keeps its name, because it may look at it.
    Shell(String),
    /// Anything else, which is kept beside fencepost's hook and called by it.
    Foreign,
}

impl HookPlace {
    fn find(repository: &Path) -> Result<Self, PublishError> {
        let git = LocalClone::open(repository, super::CALL_LIMIT)?;
        // Git resolves core.hooksPath, and work trees that share one repository.
        let hooks = git.directory().join(git.ask(&["rev-parse", "--git-path", "hooks"], "")?);
        let shared = git.run(&["config", "--get", "core.hooksPath"], "")?.ok;
        Ok(Self { hook: hooks.join("pre-push"), chained: hooks.join(CHAINED), shared })
    }

    fn current(&self) -> Result<InstalledHook, PublishError> {
        let active = match fs::symlink_metadata(&self.hook) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(InstalledHook::None),
            Err(error) => return Err(self.failed(&error)),
            // The target of a link may belong to another user.
            Ok(there) if !there.is_file() => return Ok(InstalledHook::Foreign),
            Ok(there) => there.permissions().mode() & 0o111 != 0,
        };
        let bytes = fs::read(&self.hook).map_err(|error| self.failed(&error))?;
        Ok(match String::from_utf8(bytes) {
            Ok(text) if text.contains(BEGIN) && text.contains(END) => InstalledHook::Ours(text),
            // Git ignores a hook that is not executable, and so does fencepost.
            Ok(text) if active && is_shell(&text) => InstalledHook::Shell(text),
            _ => InstalledHook::Foreign,
        })
    }

    /// Replaces the hook in one step: a push that starts at that moment runs the old one or the new one.
    fn put(&self, text: &str) -> Result<Installed, PublishError> {
        let runnable = |path: &Path| fs::metadata(path).is_ok_and(|hook| hook.permissions().mode() & 0o111 != 0);
        if fs::read(&self.hook).is_ok_and(|old| old == text.as_bytes()) && runnable(&self.hook) {
            return Ok(self.done(false));
        }
        let draft = self.hook.with_extension(format!("fencepost-new-{}", std::process::id()));
        let mode = fs::metadata(&self.hook).map_or(0o755, |old| old.permissions().mode() | 0o111);
        let write = || -> io::Result<()> {
            fs::create_dir_all(self.hook.parent().unwrap_or(Path::new(".")))?;
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
            flush(&file)?;
            fs::rename(&draft, &self.hook)
        };
        write().map(|()| self.done(true)).map_err(|error| {
            let _ = fs::remove_file(&draft);
            self.failed(&error)
        })
    }

    fn done(&self, changed: bool) -> Installed {
        Installed { path: self.hook.clone(), changed, shared: self.shared }
    }

    fn failed(&self, error: &io::Error) -> PublishError {
        PublishError::Failed(format!(
            "Cannot change the hook {} ({error}). Check who may write there, then try again.",
            self.hook.display()
        ))
    }
}

fn block() -> String {
    format!(
        "{BEGIN}\n\
         if [ -n \"${{FENCEPOST_RUN:-}}\" ] && [ -z \"${{{PUSHING}:-}}\" ]; then\n    \
         echo \"fencepost: refused: git push from inside the run of ${{FENCEPOST_JOB:-a job}} would land even if the run is \
         stale. Use instead: fencepost publish git\" >&2\n    \
         exit 1\n\
         fi\n\
         {END}\n"
    )
}

/// Inserts the check before everything else, behind the line that names the shell.
fn with_block(text: &str) -> String {
    let text = without_block(text);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    format!("{first}\n{}{rest}", block())
}

fn without_block(text: &str) -> String {
    let Some((before, rest)) = text.split_once(BEGIN) else { return text.to_string() };
    let Some((_, after)) = rest.split_once(END) else { return text.to_string() };
    format!("{before}{}", after.strip_prefix('\n').unwrap_or(after))
}

fn is_shell(text: &str) -> bool {
    let Some(line) = text.lines().next().and_then(|line| line.strip_prefix("#!")) else { return false };
    let mut words = line.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
    match words.next() {
        Some("env") => words.find(|word| !word.starts_with('-')).is_some_and(|word| SHELLS.contains(&word)),
        Some(word) => SHELLS.contains(&word),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_is_put_in_once_and_taken_out_whole() {
        for script in ["#!/bin/sh\n", "#!/usr/bin/env bash\nset -e\nrun-tests\n", "#!/bin/sh\n. \"${0%/*}/h\"\n"] {
            let with = with_block(script);
            assert!(with.starts_with(script.lines().next().unwrap()) && with.contains(BEGIN));
            assert_eq!(with_block(&with), with);
            assert_eq!(without_block(&with), script);
        }
    }

    #[test]
    fn only_shell_scripts_are_written_into() {
        for (line, shell) in [
            ("#!/bin/sh", true),
            ("#!/usr/bin/env bash", true),
            ("#!/usr/bin/env -S bash -e", true),
            ("#!/bin/dash -e", true),
            ("#!/usr/bin/env python3", false),
            ("#!/usr/bin/fish", false),
            ("echo", false),
            ("", false),
        ] {
            assert_eq!(is_shell(&format!("{line}\nx\n")), shell, "{line}");
        }
    }
}
