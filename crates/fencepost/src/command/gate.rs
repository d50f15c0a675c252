//! `fencepost gate`: checks the barrier by hand.

use std::ffi::OsString;
use std::process::Command;

use fencepost_core::barrier::{Asker, Decision, Need, OnEmpty, UpstreamVerdict};
use fencepost_core::name::Name;
use fencepost_core::run::{Exit, Passage};
use fencepost_core::said::{Gated, Said};
use fencepost_core::zone::Zone;
use fencepost_guard::artifact::Base;
use fencepost_guard::pin::Pins;
use fencepost_guard::unguarded::run_unguarded;
use fencepost_guard::upstream_check::{Inspection, UpstreamCheck};
use fencepost_guard::{clock, report_file};
use fencepost_view::gate::{GateAnswer, with_near_names};

use crate::args::{GateOptions, Global};
use crate::exit::{Code, Failure};
use crate::inside::{Inside, variable};
use crate::place::Place;
use crate::report::Voice;
use crate::{calendar, duration, password, show, upstreams};

pub fn run(global: &Global, options: &GateOptions) -> Result<Code, Failure> {
    let inside = Inside::find()?;
    let place = Place::find(global)?;
    let pins = (!options.command.is_empty()).then(|| Pins::new(&place.state, super::mint_run())).transpose();
    let pins = pins.map_err(|error| {
        Failure::Other(format!("Cannot create the directory for pinned inputs in {}: {error}", place.state.display()))
    })?;
    let checked = check(&place, options, inside.as_ref().map(|inside| &inside.job.name), pins.as_ref())?;
    if let Some(inside) = &inside {
        note(global, inside, &checked);
    }
    report(global, &checked.answer);
    match checked.answer.decision {
        Decision::Halt => Ok(Code::HALTED),
        Decision::Skip if options.command.is_empty() => Ok(Code::BARRED),
        Decision::Skip => Ok(Code::DONE),
        Decision::Proceed if options.command.is_empty() => Ok(Code::DONE),
        Decision::Proceed => run_command(&options.command, &checked.inspection),
    }
}

/// What the upstreams say, and what it rests on.
pub struct GateCheck {
    pub answer: GateAnswer,
    inspection: Inspection,
    needs: Vec<Need>,
}

impl GateCheck {
    /// What was let through and what was not, for the last swap of the run that asked.
    pub fn gated(&self) -> Gated {
        match self.inspection.passage(&self.needs) {
            Passage::Proceed { upstreams } => Gated { upstreams, barred: Vec::new() },
            Passage::Skip { barred } | Passage::Halt { barred } => Gated { upstreams: Vec::new(), barred },
        }
    }
}

/// Checks the upstreams, for a run of `job` if one asks. It writes nothing but the pinned copies, if they are wanted.
pub fn check(
    place: &Place,
    options: &GateOptions,
    job: Option<&Name>,
    pins: Option<&Pins>,
) -> Result<GateCheck, Failure> {
    let asker = asker(options, place, job)?;
    let base = match job {
        Some(job) => upstreams::base(place.config.as_ref(), job)?,
        None => Base::new(&upstreams::working_directory()?),
    };
    let needs = needs(options, place, &base)?;
    let bases = upstreams::bases(&needs, place.config.as_ref());
    let due = upstreams::last_due(&needs, place.config.as_ref())?;
    let inspection = match place.open_to_read() {
        Ok(store) => {
            let check = UpstreamCheck {
                waiting: None,
                store,
                local: place.local(),
                base,
                bases,
                needs: needs.clone(),
                wait: options.wait.unwrap_or_default(),
                due,
                pins: pins.map(Pins::directory),
                produces: Vec::new(),
            };
            let mut inspection = check.inspect(&asker);
            with_near_names(&mut inspection.verdicts, check.store.as_ref());
            inspection
        }
        Err(Failure::Usage(message)) => return Err(Failure::Usage(message)),
        // An unreadable ledger is a halt, never "no record".
        Err(failure) => Inspection {
            verdicts: needs.iter().map(|need| UpstreamVerdict::unreadable(need, failure.message())).collect(),
            inputs: Vec::new(),
        },
    };
    let answer = GateAnswer::new(&inspection.verdicts, &asker.zone);
    Ok(GateCheck { answer, inspection, needs })
}

