//! 8 clients at one job of the shared store, while its server is killed again and again. What they wrote down is judged
//! afterwards. `FENCEPOST_SOAK_SECONDS` makes it longer.

use std::collections::BTreeMap;
use std::fs;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::share::Shared;
use crate::common::{Site, lines};
use crate::stores::storm::{MACHINE, SCRIPT, in_order, watch};
use crate::stores::{on_host, say};

const CLIENTS: usize = 8;

/// How long the server is left alone before it is killed.
const LIFE: Duration = Duration::from_millis(1500);

fn length() -> Duration {
    let asked = std::env::var("FENCEPOST_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(60))
}

/// A run of the storm. It sleeps while it holds the lease, so the other clients wait for it and use no processor.
fn script() -> String {
    SCRIPT.replacen('\n', "\nsleep 0.2\n", 1)
}

#[test]
fn kills_of_the_server_lose_nothing() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut shared = Shared::start();
    let site = Site::new();
    let (url, token, log, out) = (shared.url(), shared.token.clone(), site.path("log"), site.path("out"));
    let command = |host: &str, arguments: &[&str]| {
        let mut command = on_host(&site, host, &[&["--store", &url], arguments].concat());
        command.env("LOG", &log).env("OUT", &out).env("FENCEPOST_STORE_PASSWORD", &token);
        command
    };
    let going = AtomicBool::new(true);
    let [ran, skipped, failed, kills] = [const { AtomicU64::new(0) }; 4];
    let (script, begun) = (script(), Instant::now());
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (command, script, going) = (&command, script.as_str(), &going);
                let (ran, skipped, failed) = (&ran, &skipped, &failed);
                scope.spawn(move || {
                    let host = ["alpha", "beta"][number % 2];
                    while going.load(Ordering::Relaxed) {
                        let said =
                            say(command(host, &["run", "j", "--ttl", "20s", "-E", "99", "--wait", "2s", "-c", script]));
                        match said.code {
                            0 => ran.fetch_add(1, Ordering::Relaxed),
                            // The store could not be reached: nothing was started, or its end is recorded later.
                            125 => failed.fetch_add(1, Ordering::Relaxed),
                            99 => skipped.fetch_add(1, Ordering::Relaxed),
                            _ => panic!("{said:?}"),
                        };
                    }
                })
            })
            .collect();
        let watcher = scope.spawn(|| watch(&out, &going));
        while begun.elapsed() < length() {
            thread::sleep(LIFE);
            shared.kill_and_restart();
            kills.fetch_add(1, Ordering::Relaxed);
        }
        going.store(false, Ordering::Relaxed);
        let ended: Vec<_> = clients.into_iter().map(|client| client.join().is_ok()).collect();
        assert!(watcher.join().is_ok() && ended.iter().all(|ok| *ok));
    });
    let runs = say(command("alpha", &["runs", "--json", "-n", "1000000"]));
    let [ran, skipped, failed, kills] = [ran, skipped, failed, kills].map(AtomicU64::into_inner);
    judge(&url, &fs::read_to_string(&log).unwrap(), &lines(&runs.stdout), ran);
    let seconds = begun.elapsed().as_secs();
    println!(
        "{CLIENTS} clients, {seconds} s, {kills} kills of the server: {ran} runs, {skipped} skips, {failed} that could not \
         reach the store, 0 violations"
    );
    assert!(ran >= 5, "only {ran} runs");
}

/// Every run that began is recorded once, under its token; every run that said it was done is recorded as such.
fn judge(url: &str, log: &str, runs: &[serde_json::Value], ran: u64) {
    let begun = in_order(url, log);
    let mut recorded = BTreeMap::new();
    for run in runs {
        let id = run["run"].as_str().unwrap().to_string();
        let found = (run["token"].as_u64().unwrap(), run["status"].as_str().unwrap().to_string());
        assert_eq!(recorded.insert(id, found), None, "{run} is there twice");
    }
    for (run, token) in &begun {
        let (known, status) = recorded.get(run).unwrap_or_else(|| panic!("{run} began and is not recorded"));
        assert_eq!(known, token, "{run}");
        assert!(["ok", "lost", "running"].contains(&status.as_str()), "{run}: {status}");
    }
    let ok = recorded.values().filter(|(_, status)| status == "ok").count() as u64;
    assert!(ok >= ran, "{ran} runs said that they were done, {ok} are recorded");
}
