//! The zombie: a holder stalls, its lock expires, another run takes over and finishes. Then the first wakes and writes.

use nix::unistd::Pid;

use super::{Aftermath, DemoError, Incident, Scenery, labelled, pids};

pub const INCIDENT: Incident = Incident {
    number: 3,
    name: "zombie",
    title: "The zombie",
    story: "A run stalls: the machine sleeps, a model call hangs. Its lock expires, the next run takes over and \
            finishes. Then the first one wakes, still believes that it holds the lock, and does its last write.",
    scripts: &[
        ("locked-report.sh", include_str!("../script/locked-report.sh")),
        ("fenced-report.sh", include_str!("../script/fenced-report.sh")),
    ],
    play,
};

fn play(scenery: &Scenery<'_>) -> Result<Aftermath, DemoError> {
    let command = |run: &str, wait: &str| match scenery.is_guarded() {
        true => format!("fencepost run report --ttl 3s{wait} -- sh fenced-report.sh {run}"),
        false => format!("sh locked-report.sh {run}"),
    };
    let mut zombie = scenery.start("run 1", &command("1", ""))?;
    let (job, all) = family(&zombie.hear()?, zombie.pid())?;
    zombie.freeze(&all)?;
    scenery.tell(match scenery.is_guarded() {
        true => "The machine sleeps: run 1 is stopped (SIGSTOP), with all its processes.",
        false => "The machine sleeps: run 1 is stopped (SIGSTOP). Its lock expires.",
    })?;
    let mut successor = scenery.start("run 2", &command("2", " --wait 20s"))?;
    successor.cue()?;
    successor.end()?;
    scenery.tell("Run 2 took over and finished. Run 1 continues (SIGCONT) and writes.")?;
    // The job continues before its keeper, which would kill it: only the fence protects the page.
    zombie.cue()?;
    zombie.thaw(job);
    let write = zombie.hear()?;
    zombie.thaw_all();
    zombie.end()?;

    let page = scenery.lines("page")?.concat();
    let happened = page == "report by run 1" && write == "write 0";
    let done = page == "report by run 2" && write == "write 13";
    let result = match happened {
        true => format!("the page is stale. It has the {page}, although run 2 is newer."),
        false => format!("the write of run 1 was refused. The page has the {page}."),
    };
    Ok(Aftermath { happened, done, result, seen: labelled("writes.log", &scenery.lines("writes.log")?) })
}

/// Returns the job, and all processes of its run in the order in which they are stopped: keeper, job, wrapper. Without
/// the guard there is only the job.
fn family(line: &str, started: Pid) -> Result<(Pid, Vec<Pid>), DemoError> {
    let mut pids = pids(line);
    let &job = pids.first().ok_or_else(|| DemoError::Failed(format!("run 1 did not say its pid: {line}")))?;
    pids.reverse();
    if job != started {
        pids.push(started);
    }
    Ok((job, pids))
}
