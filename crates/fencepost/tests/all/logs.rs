//! What configured jobs print is kept: under `up`, and under `run` off a terminal.

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
    let shown = scene.say(&["logs", "news/daily", "--raw"]);
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
    assert_eq!(scene.say(&["logs", "news/daily", "--raw", "--run", &run[..30]]).stdout.len(), 8);
    assert_eq!(scene.say(&["logs", "news/daily", "--raw", "--slot", file["slot"].as_str().unwrap()]).stdout.len(), 8);
    assert_eq!(fs::read_dir(scene.path("state/output")).unwrap().count(), 0, "no pipe is left");
    // A skipped run leaves none, and what is not to be kept is not.
    assert_eq!(scene.say(&["run", "news/daily"]).code, 0);
    assert_eq!(scene.say(&["logs", "news/daily", "--list"]).stdout.lines().count(), 1);
    assert_eq!(scene.say(&["run", "silent"]).stdout, "unkept\n");
    let none = scene.say(&["logs", "silent"]);
    assert_eq!(none.code, 125);
    contains(&none.stderr, &["its configuration says so"]);
    let unknown = scene.say(&["logs", "other"]);
    assert_eq!(unknown.code, 2);
    contains(&unknown.stderr, &["No job other is known"]);
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
    let log = scene.say(&["logs", "long", "--raw"]).stdout;
    assert!(log.len() < 20_200, "{}", log.len());
    contains(
        &log,
        &["\n[fencepost: cut here: no more than 20000 bytes", "[fencepost: 568895 more bytes were not kept]\n"],
    );
    let last = scene.say(&["logs", "long", "--raw", "-n", "1"]);
    assert_eq!(last.stdout, "[fencepost: 568895 more bytes were not kept]\n");
    assert_eq!(scene.say(&["logs", "long", "--raw", "-n", "3"]).stdout.lines().count(), 3);
}

#[test]
fn a_configured_job_off_a_terminal_keeps_its_output_and_a_failure_quotes_the_last_line() {
    let scene = Scene::new(
        "timezone = 'Asia/Tokyo'\n[job.a]\nslot = 'day'\ncommand = 'echo one; printf \"\\033[31mno such\\007 file\\033[0m\\n\" >&2; exit 3'\n\
         [job.quiet]\ncommand = 'true'\n[job.held]\noutput_on_failure = true\ncommand = 'echo held back; exit 4'\n",
    );
    let said = scene.say(&["run", "a", "--events", scene.path("events").to_str().unwrap()]);
    assert_eq!((said.code, said.stdout.as_str()), (3, "one\n"));
    contains(&said.stderr, &["\x1b[31mno such\x07 file", "fencepost: a failed (exit 3). Last output: no such file\n"]);
    let events = scene.read("events");
    let end: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    let mut lines: Vec<&str> = end["last_output"].as_array().unwrap().iter().filter_map(|line| line.as_str()).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["no such file", "one"]);
    // The heading has job, slot, run, host, start and end, in the job's zone.
    let shown = scene.say(&["logs", "a"]).stdout;
    let heading = shown.lines().next().unwrap();
    contains(
        heading,
        &["==> a, slot ", " 00:00:00+09:00, run ", " on ", ", started ", ", error (exit 3) after ", " <=="],
    );
    contains(&shown, &["one\n", "no such"]);
    let why = scene.say(&["why", "a"]).stdout;
    contains(&why, &["The last lines that it printed (fencepost logs a --run ", "\n    no such file\n"]);
    let json: serde_json::Value = serde_json::from_str(&scene.say(&["logs", "a", "--json"]).stdout).unwrap();
    assert_eq!((&json["job"], &json["status"], &json["exit_code"]), (&"a".into(), &"error".into(), &3.into()));
    contains(json["output"].as_str().unwrap(), &["one\n"]);
    // A run that prints nothing leaves no file, and held-back output is quoted too.
    assert_eq!(scene.say(&["run", "quiet"]).code, 0);
    assert!(!scene.path("state/logs/quiet").exists());
    contains(&scene.say(&["run", "held"]).stderr, &["held failed (exit 4). Last output: held back\n"]);
    // A job without a configuration is not logged, also beside a configuration.
    let said = scene.say(&["run", "other", "--", "sh", "-c", "echo hello; exit 5"]);
    contains(&said.stderr, &["other failed (exit 5).\n"]);
    assert_eq!(fs::read_dir(scene.path("state/logs")).unwrap().count(), 2);
}

