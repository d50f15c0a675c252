//! The outcome contract by the real command: exit codes, words and files, cell by cell.

use std::fs;

use crate::common::{Said, contains};
use crate::desk::Desk;
use fencepost_core::ledger::{EndedBy, Status};
use fencepost_testkit::eventually;

/// What a job does with its artifact `out`, which is there from before with the bytes `before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Artifact {
    Undeclared,
    Written,
    SameBytes,
    Untouched,
    Missing,
    TooSmall,
    SomeOfPattern,
    Directory,
    Unreadable,
    Unsteady,
}

impl Artifact {
    const ALL: [Self; 10] = [
        Self::Undeclared,
        Self::Written,
        Self::SameBytes,
        Self::Untouched,
        Self::Missing,
        Self::TooSmall,
        Self::SomeOfPattern,
        Self::Directory,
        Self::Unreadable,
        Self::Unsteady,
    ];

    fn declared(self) -> Option<&'static str> {
        match self {
            Self::Undeclared => None,
            Self::TooSmall => Some("out,min-bytes=10"),
            Self::SomeOfPattern => Some("part.*"),
            _ => Some("out"),
        }
    }

    fn script(self) -> &'static str {
        match self {
            Self::Undeclared | Self::Untouched => "true",
            Self::Written => "echo after > out",
            Self::SameBytes => "printf before > out",
            Self::Missing => "rm out",
            Self::TooSmall => "echo small > out",
            Self::SomeOfPattern => "echo new > part.2",
            Self::Directory => "rm out; mkdir out",
            // Unreadable for every user, root included.
            Self::Unreadable => "rm out; ln -s out out",
            // A process that goes on writing after the job has ended, into a file that takes a while to hash.
            Self::Unsteady => {
                "head -c 64000000 /dev/zero > out; (while echo more; do :; done >> out) 2>/dev/null & echo $! > writer"
            }
        }
    }

    /// What is said of it where the job says nothing of itself.
    fn words(self) -> Option<&'static str> {
        match self {
            Self::Undeclared | Self::Written | Self::SameBytes | Self::SomeOfPattern => None,
            Self::Untouched => Some("/work/out was not written by this run."),
            Self::Missing => Some("/work/out is missing."),
            Self::TooSmall => Some("/work/out is too small: out has 6 bytes, and at least 10 are expected."),
            Self::Directory => Some("/work/out cannot be read: out: is a directory."),
            Self::Unreadable => Some("/work/out cannot be read: "),
            Self::Unsteady => Some("/work/out was still being written when the run had ended: out changed"),
        }
    }

    /// Whether a job may say that it is so on purpose.
    fn may_be_meant(self) -> bool {
        !matches!(self, Self::Directory | Self::Unreadable | Self::Unsteady)
    }

    /// Whether it contradicts that there was nothing. The last good run left `before`.
    fn is_something(self) -> bool {
        matches!(self, Self::Written | Self::TooSmall | Self::SomeOfPattern | Self::Unsteady)
    }
}

/// What the contract says, written down once more: status, exit code, whether fencepost ended it.
fn expected(exit: i32, empty_exit: bool, said: &str, artifact: Artifact) -> (Status, i32, EndedBy) {
    let broken = (Status::Error, 118, EndedBy::Fencepost);
    let is_empty = (exit != 0 && empty_exit) || (exit == 0 && said == "empty");
    match said {
        _ if exit != 0 && !empty_exit => (Status::Error, exit, EndedBy::Child),
        _ if is_empty && artifact.is_something() => broken,
        _ if is_empty => (Status::Empty, 0, EndedBy::Child),
        "error" => (Status::Error, 1, EndedBy::Child),
        "ok" if artifact.may_be_meant() => (Status::Ok, 0, EndedBy::Child),
        _ if artifact.words().is_some() => broken,
        _ => (Status::Ok, 0, EndedBy::Child),
    }
}

/// A desk where the job ended well before, and left `before`.
fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("part.1", "old");
    desk.done(&["run", "job", "--produces", "out", "-c", "printf before > out"]);
    desk
}

