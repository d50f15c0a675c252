//! Many processes at one lease: one wins, and the others do not disturb it.

use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fencepost_testkit::eventually;

use crate::common::{Said, Site, lines};

const RACERS: usize = 32;
const ROUNDS_BY_HAND: usize = 170;
const ROUNDS_OF_RUNS: usize = 30;

/// Each of these tests fills the machine by itself.
static MACHINE: Mutex<()> = Mutex::new(());

fn machine() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn of_32_acquirers_exactly_one_wins_with_a_higher_token_each_round() {
    let _machine = machine();
    let site = Site::new();
    let mut last = 0;
    for round in 0..ROUNDS_BY_HAND {
        let racers: Vec<Child> = (0..RACERS)
            .map(|_| {
                let mut command = site.command(&["lease", "acquire", "race", "--ttl", "5m"]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        let said: Vec<Said> = racers.into_iter().map(|racer| Said::of(racer.wait_with_output().unwrap())).collect();
        let winners: Vec<&Said> = said.iter().filter(|said| said.code == 0).collect();
        assert_eq!(winners.len(), 1, "round {round}: {said:?}");
        assert!(said.iter().all(|said| [0, 11].contains(&said.code)), "round {round}: {said:?}");
        let token: u64 = winners[0].stdout.trim().parse().unwrap();
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        assert_eq!(site.say(&["lease", "release", "race", "--token", &token.to_string()]).code, 0);
    }
    assert_eq!(site.job("race")["grants"], ROUNDS_BY_HAND);
}

#[test]
fn of_32_runs_exactly_one_runs_its_command_and_the_others_are_counted_as_skips() {
    let _machine = machine();
    let site = Site::new();
    let mut last = 0;
    for round in 0..ROUNDS_OF_RUNS {
        let (wait, release) = std::io::pipe().unwrap();
        let mut racers: Vec<Child> = (0..RACERS)
            .map(|_| {
                let mut command = site.command(&["run", "race", "-c", "echo $FENCEPOST_TOKEN; read word; exit 0"]);
                command.stdin(wait.try_clone().unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        drop(wait);
        // The winner holds on until everybody else has decided.
        eventually("all but one were waved off", || {
            let ended = |racer: &mut Child| racer.try_wait().unwrap().is_some();
            racers.iter_mut().map(ended).filter(|ended| *ended).count() == RACERS - 1
        });
        drop(release);
        let said: Vec<Said> = racers.into_iter().map(|racer| Said::of(racer.wait_with_output().unwrap())).collect();
        assert!(said.iter().all(|said| said.code == 0 && said.stderr.is_empty()), "round {round}: {said:?}");
        let tokens: Vec<u64> = said.iter().filter_map(|said| said.stdout.trim().parse().ok()).collect();
        assert_eq!(tokens.len(), 1, "round {round}: {said:?}");
        assert!(tokens[0] > last, "round {round}: {} after {last}", tokens[0]);
        last = tokens[0];
    }
    let job = site.job("race");
    assert_eq!(job["grants"], ROUNDS_OF_RUNS);
    assert_eq!(job["counts"]["ok"], ROUNDS_OF_RUNS);
    assert_eq!(job["counts"]["skipped_overlap"], ROUNDS_OF_RUNS * (RACERS - 1));
}

/// The first process creates the store, and the others find it.
#[test]
fn of_16_who_come_to_no_store_at_all_one_wins_and_nobody_fails() {
    let _machine = machine();
    for round in 0..20 {
        let site = Site::new();
        let racers: Vec<Child> = (0..16)
            .map(|_| {
                let mut command = site.command(&["lease", "acquire", "race"]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        let said: Vec<Said> = racers.into_iter().map(|racer| Said::of(racer.wait_with_output().unwrap())).collect();
        let failed: Vec<&Said> = said.iter().filter(|said| ![0, 11].contains(&said.code)).collect();
        assert!(failed.is_empty(), "round {round}: {failed:?}");
        assert_eq!(said.iter().filter(|said| said.code == 0).count(), 1, "round {round}: {said:?}");
    }
}

const SKIPPERS: usize = 200;
const HAMMERED_TTL: Duration = Duration::from_secs(2);

/// 200 at any time, from before the first renewal until three times the time-to-live have passed.
#[test]
fn two_hundred_skippers_cost_the_holder_no_renewal_and_every_skip_is_counted() {
    let _machine = machine();
    let site = Site::new();
    let events = site.path("events");
    let holder = site.holder("hammered", &["--ttl", "2s", "--events", events.to_str().unwrap()]);
    let skips = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..SKIPPERS {
            scope.spawn(|| {
                while begun.elapsed() < HAMMERED_TTL * 3 {
                    let said = site.say(&["run", "hammered", "--", "false"]);
                    assert_eq!(said, Said { code: 0, stdout: String::new(), stderr: String::new() });
                    skips.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let skips = skips.into_inner();
    assert!(skips >= SKIPPERS as u64);
    let during = site.job("hammered");
    assert_eq!(during["streak"]["status"], "skipped_overlap");
    assert_eq!(during["streak"]["count"], skips);

    let said = holder.finish();
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let mut text = String::new();
    std::fs::File::open(&events).unwrap().read_to_string(&mut text).unwrap();
    let events = lines(&text);
    let renewed: Vec<u64> = events.iter().filter_map(|event| event["renewals"].as_u64()).collect();
    assert!(renewed.len() >= 3 && renewed.iter().copied().eq(1..=renewed.len() as u64), "{renewed:?}");
    for wrong in ["renewal_failed", "stopping", "frozen", "completion_failed"] {
        assert!(!text.contains(wrong), "{text}");
    }

    let job = site.job("hammered");
    assert_eq!(job["counts"], serde_json::json!({ "ok": 1, "skipped_overlap": skips }));
    let rate = format!("{skips} ({:.1} %)", 100.0 * skips as f64 / (skips + 1) as f64);
    // The table has whole percents.
    crate::common::contains(&site.say(&["status"]).stdout, &[&format!("{skips} (100%)")]);
    crate::common::contains(&site.say(&["status", "hammered"]).stdout, &[&rate, &format!("skipped_overlap {skips}")]);
}
