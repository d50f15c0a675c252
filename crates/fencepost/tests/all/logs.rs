//! What jobs print is kept: under `up` always, under `run` where it is configured.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::common::{Said, contains};
use crate::up::scene::Scene;
use fencepost_testkit::eventually;
use nix::sys::signal::Signal;

#[test]
fn a_run_prints_as_ever_and_what_it_printed_is_kept() {
    let scene = Scene::new(
        "[logs]\n[job.'news/daily']\nslot = 'day'\ncommand = 'echo out; echo err >&2'\n\
         [job.silent]\ncommand = 'echo unkept'\nlogs = false\n",
    );
    let said = scene.say(&["run", "news/daily"]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "out\n", "err\n"));
    let shown = scene.say(&["logs", "news/daily"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let mut lines: Vec<&str> = shown.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["err", "out"]);
    // Private, under a name that no job name can leave.
    let listed = scene.say(&["logs", "news/daily", "--list", "--json"]);
    let file: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let path = file["path"].as_str().unwrap();
    assert!(path.starts_with(scene.path("state/logs").to_str().unwrap()), "{path}");
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(file["running"], false);
    let run = file["run"].as_str().unwrap();
    assert_eq!(scene.say(&["logs", "news/daily", "--run", &run[..30]]).stdout.len(), 8);
    assert_eq!(scene.say(&["logs", "news/daily", "--slot", file["slot"].as_str().unwrap()]).stdout.len(), 8);
    assert_eq!(fs::read_dir(scene.path("state/output")).unwrap().count(), 0, "no pipe is left");
    // A skipped run leaves none, and what is not to be kept is not.
    assert_eq!(scene.say(&["run", "news/daily"]).code, 0);
    assert_eq!(scene.say(&["logs", "news/daily", "--list"]).stdout.lines().count(), 1);
    assert_eq!(scene.say(&["run", "silent"]).stdout, "unkept\n");
    let none = scene.say(&["logs", "silent"]);
    assert_eq!(none.code, 125);
    contains(&none.stderr, &["its configuration says so"]);
    contains(&scene.say(&["logs", "other"]).stderr, &["There is no log of other"]);
}

#[test]
fn a_long_log_is_cut_and_says_so_while_the_job_goes_on() {
    let scene =
        Scene::new("[logs]\nmax_bytes = 20000\nkeep = 3\n[job.long]\ncommand = 'seq 1 100000 && echo >> ended'\n");
    for _ in 0..5 {
        let said = scene.say(&["run", "long"]);
        assert_eq!((said.code, said.stdout.lines().count()), (0, 100_000), "what is printed is whole");
    }
    assert_eq!(scene.read("ended").lines().count(), 5);
    let listed = scene.say(&["logs", "long", "--list"]);
    assert_eq!(listed.stdout.lines().count(), 3, "{}", listed.stdout);
    let log = scene.say(&["logs", "long"]).stdout;
    assert!(log.len() < 20_200, "{}", log.len());
    contains(
        &log,
        &["\n[fencepost: cut here: no more than 20000 bytes", "[fencepost: 568895 more bytes were not kept]\n"],
    );
    let last = scene.say(&["logs", "long", "-n", "1"]);
    assert_eq!(last.stdout, "[fencepost: 568895 more bytes were not kept]\n");
    assert_eq!(scene.say(&["logs", "long", "-n", "3"]).stdout.lines().count(), 3);
}

#[test]
fn output_that_is_held_back_is_kept_all_the_same() {
    let scene = Scene::new("[logs]\n[job.a]\noutput_on_failure = true\ncommand = 'echo out; echo err >&2'\n");
    let said = scene.say(&["run", "a"]);
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("", ""));
    assert_eq!(scene.say(&["logs", "a"]).stdout, "out\nerr\n");
}

#[test]
fn under_up_the_output_goes_to_the_log_in_its_order_and_is_followed_to_its_end() {
    let scene = Scene::new(
        "[logs]\nkeep = 1\n[job.a]\nschedule = '*/2 * * * * *'\nttl = '5s'\n\
         command = 'for n in 1 2 3; do echo $n; echo $n >&2; sleep 0.3; done'\n",
    );
    let mut up = scene.plain(&[]);
    eventually("it runs", || scene.say(&["logs", "a", "--list"]).stdout.contains("running"));
    let follower = scene.command(&["logs", "a", "-f"]).stdout(Stdio::piped()).spawn().unwrap();
    let said = follower.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "1\n1\n2\n2\n3\n3\n");
    eventually("it ran twice more, and old logs went", || up.count(" a ok ") > 2);
    up.send(Signal::SIGTERM);
    assert_eq!(up.wait(), 0);
    assert!(!up.stdout().contains("\n1\n"), "{}", up.stdout());
    assert_eq!(scene.say(&["logs", "a", "--list"]).stdout.lines().count(), 1);
}

#[test]
fn a_disk_without_room_keeps_no_job_from_running() {
    let scene = Scene::new("[logs]\ndirectory = 'full'\n[job.a]\ncommand = 'seq 1 200000; echo >> ended'\n");
    // No log can be made where a file is in the way.
    fs::write(scene.path("full"), "").unwrap();
    let said = scene.say(&["run", "a"]);
    assert_eq!((said.code, said.stdout.lines().count()), (0, 200_000));
    assert_eq!(scene.read("ended"), "\n");
}

/// A log and the store on one small disk, and a log on a disk of its own.
#[test]
fn a_log_that_fills_its_disk_does_not_keep_the_end_of_a_run_from_being_recorded() {
    for (disk, store) in [("state", "state/store.db"), ("state/logs", "shared/store.db")] {
        let scene = Scene::new("[logs]\n[job.long]\ncommand = 'yes | head -c 8000000'\n");
        fs::create_dir_all(scene.path(disk)).unwrap();
        let script = format!(
            "mount -t tmpfs -o size=4m,mode=700 none {disk} && touch mounted || exit 99
             export FENCEPOST_CONFIG=fencepost.toml FENCEPOST_STORE=sqlite:{store}
             \"$BINARY\" run long | wc -c
             \"$BINARY\" runs long --json
             \"$BINARY\" logs long -n 1"
        );
        let mut command = scene.site.program("unshare", &["-m", "sh", "-c", &script]);
        let said = Said::of(command.current_dir(scene.path("")).output().unwrap());
        if !scene.path("mounted").exists() {
            return println!("skipped: mounting needs root: {said:?}");
        }
        let [printed, run, last] = said.stdout.lines().collect::<Vec<_>>()[..] else { panic!("{disk}: {said:?}") };
        assert_eq!(printed.trim(), "8000000", "what is printed is whole");
        let run: serde_json::Value = serde_json::from_str(run).unwrap();
        assert_eq!((&run["status"], &run["exit_code"]), (&"ok".into(), &0.into()), "{disk}: {said:?}");
        contains(last, &["[fencepost: cut here: ", " bytes could not be written: "]);
    }
}
