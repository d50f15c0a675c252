//! `fencepost logs`: prints the output of runs.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::Duration;

use fencepost_core::name::Job;
use fencepost_view::answer::{AnswerVersion, LogAnswer};

use crate::args::{Global, LogsOptions};
use crate::calendar;
use crate::exit::{Code, Failure};
use crate::logs::{LogFile, Shelf, is_locked};
use crate::options::{Given, JobOptions};
use crate::place::Place;
use crate::show;

/// Polling interval of a followed log.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);

pub fn run(global: &Global, options: &LogsOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let keys = place.config.as_ref().map(|config| config.job(&options.job.name).clone()).unwrap_or_default();
    let job = match (options.job.host(), keys.per_host()) {
        (None, true) => super::job(&options.job.name, true, &place)?,
        _ => options.job.clone(),
    };
    let shelf = Shelf::of(&place, &job, &keys);
    let files = chosen(&shelf, &place, &job, &keys, options)?;
    if options.list {
        files.iter().rev().for_each(|file| list(file, global.json));
        return Ok(Code::DONE);
    }
    let Some(file) = files.last() else { return Err(none(&shelf, &job)) };
    let opened = File::open(&file.path);
    let mut opened = opened.map_err(|error| Failure::Other(format!("Cannot read {}: {error}", file.path.display())))?;
    let shown = show_from(&mut opened, options.lines).and_then(|()| match options.follow {
        true => follow(&mut opened),
        false => Ok(()),
    });
    match shown {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Code::DONE),
        Err(error) => Err(Failure::Other(format!("Cannot show {}: {error}", file.path.display()))),
        Ok(()) => Ok(Code::DONE),
    }
}

/// Selects the requested logs, newest last.
fn chosen(
    shelf: &Shelf,
    place: &Place,
    job: &Job,
    keys: &JobOptions,
    options: &LogsOptions,
) -> Result<Vec<LogFile>, Failure> {
    let mut files = shelf.files();
    if let Some(run) = &options.run {
        files.retain(|file| file.run.starts_with(run.as_str()));
    }
    if let Some(slot) = &options.slot {
        let zone = calendar::zone(None, place.config.as_ref(), &job.name)?;
        let slot = zone.parse_time(slot).map_err(|error| Failure::Usage(format!("--slot: {error}")))?;
        files.retain(|file| file.slot.as_millisecond() == slot.0);
    }
    if files.is_empty() && !options.list && keys.logs().enabled.value() == Some(false) {
        return Err(Failure::Other(format!("Nothing is kept of what {job} prints: its configuration says so.")));
    }
    Ok(files)
}

fn none(shelf: &Shelf, job: &Job) -> Failure {
    let known = shelf.files().len();
    let directory = shelf.directory.display();
    Failure::Other(match known {
        0 => format!(
            "There is no log of {job} in {directory}. Logs are kept of what `up` runs, and of `run` where [logs] is in \
             the configuration, on the machine that ran it."
        ),
        _ => {
            format!("No such log of {job} is among the {known} in {directory}. List them: fencepost logs {job} --list")
        }
    })
}

fn list(file: &LogFile, as_json: bool) {
    let log = LogAnswer {
        v: AnswerVersion,
        slot: file.slot.to_string(),
        run: file.run.clone(),
        bytes: std::fs::metadata(&file.path).map_or(0, |file| file.len()),
        running: file.is_being_written(),
        path: file.path.display().to_string(),
    };
    let running = if log.running { "  running" } else { "" };
    match as_json {
        true => show::json(&log),
        false => show::line(&format!("{}  {}  {:>10}{running}", log.slot, log.run, log.bytes)),
    }
}

/// Prints the file, or its last lines.
fn show_from(file: &mut File, lines: Option<usize>) -> io::Result<()> {
    if let Some(lines) = lines {
        let start = last_lines(file, lines)?;
        file.seek(SeekFrom::Start(start))?;
    }
    let mut out = io::stdout().lock();
    io::copy(file, &mut out)?;
    out.flush()
}

/// Finds the offset at which the last lines begin, reading from the end.
fn last_lines(file: &mut File, lines: usize) -> io::Result<u64> {
    const BLOCK: u64 = 64 * 1024;
    let length = file.metadata()?.len();
    let (mut end, mut left) = (length, lines);
    let mut block = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        Read::by_ref(file).take(end - start).read_to_end(&mut block)?;
        for (at, byte) in block.iter().enumerate().rev() {
            let position = start + at as u64;
            // A newline at the end of the file ends the last line and does not begin another.
            if *byte == b'\n' && position + 1 != length {
                left = left.saturating_sub(1);
            }
            if left == 0 {
                return Ok(if *byte == b'\n' { position + 1 } else { length });
            }
        }
        end = start;
    }
    Ok(0)
}

/// Prints new output until the writing run has ended. The open file stays readable even if it is deleted.
fn follow(file: &mut File) -> io::Result<()> {
    loop {
        // Checked before the last read, so no output is missed in between.
        let is_over = !is_locked(file.try_clone().and_then(reopened)?);
        let mut out = io::stdout().lock();
        io::copy(file, &mut out)?;
        out.flush()?;
        drop(out);
        if is_over {
            return Ok(());
        }
        std::thread::sleep(FOLLOW_EVERY);
    }
}

/// Opens the same file again: a lock belongs to the open file description.
fn reopened(file: File) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).or_else(|_| Ok(file))
}
