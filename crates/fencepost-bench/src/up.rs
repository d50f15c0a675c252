//! A thousand jobs in one `up`: how soon it is there, what it holds and does at rest, and how late it fires.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use crate::memory::pss_kib;

const JOBS: usize = 1_000;

/// How many of them are due at one second.
const AT_ONCE: usize = 100;

/// How long it is watched at rest.
const REST: Duration = Duration::from_secs(10);

pub fn report(fencepost: &Path, directory: &Path) {
    let directory = directory.join("up");
    fs::create_dir(&directory).expect("a directory");
    // The second of the minute at which they are due, well after everything else was measured.
    let second = (now().as_secs() + REST.as_secs() + 12) % 60;
    let config: String = (0..JOBS)
        .map(|number| {
            let schedule = if number < AT_ONCE { format!("{second} * * * * *") } else { "0 0 1 1 *".to_string() };
            format!("[job.job-{number:04}]\nschedule = '{schedule}'\ncommand = ['true']\nlogs = false\n")
        })
        .collect();
    let config_path = directory.join("fencepost.toml");
    fs::write(&config_path, format!("[up]\nmax_parallel = 100\n[defaults]\nslack = '2s'\ncatch_up = 0\n{config}"))
        .expect("a configuration");
    let database = directory.join("state/store.db");
    let lines = directory.join("lines");
    let begun = Instant::now();
    let mut up = Command::new(fencepost)
        .env("FENCEPOST_STATE_DIR", directory.join("state"))
        .arg("--config")
        .arg(&config_path)
        .arg("up")
        .stdin(Stdio::null())
        .stdout(File::create(&lines).expect("a file"))
        .spawn()
        .expect("fencepost starts");
    until(|| fs::read_to_string(&lines).is_ok_and(|text| text.contains(" up jobs=")));
    let there = begun.elapsed();
    until(|| records(&database) >= JOBS as i64);
    let seen = begun.elapsed();
    let before = cpu_ticks(&up);
    sleep(REST);
    let cpu = cpu_ticks(&up).zip(before).map(|(after, before)| (after - before) as f64 * 10.0 / REST.as_secs_f64());
    let memory = pss_kib(up.id());
    let mut lateness = Vec::new();
    until(|| {
        lateness = late(fencepost, &directory);
        lateness.len() >= AT_ONCE
    });
    lateness.sort_unstable();
    let _ = Command::new("kill").arg(up.id().to_string()).status();
    let _ = up.wait();
    println!("\n{JOBS} jobs in one `up`");
    println!("  {:44} {:8.0} ms", "until it schedules", there.as_secs_f64() * 1e3);
    println!("  {:44} {:8.0} ms", "until every record was looked at and written", seen.as_secs_f64() * 1e3);
    if let (Some(memory), Some(cpu)) = (memory, cpu) {
        println!("  {:44} {:8.2} MB", "memory (PSS)", memory as f64 / 1024.0);
        println!("  {:44} {cpu:8.2} ms per second", "CPU at rest");
    }
    let at = |share: f64| lateness[((lateness.len() - 1) as f64 * share) as usize];
    println!("  {AT_ONCE} due at one second: claimed {} ms late (p50), {} ms (p99)", at(0.5), at(0.99));
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a date after 1970")
}

fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "up does not get there");
        sleep(Duration::from_millis(20));
    }
}

fn records(database: &Path) -> i64 {
    if !database.exists() {
        return 0;
    }
    let count = |database: Connection| {
        database.query_row("SELECT count(*) FROM entries WHERE key LIKE 'job/%'", [], |row| row.get(0))
    };
    Connection::open(database).and_then(count).unwrap_or(0)
}

/// Clock ticks of a hundredth of a second that it has used.
fn cpu_ticks(process: &Child) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// By how many milliseconds the runs so far were claimed after their slot.
fn late(fencepost: &Path, directory: &Path) -> Vec<i64> {
    let said = Command::new(fencepost)
        .env("FENCEPOST_STATE_DIR", directory.join("state"))
        .env("FENCEPOST_CONFIG", "")
        .args(["runs", "--json", "--status", "ok", "-n", "1000"])
        .output()
        .expect("fencepost starts");
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let value = |line: &str, key: &str| {
        let start = line.find(&format!("\"{key}\":\""))? + key.len() + 4;
        millis_of_minute(line[start..].split('"').next()?)
    };
    text.lines().filter_map(|line| Some(value(line, "started")? - value(line, "slot")?)).collect()
}

/// The milliseconds of a time within its minute, as RFC 3339 has them.
fn millis_of_minute(time: &str) -> Option<i64> {
    let seconds: String = time.get(17..)?.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    Some((seconds.parse::<f64>().ok()? * 1e3).round() as i64)
}