#[test]
fn both_streams_keep_their_order_if_they_go_to_one_place() {
    let scene = Scene::new("[job.a]\ncommand = 'for n in 1 2 3 4 5 6 7 8; do echo $n; echo $n >&2; done'\n");
    let mut command = scene.site.program("sh", &["-c", "exec \"$BINARY\" run a 2>&1"]);
    let said =
        Said::of(command.current_dir(scene.path("")).env("FENCEPOST_CONFIG", "fencepost.toml").output().unwrap());
    let expected: String = (1..=8).map(|n| format!("{n}\n{n}\n")).collect();
    assert_eq!((said.code, said.stdout), (0, expected.clone()));
    assert_eq!(scene.say(&["logs", "a", "--raw"]).stdout, expected);
}

#[test]
fn a_log_that_cannot_be_written_changes_nothing_about_the_run() {
    let scene = Scene::new(
        "[job.a]\ncommand = 'echo out; exit 3'\nlogs = { directory = '/proc/no/such' }\n[job.b]\ncommand = 'echo out; exit 3'\n",
    );
    // The directory of the pipes cannot be made either.
    fs::create_dir_all(scene.path("state")).unwrap();
    for job in ["a", "b"] {
        let said = scene.say(&["run", job]);
        assert_eq!((said.code, said.stdout.as_str()), (3, "out\n"), "{said:?}");
        contains(&said.stderr, &[&format!("{job} failed (exit 3).")]);
        fs::write(scene.path("state/logs"), "in the way").unwrap();
        let _ = fs::remove_dir_all(scene.path("state/output"));
        fs::write(scene.path("state/output"), "in the way").unwrap();
    }
}

#[test]
fn the_logs_of_a_job_have_a_limit_together() {
    let scene = Scene::new("[logs]\nmax_job_bytes = 25000\n[job.a]\ncommand = 'head -c 10000 /dev/zero'\n");
    for _ in 0..4 {
        assert_eq!(scene.say(&["run", "a"]).code, 0);
    }
    assert_eq!(scene.say(&["logs", "a", "--list"]).stdout.lines().count(), 2);
}

#[test]
fn a_stalled_reader_delays_the_end_of_a_run_only_for_so_long() {
    use std::io::Read;
    let scene = Scene::new("[job.a]\ncommand = 'yes | head -c 1000000'\ntimeout = '1s'\ngrace = '1s'\n");
    let mut child = scene.command(&["run", "a"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = String::new();
    // No reader takes its output: the job stalls, is stopped, and the run ends all the same.
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(124), "{stderr}");
    contains(&stderr, &["it ran longer than its timeout", "Last output: y"]);
}

#[test]
fn output_that_is_held_back_is_kept_all_the_same() {
    let scene = Scene::new("[logs]\n[job.a]\noutput_on_failure = true\ncommand = 'echo out; echo err >&2'\n");
    let said = scene.say(&["run", "a"]);
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("", ""));
    assert_eq!(scene.say(&["logs", "a", "--raw"]).stdout, "out\nerr\n");
}

#[test]
fn under_up_the_output_goes_to_the_log_in_its_order_and_is_followed_to_its_end() {
    let scene = Scene::new(
        "[logs]\nkeep = 1\n[job.a]\nschedule = '*/2 * * * * *'\nttl = '5s'\n\
         command = 'for n in 1 2 3; do echo $n; echo $n >&2; sleep 0.3; done'\n",
    );
    let mut up = scene.plain(&[]);
    eventually("it runs", || scene.say(&["logs", "a", "--list"]).stdout.contains("running"));
    let follower = scene.command(&["logs", "a", "-f", "--raw"]).stdout(Stdio::piped()).spawn().unwrap();
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
             \"$BINARY\" logs long --raw -n 1"
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
