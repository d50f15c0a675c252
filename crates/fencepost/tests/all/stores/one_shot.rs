//! Stores without a clock: a holder that died on another host, and only one-shot processes to notice.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fencepost_testkit::process::children_of;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{BINARY, Holder, Said, Site};
use crate::stores::{on_host, say};

const TTL: Duration = Duration::from_secs(3);

fn git(site: &Site) -> String {
    let path = site.path("store.git");
    assert!(Command::new("git").args(["init", "-q", "--bare"]).arg(&path).status().unwrap().success());
    format!("git+file://{}", path.display())
}

/// A run on another host that dies at once with all that belongs to it. Its host is never heard of again.
fn dead_holder(site: &Site, url: &str) -> Instant {
    let script = "echo $FENCEPOST_TOKEN; exec cat >/dev/null";
    let command = on_host(site, "alpha", &["--store", url, "run", "a", "--ttl", "3s", "-c", script]);
    let mut holder = Holder::start(command);
    let is_keeper = |pid: &i32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == Path::new(BINARY));
    let keeper = children_of(holder.pid()).into_iter().find(is_keeper).expect("a keeper");
    for (pid, signal) in [(holder.pid(), Signal::SIGSTOP), (keeper, Signal::SIGKILL), (holder.pid(), Signal::SIGKILL)] {
        kill(Pid::from_raw(pid), signal).unwrap();
    }
    holder.child.wait().unwrap();
    Instant::now()
}

fn trigger(site: &Site, host: &str, url: &str) -> Said {
    say(on_host(site, host, &["--store", url, "run", "a", "--ttl", "3s", "-E", "99", "-c", "echo $FENCEPOST_TOKEN"]))
}

fn ran_again(url: &str, site: &Site) {
    // A trigger every second, each a process of its own that knows only what the last one wrote down.
    let died = dead_holder(site, url);
    let mut skipped = 0;
    let said = loop {
        let said = trigger(site, "beta", url);
        match said.code {
            99 => skipped += 1,
            _ => break said,
        }
        thread::sleep(Duration::from_secs(1));
    };
    assert_eq!(said.code, 0, "{said:?}");
    assert!(skipped >= 2 && died.elapsed() >= TTL, "{skipped} {:?}", died.elapsed());
    assert!(died.elapsed() < TTL * 4, "{:?}", died.elapsed());

    // One trigger alone, long after: it watches for a whole time-to-live and then runs.
    dead_holder(site, url);
    thread::sleep(TTL + TTL / 2 + Duration::from_millis(200));
    let begun = Instant::now();
    let said = trigger(site, "gamma", url);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(begun.elapsed() >= TTL, "{:?}", begun.elapsed());
    let said = say(on_host(site, "gamma", &["--store", url, "runs", "--json"]));
    assert_eq!(said.stdout.matches("\"lost\"").count(), 2, "{said:?}");
}

#[test]
fn a_directory() {
    let site = Site::new();
    ran_again(&format!("dir:{}", site.path("shared").display()), &site);
}

#[test]
fn a_git_repository() {
    let site = Site::new();
    ran_again(&git(&site), &site);
}

/// A live holder is watched until it is seen to live, independent of its clock.
#[test]
fn a_holder_that_lives_is_left_alone() {
    let site = Site::new();
    let url = format!("dir:{}", site.path("shared").display());
    let script = "echo $FENCEPOST_TOKEN; exec cat >/dev/null";
    let mut command = on_host(&site, "alpha", &["--store", &url, "run", "a", "--ttl", "3s", "-c", script]);
    // Its clock is an hour behind, so that its lease looks old.
    if !crate::stores::storm::skew(&mut command, "-3600") {
        println!("skipped: libfaketime is not installed");
        return;
    }
    let holder = Holder::start(command);
    let said = trigger(&site, "beta", &url);
    assert_eq!(said.code, 99, "{said:?}");
    assert_eq!(holder.finish().code, 0);
}

#[test]
fn a_ttl_that_the_store_cannot_keep_is_refused() {
    let site = Site::new();
    let url = git(&site);
    for verb in [
        &["run", "a", "--ttl", "5m", "--", "true"][..],
        &["lease", "acquire", "a", "--ttl", "5m"],
        &["once", "a", "--ttl", "5m", "--", "true"],
    ] {
        let said = site.say(&[&["--store", &url], verb].concat());
        assert_eq!(said.code, if verb[0] == "lease" { 2 } else { 125 }, "{said:?}");
        crate::common::contains(&said.stderr, &["5m", "too short", "10m"]);
    }
    // The usual one rises by itself.
    let said = site.say(&["--store", &url, "lease", "acquire", "a", "--json"]);
    let lease: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert!(lease["remaining_ms"].as_u64().unwrap() > 500_000, "{lease}");
}
