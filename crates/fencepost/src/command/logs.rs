//! `fencepost logs`: prints the output of runs.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::name::Job;
use fencepost_core::record::Record;
use fencepost_core::time::{StoreClock, Wall};
use fencepost_core::zone::Zone;
use fencepost_guard::transact::look;
use fencepost_store::Store;
use fencepost_view::answer::{AnswerVersion, LogAnswer, LogList};
use fencepost_view::text::without_escapes;
use fencepost_view::time::LocalTime;

use super::logs_of_all;
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
    if global.json {
        let answer = answer(&place, options, None)?;
        answer.logs.iter().for_each(show::json);
        return Ok(super::report_unread(global, &answer.errors, Code::DONE));
    }
    let Some(job) = &options.job else { return logs_of_all::run(global, options, &place) };
    let JobLogs { job, files } = JobLogs::of(&place, options, job)?;
    let described = LogDescription::of(&place, &job)?;
    if options.list {
        files.iter().for_each(|file| list(&described.answer(file)));
        return Ok(Code::DONE);
    }
    let Some(file) = files.first() else { return Ok(Code::DONE) };
    let mut opened = open(file)?;
    if !options.raw {
        show::line(&described.answer(file).heading());
    }
    let is_clean = !options.raw && io::stdout().is_terminal();
    let shown = show_from(&mut opened, options.lines, is_clean).and_then(|()| match options.follow {
        true => follow(&mut opened, is_clean),
        false => Ok(()),
    });
    match shown {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Code::DONE),
        Err(error) => Err(Failure::Other(format!("Cannot show {}: {error}", file.path.display()))),
        Ok(()) => Ok(Code::DONE),
    }
}

/// How much of a log is shown.
#[derive(Clone, Copy, Debug)]
pub struct LogBounds {
    /// Of the log of one job, unless the options say so.
    pub lines: usize,
    /// At most.
    pub bytes: u64,
}

/// The logs that the options ask for, with their output unless they ask for a list.
pub fn answer(place: &Place, options: &LogsOptions, bounds: Option<LogBounds>) -> Result<LogList, Failure> {
    let (chosen, errors) = match &options.job {
        Some(job) => (vec![JobLogs::of(place, options, job)?], Vec::new()),
        None => logs_of_all::chosen(place, options)?,
    };
    let by_default = match options.job {
        Some(_) => bounds.map(|bounds| bounds.lines),
        None => Some(logs_of_all::SHOWN_LINES),
    };
    let (lines, bytes_max) = (options.lines.or(by_default), bounds.map(|bounds| bounds.bytes));
    let mut logs = Vec::new();
    for JobLogs { job, files } in &chosen {
        let described = LogDescription::of(place, job)?;
        for file in files {
            let mut answer = described.answer(file);
            if !options.list {
                let read = open(file).map(|mut file| output(&mut file, lines, bytes_max))?;
                let cannot = |error| Failure::Other(format!("Cannot show {}: {error}", file.path.display()));
                answer.output = Some(read.map_err(cannot)?);
            }
            logs.push(answer);
        }
    }
    Ok(LogList { v: AnswerVersion, logs, errors })
}

/// The logs of one job that the options ask for, newest first: the newest one, or all for a list.
pub(super) struct JobLogs {
    pub job: Job,
    pub files: Vec<LogFile>,
}

impl JobLogs {
    fn of(place: &Place, options: &LogsOptions, job: &Job) -> Result<Self, Failure> {
        let keys = place.config.as_ref().map(|config| config.job(&job.name).clone()).unwrap_or_default();
        let job = match (job.host(), keys.per_host()) {
            (None, true) => super::job(&job.name, true, place)?,
            _ => job.clone(),
        };
        let shelf = Shelf::of(place, &job, &keys);
        let logs = Self::on(&shelf, place, job, &keys, options)?;
        if logs.files.is_empty() {
            let store = place.open_to_read()?;
            super::must_be_known(place, store.as_ref(), &logs.job.name)?;
        }
        if logs.files.is_empty() && !options.list {
            return Err(none(place, &shelf, &logs.job));
        }
        Ok(logs)
    }

    pub fn on(
        shelf: &Shelf,
        place: &Place,
        job: Job,
        keys: &JobOptions,
        options: &LogsOptions,
    ) -> Result<Self, Failure> {
        let mut files = chosen(shelf, place, &job, keys, options)?;
        files.reverse();
        files.truncate(if options.list { files.len() } else { 1 });
        Ok(Self { job, files })
    }
}

fn open(file: &LogFile) -> Result<File, Failure> {
    File::open(&file.path).map_err(|error| Failure::Other(format!("Cannot read {}: {error}", file.path.display())))
}

