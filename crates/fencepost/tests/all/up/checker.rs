//! Three machines on one store. Afterwards every slot was completed once or is accounted for by name, by the ledger and by
//! what the jobs themselves wrote down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use fencepost_testkit::faketime;
use jiff::Timestamp;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::lines;
use crate::up::scene::Scene;

/// Every job is due every so many seconds.
const PERIOD: i64 = 4;

pub fn three_machines(jobs: usize, length: Duration) {
    let job = |number: usize| {
        let offset = number as i64 % PERIOD;
        format!(
            "[job.j{number}]\nschedule = '{offset}-59/{PERIOD} * * * * *'\n\
             command = 'echo begun $FENCEPOST_SLOT $FENCEPOST_RUN >> log/j{number}; sleep 0.1; \
             echo ended $FENCEPOST_SLOT $FENCEPOST_RUN >> log/j{number}'\n"
        )
    };
    let config: String = (0..jobs).map(job).collect();
    let scene = Scene::new(&format!("[defaults]\nttl = '3s'\ngrace = '500ms'\n[logs]\nenabled = false\n{config}"));
    fs::create_dir(scene.path("log")).unwrap();
    fs::write(scene.path("clock"), "+0").unwrap();

    let killed = scene.machine("killed", &["-v"]);
    let stopped = scene.machine("stopped", &["-v"]);
    let mut wrong = scene.command(&["up", "-v"]);
    wrong.env("FENCEPOST_STATE_DIR", scene.path("state-wrong"));
    wrong.env("LD_PRELOAD", faketime("MT")).env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_NO_CACHE", "1");
    wrong.env("FAKETIME_TIMESTAMP_FILE", scene.path("clock"));
    let wrong = scene.start(wrong, "wrong.out");

    let begin = Timestamp::now();
    let part = |share: f64| std::thread::sleep(length.mul_f64(share));
    part(0.3);
    stopped.send(Signal::SIGSTOP);
    part(0.1);
    killed.kill_with_children();
    part(0.2);
    stopped.send(Signal::SIGCONT);
    part(0.1);
    fs::write(scene.path("clock"), "+3600").unwrap();
    part(0.3);
    let end = Timestamp::now();
    let mut machines = [stopped, wrong];
    machines.iter().for_each(|up| up.send(Signal::SIGTERM));
    for up in &mut machines {
        assert_eq!(up.wait(), 0, "{}", up.stdout());
    }
    assert!(machines[1].stdout().contains("clock_stepped by_ms=3"), "{}", machines[1].stdout());
    let mut checked = 0;
    for number in 0..jobs {
        checked += Job::read(&scene, number).check(number, begin, end);
    }
    let expected = jobs as i64 * (length.as_secs() as i64 / PERIOD - 2);
    assert!(checked as i64 >= expected, "only {checked} of {expected} slots were looked at");
}

/// What is known of a job.
struct Job {
    ledger: Vec<Value>,
    begun: Vec<(Timestamp, String)>,
    ended: Vec<(Timestamp, String)>,
}

impl Job {
    fn read(scene: &Scene, number: usize) -> Self {
        let said = scene.say(&["runs", &format!("j{number}"), "--json", "-n", "100000"]);
        assert_eq!(said.code, 0, "{said:?}");
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        for line in scene.read(&format!("log/j{number}")).lines() {
            let [word, slot, run] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line:?}") };
            let entry = (slot.parse().unwrap(), run.to_string());
            if word == "begun" { begun.push(entry) } else { ended.push(entry) }
        }
        Self { ledger: lines(&said.stdout), begun, ended }
    }

    /// Says how many slots were looked at.
    fn check(&self, number: usize, begin: Timestamp, end: Timestamp) -> usize {
        let mut completed: BTreeMap<Timestamp, &str> = BTreeMap::new();
        for run in self.ledger.iter().filter(|run| run["status"] == "ok") {
            let before = completed.insert(time(&run["slot"]), run["run"].as_str().unwrap());
            assert_eq!(before, None, "j{number}: completed twice: {run}");
        }
        // What the ledger says is what the job did.
        let did: BTreeSet<_> = self.ended.iter().map(|(slot, run)| (*slot, run.as_str())).collect();
        for (slot, run) in &completed {
            assert!(did.contains(&(*slot, *run)), "j{number}: {slot} is ok, but its run {run} did not end");
        }
        let known: BTreeSet<&str> = self.ledger.iter().filter_map(|run| run["run"].as_str()).collect();
        for (slot, run) in &self.begun {
            assert!(known.contains(run.as_str()), "j{number}: run {run} for {slot} is not in the ledger");
        }
        // Who was killed between the end of its command and its record is named as lost, and the slot is done again.
        let is_lost = |run: &Value| run["status"] == "lost";
        let lost: BTreeSet<&str> =
            self.ledger.iter().filter(|run| is_lost(run)).filter_map(|run| run["run"].as_str()).collect();
        let mut slots = BTreeSet::new();
        for (slot, run) in self.ended.iter().filter(|(_, run)| !lost.contains(run.as_str())) {
            assert!(slots.insert(*slot), "j{number}: {slot} was done twice, the second time by {run}");
        }
        // Every slot of the time, but for the first seconds and those that may still have been in the making.
        let offset = number as i64 % PERIOD;
        let mut looked_at = 0;
        for second in begin.as_second() + 3..end.as_second() - 1 {
            if second.rem_euclid(60) % PERIOD != offset % PERIOD || second.rem_euclid(60) < offset {
                continue;
            }
            looked_at += 1;
            let slot = Timestamp::from_second(second).unwrap();
            let is_accounted_for = self.ledger.iter().any(|run| {
                let (started, finished) = (time(&run["started"]), time(&run["finished"]));
                let is_own = time(&run["slot"]) == slot;
                let is_missed =
                    run["slot_from"].is_string() && (time(&run["slot_from"])..=time(&run["slot_to"])).contains(&slot);
                let is_overlapped = run["status"] != "missed" && started < slot && slot <= finished;
                is_own || is_missed || is_overlapped
            });
            assert!(is_accounted_for, "j{number}: {slot} is not accounted for: {:#?}", self.ledger);
        }
        looked_at
    }
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap_or_else(|| panic!("{value}")).parse().unwrap()
}
