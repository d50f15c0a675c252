//! Output without a reader, or to a place that cannot be written.

use std::fs::{self, File};
use std::io::{PipeReader, Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Holder, Said, Site, contains, lines};
use fencepost_testkit::eventually;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A full pipe, and its end that is not read.
fn full_pipe() -> (PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    let flags = OFlag::from_bits_truncate(fcntl(&writer, FcntlArg::F_GETFL).unwrap());
    fcntl(&writer, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(flags)).unwrap();
    (reader, writer)
}

#[test]
fn a_job_is_ended_in_time_though_nobody_reads_that_it_is() {
    let site = Site::new();
    let (_reader, writer) = full_pipe();
    let mut run = site.command(&["run", "j", "-v", "--timeout", "200ms", "--grace", "200ms", "--", "sleep", "600"]);
    let mut run = run.stdin(Stdio::null()).stderr(writer).spawn().unwrap();
    eventually("it is recorded", || site.runs(&[]).iter().any(|run| run["status"] == json!("timeout")));
    assert_eq!(run.wait().unwrap().code(), Some(124), "its last words are not waited for without end");
}

#[test]
fn events_that_nobody_reads_keep_no_job_waiting() {
    let site = Site::new();
    let (mut reader, writer) = full_pipe();
    fcntl(&writer, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let sink = format!("fd:{}", writer.as_raw_fd());
    let mut run = site.command(&["run", "j", "--events", &sink, "--", "touch", site.path("ran").to_str().unwrap()]);
    let mut run = run.stdin(Stdio::null()).spawn().unwrap();
    eventually("the job has run", || site.path("ran").exists());
    eventually("it is recorded", || site.runs(&[]).iter().any(|run| run["status"] == json!("ok")));
    // A signal does not cut its patience short.
    std::thread::sleep(Duration::from_millis(200));
    kill(Pid::from_raw(run.id() as i32), Signal::SIGCONT).unwrap();
    drop(writer);
    let mut read = String::new();
    reader.read_to_string(&mut read).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    let events: Vec<Value> = lines(read.trim_start_matches('x'));
    assert_eq!(events.last().unwrap()["event"], "ended", "who reads late misses nothing: {events:?}");
}

#[test]
fn a_lease_is_held_though_only_the_first_line_is_read() {
    let site = Site::new();
    let (reader, writer) = full_pipe();
    let mut hold = site.command(&["lease", "hold", "j", "--ttl", "1s"]);
    let mut hold = hold.stdin(Stdio::piped()).stdout(writer).spawn().unwrap();
    eventually("it is held", || site.json(&["lease", "show", "j"])["held"] == json!(true));
    let until = || site.json(&["lease", "show", "j"])["until"].as_str().map(str::to_string);
    let first = until();
    eventually("it is renewed", || until() > first);
    drop((hold.stdin.take(), reader));
    assert_eq!(hold.wait().unwrap().code(), Some(0));
}

/// Each line goes where the owner's next word goes as well.
#[test]
fn a_descriptor_for_events_is_shared_with_its_owner() {
    let site = Site::new();
    let script =
        r#"exec 3>all; echo before >&3; "$BINARY" run j --events fd:3 -- sh -c 'echo job >&3'; echo after >&3"#;
    let said = Said::of(site.program("sh", &["-c", script]).current_dir(site.path("")).output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    let all = fs::read_to_string(site.path("all")).unwrap();
    let kinds: Vec<&str> = all.lines().map(|line| if line.starts_with('{') { "event" } else { line }).collect();
    assert_eq!((kinds[0], kinds.last()), ("before", Some(&"after")), "{all}");
    assert!(kinds.contains(&"job") && kinds.iter().filter(|kind| **kind == "event").count() >= 3, "{all}");
    for (script, words) in [
        ("exec 3<all; \"$BINARY\" run j --events fd:3 -- true", "open for reading only"),
        ("\"$BINARY\" run j --events fd:77 -- true", "Bad file descriptor"),
    ] {
        let said = Said::of(site.program("sh", &["-c", script]).current_dir(site.path("")).output().unwrap());
        assert_eq!(said.code, 125);
        contains(&said.stderr, &["Cannot write events to fd:", words]);
    }
}

#[test]
fn what_cannot_be_printed_is_a_failure_and_a_lease_nobody_knows_is_given_back() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "j", "--", "true"]).code, 0);
    fs::write(site.path("other.db"), "").unwrap();
    let database = format!("sqlite:{}", site.path("other.db").display());
    for arguments in [
        &["lease", "acquire", "j"][..],
        &["status"],
        &["status", "--json"],
        &["runs", "--json"],
        &["publish", "sql", "--url", &database, "--resource", "r", "--install", "--dry-run"],
    ] {
        let full = File::create("/dev/full").unwrap();
        let said = Said::of(site.command(arguments).stdout(full).output().unwrap());
        assert_eq!(said.code, 125, "{arguments:?}: {said:?}");
        contains(&said.stderr, &["Cannot write to standard output"]);
    }
    assert_eq!(site.json(&["lease", "show", "j"])["held"], false);
    assert_eq!(Holder::start(site.command(&["lease", "hold", "j"])).finish().code, 0);
    let full = File::create("/dev/full").unwrap();
    let said = Said::of(site.command(&["lease", "hold", "j"]).stdout(full).output().unwrap());
    assert_eq!(said.code, 125, "{said:?}");
}
