//! Schedules against croniter, an independent implementation in another language: `tools/differential-cron` makes the
//! cases and judges the answers. It needs python3 with venv, and the Python package index the first time.

use std::io::Write;
use std::process::{Command, Stdio};

use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/differential-cron");
const CASES: &str = "300";

fn answer(line: &str) -> String {
    let fields: Vec<&str> = line.split('\t').collect();
    let [text, zone, second] = fields[..] else { panic!("{line:?}") };
    let at = Wall(second.parse::<i64>().unwrap() * 1000);
    let shown = |slot: Option<Wall>| slot.map_or("none".to_string(), |slot| (slot.0 / 1000).to_string());
    match Schedule::parse(text, &Zone::parse(zone).unwrap()) {
        Ok(schedule) => format!("{}\t{}", shown(schedule.after(at)), shown(schedule.before(at))),
        Err(_) => "refused".to_string(),
    }
}

#[test]
fn every_difference_from_croniter_has_a_name() {
    let missing = "python3 is missing; on Debian: sudo apt-get install python3 python3-venv";
    let cases =
        Command::new("python3").args([SCRIPT, "cases", "--count", CASES, "--seed", "2"]).output().expect(missing);
    assert!(cases.status.success(), "{}", String::from_utf8_lossy(&cases.stderr));
    let asked = String::from_utf8(cases.stdout).unwrap();
    let answered: String = asked.lines().map(|line| format!("{line}\t{}\n", answer(line))).collect();
    let mut judge = Command::new("python3")
        .args([SCRIPT, "judge"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect(missing);
    // A judge that could not be installed ends without listening, and says why.
    let _ = judge.stdin.take().unwrap().write_all(answered.as_bytes());
    let verdict = judge.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&verdict.stdout);
    assert!(verdict.status.success(), "{said}{}", String::from_utf8_lossy(&verdict.stderr));
    assert!(said.contains("0 differences unexplained") && said.starts_with("| same |"), "{said}");
}
