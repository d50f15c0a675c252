//! What happens under the lease before the job: the command to prepare, and the wait for upstreams.

use std::time::{Duration, Instant};

use fencepost_testkit::eventually;
use nix::sys::signal::Signal;

use crate::common::{Said, contains};
use crate::desk::Desk;
use crate::process::Place;

#[test]
fn the_command_to_prepare_runs_before_the_files_are_hashed() {
    let desk = Desk::new();
    desk.write("data", "right");
    desk.done(&["record", "up", "ok", "--artifact", "data"]);
    desk.write("data", "an old clone");
    let run = |prepare: &str| {
        let needs = ["--needs", "up@any,artifact=data", "-c", "cat $FENCEPOST_IN_UP; touch ran"];
        desk.say(&[&["run", "down", "--prepare", prepare], &needs[..]].concat())
    };
    assert_eq!(run("true").code, 115);
    assert!(!desk.has("ran"));
    // It has the run's variables, and the lease is held while it runs.
    let pull = r#"printf right > data; echo "$FENCEPOST_JOB" > job; $BINARY run down -E 99 -- true; echo $? > code"#;
    let said = run(pull);
    assert_eq!((said.code, said.stdout.as_str()), (0, "right"), "{said:?}");
    assert_eq!(desk.read("job"), "down\n");
    assert_eq!(desk.read("code"), "125\n", "the run inside is one of the same job");
}

#[test]
fn a_command_to_prepare_that_fails_ends_the_run() {
    let desk = Desk::new();
    let said = desk.say(&["run", "down", "--prepare", "echo no network >&2; exit 7", "-c", "touch ran"]);
    assert_eq!((said.code, desk.has("ran")), (7, false), "{said:?}");
    contains(&said.stderr, &["no network", "down failed: the command to prepare failed with exit code 7"]);
    let last = desk.last("down");
    assert_eq!((last.status.as_str(), last.exit_code), ("error", Some(7)));
    assert!(desk.record("down").lease.is_none());
    let configured = Desk::configured("[job.down]\nprepare = [\"no-such-command\"]\ncommand = \"touch ran\"\n");
    assert_eq!((configured.say(&["run", "down"]).code, configured.has("ran")), (127, false));
    // What it said of itself is heard and not left lying about.
    assert_eq!(desk.say(&["run", "down", "--prepare", "$BINARY record empty; exit 1", "--", "true"]).code, 1);
    let left = std::fs::read_dir(desk.site.state().join("said")).unwrap().count();
    assert_eq!(left, 0);
}

/// The file that it makes is not what the job made.
#[test]
fn what_the_command_to_prepare_wrote_is_not_the_jobs_output() {
    let desk = Desk::new();
    let said = desk.say(&["run", "up", "--prepare", "echo pulled > out", "--produces", "out", "--", "true"]);
    assert_eq!(said.code, 118, "{said:?}");
    contains(&said.stderr, &["out was not written by this run"]);
}

#[test]
fn a_time_limit_holds_for_the_command_to_prepare() {
    let desk = Desk::new();
    let said = desk.say(&["run", "down", "--timeout", "300ms", "--prepare", "sleep 60", "-c", "touch ran"]);
    assert_eq!((said.code, desk.has("ran")), (124, false), "{said:?}");
}

#[test]
fn a_wait_for_an_upstream_ends_when_it_is_good_and_the_lease_is_renewed_meanwhile() {
    let desk = Desk::new();
    desk.write("data", "x");
    let needs = ["--needs", "up@any,artifact=data", "--needs-wait", "50s", "--ttl", "1s"];
    let run = desk.command(&[&["run", "down"], &needs[..], &["-c", "echo $FENCEPOST_TOKEN"]].concat());
    let child = std::thread::spawn(move || {
        let mut run = run;
        Said::of(run.output().unwrap())
    });
    let renewals = || desk.site.database().exists().then(|| desk.renewals("down")).flatten();
    eventually("the lease was renewed for longer than it lasts", || renewals().is_some_and(|renewals| renewals >= 4));
    assert_eq!(desk.say(&["run", "down", "-E", "99", "--", "true"]).code, 99);
    // Not yet: an error, and then one with other bytes.
    desk.done(&["record", "up", "error"]);
    desk.done(&["record", "up", "ok"]);
    std::thread::sleep(Duration::from_millis(300));
    desk.done(&["record", "up", "ok", "--artifact", "data"]);
    let said = child.join().unwrap();
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    assert_eq!(desk.last("down").upstreams[0].run, desk.last("up").run);
}

