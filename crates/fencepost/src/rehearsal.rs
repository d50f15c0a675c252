//! `run --rehearse`: what commands inside a rehearsal do instead of writing.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use fencepost_core::said::{Rehearsed, Said};
use fencepost_guard::report_file;

use crate::args::Global;
use crate::exit::Failure;
use crate::inside::{Inside, variable};
use crate::report;
use crate::show;

/// Variable that tells commands inside a run that it is a rehearsal.
pub const VARIABLE: &str = "FENCEPOST_REHEARSAL";

/// The most bytes of a content that is compared as text.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// The most lines of a difference that are kept.
const DIFF_LINES_MAX: usize = 200;

/// Whether this command was called inside a rehearsal. Call it after the run was looked for: an agent may have stripped
/// the variable.
pub fn is_on() -> bool {
    variable(VARIABLE).is_some()
}

/// Looks for a run around this command, so that its variables are there.
pub fn find() {
    let _ = Inside::find();
}

/// Refuses a verb that changes the store and cannot be rehearsed: its caller needs its result.
pub fn refuse(verb: &str) -> Result<(), Failure> {
    find();
    match is_on() {
        false => Ok(()),
        true => Err(Failure::Usage(format!(
            "fencepost {verb} is not done in a rehearsal: it would be real. Nothing was changed. Leave it out of the command that is \
             rehearsed, or run the job without --rehearse."
        ))),
    }
}

/// Says what would have been done, and keeps it for the end of the rehearsal.
pub fn tell(global: &Global, what: &str, digest: Option<&str>, diff: Option<String>) {
    let rehearsed = Rehearsed { what: what.to_string(), digest: digest.map(str::to_string), diff };
    if !global.quiet && !global.json {
        report::say(&format!("rehearsal: would {}", shown(&rehearsed)));
    }
    if let Ok(Some(inside)) = Inside::find() {
        let _ = report_file::append(&inside.said, inside.run, Said::Rehearsed(rehearsed));
    }
}

/// One line for a write that was not made.
pub fn shown(rehearsed: &Rehearsed) -> String {
    let digest = rehearsed.digest.as_ref().map_or_else(String::new, |digest| format!(" ({digest})"));
    show::flat(&format!("{}{digest}", rehearsed.what))
}

/// The whole content, and how it differs from the file, if both are text.
pub fn diff(path: &Path, mut content: Box<dyn Read>) -> Result<(Box<dyn Read>, Option<String>), Failure> {
    let failed = |error: std::io::Error| Failure::Other(format!("Cannot read the payload: {error}"));
    let mut new = Vec::new();
    content.by_ref().take(TEXT_BYTES_MAX + 1).read_to_end(&mut new).map_err(failed)?;
    let is_long = new.len() as u64 > TEXT_BYTES_MAX;
    let mut old = Vec::new();
    let found = File::open(path).and_then(|file| file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut old));
    let old = found.is_ok().then(|| String::from_utf8(old).ok());
    let difference = match (old, String::from_utf8(new.clone())) {
        (Some(None), _) | (_, Err(_)) => None,
        (old, Ok(new)) if !is_long => {
            let whole =
                crate::command::install::unified(&path.display().to_string(), old.flatten().as_deref(), Some(&new));
            Some(whole.lines().take(DIFF_LINES_MAX).collect::<Vec<_>>().join("\n"))
        }
        _ => None,
    };
    Ok((Box::new(Cursor::new(new).chain(content)), difference))
}
