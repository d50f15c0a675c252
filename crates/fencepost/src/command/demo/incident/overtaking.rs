//! Overtaking: a run takes longer than its interval, and the next trigger starts a second one beside it.

use super::{Aftermath, DemoError, Incident, Scenery, labelled, times};

pub const INCIDENT: Incident = Incident {
    number: 1,
    name: "overtaking",
    title: "Overtaking",
    story: "A run takes longer than its interval. The next trigger starts a second run beside it, and both push. \
            (A push is a line in a shared file here.)",
    scripts: &[("report.sh", include_str!("../script/report.sh"))],
    play,
};

fn play(scenery: &Scenery<'_>) -> Result<Aftermath, DemoError> {
    let trigger = |run: &str| scenery.guarded("fencepost run report -v --", &format!("sh report.sh {run}"));
    let mut first = scenery.start("run 1", &trigger("1"))?;
    first.hear()?;
    scenery.tell("Run 1 is still working when the next trigger comes:")?;
    let mut second = scenery.start("run 2", &trigger("2"))?;
    second.cue()?;
    second.end()?;
    first.cue()?;
    first.end()?;

    let pushes = scenery.lines("pushes.log")?;
    Ok(Aftermath {
        happened: pushes.len() > 1,
        done: pushes.len() == 1,
        result: format!("the report of 09:00 was pushed {}.", times(pushes.len())),
        seen: labelled("pushes.log", &pushes),
    })
}