fn cell(desk: &Desk, exit: i32, empty_exit: bool, said: &str, artifact: Artifact) -> Said {
    let record = if said.is_empty() { String::new() } else { format!("$BINARY record {said}; ") };
    let script = format!("{}; {record}exit {exit}", artifact.script());
    let mut arguments = vec!["run", "job", "--leave-children"];
    arguments.extend(artifact.declared().iter().flat_map(|path| ["--produces", path]));
    if empty_exit {
        arguments.extend(["--empty-exit", "3"]);
    }
    arguments.extend(["-c", &script]);
    let output = desk.command(&arguments).stdout(fs::File::create(desk.path("stdout")).unwrap()).output().unwrap();
    if let Ok(pid) = desk.read("writer").trim().parse() {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
    Said::of(output)
}

#[test]
fn every_exit_code_and_word_with_an_artifact_that_is_there() {
    every_exit_code_and_word(&Artifact::ALL[..5]);
}

#[test]
fn every_exit_code_and_word_with_an_artifact_that_is_not_as_declared() {
    every_exit_code_and_word(&Artifact::ALL[5..]);
}

fn every_exit_code_and_word(artifacts: &[Artifact]) {
    for &artifact in artifacts {
        for said in ["", "ok", "empty", "error"] {
            for (exit, empty_exit) in [(0, false), (3, false), (3, true)] {
                let desk = desk();
                let empty_code = empty_exit && exit == 3;
                let (status, code, ended_by) = expected(exit, empty_code, said, artifact);
                let cell = cell(&desk, exit, empty_exit, said, artifact);
                let name = format!("{artifact:?}, said {said:?}, exit {exit}, --empty-exit {empty_exit}: {cell:?}");
                let last = desk.last("job");
                assert_eq!((last.status, cell.code, last.ended_by), (status, code, ended_by), "{name}");
                assert_eq!(last.exit_code, Some(exit), "{name}");
                if status == Status::Ok || status == Status::Empty {
                    assert_eq!(cell.stderr, "", "{name}");
                }
                if code == 118 && said != "empty" && !empty_code {
                    contains(&cell.stderr, &["job failed: no output: /", artifact.words().unwrap()]);
                }
                if code == 118 && (said == "empty" || empty_code) {
                    contains(&cell.stderr, &["the job said that there was nothing, but it wrote"]);
                }
                let paths: Vec<&str> = last.artifacts.iter().map(|artifact| artifact.path.as_str()).collect();
                let left: &[&str] = match (status, artifact) {
                    (Status::Ok, Artifact::Undeclared | Artifact::Missing) => &[],
                    (Status::Ok, Artifact::SomeOfPattern) => &["part.2"],
                    (Status::Ok, _) => &["out"],
                    _ => &[],
                };
                assert_eq!(paths, left, "{name}");
            }
        }
    }
}

/// Only the code that was named says that there was nothing.
#[test]
fn other_exit_codes_mean_what_they_mean_without_one_for_nothing() {
    let desk = Desk::new();
    let run = |exit: &str| {
        let said = desk.say(&["run", "job", "--empty-exit", "3", "-c", &format!("exit {exit}")]);
        (said.code, desk.last("job").status)
    };
    assert_eq!(run("0"), (0, Status::Ok));
    assert_eq!(run("3"), (0, Status::Empty));
    assert_eq!(run("4"), (4, Status::Error));
    assert_eq!(desk.say(&["run", "job", "--empty-exit", "0", "--", "true"]).code, 125);
}

#[test]
fn several_artifacts_are_all_needed() {
    let desk = Desk::new();
    let run = |script: &str| desk.say(&["run", "job", "--produces", "a", "--produces", "b,min-bytes=3", "-c", script]);
    assert_eq!(run("echo 1 > a; echo 22 > b").code, 0);
    assert_eq!(desk.last("job").artifacts.len(), 2);
    for (script, words) in [
        ("echo 1 > a", "b was not written by this run"),
        ("echo 22 > b", "a was not written by this run"),
        ("echo 1 > a; echo 2 > b", "b is too small"),
        ("echo 1 > a; echo 22 > b; rm a", "a is missing"),
        (": > a; echo 22 > b", "a is too small: a has 0 bytes, and at least 1 are expected"),
    ] {
        let said = run(script);
        assert_eq!(said.code, 118, "{script}: {said:?}");
        contains(&said.stderr, &[words]);
    }
}

/// A pipe without a writer has no end, and is not waited for.
#[test]
fn what_is_no_file_is_refused_at_once() {
    let desk = Desk::new();
    let said = desk.say(&["run", "job", "--produces", "out", "-c", "mkfifo out"]);
    assert_eq!(said.code, 118);
    contains(&said.stderr, &["not a regular file"]);
    let said = desk.say(&["record", "job", "ok", "--artifact", "out"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert_eq!(desk.say(&["record", "job", "ok", "--artifact", "none"]).code, 2);
    assert_eq!(desk.record("job").ledger.ring.len(), 1);
}

#[test]
fn the_last_word_counts_and_its_note_is_kept() {
    let desk = Desk::new();
    let script = r#"$BINARY record error --note first; $BINARY record empty --note second; $BINARY record job ok --note "the third""#;
    desk.done(&["run", "job", "-c", script]);
    let last = desk.last("job");
    assert_eq!((last.status, last.note.as_deref()), (Status::Ok, Some("the third")));
    let said = desk.say(&["run", "job", "-c", "$BINARY record error --note 'no network'"]);
    assert_eq!(said.code, 1);
    assert_eq!(said.stderr, "fencepost: job failed: no network.\n");
    // A file that the job names itself.
    desk.done(&["run", "job", "-c", "echo x > mine; $BINARY record ok --artifact mine"]);
    assert_eq!(desk.last("job").artifacts[0].path, "mine");
    let said = desk.say(&["run", "job", "-c", "echo x > mine; $BINARY record ok --artifact none || exit 9"]);
    assert_eq!(said.code, 9);
}

/// What stands in the file besides whole lines of this very run.
#[test]
fn torn_and_foreign_lines_are_reported_and_not_trusted() {
    let other = r#"{"v":1,"run":"01a1e1a5-9bf7-74ff-be10-958af934c34b","said":{"recorded":{"word":"error"}}}"#;
    let desk = Desk::new();
    for (line, words) in [
        (other.to_string(), "line 1 is of another run, 01a1e1a5-9bf7-74ff-be10-958af934c34b"),
        (r#"{"v":1,"run":"'$FENCEPOST_RUN'","said":{"recorded":{"word":"err"#.to_string(), "line 1: it is damaged"),
        (r#"{"v":1,"run":"'$FENCEPOST_RUN'","said":{"recorded":{"word":"fine"}}}"#.to_string(), "damaged"),
        (r#"{"v":3,"run":"'$FENCEPOST_RUN'","said":{"recorded":{"word":"error"}}}"#.to_string(), "format 3"),
        ("hello".to_string(), "line 1: it is damaged"),
    ] {
        // A whole line behind it is heard all the same.
        let script =
            format!("mkdir -p \"${{FENCEPOST_OUTCOME%/*}}\"; printf '%s\\n' '{line}' > \"$FENCEPOST_OUTCOME\"");
        let said = desk.say(&["run", "job", "-c", &script]);
        assert_eq!(said.code, 0, "{said:?}");
        contains(&said.stderr, &["what the job wrote about itself is not trusted in part", words]);
        assert_eq!(desk.last("job").status, Status::Ok);
        let said = desk.say(&["run", "job", "-c", &format!("{script}; $BINARY record empty")]);
        assert_eq!((said.code, desk.last("job").status), (0, Status::Empty), "{said:?}");
    }
    // A line without its end, torn by a killed writer, takes the next one with it.
    let script =
        "mkdir -p \"${FENCEPOST_OUTCOME%/*}\"; printf '{\"v\":1,' > \"$FENCEPOST_OUTCOME\"; $BINARY record empty";
    let said = desk.say(&["run", "job", "-c", script]);
    contains(&said.stderr, &["not trusted in part"]);
    // More than anybody has to say.
    let said = desk.say(&["run", "job", "-c", "yes x | head -c 2000000 > \"$FENCEPOST_OUTCOME\" 2>/dev/null || { mkdir -p \"${FENCEPOST_OUTCOME%/*}\"; yes x | head -c 2000000 > \"$FENCEPOST_OUTCOME\"; }"]);
    contains(&said.stderr, &["longer than 1 MiB"]);
    assert!(said.stderr.len() < 5_000, "{} bytes are said of it", said.stderr.len());
    assert_eq!(fs::read_dir(desk.site.state().join("said")).unwrap().count(), 0);
}

/// Many commands of one job speak at once, and none is lost or torn.
#[test]
fn many_say_something_at_one_instant() {
    let desk = Desk::new();
    let script = "for i in $(seq 24); do $BINARY record error --note \"$i of many\" & done; wait; $BINARY record empty";
    let said = desk.say(&["run", "job", "-c", script]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    assert_eq!(desk.last("job").status, Status::Empty);
}

#[test]
fn the_same_bytes_again_and_again_warn() {
    let desk = Desk::new();
    let run = |text: &str| {
        let script = format!("echo {text} > out");
        desk.done(&["run", "job", "--produces", "out", "--stuck-after", "3", "-c", &script]).stderr
    };
    assert_eq!(run("same"), "");
    assert_eq!(run("same"), "");
    contains(&run("same"), &["the very same bytes 3 times in a row", "stuck?"]);
    contains(&run("same"), &["4 times in a row"]);
    assert_eq!(run("other"), "");
    assert_eq!(run("same"), "");
    // An empty run or a failed one in between does not hide it.
    desk.done(&["run", "job", "-c", "$BINARY record empty"]);
    assert_eq!(desk.say(&["run", "job", "-c", "exit 1"]).code, 1);
    assert_eq!(run("same"), "");
    contains(&run("same"), &["3 times in a row"]);
}

#[test]
fn a_word_inside_a_run_needs_no_store_and_no_configuration() {
    let desk = Desk::configured("[job.job]\n");
    let script = r#"mv "$FENCEPOST_STATE_DIR/store.db" away; echo broken > "$FENCEPOST_CONFIG"
                    $BINARY record empty --note "said blind"; echo "code $?"
                    mv away "$FENCEPOST_STATE_DIR/store.db""#;
    let said = desk.say(&["run", "job", "-c", script]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "code 0\n"), "{said:?}");
    let last = Desk::last(&desk, "job");
    assert_eq!((last.status, last.note.as_deref()), (Status::Empty, Some("said blind")));
}

/// A job may record another one by hand, and a job inside a job speaks of itself.
#[test]
fn a_record_inside_a_run_is_of_the_job_that_it_names() {
    let desk = Desk::new();
    let script = r#"$BINARY record other error --note "by hand"
                    $BINARY run inner -c '$BINARY record empty --note inner'
                    $BINARY record ok --note outer"#;
    desk.done(&["run", "outer", "-c", script]);
    let said = |job: &str| {
        let last = desk.last(job);
        (last.status, last.note.unwrap())
    };
    assert_eq!(said("other"), (Status::Error, "by hand".to_string()));
    assert_eq!(said("inner"), (Status::Empty, "inner".to_string()));
    assert_eq!(said("outer"), (Status::Ok, "outer".to_string()));
    // The slot of a run is its own.
    let said = desk.say(&["run", "outer", "-c", "$BINARY record ok --date 2026-01-01"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["Inside a run of outer the slot is the run's own"]);
    // Outside one, a job has to be named.
    assert_eq!(desk.say(&["record", "ok"]).code, 2);
    let said = desk.say(&["record", "job", "emtpy"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["Is it \"empty\"?"]);
}

/// What is left behind may speak as long as it likes: the run has ended.
#[test]
fn a_word_that_comes_too_late_changes_nothing() {
    let desk = Desk::new();
    let script = "(sleep 0.3; $BINARY record error; touch late) >/dev/null 2>&1 & true";
    desk.done(&["run", "job", "--leave-children", "-c", script]);
    eventually("it spoke", || desk.has("late"));
    assert_eq!(desk.last("job").status, Status::Ok);
    desk.done(&["run", "job", "--", "true"]);
    assert_eq!(desk.last("job").status, Status::Ok);
}

/// A lost lease or a time limit overrides any report.
#[test]
fn a_word_does_not_hide_how_the_run_was_ended() {
    let desk = Desk::new();
    let script = "$BINARY record ok; exec sleep 60";
    let said = desk.say(&["run", "job", "--timeout", "500ms", "--produces", "out", "-c", script]);
    assert_eq!((said.code, desk.last("job").status), (124, Status::Timeout), "{said:?}");
}
