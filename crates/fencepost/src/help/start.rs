//! Bare `fencepost` on a terminal: the state of this machine, and what to type next. Creates nothing.

use std::time::Duration;

use fencepost_core::ledger::Status;
use fencepost_core::record::Record;
use fencepost_view::unread::{Unread, each_record};

use crate::args::Global;
use crate::config::FILE_NAME;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::show;

/// A store that does not answer within this time is shown as such.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the records of a store say, as far as the first screen shows it.
#[derive(Default)]
struct Jobs {
    count: usize,
    held: usize,
    /// Jobs whose newest outcome is a failure.
    failing: Vec<String>,
    newest: Option<String>,
}

pub fn show(global: &Global) -> Code {
    show::line(concat!(
        "fencepost ",
        env!("CARGO_PKG_VERSION"),
        ": run it once, on fresh input, and let nothing stale write."
    ));
    show::line("\nThis machine");
    let place = Place::find(global);
    let (jobs, configured) = match &place {
        Ok(place) => {
            (describe(place), place.config.as_ref().map(|config| config.jobs.keys().collect()).unwrap_or_default())
        }
        Err(failure) => {
            show::line(&format!("  {}", failure.message()));
            (None, Vec::new())
        }
    };
    show::line("\nNext");
    let first = configured.first().map(|name| name.as_str());
    for (command, what) in
        next(place.as_ref().err(), jobs.as_ref(), first, place.as_ref().is_ok_and(|place| place.config.is_some()))
    {
        show::line(&format!("  {command:38}  {what}"));
    }
    Code::DONE
}

/// Prints the configuration, the store and its jobs. Returns what is known of the jobs.
fn describe(place: &Place) -> Option<Jobs> {
    match &place.config {
        Some(config) => {
            let jobs = config.jobs.len();
            show::line(&format!(
                "  configuration  {} ({jobs} {})",
                config.path.display(),
                if jobs == 1 { "job" } else { "jobs" }
            ));
        }
        None => show::line(&format!(
            "  configuration  none ({FILE_NAME} is not here, nor above, nor in ~/.config/fencepost)"
        )),
    }
    let store = place.shown_store();
    let (state, jobs) = match place.is_new() {
        Err(failure) => (format!("\n                 {}", failure.message()), None),
        Ok(true) => (" (not there yet; the first run creates it)".to_string(), Some(Jobs::default())),
        Ok(false) => match place.ask_within(PATIENCE, read) {
            None => (" (does not answer)".to_string(), None),
            Some(Err(failure)) => (format!("\n                 {}", failure.message()), None),
            Some(Ok(jobs)) => (String::new(), Some(jobs)),
        },
    };
    show::line(&format!("  store          {store}{state}"));
    if let Some(jobs) = jobs.as_ref().filter(|jobs| jobs.count > 0) {
        show::line(&format!("  jobs           {}", jobs.sentence()));
    }
    jobs
}

fn read(place: &Place) -> Result<Jobs, Failure> {
    let store = place.open_to_read()?;
    let mut jobs = Jobs::default();
    each_record(store.as_ref(), &mut Unread::default(), |_, record, _| {
        jobs.add(&record);
        Ok(())
    })?;
    Ok(jobs)
}

impl Jobs {
    fn add(&mut self, record: &Record) {
        self.count += 1;
        self.held += usize::from(record.lease.is_some());
        let failed = |status: Status| {
            matches!(status, Status::Error | Status::Timeout | Status::Lost | Status::Fenced | Status::Halted)
        };
        if record.ledger.last().is_some_and(|last| failed(last.status)) {
            self.failing.push(record.job.to_string());
        }
        self.newest.get_or_insert_with(|| record.job.to_string());
    }

    fn sentence(&self) -> String {
        let failing = match self.failing.as_slice() {
            [] => "none failing".to_string(),
            [one] => format!("1 failing: {one}"),
            [one, ..] => format!("{} failing, such as {one}", self.failing.len()),
        };
        format!("{} have run, {} held now, {failing}", self.count, self.held)
    }
}

/// The commands that help most in this state.
fn next(
    wrong: Option<&Failure>,
    jobs: Option<&Jobs>,
    configured: Option<&str>,
    has_config: bool,
) -> Vec<(String, &'static str)> {
    let mut next = Vec::new();
    let mut add = |command: &str, what| next.push((command.to_string(), what));
    let has_run = jobs.is_some_and(|jobs| jobs.count > 0);
    if let Some(failing) = jobs.and_then(|jobs| jobs.failing.first()) {
        add(&format!("fencepost why {failing}"), "why its last run failed");
    }
    match (wrong, jobs, configured) {
        (Some(_), ..) if has_config || !has_run => add("fencepost validate", "every mistake, with its line"),
        (None, None, _) => add("fencepost store check", "what is wrong with the store"),
        (None, Some(_), Some(job)) if !has_run => {
            add("fencepost validate", "check the configuration");
            add(&format!("fencepost run {job} --now"), "run a job at once");
        }
        (None, Some(_), None) if !has_run => {
            add("fencepost demo", "what it prevents, live, in 40 seconds");
            add("fencepost run nightly -- ./backup.sh", "guard a command");
            add("fencepost init", "write a fencepost.toml here");
        }
        _ => add("fencepost status", "all jobs"),
    }
    add("fencepost help", "all verbs");
    next
}
