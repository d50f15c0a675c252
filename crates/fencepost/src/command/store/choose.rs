//! `fencepost store use`: checks a store and writes it into the configuration.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use fencepost_store::bare;
use fencepost_view::answer::{AnswerVersion, StoreUseAnswer};
use toml::de::{DeTable, DeValue};

use super::check;
use crate::args::Global;
use crate::config::{self, Reading};
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::Voice;
use crate::{file, password, show};

pub fn run(global: &Global, place: &Place) -> Result<Code, Failure> {
    let path = target(global)?;
    // Reports mistakes in the file before the slow checks of the store.
    let text = current(&path)?;
    let report = check::examine(global, place)?;
    let voice = Voice::of(global);
    if !report.is_ok() {
        if global.json {
            show::json(&report);
        }
        voice.warn(&format!(
            "{} is refused, and nothing was written: {}",
            place.shown_store(),
            report.reasons().join(" ")
        ));
        return Ok(Code::REFUSED);
    }
    let url = bare(&place.store);
    let written = with_store(&text, &url).ok_or_else(|| {
        Failure::Usage(format!("{} cannot be changed: it is not TOML, or its store is not a text.", path.display()))
    })?;
    if written != text {
        write(&path, &written)?;
    }
    if global.json {
        let (url, config) = (place.shown_store(), path.display().to_string());
        show::json(&StoreUseAnswer { v: AnswerVersion, url, config });
    } else {
        show::line(&format!("{url} is the store now, by {}.", path.display()));
    }
    tell_of_password(place, &path, voice);
    tell_of_rank(global, &path, voice);
    Ok(Code::DONE)
}

/// Whether the named configuration does not exist. `store use` creates it; every other command fails.
pub fn names_new_file(global: &Global) -> bool {
    let found = named(global).map(|path| path.symlink_metadata());
    matches!(found, Some(Err(error)) if error.kind() == ErrorKind::NotFound)
}

/// The file named by the command line or the environment.
fn named(global: &Global) -> Option<PathBuf> {
    let of_environment = || std::env::var_os(config::VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from);
    global.config.clone().or_else(of_environment)
}

/// The file to write: the named one, or the user's own.
fn target(global: &Global) -> Result<PathBuf, Failure> {
    let named = named(global);
    let is_none = global.config.is_none() && std::env::var_os(config::VARIABLE).is_some_and(|named| named.is_empty());
    if is_none {
        return Err(Failure::Usage(format!(
            "{}= says that there is no configuration, so nothing was written. Name the file to write, by: fencepost --config \
             FILE store use URL",
            config::VARIABLE
        )));
    }
    if let Some(named) = named {
        let whole = std::path::absolute(&named);
        return whole.map_err(|error| Failure::Usage(format!("{}: {error}", named.display())));
    }
    let home = config::home().ok_or_else(|| {
        Failure::Other("Your home directory is not in the passwd database. Name a file by --config.".to_string())
    })?;
    Ok(home.join(".config/fencepost/fencepost.toml"))
}

/// Reads the file. A missing file is empty; one with mistakes is an error and stays unchanged.
fn current(path: &Path) -> Result<String, Failure> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        _ => {
            let location = config::Location { path: path.to_path_buf(), scope: config::Scope::AllJobs };
            Reading::of(&location)?.accepted()?;
            fs::read_to_string(path).map_err(|error| Failure::Other(format!("Cannot read {}: {error}", path.display())))
        }
    }
}

/// Returns the text with another store and everything else unchanged.
fn with_store(text: &str, url: &str) -> Option<String> {
    let quoted = quoted(url);
    let document = DeTable::parse(text).ok()?;
    if let Some(value) = document.get_ref().get("store") {
        if !matches!(value.get_ref(), DeValue::String(_)) {
            return None;
        }
        let span = value.span();
        return Some(format!("{}{quoted}{}", &text[..span.start], &text[span.end..]));
    }
    // A comment at the head of the file stays first. Keys before the first table belong to the top level.
    let head: usize = text.split_inclusive('\n').take_while(|line| line.starts_with('#')).map(str::len).sum();
    let heads = head > 0 && text[head..].starts_with(['\n', '\r']);
    let (before, after) = text.split_at(if heads { head } else { 0 });
    let gap = if after.is_empty() || after.starts_with(['\n', '\r']) { "" } else { "\n" };
    let lead = if before.is_empty() { "" } else { "\n" };
    Some(format!("{before}{lead}store = {quoted}\n{gap}{after}"))
}

/// Quotes a text for TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|error| {
            Failure::Other(format!("Cannot make {}: {error}. Nothing was written.", directory.display()))
        })?;
    }
    file::replace(path, text)
}

fn tell_of_password(place: &Place, path: &Path, voice: Voice) {
    let in_environment = std::env::var_os(password::VARIABLE).is_some_and(|value| !value.is_empty());
    if password::is_in(&place.store) || in_environment {
        voice.warn(&format!(
            "The password was not written down. Put it into a file that only you can read (chmod 600), and name that in {} \
             by store_password_file = \"…\", or by {}.",
            path.display(),
            password::FILE_VARIABLE
        ));
    }
}

/// Warns about settings that override the written file.
fn tell_of_rank(global: &Global, path: &Path, voice: Voice) {
    if std::env::var_os(password::STORE_VARIABLE).is_some_and(|value| !value.is_empty()) {
        voice.warn(&format!("{} is set here and overrides it.", password::STORE_VARIABLE));
    }
    if global.config.is_none()
        && let Ok(Some(nearer)) = config::find(global)
        && nearer.path != *path
    {
        voice.warn(&format!("In this directory {} overrides it.", nearer.path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::with_store;

    #[test]
    fn only_the_store_changes() {
        let table = [
            ("", "store = \"U\"\n"),
            ("[job.a]\ncommand = 'x'\n", "store = \"U\"\n\n[job.a]\ncommand = 'x'\n"),
            ("# of the house\n\ntimezone = 'UTC'\n", "# of the house\n\nstore = \"U\"\n\ntimezone = 'UTC'\n"),
            ("# of the job\n[job.a]\n", "store = \"U\"\n\n# of the job\n[job.a]\n"),
            (
                "timezone = 'UTC'\nstore   = 'sqlite:a.db' # why\n[job.a]\nstore = 1\n",
                "timezone = 'UTC'\nstore   = \"U\" # why\n[job.a]\nstore = 1\n",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(with_store(text, "U").as_deref(), Some(expected));
            assert_eq!(with_store(expected, "U").as_deref(), Some(expected), "again");
        }
        assert_eq!(with_store("store = 1\n", "U"), None);
        assert_eq!(with_store("store = \n", "U"), None);
        assert_eq!(with_store("", "a\"\\b").as_deref(), Some("store = \"a\\\"\\\\b\"\n"));
    }
}
