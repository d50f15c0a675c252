//! A run between its claim and the start of its command, and what is said of one that never started.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use fencepost_testkit::eventually;
use fencepost_testkit::process::children_of;
use fencepost_testkit::servers::Redis;
use nix::sys::signal::Signal::{SIGCONT, SIGKILL, SIGSTOP, SIGTERM};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde_json::{Value, json};

use crate::common::{Holder, Said, Site, contains};

fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

fn start(site: &Site, arguments: &[&str]) -> Child {
    site.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The one child of a wrapper before it has started anything.
fn keeper(child: &Child) -> u32 {
    let mut keeper = Vec::new();
    eventually("there is a keeper", || {
        keeper = children_of(child.id().cast_signed());
        keeper.len() == 1
    });
    keeper[0].cast_unsigned()
}

fn said(child: Child) -> Said {
    Said::of(child.wait_with_output().unwrap())
}

/// A run that waits for its upstream under the lease, with its keeper stopped. The upstream is then good.
fn stopped_before_the_start(site: &Site) -> (Child, u32) {
    let options = ["--ttl", "3s", "--grace", "500ms", "--needs", "up@any", "--needs-wait", "60s"];
    let child = start(site, &[&["run", "a"], &options[..], &["-c", "echo ran; exit 7"]].concat());
    eventually("it is claimed", || site.json(&["lease", "show", "a"])["held"] == true);
    let keeper = keeper(&child);
    send(keeper, SIGSTOP);
    assert_eq!(site.say(&["record", "up", "ok"]).code, 0);
    (child, keeper)
}

fn wait_past_the_first_deadline() {
    std::thread::sleep(Duration::from_millis(4500));
}

#[test]
fn a_keeper_stopped_before_the_start_starts_the_command_if_the_lease_is_still_ours() {
    let site = Site::new();
    let (child, keeper) = stopped_before_the_start(&site);
    wait_past_the_first_deadline();
    send(keeper, SIGCONT);
    let said = said(child);
    assert_eq!((said.code, said.stdout.as_str()), (7, "ran\n"), "{said:?}");
    let run = &site.runs(&["a"])[0];
    assert_eq!((&run["status"], &run["exit_code"]), (&json!("error"), &json!(7)), "{run}");
}

#[test]
fn a_run_stopped_before_the_start_is_lost_if_the_lease_is_anothers() {
    let site = Site::new();
    let (child, keeper) = stopped_before_the_start(&site);
    send(child.id(), SIGSTOP);
    // The lease ends by itself, and another run takes it.
    let other = site.say(&["lease", "acquire", "a", "--ttl", "1h", "--wait", "60s"]);
    assert_eq!(other.code, 0, "{other:?}");
    send(keeper, SIGCONT);
    send(child.id(), SIGCONT);
    let said = said(child);
    assert_eq!((said.code, said.stdout.as_str()), (112, ""), "{said:?}");
    assert_eq!(site.runs(&["a"])[0]["status"], "lost");
}

fn once(site: &Site) -> Value {
    let said = site.say(&["once", "k", "--json", "-c", "echo effect >&2"]);
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

/// A run that stands still in its claim, until the lock on the store is given back.
fn killed_in_its_claim(site: &Site, arguments: &[&str], signal: Signal) -> Said {
    assert_eq!(site.say(&["run", "other", "--", "true"]).code, 0);
    let mut connection = Connection::open(site.database()).unwrap();
    let lock = Transaction::new(&mut connection, TransactionBehavior::Immediate).unwrap();
    let child = start(site, arguments);
    let keeper = keeper(&child);
    // Its own handlers are set once it sleeps in the store.
    std::thread::sleep(Duration::from_millis(500));
    send(if signal == SIGKILL { keeper } else { child.id() }, signal);
    drop(lock);
    said(child)
}

#[test]
fn once_is_not_unknown_if_the_keeper_died_before_the_start() {
    let site = Site::new();
    let said = killed_in_its_claim(&site, &["once", "k", "--json", "-c", "echo effect >&2"], SIGKILL);
    assert_eq!(said.code, 125, "{said:?}");
    contains(&said.stderr, &["its keeper process died before it could be started. Nothing was run."]);
    assert!(!said.stderr.contains("store") && !said.stderr.contains("effect"), "{said:?}");
    assert_eq!(serde_json::from_str::<Value>(&said.stdout).unwrap()["state"], "failed");
    let next = once(&site);
    assert_eq!((&next["state"], &next["replayed"]), (&json!("done"), &json!(false)), "{next}");
}

#[test]
fn once_is_not_unknown_if_it_was_interrupted_before_the_start() {
    let site = Site::new();
    let said = killed_in_its_claim(&site, &["once", "k", "-c", "echo effect >&2"], SIGTERM);
    assert_eq!((said.code, said.stderr.contains("effect")), (143, false), "{said:?}");
    let next = once(&site);
    assert_eq!((&next["state"], &next["replayed"]), (&json!("done"), &json!(false)), "{next}");
}

/// The store answers: only the keeper is gone.
#[test]
fn a_keeper_that_died_is_not_called_a_silent_store() {
    let site = Site::new();
    let said = killed_in_its_claim(&site, &["run", "a", "-c", "echo ran"], SIGKILL);
    assert_eq!((said.code, said.stdout.as_str()), (125, ""), "{said:?}");
    contains(&said.stderr, &["a: its keeper process died before it could be started. Nothing was run."]);
    assert!(!said.stderr.contains("store did not answer"), "{said:?}");
    let run = &site.runs(&["a"])[0];
    assert_eq!((&run["status"], &run["note"]), (&json!("error"), &json!("not started: its keeper died")), "{run}");
}

#[test]
fn an_interrupted_wait_is_recorded_by_its_signal() {
    let site = Site::new();
    let child = start(&site, &["run", "a", "--needs", "up@any", "--needs-wait", "60s", "-c", "echo ran"]);
    eventually("it is claimed", || site.json(&["lease", "show", "a"])["held"] == true);
    send(child.id(), SIGTERM);
    let said = said(child);
    assert_eq!((said.code, said.stdout.as_str()), (143, ""), "{said:?}");
    let run = &site.runs(&["a"])[0];
    assert_eq!((&run["status"], &run["exit_code"]), (&json!("error"), &json!(143)), "{run}");
    assert_eq!(run["note"], "interrupted by signal 15 before it started");
}

// The file in which a job says of itself how it ended.

#[test]
fn anything_but_a_file_in_place_of_the_outcome_is_an_error_that_names_it() {
    let table = [
        ("mkfifo $FENCEPOST_OUTCOME", "not a regular file"),
        ("mkdir $FENCEPOST_OUTCOME", "not a regular file"),
        ("ln -s /etc/passwd $FENCEPOST_OUTCOME", "symbolic link"),
        ("ln -s /dev/zero $FENCEPOST_OUTCOME", "symbolic link"),
        ("head -c 1100000 /dev/zero > $FENCEPOST_OUTCOME", "longer than 1 MiB"),
    ];
    for (script, why) in table {
        let site = Site::new();
        let script = format!("mkdir -p $(dirname $FENCEPOST_OUTCOME); {script}");
        let said = site.say(&["run", "a", "--ttl", "3s", "-c", &script]);
        assert_eq!(said.code, 1, "{said:?}");
        let run = &site.runs(&["a"])[0];
        assert_eq!((&run["status"], &run["ended_by"]), (&json!("error"), &json!("fencepost")), "{run}");
        let file = site.path("state/said").join(run["run"].as_str().unwrap());
        contains(run["note"].as_str().unwrap(), &[&file.display().to_string()]);
        contains(&said.stderr.to_lowercase(), &[&file.display().to_string().to_lowercase(), &why.to_lowercase()]);
    }
}

#[test]
fn record_does_not_wait_for_a_reader_of_the_outcome() {
    let site = Site::new();
    let script = "mkdir -p $(dirname $FENCEPOST_OUTCOME); mkfifo $FENCEPOST_OUTCOME; \"$BINARY\" record ok; echo $?";
    let said = site.say(&["run", "a", "--timeout", "60s", "-c", script]);
    assert_eq!((said.code, said.stdout.as_str()), (1, "125\n"), "{said:?}");
}

// A last swap whose answer is lost.

/// The server takes the last swap after the run has given it up.
#[test]
fn an_end_that_may_be_recorded_is_not_called_lost() {
    let (site, server) = (Site::new(), Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]));
    let url = server.url();
    let script = "echo going; exec cat >/dev/null";
    let holder = Holder::start(site.command(&["--store", &url, "run", "a", "--ttl", "6s", "-c", script]));
    server.signal(SIGSTOP);
    let ended = holder.finish();
    server.signal(SIGCONT);
    assert_eq!(ended.code, 125, "{ended:?}");
    contains(&ended.stderr, &["a ended with exit code 0.", "not known whether that was recorded", "fencepost runs a"]);
    let runs = || said(start(&site, &["--store", &url, "runs", "a", "--json"])).stdout;
    eventually("the swap lands", || runs().contains("\"ok\""));
}

#[test]
fn an_end_that_is_certainly_not_recorded_is_called_so() {
    let site = Site::new();
    let script = "echo going; exec cat >/dev/null";
    let holder = Holder::start(site.command(&["run", "a", "--ttl", "3s", "-c", script]));
    fs::rename(site.state(), site.path("aside")).unwrap();
    let ended = holder.finish();
    assert_eq!(ended.code, 125, "{ended:?}");
    contains(&ended.stderr, &["a ended with exit code 0.", "could not be recorded", "records this one as lost"]);
}
