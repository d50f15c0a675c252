//! The half-done retry: a run dies between its effect and its record, and the retry does the effect again.

use nix::sys::signal::{Signal, kill};

use super::{Aftermath, DemoError, Incident, Scenery, labelled, pids, times};

pub const INCIDENT: Incident = Incident {
    number: 5,
    name: "half-done-retry",
    title: "The half-done retry",
    story: "A run charges a customer and dies before it can note that. The retry finds no note and charges again. \
            (A charge is a line in a file here.)",
    scripts: &[("charge.sh", include_str!("../script/charge.sh")), ("done.log", "")],
    play,
};

fn play(scenery: &Scenery<'_>) -> Result<Aftermath, DemoError> {
    let command = scenery.guarded("fencepost once invoices/7 --", "sh charge.sh");
    let mut first = scenery.start("", &command)?;
    for pid in pids(&first.hear()?) {
        let _ = kill(pid, Signal::SIGKILL);
    }
    scenery.tell("It is killed (SIGKILL) after the charge, before the note.")?;
    first.end()?;
    scenery.tell("The retry:")?;
    let mut retry = scenery.start("", &command)?;
    retry.cue()?;
    retry.end()?;
    if scenery.is_guarded() {
        scenery.tell("The retry may ask the bank instead of charging:")?;
        scenery
            .run("fencepost once invoices/7 --on-unknown verify='grep -q \"invoice 7\" bank.log' -- sh charge.sh")?;
    }

    let charges = scenery.lines("bank.log")?;
    Ok(Aftermath {
        happened: charges.len() > 1,
        done: charges.len() == 1,
        result: format!("the customer was charged {}.", times(charges.len())),
        seen: labelled("bank.log", &charges),
    })
}
