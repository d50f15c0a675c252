//! Two machines: both fire the same job in the same minute, and one overwrites the other.
//!
//! This machine plays both. For `fencepost` a machine is a state directory; the two share a store.

use super::{Aftermath, DemoError, Incident, Scenery, labelled, times, today};

pub const INCIDENT: Incident = Incident {
    number: 2,
    name: "two-machines",
    title: "Two machines",
    story: "Two machines, redundant on purpose, fire the same job in the same minute. Both write the next edition, and \
            one overwrites the other. (Both are this machine here: two state directories, one shared store.)",
    scripts: &[("article.sh", include_str!("../script/article.sh")), ("edition", "1\n")],
    play,
};

fn play(scenery: &Scenery<'_>) -> Result<Aftermath, DemoError> {
    let guard = format!("fencepost run article -v --store dir:store --slot {} --", today());
    let trigger = |machine: &str| scenery.guarded(&guard, &format!("sh article.sh {machine}"));
    let mut a = scenery.start_on("machine-a", "machine a", &trigger("a"))?;
    a.hear()?;
    let mut b = scenery.start_on("machine-b", "machine b", &trigger("b"))?;
    b.cue()?;
    b.end()?;
    a.cue()?;
    a.end()?;
    if scenery.is_guarded() {
        scenery.tell("The clock of machine b is late: it fires when the work is done.")?;
        let mut late = scenery.start_on("machine-b", "machine b", &trigger("b"))?;
        late.cue()?;
        late.end()?;
    }

    let pushes = scenery.lines("pushes.log")?;
    let is_second = |push: &String| push.starts_with("edition 2,");
    let happened = pushes.len() > 1 && pushes.iter().all(is_second);
    let result = match happened {
        true => format!("edition 2 was pushed {}. The first one was overwritten.", times(pushes.len())),
        false => format!("edition 2 was pushed {}.", times(pushes.len())),
    };
    let done = pushes.len() == 1 && pushes.iter().all(is_second) && scenery.lines("page")? == pushes;
    Ok(Aftermath { happened, done, result, seen: labelled("pushes.log", &pushes) })
}
