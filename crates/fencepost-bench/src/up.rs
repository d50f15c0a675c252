//! Many jobs in one `up`: how soon it schedules, what it holds and does at rest, and how late it fires.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use crate::memory::pss_kib;

/// How many jobs there are, how many of them are due at one second, and how long after the start that second is: well after
/// everything else was measured.
struct Load {
    jobs: usize,
    at_once: usize,
    due_after: Duration,
}

const LOADS: [Load; 2] = [
    Load { jobs: 1_000, at_once: 100, due_after: Duration::from_secs(40) },
    Load { jobs: 10_000, at_once: 200, due_after: Duration::from_secs(150) },
];

/// How late the last of a hundred runs may claim its slot, with every load.
const LATE_MS_MAX: i64 = 1_000;

/// The most memory that `up` may hold, with every load.
const PSS_KIB_MAX: u64 = 60 * 1024;

/// How long it is watched at rest.
const REST: Duration = Duration::from_secs(10);

pub fn report(fencepost: &Path, directory: &Path) {
    for load in LOADS {
        load.report(fencepost, &directory.join(format!("up-{}", load.jobs)));
    }
}

impl Load {
    fn report(&self, fencepost: &Path, directory: &Path) {
        fs::create_dir(directory).expect("a directory");
        let (config, due) = self.configure(directory);
        let lines = directory.join("lines");
        let said = || fs::read_to_string(&lines).unwrap_or_default();
        let begun = Instant::now();
        let mut up = Command::new(fencepost)
            .env("FENCEPOST_STATE_DIR", directory.join("state"))
            .arg("--config")
            .arg(&config)
            .arg("up")
            .stdin(Stdio::null())
            .stdout(File::create(&lines).expect("a file"))
            .spawn()
            .expect("fencepost starts");
        until(|| said().contains(" up jobs="));
        let there = begun.elapsed();
        let database = directory.join("state/store.db");
        until(|| records(&database) >= self.jobs as i64);
        let seen = begun.elapsed();
        let before = cpu_ticks(&up);
        sleep(REST);
        let cpu = cpu_ticks(&up).zip(before).map(|(after, before)| (after - before) as f64 * 10.0 / REST.as_secs_f64());
        assert!(now() < due, "the runs were due before everything else was measured");
        // Nothing else runs while they are due.
        sleep(due.saturating_sub(now()));
        until(|| said().matches(" ok slot=").count() >= self.at_once);
        let memory = pss_kib(up.id());
        let _ = Command::new("kill").arg(up.id().to_string()).status();
        let _ = up.wait();
        println!("\n{} jobs in one `up`", self.jobs);
        println!("  {:44} {:8.0} ms", "until it schedules", there.as_secs_f64() * 1e3);
        println!("  {:44} {:8.0} ms", "until every record was looked at and written", seen.as_secs_f64() * 1e3);
        if let Some(cpu) = cpu {
            println!("  {:44} {cpu:8.2} ms per second", "CPU at rest");
        }
        self.judge(late(fencepost, directory), memory);
    }

    /// Writes a configuration, and says when its runs are due.
    fn configure(&self, directory: &Path) -> (PathBuf, Duration) {
        let due = Duration::from_secs((now() + self.due_after).as_secs());
        let (second, minute, hour) = (due.as_secs() % 60, due.as_secs() / 60 % 60, due.as_secs() / 3600 % 24);
        let jobs: String = (0..self.jobs)
            .map(|number| {
                let is_due = number < self.at_once;
                let schedule = if is_due { format!("{second} {minute} {hour} * * *") } else { "0 0 1 1 *".to_string() };
                format!("[job.job-{number:05}]\nschedule = '{schedule}'\ncommand = ['true']\nlogs = false\n")
            })
            .collect();
        let path = directory.join("fencepost.toml");
        let up = format!("timezone = 'UTC'\n[up]\nmax_parallel = {}\n", self.at_once);
        fs::write(&path, format!("{up}[defaults]\nslack = '2s'\ncatch_up = 0\n{jobs}")).expect("a configuration");
        (path, due)
    }

    fn judge(&self, mut lateness: Vec<i64>, memory: Option<u64>) {
        lateness.sort_unstable();
        let at = |share: f64| lateness[((lateness.len() - 1) as f64 * share) as usize];
        let (late, kib) = (at(0.99), memory.unwrap_or(0));
        println!("  {:44} {:8.2} MB", "memory (PSS)", kib as f64 / 1024.0);
        println!("  {} due at one second: claimed {} ms late (p50), {late} ms (p99)", self.at_once, at(0.5));
        let is_within = late <= LATE_MS_MAX && kib <= PSS_KIB_MAX;
        println!("  {}", if is_within { "within the budget" } else { "OVER THE BUDGET" });
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a date after 1970")
}

fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(300), "up does not get there");
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
