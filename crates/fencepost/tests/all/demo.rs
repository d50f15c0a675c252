//! `fencepost demo`: every incident happens without the guard and is prevented with it, and nothing is left behind.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fencepost_testkit::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{BINARY, Said, Site, contains, keys, sorted};

/// A home of its own for one demo: its temporary directory, and a state directory that it must not touch.
struct Demo {
    site: Site,
}

impl Demo {
    fn new() -> Self {
        let site = Site::new();
        fs::create_dir(site.path("tmp")).unwrap();
        Self { site }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command(&[&["demo"], arguments].concat());
        command.env("TMPDIR", self.site.path("tmp"));
        command
    }

    fn say(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().unwrap())
    }

    fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let said = self.say(&[&["--json"], arguments].concat());
        (said.code, serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}")))
    }

    /// What is left in the temporary directory.
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.site.path("tmp")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// The processes that work in the temporary directory or below.
    fn processes(&self) -> Vec<String> {
        processes_in(&self.site.path("tmp"))
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!(self.files(), Vec::<PathBuf>::new());
        assert_eq!(self.processes(), Vec::<String>::new());
        assert!(!self.site.state().exists(), "the demo never touches the user's state directory");
    }
}

fn processes_in(place: &Path) -> Vec<String> {
    let numbers = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let is_number = entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        is_number && fs::read_link(entry.path().join("cwd")).is_ok_and(|directory| directory.starts_with(place))
    });
    numbers.map(|entry| fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default()).collect()
}