/// Returns the slot to check for: the one given, that of the surrounding run, or now.
fn asker(options: &GateOptions, place: &Place, job: Option<&Name>) -> Result<Asker, Failure> {
    let zone = match (&options.tz, job, variable("FENCEPOST_TZ")) {
        (None, Some(_), Some(name)) => Zone::parse(&name).map_err(|error| Failure::Usage(error.to_string()))?,
        (given, Some(job), _) => calendar::zone(given.as_deref(), place.config.as_ref(), job)?,
        (given, None, _) => calendar::zone_of_all(given.as_deref(), place.config.as_ref())?,
    };
    let now = clock::now().wall;
    let asked = calendar::asked_slot(options.slot.as_deref(), options.date.as_deref(), &zone, now)?;
    let of_run = job.and_then(|_| variable("FENCEPOST_SLOT")).and_then(|slot| zone.parse_time(&slot).ok());
    Ok(Asker { slot: asked.or(of_run).unwrap_or(now), zone })
}

fn needs(options: &GateOptions, place: &Place, base: &Base) -> Result<Vec<Need>, Failure> {
    let needs = options.upstreams.iter().map(|text| {
        let mut need = Need::parse(text, duration::parse).map_err(|error| Failure::Usage(error.to_string()))?;
        if options.on_empty_proceed {
            need.on_empty = OnEmpty::Proceed;
        }
        need.artifacts.extend(options.artifact.iter().cloned());
        let name = |path: &String| {
            let typed = upstreams::typed(base, path)?;
            Ok(upstreams::artifact_name(place.config.as_ref(), &need.job.name, base, &typed))
        };
        let artifacts = need.artifacts.iter().map(name).collect::<Result<_, Failure>>()?;
        Ok(Need { artifacts, ..need })
    });
    let needs: Vec<Need> = needs.collect::<Result<_, Failure>>()?;
    upstreams::check_inputs(&needs)?;
    if needs.len() > 1 && !options.artifact.is_empty() {
        return Err(Failure::Usage(format!(
            "--artifact does not say which of the {} upstreams it belongs to. Write it beside its upstream, as in: \
             {},artifact={}",
            needs.len(),
            options.upstreams[0],
            options.artifact[0]
        )));
    }
    Ok(needs)
}

/// Inside a run, the run's last swap commits the gate's result.
fn note(global: &Global, inside: &Inside, checked: &GateCheck) {
    if let Err(error) = report_file::append(&inside.said, inside.run, Said::Gated(checked.gated())) {
        Voice::of(global).warn(&format!("The gate's result could not be recorded for the run: {error}"));
    }
}

/// Prints the reason: of a halt always, of a skip or a pass only with `-v` or on a terminal.
fn report(global: &Global, answer: &GateAnswer) {
    let GateAnswer { decision, reason, .. } = answer;
    let (voice, text) = (Voice::of(global), format!("{}: {reason}", decision.as_str()));
    match decision {
        Decision::Halt => voice.warn(&text),
        Decision::Skip | Decision::Proceed => voice.tell(&text),
    }
    if global.json {
        show::json(answer);
    }
}

/// Runs the command with the paths of its inputs in its environment.
fn run_command(command: &[OsString], inspection: &Inspection) -> Result<Code, Failure> {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    password::keep_from(&mut child);
    for input in &inspection.inputs {
        child.env(input.variable(), &input.path);
    }
    match run_unguarded(child) {
        Ok(exit) => Ok(Code(u8::try_from(Exit::code(exit)).unwrap_or(Code::FAILED.0))),
        Err(error) => {
            let not_found = error.kind() == std::io::ErrorKind::NotFound;
            crate::report::say(&format!("Cannot run {:?}: {error}.", command[0].display().to_string()));
            Ok(if not_found { Code::NOT_FOUND } else { Code::CANNOT_EXECUTE })
        }
    }
}
