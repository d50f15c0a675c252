//! Yesterday's leftovers: the refresh dies half-way and leaves its old file, which the next job publishes as today's.

use super::{Aftermath, DemoError, Incident, Scenery, labelled, today, yesterday};

pub const INCIDENT: Incident = Incident {
    number: 4,
    name: "leftovers",
    title: "Yesterday's leftovers",
    story: "The morning refresh dies half-way, and yesterday's file stays in place. The noon job reads it without \
            complaint and publishes stale output. Its exit code is 0.",
    scripts: &[("refresh.sh", include_str!("../script/refresh.sh")), ("shop.sh", include_str!("../script/shop.sh"))],
    play,
};

fn play(scenery: &Scenery<'_>) -> Result<Aftermath, DemoError> {
    let refresh = |day: &str, again: &str| {
        let guard = format!("fencepost run refresh --slot {day}{again} --produces prices.txt --");
        scenery.guarded(&guard, "sh refresh.sh")
    };
    let (today, yesterday) = (today(), yesterday());
    let guard = format!("fencepost run shop --slot {today} --needs refresh,artifact=prices.txt --");
    let shop = scenery.guarded(&guard, "sh shop.sh");

    scenery.write("source.txt", &format!("the prices of {yesterday}\n"))?;
    scenery.tell("Yesterday:")?;
    scenery.run(&refresh(&yesterday, ""))?;
    scenery.remove("source.txt")?;
    scenery.tell("Today the source does not answer:")?;
    scenery.run(&refresh(&today, ""))?;
    scenery.run(&shop)?;
    let published = scenery.lines("page")?;
    if scenery.is_guarded() {
        scenery.tell("The source answers again:")?;
        scenery.write("source.txt", &format!("the prices of {today}\n"))?;
        scenery.run(&refresh(&today, " --again"))?;
        scenery.run(&shop)?;
    }

    let stale = ["Today:".to_string(), format!("the prices of {yesterday}")];
    let fresh = ["Today:".to_string(), format!("the prices of {today}")];
    let page = scenery.lines("page")?;
    let happened = published == stale;
    let result = match happened {
        true => "the page shows yesterday's prices as today's.".to_string(),
        false => "nothing was published until the refresh had succeeded.".to_string(),
    };
    Ok(Aftermath { happened, done: published.is_empty() && page == fresh, result, seen: labelled("page", &page) })
}