#[test]
fn every_incident_happens_without_the_guard_and_is_prevented_with_it() {
    let demo = Demo::new();
    let (code, answer) = demo.json(&[]);
    assert_eq!(code, 0, "{answer}");
    assert_eq!(keys(&answer), sorted("v incidents prevented directory"));
    assert_eq!(answer["prevented"], true);
    assert_eq!(answer["directory"], Value::Null);
    let incidents = answer["incidents"].as_array().unwrap();
    let names: Vec<_> = incidents.iter().map(|incident| incident["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["overtaking", "two-machines", "zombie", "leftovers", "half-done-retry"]);
    for incident in incidents {
        assert_eq!(keys(incident), sorted("incident name title without with prevented"));
        for side in ["without", "with"] {
            assert_eq!(keys(&incident[side]), sorted("happened done result seen"), "{incident}");
        }
        assert_eq!(incident["without"]["happened"], true, "{incident}");
        assert_eq!(incident["with"]["happened"], false, "{incident}");
        assert_eq!(incident["with"]["done"], true, "{incident}");
        assert_eq!(incident["prevented"], true, "{incident}");
    }
    demo.assert_nothing_is_left();
}

#[test]
fn one_incident_alone_leaves_the_files_that_prove_it() {
    let evidence = [
        ("1", "1-overtaking/without/pushes.log", "1-overtaking/with/pushes.log"),
        ("2", "2-two-machines/without/pushes.log", "2-two-machines/with/pushes.log"),
        ("4", "4-leftovers/without/page", "4-leftovers/with/page"),
        ("5", "5-half-done-retry/without/bank.log", "5-half-done-retry/with/bank.log"),
    ];
    for (number, without, with) in evidence {
        let demo = Demo::new();
        let (code, answer) = demo.json(&["--keep", "--incident", number]);
        assert_eq!(code, 0, "{answer}");
        assert_eq!(answer["incidents"].as_array().map(Vec::len), Some(1));
        let kept = PathBuf::from(answer["directory"].as_str().unwrap());
        assert_eq!(demo.files(), [kept.canonicalize().unwrap()]);
        let lines = |name: &str| fs::read_to_string(kept.join(name)).unwrap().lines().count();
        assert_eq!(lines(without), 2, "{without}");
        assert_eq!(lines(with), if number == "4" { 2 } else { 1 }, "{with}");
        assert_eq!(demo.processes(), Vec::<String>::new());
    }
}

#[test]
fn a_kept_zombie_was_refused_at_the_page() {
    let demo = Demo::new();
    let said = demo.say(&["--fast", "--keep", "--incident", "3"]);
    assert_eq!(said.code, 0, "{said:?}");
    let kept = said.stdout.lines().find_map(|line| line.strip_prefix("Kept: ")).map(PathBuf::from).unwrap();
    let page = |side: &str| fs::read_to_string(kept.join("3-zombie").join(side).join("page")).unwrap();
    assert_eq!(page("without"), "report by run 1\n", "the zombie overwrote its successor");
    assert_eq!(page("with"), "report by run 2\n");
    // The store of the guarded side tells the same story.
    let mut why = demo.site.command(&["runs", "--json"]);
    why.env("FENCEPOST_STATE_DIR", kept.join("3-zombie/with/state"));
    let runs = Said::of(why.output().unwrap());
    contains(&runs.stdout, &["\"status\":\"ok\"", "\"status\":\"lost\""]);
}

#[test]
fn in_a_pipe_it_is_plain_text_of_at_most_80_columns() {
    let demo = Demo::new();
    let said = demo.say(&["--fast", "--incident", "1"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    contains(&said.stdout, &["1. Overtaking", "BROKEN: ", "PREVENTED: ", "1 of 1"]);
    assert!(!said.stdout.contains('\x1b'), "{said:?}");
    let is_path = |line: &str| line.contains(demo.site.path("tmp").to_str().unwrap());
    for line in said.stdout.lines().filter(|line| !is_path(line)) {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
    demo.assert_nothing_is_left();
}

#[test]
fn on_a_terminal_it_has_colours_unless_they_are_unwanted() {
    for (no_color, expected) in [("", true), ("1", false)] {
        let demo = Demo::new();
        let pty = nix::pty::openpty(None, None).unwrap();
        let mut command = demo.command(&["--fast", "--incident", "5"]);
        command.env("NO_COLOR", no_color).env("TERM", "xterm").stdout(Stdio::from(pty.slave));
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut text = Vec::new();
        // The end of a terminal is an error (EIO) on Linux.
        let _ = fs::File::from(pty.master).read_to_end(&mut text);
        assert!(child.wait().unwrap().success());
        let text = String::from_utf8(text).unwrap();
        contains(&text, &["BROKEN: ", "PREVENTED: "]);
        assert_eq!(text.contains("\x1b["), expected, "NO_COLOR={no_color:?}: {text:?}");
    }
}

#[test]
fn quiet_says_nothing_and_json_says_one_object() {
    let demo = Demo::new();
    let said = demo.say(&["-q", "--incident", "1"]);
    assert_eq!(said, Said { code: 0, stdout: String::new(), stderr: String::new() });
    let said = demo.say(&["--json", "--incident", "1"]);
    assert_eq!(said.stdout.lines().count(), 1, "{said:?}");
}

#[test]
fn an_incident_that_does_not_exist_is_a_usage_error() {
    let demo = Demo::new();
    for wrong in ["0", "6", "zombie"] {
        let said = demo.say(&["--incident", wrong]);
        assert_eq!(said.code, 2, "{said:?}");
        assert_eq!(said.stdout, "");
    }
    demo.assert_nothing_is_left();
}

#[test]
fn a_temporary_directory_that_is_missing_is_named() {
    let demo = Demo::new();
    let said = Said::of(demo.command(&[]).env("TMPDIR", demo.site.path("nowhere")).output().unwrap());
    assert_eq!(said.code, 125, "{said:?}");
    contains(&said.stderr, &["nowhere", "TMPDIR"]);
    demo.assert_nothing_is_left();
}

/// A signal at any moment, also while the zombie is stopped, leaves no file and no process.
#[test]
fn a_signal_leaves_nothing_behind() {
    let zombie_is_stopped = |demo: &Demo| demo.processes().iter().any(|line| line.contains("fenced-report.sh\x002"));
    let first_runs = |demo: &Demo| !demo.processes().is_empty();
    type Moment = fn(&Demo) -> bool;
    let moments: [(Signal, &str, Moment); 3] = [
        (Signal::SIGINT, "3", zombie_is_stopped),
        (Signal::SIGTERM, "1", first_runs),
        (Signal::SIGHUP, "3", first_runs),
    ];
    for (signal, incident, moment) in moments {
        let demo = Demo::new();
        let mut child = demo.command(&["--incident", incident]).stdout(Stdio::null()).spawn().unwrap();
        eventually("the moment comes", || moment(&demo));
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let code =
            Said::of(std::process::Output { status: child.wait().unwrap(), stdout: Vec::new(), stderr: Vec::new() });
        assert_eq!(code.code, 128 + signal as i32, "{signal}");
        demo.assert_nothing_is_left();
    }
}

/// SIGKILL leaves the directory, but no process outlives the demo: their input ends, and the waker continues the stopped ones.
#[test]
fn a_demo_that_is_killed_leaves_no_process() {
    let demo = Demo::new();
    let mut child = demo.command(&["--incident", "3"]).stdout(Stdio::null()).spawn().unwrap();
    eventually("the zombie is stopped", || demo.processes().iter().any(|line| line.contains("fenced-report.sh\x002")));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("its processes have ended", || demo.processes().is_empty());
}

#[test]
fn the_demo_runs_inside_a_run_and_leaves_its_job_alone() {
    let demo = Demo::new();
    let mut command = demo.site.command(&["run", "outer", "--", BINARY, "demo", "--incident", "1"]);
    let said = Said::of(command.env("TMPDIR", demo.site.path("tmp")).output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    let jobs = demo.site.json(&["status"]);
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "the demo's jobs are in a store of their own: {jobs}");
}
