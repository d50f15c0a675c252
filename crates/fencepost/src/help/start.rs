//! Bare `fencepost` on a terminal: the state of this machine, and what to type next. Creates nothing.

use std::time::Duration;

use fencepost_view::attention::Attention;
use fencepost_view::status::StatusQuery;

use crate::args::Global;
use crate::command::overdue::expected;
use crate::config::FILE_NAME;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::show;

/// A store that does not answer within this time is shown as such.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the store and the configuration say, as far as the first screen shows it.
#[derive(Default)]
struct Jobs {
    /// Jobs that have run.
    ran: usize,
    held: usize,
    attention: Vec<Attention>,
}

pub fn show(global: &Global) -> Code {
    let version = env!("CARGO_PKG_VERSION");
    show::line(&format!("fencepost {version}: run it once, on fresh input, and let nothing stale write."));
    show::line("\nThis machine");
    let next = match Place::find(global) {
        Ok(place) => {
            let jobs = describe(&place);
            let first = place.config.as_ref().and_then(|config| config.jobs.keys().next().map(ToString::to_string));
            next(jobs.as_ref(), first.as_deref())
        }
        Err(failure) => {
            show::line(&format!("  {}", failure.message()));
            vec![("fencepost validate".to_string(), "check the configuration"), all_verbs()]
        }
    };
    show::line("\nNext");
    next.iter().for_each(|(command, what)| show::line(&format!("  {command:38}  {what}")));
    Code::DONE
}

/// Prints the configuration, the store and its jobs. Returns what is known of the jobs.
fn describe(place: &Place) -> Option<Jobs> {
    let config = match &place.config {
        Some(config) => {
            let jobs = config.all_names().count();
            format!("{} ({jobs} {})", config.path.display(), if jobs == 1 { "job" } else { "jobs" })
        }
        None => format!("none ({FILE_NAME} is neither here nor above, nor in ~/.config/fencepost)"),
    };
    show::line(&format!("  configuration  {config}"));
    let below = |text: &str| format!("\n                 {text}");
    let (state, jobs) = match place.is_new() {
        Err(failure) => (below(failure.message()), None),
        Ok(true) => (" (not there yet; the first run creates it)".to_string(), Some(Jobs::default())),
        Ok(false) => match place.ask_within(PATIENCE, read) {
            None => (" (does not answer)".to_string(), None),
            Some(Err(failure)) => (below(failure.message()), None),
            Some(Ok(jobs)) => (String::new(), Some(jobs)),
        },
    };
    show::line(&format!("  store          {}{state}", place.shown_store()));
    if let Some(jobs) = jobs.as_ref().filter(|jobs| jobs.ran > 0) {
        show::line(&format!("  jobs           {} have run, {} held now", jobs.ran, jobs.held));
        if let Some(first) = jobs.attention.first() {
            let more = jobs.attention.len() - 1;
            let more = if more == 0 { String::new() } else { format!(" And {more} more.") };
            show::line(&format!("  attention      {}{more}", show::flat(&first.sentence)));
        }
    }
    jobs
}

fn read(place: &Place) -> Result<Jobs, Failure> {
    let store = place.open_to_read()?;
    let query = StatusQuery { job: None, expected: expected(place, None)?, since: None };
    let status = place.ask(store.as_ref(), |view| view.status(&query))?;
    Ok(Jobs {
        ran: status.jobs.iter().filter(|job| job.grants > 0).count(),
        held: status.jobs.iter().filter(|job| job.holder.is_some()).count(),
        attention: status.attention,
    })
}

type NextCommand = (String, &'static str);

fn all_verbs() -> NextCommand {
    ("fencepost help".to_string(), "all verbs")
}

/// The commands that help most in this state.
fn next(jobs: Option<&Jobs>, configured: Option<&str>) -> Vec<NextCommand> {
    let mut next = Vec::new();
    let mut add = |command: &str, what| next.push((command.to_string(), what));
    let attention = jobs.and_then(|jobs| jobs.attention.iter().find_map(|attention| attention.command.as_deref()));
    if let Some(command) = attention {
        add(command, "more about that");
    }
    match (jobs, configured) {
        (None, _) => add("fencepost store check", "what is wrong with the store"),
        (Some(jobs), _) if jobs.ran > 0 => add("fencepost status", "all jobs"),
        (Some(_), Some(job)) => {
            add("fencepost validate", "check the configuration");
            add(&format!("fencepost run {job} --now"), "run a job at once");
        }
        (Some(_), None) => {
            add("fencepost demo", "what it prevents, live, in 40 seconds");
            add("fencepost run nightly -- ./backup.sh", "guard a command");
            add("fencepost init", "write a fencepost.toml here");
        }
    }
    next.push(all_verbs());
    next
}