/// What describes a job's logs: the record of each run, if the store can be read, and the job's zone.
pub(super) struct LogDescription<'a> {
    place: &'a Place,
    job: &'a Job,
    zone: Zone,
    known: Option<KnownJob>,
}

/// A job's record, and the store that has its history.
struct KnownJob {
    store: Arc<dyn Store>,
    record: Record,
    clock: Option<StoreClock>,
}

impl<'a> LogDescription<'a> {
    /// The store is only asked how the runs ended: logs are shown also if it is unavailable.
    pub(super) fn of(place: &'a Place, job: &'a Job) -> Result<Self, Failure> {
        let zone = calendar::zone(None, place.config.as_ref(), &job.name)?;
        let known = place.open_to_read().ok().and_then(|store| {
            let (record, clock) = look(store.as_ref(), job).ok()?;
            record.map(|record| KnownJob { store, record, clock })
        });
        Ok(Self { place, job, zone, known })
    }

    pub(super) fn answer(&self, file: &LogFile) -> LogAnswer {
        let slot = Wall(file.slot.as_millisecond());
        let known = self.known.as_ref().and_then(|KnownJob { store, record, clock }| {
            self.place.ask(store.as_ref(), |view| view.run(record, clock.as_ref(), slot, &file.run)).ok().flatten()
        });
        let zone = known.as_ref().map_or_else(|| self.zone.clone(), |run| run.slot.zone.clone());
        LogAnswer {
            v: AnswerVersion,
            job: self.job.to_string(),
            slot: LocalTime::new(slot, &zone),
            timezone: zone.to_string(),
            run: file.run.clone(),
            host: known.as_ref().map_or_else(|| self.place.host.name.clone(), |run| run.host.clone()),
            duration_ms: known.as_ref().and_then(|run| run.duration_ms),
            status: known.as_ref().map(|run| run.status),
            exit_code: known.as_ref().and_then(|run| run.exit_code),
            finished: known.as_ref().and_then(|run| run.finished.clone()),
            started: known.map(|run| run.started),
            bytes: std::fs::metadata(&file.path).map_or(0, |file| file.len()),
            running: file.is_being_written(),
            path: file.path.display().to_string(),
            output: None,
        }
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

fn none(place: &Place, shelf: &Shelf, job: &Job) -> Failure {
    let known = shelf.files().len();
    let directory = shelf.directory.display();
    let is_configured = place.config.as_ref().is_some_and(|config| config.names(&job.name));
    Failure::Other(match known {
        0 if !is_configured => format!(
            "There is no log of {job} in {directory}: output is kept of jobs in a configuration, and {job} is in none. Write \
             one: fencepost init"
        ),
        0 => format!(
            "There is no log of {job} in {directory}. A run of a job in the configuration leaves one if it prints \
             something off a terminal, on the machine that runs it. With [logs] in the configuration, also on a terminal."
        ),
        _ => {
            format!("No such log of {job} is among the {known} in {directory}. List them: fencepost logs {job} --list")
        }
    })
}

fn list(log: &LogAnswer) {
    let end = match (log.running, log.status) {
        (true, _) => "running",
        (false, Some(status)) => status.as_str(),
        (false, None) => "",
    };
    let slot = show::second_in(log.slot.at, &log.slot.zone);
    show::line(format!("{slot}  {}  {:>10}  {end}", log.run, log.bytes).trim_end());
}

/// Prints the file, or its last lines.
pub(super) fn show_from(file: &mut File, lines: Option<usize>, is_clean: bool) -> io::Result<()> {
    seek(file, lines)?;
    copy(file, is_clean)
}

/// The output in a log, or its last lines, and of these the last bytes.
fn output(file: &mut File, lines: Option<usize>, bytes_max: Option<u64>) -> io::Result<String> {
    seek(file, lines)?;
    if let Some(most) = bytes_max {
        let last = file.metadata()?.len().saturating_sub(most);
        let start = file.stream_position()?.max(last);
        file.seek(SeekFrom::Start(start))?;
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn seek(file: &mut File, lines: Option<usize>) -> io::Result<()> {
    if let Some(lines) = lines {
        let start = last_lines(file, lines)?;
        file.seek(SeekFrom::Start(start))?;
    }
    Ok(())
}

/// Prints the rest of the file: byte for byte, or without what a terminal would obey.
fn copy(file: &mut File, is_clean: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if is_clean {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        out.write_all(show::clean(&without_escapes(&text)).as_bytes())?;
    } else {
        io::copy(file, &mut out)?;
    }
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
fn follow(file: &mut File, is_clean: bool) -> io::Result<()> {
    loop {
        // Checked before the last read, so no output is missed in between.
        let is_over = !is_locked(file.try_clone().and_then(reopened)?);
        copy(file, is_clean)?;
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