#[test]
fn a_wait_for_an_upstream_ends_in_time_and_at_once_if_there_is_nothing() {
    let desk = Desk::new();
    for verb in [
        &["run", "down", "--needs", "up@any", "--needs-wait", "700ms", "--", "true"][..],
        &["gate", "up@any", "--wait", "700ms"],
    ] {
        let begun = Instant::now();
        let said = desk.say(verb);
        assert!([115, 15].contains(&said.code), "{said:?}");
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(700) && took < Duration::from_secs(20), "{took:?}");
    }
    desk.done(&["record", "up", "empty"]);
    let begun = Instant::now();
    assert_eq!(desk.say(&["run", "down", "--needs", "up@any", "--needs-wait", "60s", "--", "true"]).code, 0);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

/// A stop that is asked for while nothing of the job runs yet.
#[test]
fn a_signal_during_the_wait_ends_the_run_at_once() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let place = Place::new();
        let needs = ["down", "--needs", "up", "--needs-wait", "60s"];
        let mut running = place.run(&needs, &["touch", "ran"]);
        eventually("it waits", || place.statuses("down") == ["running"]);
        std::thread::sleep(Duration::from_millis(100));
        running.send(signal);
        running.ends_with(code);
        assert!(!place.path("ran").exists());
        assert!(place.is_deserted());
        assert_eq!(place.statuses("down"), ["error"]);
        place.next_token("down");
    }
}

#[test]
fn a_signal_while_preparing_ends_the_run_and_the_command() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        for script in ["tree.sh", "stubborn.sh"] {
            let place = Place::new();
            let prepare = format!("sh {script}; exit 0");
            let options = ["down", "--prepare", &prepare, "--ttl", "3s", "--grace", "500ms"];
            let mut running = place.run(&options, &["touch", "ran"]);
            let _tree = place.tree();
            running.send(signal);
            if script == "stubborn.sh" {
                // It takes no notice. What it was asked for is kept in mind until it ends by itself.
                std::thread::sleep(Duration::from_millis(300));
                assert!(running.is_running());
                place.let_go();
            }
            running.ends_with(code);
            assert!(!place.path("ran").exists(), "{signal} {script}");
            eventually("nothing of it runs", || place.is_deserted());
            place.next_token("down");
        }
    }
}

#[test]
fn a_wrapper_that_is_killed_before_the_job_leaves_nothing_running_and_is_taken_over_at_once() {
    let stages: [(&[&str], bool); 2] = [
        (&["down", "--needs", "up", "--needs-wait", "60s"], false),
        (&["down", "--prepare", "sh tree.sh", "--ttl", "60s", "--grace", "500ms"], true),
    ];
    for (options, has_tree) in stages {
        let place = Place::new();
        let mut running = place.run(options, &["touch", "ran"]);
        if has_tree {
            place.tree();
        } else {
            eventually("it waits", || place.statuses("down") == ["running"]);
        }
        running.send(Signal::SIGKILL);
        running.wait();
        eventually("nothing of it runs", || place.is_deserted());
        let begun = Instant::now();
        place.next_token("down");
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(!place.path("ran").exists());
        assert_eq!(place.statuses("down"), ["ok", "lost"]);
    }
}

/// Both at one instant: the lease says who was there, and the next run sees that it is dead.
#[test]
fn a_holder_that_was_killed_together_with_its_keeper_is_lost_to_whoever_asks() {
    let desk = Desk::new();
    desk.site.holder("up", &[]).kill();
    let (code, json) = desk.gate(&["up@any"]);
    assert_eq!((code, &json["upstreams"][0]["status"]), (15, &"lost".into()), "{json}");
    desk.done(&["run", "up", "--", "true"]);
    assert_eq!(desk.gate(&["up@any"]).0, 0);
}

/// The wait belongs to the job's time as well: a signal to stop is handled.
#[test]
fn a_run_that_waits_for_an_upstream_can_be_replaced() {
    let desk = Desk::new();
    let waiting = ["run", "down", "--needs", "up", "--needs-wait", "60s", "--ttl", "2s", "--", "true"];
    let mut first = desk.command(&waiting).spawn().unwrap();
    eventually("it waits", || desk.site.database().exists() && desk.renewals("down").is_some());
    let said = desk.say(&["run", "down", "--overlap", "replace", "-w", "30s", "--", "echo", "replaced"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "replaced\n"), "{said:?}");
    assert_eq!(first.wait().unwrap().code(), Some(112));
}
