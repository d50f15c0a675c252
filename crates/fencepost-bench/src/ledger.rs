//! What `gate` and `record` cost with a small ledger and with a huge one: they read by exact keys, so it is the same.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fencepost_core::history::Page;
use fencepost_core::ledger::{EndedBy, Outcome, Status, Trigger};
use fencepost_core::name::{Job, Key, Name};
use fencepost_core::record::{FORMAT, encode};
use fencepost_core::time::Wall;
use fencepost_core::token::{RunId, Token};
use rusqlite::Connection;
use uuid::Uuid;

use crate::measure::{Subject, interleave, millis};

/// How much longer a command may take on a thousand times as many records.
const RATIO_MAX: f64 = 1.2;

/// The jobs that the records belong to, and the time between two slots of one.
const JOBS: u64 = 100;
const PERIOD_MS: i64 = 60_000;

pub fn report(fencepost: &Path, directory: &Path, rounds: usize) {
    let sizes = [1_000, 1_000_000];
    let sites = sizes.map(|size| Site::with(fencepost, &directory.join(format!("ledger-{size}")), size));
    let mut subjects = Vec::new();
    for site in &sites {
        subjects.push(Subject::new("gate", || site.call(&["gate", "job-7@any"])));
        subjects.push(Subject::new("record", || site.call(&["record", "job-7", "ok"])));
    }
    let medians = interleave(rounds, subjects);
    println!("\nThe ledger by hand, median of {rounds} rounds");
    for (number, verb) in ["gate", "record"].into_iter().enumerate() {
        let (small, large) = (medians[number], medians[number + 2]);
        let ratio = large.as_secs_f64() / small.as_secs_f64();
        println!(
            "  {verb:7} {:8.2} ms with 1,000 records, {:8.2} ms with 1,000,000  ({ratio:.2} times, at most {RATIO_MAX})",
            millis(small),
            millis(large)
        );
    }
    println!("  1,000,000 records take {} MB", sites[1].megabytes());
}

struct Site {
    fencepost: PathBuf,
    state: PathBuf,
}

impl Site {
    /// A store with so many old outcomes, written in bulk as the history writes them one by one.
    fn with(fencepost: &Path, state: &Path, size: u64) -> Self {
        let site = Self { fencepost: fencepost.to_path_buf(), state: state.to_path_buf() };
        site.call(&["record", "job-7", "ok"]);
        let mut database = Connection::open(state.join("store.db")).expect("the store");
        let bulk = database.transaction().expect("a transaction");
        {
            let mut insert = bulk.prepare("INSERT INTO entries VALUES (?1, ?2, ?3)").expect("an insert");
            for number in 0..size {
                let job = Job::shared(Name::new(&format!("job-{}", number % JOBS)).expect("a name"));
                let slot = Wall(1_600_000_000_000 + (number / JOBS) as i64 * PERIOD_MS);
                let page = Page {
                    v: FORMAT,
                    job: job.clone(),
                    attempts: vec![outcome(number, slot)],
                    details: Vec::new(),
                    unknown: Default::default(),
                };
                let key = Key::history(&job, slot, 0);
                let row = rusqlite::params![key.as_str(), number.to_be_bytes(), encode(&page)];
                insert.execute(row).expect("a row");
            }
        }
        bulk.commit().expect("a commit");
        database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("a checkpoint");
        site
    }

    fn call(&self, arguments: &[&str]) {
        let mut command = Command::new(&self.fencepost);
        command.env("FENCEPOST_STATE_DIR", &self.state).env("FENCEPOST_CONFIG", "").args(arguments);
        let status = command.stdin(Stdio::null()).status().expect("fencepost starts");
        assert!(status.success(), "{command:?} ended with {status}");
    }

    fn megabytes(&self) -> u64 {
        std::fs::metadata(self.state.join("store.db")).map_or(0, |file| file.len() / 1_000_000)
    }
}

/// An outcome of a run of a second.
pub fn outcome(number: u64, slot: Wall) -> Outcome {
    Outcome {
        slot,
        zone: "Europe/London".to_string(),
        status: Status::Ok,
        token: Token::new(1_600_000_000_000 + number).expect("a token"),
        run: RunId(Uuid::from_u128(u128::from(number))),
        host: "worker-1".to_string(),
        trigger: Trigger::Schedule,
        unstarted: false,
        started: slot,
        finished: Wall(slot.0 + 1_000),
        exit_code: Some(0),
        ended_by: EndedBy::Child,
        tries: None,
        took: None,
        note: None,
        artifacts: Vec::new(),
        upstreams: Vec::new(),
        covers: None,
        clipped: false,
        unknown: Default::default(),
    }
}
