//! `--observe`: everything is decided and recorded, and nothing is skipped, halted or stopped, whichever part fails.

use std::fs;

use fencepost_testkit::eventually;
use fencepost_testkit::process::children_of;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::common::{Holder, Said, Site, contains};
use crate::process::PORTABLE;

fn observe(site: &Site, options: &[&str], script: &str) -> Said {
    site.say(&[&["run", "a", "--observe"], options, &["-c", script]].concat())
}

/// A job that says a line, waits for the end of its input and ends with 7.
fn going(site: &Site, options: &[&str]) -> Holder {
    let script = "echo going; cat >/dev/null; echo done; exit 7";
    Holder::start(site.command(&[&["run", "a", "--observe"], options, &["-c", script]].concat()))
}

#[test]
fn a_store_that_cannot_be_used_stops_nothing() {
    let broken: [fn(&Site); 3] = [
        |site| fs::write(site.state(), "a file, not a directory").unwrap(),
        |site| {
            fs::create_dir(site.state()).unwrap();
            fs::write(site.database(), "a diary\n".repeat(1000)).unwrap();
        },
        |site| {
            assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
            for name in ["store.db", "store.db-wal", "store.db-shm"] {
                fs::remove_file(site.state().join(name)).unwrap();
            }
        },
    ];
    for breaks in broken {
        for options in [&[][..], &["--needs", "up@any"], &["--output-on-failure"], &["--schedule", "0 7 * * *"]] {
            let site = Site::new();
            breaks(&site);
            let said = observe(&site, options, "echo ran; exit 7");
            assert_eq!((said.code, said.stdout.as_str()), (7, "ran\n"), "{options:?}: {said:?}");
            contains(&said.stderr, &["observing only"]);
        }
    }
    let site = Site::new();
    let said = observe(&site, &["--store", "redis://127.0.0.1:1"], "echo ran; exit 7");
    assert_eq!((said.code, said.stdout.as_str()), (7, "ran\n"), "{said:?}");
}

#[test]
fn a_store_that_goes_away_changes_no_exit_code() {
    let site = Site::new();
    let holder = going(&site, &["--ttl", "3s"]);
    fs::rename(site.state(), site.path("aside")).unwrap();
    let said = holder.finish();
    assert_eq!((said.code, said.stdout.as_str()), (7, "done\n"), "{said:?}");
    contains(&said.stderr, &["observing only", "could not be recorded"]);
}

#[test]
fn a_keeper_that_dies_stops_nothing() {
    let site = Site::new();
    let holder = going(&site, &[]);
    let keeper = children_of(holder.pid())[0];
    kill(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
    eventually("the job falls to the wrapper", || children_of(holder.pid()) != [keeper]);
    let said = holder.finish();
    let run = &site.runs(&["a"])[0];
    let ended = (said.code, said.stdout.as_str(), &run["status"], &run["exit_code"]);
    let (code, status) = (json!(7), json!("error"));
    // As macOS controls processes, the orphan is not this run's child: its exit code is not known.
    let promised =
        if PORTABLE { (125, "done\n", &json!("error"), &json!(null)) } else { (7, "done\n", &status, &code) };
    assert_eq!(ended, promised, "{said:?}, {run}");
}

#[test]
fn a_keeper_that_dies_before_the_job_starts_stops_nothing() {
    let site = Site::new();
    let events = site.path("events");
    let options = ["--needs", "up@any", "--needs-wait", "60s", "--events", events.to_str().unwrap()];
    let mut command = site.command(&[&["run", "a", "--observe"], &options[..], &["-c", "echo ran; exit 7"]].concat());
    let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    eventually("it is claimed", || fs::read_to_string(&events).unwrap_or_default().contains("claimed"));
    let keeper = children_of(child.id() as i32)[0];
    kill(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
    eventually("the keeper is buried", || children_of(child.id() as i32).is_empty());
    assert_eq!(site.say(&["record", "up", "ok"]).code, 0);
    let said = Said::of(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.stdout.as_str()), (7, "ran\n"), "{said:?}");
    assert_eq!(site.runs(&["a"])[0]["exit_code"], 7);
}

#[test]
fn a_wrapper_that_dies_stops_nothing() {
    let site = Site::new();
    let script = format!("echo $$; while [ ! -e {0} ]; do sleep 0.05; done; touch {0}.done", site.path("go").display());
    let mut holder = Holder::start(site.command(&["run", "a", "--observe", "-c", &script]));
    let job: i32 = holder.first.trim().parse().unwrap();
    let keeper = children_of(holder.pid())[0];
    holder.child.kill().unwrap();
    holder.child.wait().unwrap();
    for pid in [keeper, job] {
        // Both orphans go on: nothing is left to wait for but their death, which must not come.
        std::thread::sleep(std::time::Duration::from_millis(300));
        kill(Pid::from_raw(pid), None).expect("it is alive");
    }
    fs::write(site.path("go"), "").unwrap();
    eventually("the job comes to its own end", || site.path("go.done").exists());
}

#[test]
fn a_failed_prepare_stops_nothing() {
    let site = Site::new();
    let said = observe(&site, &["--prepare", "exit 3"], "echo ran; exit 7");
    assert_eq!((said.code, said.stdout.as_str()), (7, "ran\n"), "{said:?}");
    contains(&said.stderr, &["observing only", "the command to prepare failed with exit code 3"]);
    let run = &site.runs(&["a"])[0];
    assert_eq!(run["exit_code"], 7);
    contains(run["note"].as_str().unwrap(), &["observed: error", "prepare"]);
}

#[test]
fn what_the_job_leaves_running_is_left_alone() {
    let site = Site::new();
    let (go, done) = (site.path("go"), site.path("done"));
    let script = "(exec >/dev/null 2>&1; while [ ! -e $GO ]; do sleep 0.05; done; touch $DONE) & exit 7";
    let mut command = site.command(&["run", "a", "--observe", "-c", script]);
    let said = Said::of(command.env("GO", &go).env("DONE", &done).output().unwrap());
    assert_eq!(said.code, 7, "{said:?}");
    fs::write(&go, "").unwrap();
    eventually("what was left running goes on", || done.exists());
}

#[test]
fn what_fencepost_cannot_write_stops_nothing() {
    let site = Site::new();
    let said = observe(&site, &["--events", "/dev/null/events"], "echo ran; exit 7");
    assert_eq!((said.code, said.stdout.as_str()), (7, "ran\n"), "{said:?}");
    contains(&said.stderr, &["observing only", "/dev/null/events"]);
    fs::create_dir_all(site.state()).unwrap();
    fs::write(site.path("state/output"), "a file, not a directory").unwrap();
    let said = observe(&site, &["--output-on-failure"], "echo ran; exit 7");
    assert_eq!((said.code, said.stdout.as_str()), (7, "ran\n"), "{said:?}");
}
