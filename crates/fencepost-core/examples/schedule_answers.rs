//! Answers lines of `expression TAB zone TAB second` with the next and the previous slot, for `tools/differential-cron`.

use std::io::{self, BufRead, Write};

use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        writeln!(out, "{line}\t{}", answer(&line))?;
    }
    Ok(())
}

/// The next and the previous slot in seconds, or that the schedule is refused.
fn answer(line: &str) -> String {
    let fields: Vec<&str> = line.split('\t').collect();
    let [text, zone, second] = fields[..] else { return "refused".to_string() };
    let (Ok(zone), Ok(second)) = (Zone::parse(zone), second.parse::<i64>()) else { return "refused".to_string() };
    let Ok(schedule) = Schedule::parse(text, &zone) else { return "refused".to_string() };
    let at = Wall(second * 1000);
    let shown = |slot: Option<Wall>| slot.map_or("none".to_string(), |slot| (slot.0 / 1000).to_string());
    format!("{}\t{}", shown(schedule.after(at)), shown(schedule.before(at)))
}
