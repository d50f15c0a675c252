//! `fencepost run`: what passes through, what the child is told, and how overlaps end.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Holder, Said, Site, contains, lines, sorted};
use fencepost_testkit::eventually;
use serde_json::json;

/// A store that cannot be opened or created.
const OUT_OF_REACH: &str = "sqlite:/proc/no/such/store.db";

/// Every byte, in no order that a line or a character could survive by luck.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn a_megabyte_passes_in_and_out_byte_for_byte() {
    let site = Site::new();
    let sent = noise(1 << 20);
    let mut command = site.command(&["run", "j", "--", "tee", "/dev/stderr"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(&noise(1 << 20)).unwrap());
        child.wait_with_output().unwrap()
    });
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout == sent, "standard output differs");
    assert!(output.stderr == sent, "standard error differs");
}

#[test]
fn arguments_pass_with_whatever_bytes_they_have() {
    let site = Site::new();
    let words: [&[u8]; 9] = [b"", b" ", b"a b", b"\n", b"\xff\xfe\x80", b"*", b"--", b"-v", b"$HOME'\""];
    let mut command = site.command(&["run", "j", "--", "printf", "%s\\0"]);
    command.args(words.map(OsStr::from_bytes));
    let output = command.output().unwrap();
    let expected: Vec<u8> = words.iter().flat_map(|word| [word, &b"\0"[..]].concat()).collect();
    assert_eq!(output.stdout, expected);
    let script = OsStr::from_bytes(b"printf '%s' '\xff'; echo \"$0\" >&2");
    let output = site.command(&["run", "j", "-c"]).arg(script).output().unwrap();
    assert_eq!((output.stdout, output.stderr), (b"\xff".to_vec(), b"/bin/sh\n".to_vec()));
}

#[test]
fn the_exit_code_passes_through() {
    let site = Site::new();
    for code in [0, 1, 2, 11, 42, 112, 124, 125, 255] {
        let said = site.say(&["run", "j", "-c", &format!("exit {code}")]);
        // One line where it did not end well: cron mails what is printed, and the command printed nothing.
        let line = if code == 0 { String::new() } else { format!("fencepost: j failed (exit {code}).\n") };
        assert_eq!(said, Said { code, stdout: String::new(), stderr: line });
        let quiet = site.say(&["run", "j", "-q", "-c", &format!("exit {code}")]);
        assert_eq!(quiet, Said { code, stdout: String::new(), stderr: String::new() });
        let last = &site.runs(&["-n", "1"])[0];
        let status = if code == 0 { "ok" } else { "error" };
        assert_eq!((&last["exit_code"], &last["status"]), (&json!(code), &json!(status)));
        assert_eq!(last["ended_by"], "child");
    }
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("HUP", 129), ("SEGV", 139)] {
        let said = site.say(&["run", "j", "-c", &format!("kill -{signal} $$")]);
        let stderr = format!("fencepost: j failed (exit {code}).\n");
        assert_eq!(said, Said { code, stdout: String::new(), stderr });
        assert_eq!(site.runs(&["-n", "1"])[0]["exit_code"], code);
    }
}

#[test]
fn what_cannot_be_run_is_named() {
    let site = Site::new();
    let script = site.path("job.sh");
    fs::write(&script, "echo hello\n").unwrap();
    let script = script.to_str().unwrap();
    let said = site.say(&["run", "j", "--", "no-such-command"]);
    assert_eq!(said.code, 127);
    contains(&said.stderr, &["j: ", "\"no-such-command\"", "PATH"]);
    let said = site.say(&["run", "j", "--", "/no/such/command"]);
    assert_eq!(said.code, 127);
    contains(&said.stderr, &["\"/no/such/command\"", "No such file"]);
    let said = site.say(&["run", "j", "--", script]);
    assert_eq!(said.code, 126);
    contains(&said.stderr, &[script, "Permission denied", "chmod +x"]);
    site.shell(&format!("chmod +x {script}"));
    let said = site.say(&["run", "j", "--", script]);
    assert_eq!(said.stdout, "hello\n", "a script without a first line is run by sh, as a shell does");
    fs::write(script, "#!/no/such/interpreter\n").unwrap();
    let said = site.say(&["run", "j", "--", script]);
    assert_eq!(said.code, 127);
    contains(&said.stderr, &[script, "interpreter"]);
    let said = site.say(&["run", "j", "--", "ls -l"]);
    assert_eq!(said.code, 127);
    contains(&said.stderr, &["\"ls -l\"", "-c"]);
    let last = &site.runs(&["-n", "1"])[0];
    assert_eq!((&last["status"], &last["ended_by"]), (&json!("error"), &json!("fencepost")));
    assert_eq!(site.job("j")["holder"], json!(null));
}

/// The command is looked for where the job's own PATH says, past what is no directory, not there or not executable.
#[test]
fn a_command_is_looked_for_as_a_shell_does() {
    let site = Site::new();
    for (directory, mode) in [("first", "644"), ("second", "755"), ("third", "755")] {
        fs::create_dir(site.path(directory)).unwrap();
        let script = site.path(directory).join("greet");
        fs::write(&script, format!("#!/bin/sh\necho {directory}\n")).unwrap();
        site.shell(&format!("chmod {mode} {}", script.display()));
    }
    let path = |directories: &[&str]| {
        let directories = directories.iter().map(|name| site.path(name).display().to_string());
        directories.chain(["/usr/bin:/bin".to_string()]).collect::<Vec<_>>().join(":")
    };
    let greet = |directories: &[&str]| {
        let mut command = site.command(&["run", "j", "--", "greet"]);
        Said::of(command.env("PATH", path(directories)).output().unwrap())
    };
    assert_eq!(greet(&["first", "second", "third"]).stdout, "second\n");
    assert_eq!(greet(&["none", "first/greet", "third", "second"]).stdout, "third\n");
    let said = greet(&["first", "none"]);
    assert_eq!(said.code, 126, "{said:?}");
    contains(&said.stderr, &["Permission denied"]);
    let said = greet(&["none"]);
    assert_eq!(said.code, 127, "{said:?}");
}

#[test]
fn the_child_is_told_its_run_and_no_password() {
    let site = Site::new();
    let script = "env | grep ^FENCEPOST_ | sort";
    let mut command = site.command(&["run", "a/b", "-c", script]);
    command
        .env_remove("FENCEPOST_CONFIG")
        .env("FENCEPOST_STORE_PASSWORD", "s3cret")
        .env("FENCEPOST_TOKEN", "7")
        .env("FENCEPOST_JOB", "other");
    let said = Said::of(command.output().unwrap());
    let told: Vec<(&str, &str)> = said.stdout.lines().filter_map(|line| line.split_once('=')).collect();
    let names: Vec<&str> = told.iter().map(|(name, _)| name.trim_start_matches("FENCEPOST_")).collect();
    let expected = "JOB RUN TOKEN SLOT DATE TRIGGER LATE_SECONDS KEY STORE STORE_ID OUTCOME STATE_DIR TZ";
    assert_eq!(names, sorted(expected), "{said:?}");
    let value = |name: &str| told.iter().find(|(told, _)| told.ends_with(name)).unwrap().1;
    let last = &site.runs(&[])[0];
    assert_eq!(value("_JOB"), "a/b");
    assert_eq!(json!(value("_RUN")), last["run"]);
    assert_eq!(json!(value("_TOKEN").parse::<u64>().unwrap()), last["token"]);
    assert_eq!(json!(value("_SLOT")), last["slot"]);
    assert_eq!(json!(value("_DATE")), last["date"]);
    assert_eq!(value("_TRIGGER"), "manual");
    assert_eq!(value("_LATE_SECONDS"), "0");
    assert_eq!(value("_KEY"), format!("a/b/{}", value("_SLOT")));
    assert_eq!(value("_STORE"), format!("sqlite:{}", site.database().display()));
    assert_eq!(value("_STORE_ID").len(), 36);
}

/// What the job finds is what it would find without us: signals, descriptors, directory, mask.
#[test]
fn the_child_starts_as_it_would_alone() {
    let site = Site::new();
    let script = "grep -E 'SigIgn|SigBlk|Umask|Groups' /proc/self/status; ls /proc/self/fd; pwd; ulimit -a";
    let alone = site.shell(script);
    let guarded = site.say(&["run", "j", "-c", script]);
    assert_eq!(guarded.stdout, alone.stdout);
}

/// The wrapper is slowed down, so that the job runs before its wrapper has heard that it does.
#[test]
fn a_signal_reaches_a_job_that_has_only_just_been_started() {
    let site = Site::new();
    let script = "trap 'exit 9' USR1; read -r _ _ _ wrapper _ </proc/$PPID/stat; kill -USR1 $wrapper; \
                  while :; do sleep 0.05; done";
    let slowly = ["-o", "/dev/null", "-e", "trace=recvfrom", "-e", "inject=recvfrom:delay_enter=200000"];
    let mut command = site.program("strace", &slowly);
    command.args([crate::common::BINARY, "run", "j", "--timeout", "30s", "-c", script]);
    let said = Said::of(command.output().unwrap_or_else(|error| {
        panic!("strace, which slows the wrapper down, cannot be run: {error}. Install it, for example: apt-get install strace")
    }));
    assert_eq!(said.code, 9, "{said:?}");
}

#[test]
fn a_relative_store_means_the_same_to_the_child_wherever_it_goes() {
    let site = Site::new();
    let script = r#"cd /; "$BINARY" lease acquire inner >/dev/null; echo "$FENCEPOST_STORE""#;
    let mut command = site.command(&["run", "outer", "--store", "sqlite:a.db", "-c", script]);
    fs::create_dir(site.path("work")).unwrap();
    let said = Said::of(command.current_dir(site.path("work")).output().unwrap());
    assert_eq!(said.stdout.trim(), format!("sqlite:{}", site.path("work/a.db").display()), "{said:?}");
    let store = format!("sqlite:{}", site.path("work/a.db").display());
    assert_eq!(site.json(&["lease", "show", "inner", "--store", &store])["held"], true);
}

#[test]
fn a_run_inside_a_run_of_the_same_job_is_an_error_and_of_another_job_is_not() {
    let site = Site::new();
    let said = site.say(&["run", "outer", "-c", r#""$BINARY" run outer -w 1m -- echo inner"#]);
    assert_eq!((said.code, said.stdout.as_str()), (125, ""));
    contains(&said.stderr, &["outer was started from inside its own run", "another job name"]);
    let within = r#""$BINARY" run inner -- "$BINARY" run outer --overlap replace -w 1m -- true"#;
    let said = site.say(&["run", "outer", "-c", within]);
    assert_eq!(said.code, 125, "also where another job is in between: {said:?}");
    contains(&said.stderr, &["outer was started from inside its own run"]);
    let within = r#"token=$("$BINARY" lease acquire other)
        "$BINARY" publish exec --job other --token "$token" --resource r -- "$BINARY" run outer -w 1m -- true"#;
    let said = site.say(&["run", "outer", "-c", within]);
    assert_eq!(said.code, 125, "or a publish by hand: {said:?}");
    let said = site.say(&["run", "outer", "-c", r#""$BINARY" run inner -c 'echo $FENCEPOST_JOB'"#]);
    assert_eq!(said, Said { code: 0, stdout: "inner\n".to_string(), stderr: String::new() });
}

#[test]
fn held_is_exit_0_at_once_and_silent_unless_asked() {
    let site = Site::new();
    let holder = site.holder("j", &[]);
    let skip = |options: &[&str]| site.say(&[&["run", "j"], options, &["--", "echo", "ran"]].concat());
    let silent = |code| Said { code, stdout: String::new(), stderr: String::new() };
    assert_eq!(skip(&[]), silent(0));
    assert_eq!(skip(&["-q"]), silent(0));
    assert_eq!(skip(&["-E", "75"]), silent(75));
    assert_eq!(skip(&["--skip-exit=75", "-q"]), silent(75));
    let said = skip(&["-v"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, ""));
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let pid = format!("pid {}", holder.pid());
    contains(&said.stderr, &["j skipped: it is held by", &host, &pid, ", since 2", "until 2"]);
    let begun = Instant::now();
    let said = skip(&["-w", "1s", "-v", "-E", "75"]);
    assert_eq!((said.code, said.stdout.as_str()), (75, ""));
    assert!(begun.elapsed() >= Duration::from_secs(1), "it waited");
    contains(&said.stderr, &["waiting", "skipped"]);
    let job = site.job("j");
    assert_eq!(job["counts"], json!({ "skipped_overlap": 6 }));
    assert_eq!(job["streak"], json!({ "status": "skipped_overlap", "count": 6 }));
    assert_eq!(holder.finish().code, 0);
    assert_eq!(site.job("j")["counts"], json!({ "ok": 1, "skipped_overlap": 6 }));
}

#[test]
fn a_run_that_waits_runs_when_the_holder_is_through() {
    let site = Site::new();
    let holder = site.holder("j", &[]);
    let token = holder.token();
    let mut command = site.command(&["run", "j", "-w", "5m", "-v", "-c", "echo $FENCEPOST_TOKEN"]);
    let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(holder.finish().code, 0);
    let said = Said::of(waiting.wait_with_output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.trim().parse::<u64>().unwrap() > token, "{said:?}");
    assert_eq!(site.job("j")["counts"], json!({ "ok": 2 }));
}

#[test]
fn replace_ends_the_holder_long_before_its_next_renewal_and_takes_its_place() {
    let site = Site::new();
    let holder = site.holder("j", &["--ttl", "1h"]);
    let token = holder.token();
    let begun = Instant::now();
    let said = site.say(&["run", "j", "--overlap", "replace", "-c", "echo $FENCEPOST_TOKEN"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(said.stdout.trim().parse::<u64>().unwrap() > token, "{said:?}");
    // The next renewal was 20 minutes away.
    assert!(begun.elapsed() < Duration::from_secs(60));
    let said = holder.wait();
    assert_eq!(said.code, 112);
    contains(&said.stderr, &["j: lease lost", "asked it to stop and hand over"]);
    let runs = site.runs(&[]);
    assert_eq!((&runs[0]["status"], &runs[1]["status"]), (&json!("ok"), &json!("lost")));
    contains(runs[1]["note"].as_str().unwrap(), &["replaced by run", runs[0]["run"].as_str().unwrap()]);
}

#[test]
fn a_timeout_is_124_and_its_own_status() {
    let site = Site::new();
    let said = site.say(&["run", "j", "--timeout", "200ms", "--", "sleep", "600"]);
    assert_eq!((said.code, said.stdout.as_str()), (124, ""));
    contains(&said.stderr, &["j: it ran longer than its timeout", "--timeout"]);
    let last = &site.runs(&[])[0];
    assert_eq!((&last["status"], &last["ended_by"]), (&json!("timeout"), &json!("fencepost")));
    // A job that does not listen is killed after the grace.
    let deaf = "trap '' TERM; while :; do sleep 1; done";
    let said = site.say(&["run", "j", "--timeout", "200ms", "--grace", "200ms", "-c", deaf]);
    assert_eq!(said.code, 124);
    assert_eq!(site.job("j")["counts"], json!({ "timeout": 2 }));
}

#[test]
fn a_job_per_host_is_apart_from_the_shared_one() {
    let site = Site::new();
    let shared = site.holder("j", &[]);
    let own = site.holder("j", &["--per-host"]);
    assert_eq!(site.say(&["run", "j", "--per-host", "--", "echo", "ran"]).stdout, "");
    let status = site.json(&["status", "j"]);
    let names: Vec<&str> = status["jobs"].as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2);
    assert_eq!(names[0], "j");
    assert!(names[1].starts_with("j@"), "{names:?}");
    assert_eq!((shared.finish().code, own.finish().code), (0, 0));
}

/// Everything under the state directory except SQLite's shared memory, which is no content.
fn content(site: &Site) -> Vec<(String, Vec<u8>)> {
    let listed = site.shell("cd \"$FENCEPOST_STATE_DIR\" && find . -type f ! -name '*-shm' | sort");
    let read = |name: &str| (name.to_string(), fs::read(site.state().join(name)).unwrap());
    listed.stdout.lines().map(read).collect()
}

#[test]
fn a_dry_run_touches_nothing() {
    let site = Site::new();
    let ran = site.path("ran");
    let dry = |options: &[&str]| {
        site.say(&[&["run", "j", "--dry-run"], options, &["--", "touch", ran.to_str().unwrap()]].concat())
    };
    let said = dry(&[]);
    assert_eq!((said.code, said.stdout.starts_with("j would run for the slot ")), (0, true), "{said:?}");
    assert!(!site.state().exists(), "a store was made");
    let url = format!("sqlite:{}", site.path("a/b.db").display());
    assert_eq!(dry(&["--store", &url]).code, 0);
    assert!(!site.path("a").exists(), "a store was made");

    let holder = site.holder("j", &[]);
    let before = content(&site);
    let said = dry(&["-E", "75"]);
    assert_eq!(said.code, 75);
    contains(&said.stdout, &["j would be skipped: it is held by", &format!("pid {}", holder.pid())]);
    assert_eq!(dry(&["--overlap", "replace", "-w", "1h"]).code, 0);
    assert!(content(&site) == before, "the store was changed");
    holder.kill();
    contains(&dry(&[]).stdout, &["j would run", "did not end properly"]);
    assert!(!ran.exists());
    assert_eq!(site.say(&["run", "j", "--dry-run"]).code, 125, "a mistake is one in a dry run too");
}

#[test]
fn events_are_json_lines_and_the_last_says_who_ended_it() {
    let site = Site::new();
    let file = site.path("events");
    let events = |options: &[&str], command: &[&str]| {
        let _ = fs::remove_file(&file);
        let file = file.to_str().unwrap();
        let said = site.say(&[&["run", "j", "--events", file], options, &["--"], command].concat());
        let events = lines(&fs::read_to_string(file).unwrap());
        for event in &events {
            assert_eq!((&event["v"], &event["job"]), (&json!(1), &json!("j")), "{event}");
            assert!(event["at"].is_string() && event["run"].is_string(), "{event}");
        }
        let last = events.last().unwrap().clone();
        assert_eq!((&last["event"], &last["exit_code"]), (&json!("ended"), &json!(said.code)), "{last}");
        let names: Vec<String> = events.iter().map(|event| event["event"].as_str().unwrap().to_string()).collect();
        (names.join(" "), last["status"].as_str().unwrap().to_string(), last["ended_by"].as_str().unwrap().to_string())
    };
    let is = |(names, status, by): (String, String, String), expected: (&str, &str, &str)| {
        assert_eq!((names.as_str(), status.as_str(), by.as_str()), expected);
    };
    is(events(&[], &["true"]), ("claimed spawned ended", "ok", "child"));
    is(events(&[], &["false"]), ("claimed spawned ended", "error", "child"));
    is(events(&[], &["/no/such/command"]), ("claimed ended", "error", "fencepost"));
    let timeout = events(&["--timeout", "100ms"], &["sleep", "600"]);
    is(timeout, ("claimed spawned stopping ended", "timeout", "fencepost"));
    let holder = site.holder("j", &[]);
    is(events(&[], &["true"]), ("ended", "skipped_overlap", "fencepost"));
    is(events(&["-w", "200ms"], &["true"]), ("waiting ended", "skipped_overlap", "fencepost"));
    drop(holder);
    let foreign = site.path("foreign.db");
    fs::write(&foreign, "no database at all").unwrap();
    let store = format!("sqlite:{}", foreign.display());
    is(events(&["--store", &store], &["true"]), ("ended", "error", "fencepost"));
    let anyway = events(&["--store", OUT_OF_REACH, "--on-store-error", "run"], &["true"]);
    is(anyway, ("without_lease spawned ended", "ok", "child"));

    let said = site.shell(r#""$BINARY" run k --events fd:3 -c 'echo noise' 3>&1 >/dev/null"#);
    let events = lines(&said.stdout);
    assert_eq!((events.len(), &events[2]["event"]), (3, &json!("ended")), "{said:?}");
    // A reader that has gone does not disturb the job.
    let said = site.shell(r#"{ sleep 0.1; "$BINARY" run k --events fd:3 -- echo ran 3>&1 >&4 | :; } 4>&1"#);
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("ran\n", ""));
}

/// A killed run leaves its output behind, for a while.
#[test]
fn output_that_was_left_behind_is_removed_when_it_is_old() {
    let site = Site::new();
    site.shell("mkdir -p \"$FENCEPOST_STATE_DIR/output\"; cd \"$FENCEPOST_STATE_DIR/output\"; touch new; touch -d '59 days ago' late; touch -d '61 days ago' old");
    assert_eq!(site.say(&["run", "j", "--output-on-failure", "--", "true"]).code, 0);
    let left: Vec<_> = fs::read_dir(site.path("state/output")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(left.len() == 2 && !left.contains(&"old".into()), "{left:?}");
}

#[test]
fn output_is_held_back_until_it_fails_and_leaves_no_file() {
    let site = Site::new();
    let run = |options: &[&str], script: &str| {
        let said = site.say(&[&["run", "j", "--output-on-failure"], options, &["-c", script]].concat());
        assert_eq!(fs::read_dir(site.path("state/output")).unwrap().count(), 0, "a file is left");
        said
    };
    assert_eq!(run(&[], "echo out; echo err >&2"), Said { code: 0, stdout: String::new(), stderr: String::new() });
    let said = run(&[], "echo out; echo err >&2; exit 3");
    assert_eq!(
        said,
        Said { code: 3, stdout: "out\n".to_string(), stderr: "err\nfencepost: j failed (exit 3).\n".to_string() }
    );
    let said = run(&["--timeout", "300ms"], "echo out; sleep 600");
    assert_eq!((said.code, said.stdout.as_str()), (124, "out\n"));
    assert_eq!(
        site.shell(r#""$BINARY" run j --output-on-failure -c 'head -c 1000000 /dev/zero; exit 1' | wc -c"#)
            .stdout
            .trim(),
        "1000000"
    );
    let holder = site.holder("j", &[]);
    assert_eq!(run(&["-E", "75"], "echo out"), Said { code: 75, stdout: String::new(), stderr: String::new() });
    drop(holder);
}

#[test]
fn a_holder_that_was_killed_is_taken_over_at_once_and_recorded_as_lost() {
    let site = Site::new();
    let holder = site.holder("j", &["--ttl", "1h"]);
    let token = holder.token();
    let run = site.job("j")["holder"]["run"].clone();
    holder.kill();
    assert_eq!(site.job("j")["holder"], json!(null));
    let begun = Instant::now();
    let said = site.say(&["run", "j", "-v", "-c", "echo $FENCEPOST_TOKEN"]);
    assert!(begun.elapsed() < Duration::from_secs(60), "the lease had an hour to go");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.trim().parse::<u64>().unwrap() > token, "{said:?}");
    contains(&said.stderr, &["did not end properly", run.as_str().unwrap(), "its processes died"]);
    let runs = site.runs(&[]);
    assert_eq!((&runs[1]["run"], &runs[1]["status"], &runs[1]["token"]), (&run, &json!("lost"), &json!(token)));
    assert_eq!((&runs[0]["status"], &runs[1]["ended_by"]), (&json!("ok"), &json!("fencepost")));
}

#[test]
fn a_corrupt_store_is_125_and_left_as_it_is() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "j", "--", "true"]).code, 0);
    for name in ["store.db-wal", "store.db-shm"] {
        let _ = fs::remove_file(site.state().join(name));
    }
    let garbage = noise(8192);
    fs::write(site.database(), &garbage).unwrap();
    for typed in [&["run", "j", "--", "echo", "ran"][..], &["status"], &["runs"], &["lease", "acquire", "j"]] {
        let said = site.say(typed);
        assert_eq!((said.code, said.stdout.as_str()), (125, ""), "{typed:?}: {said:?}");
        contains(&said.stderr, &[site.database().to_str().unwrap()]);
    }
    let said = site.say(&["run", "j", "--on-store-error", "run", "--", "echo", "ran"]);
    assert_eq!((said.code, said.stdout.as_str()), (125, ""), "it can be reached, and may hold a lease");
    assert!(fs::read(site.database()).unwrap() == garbage, "it was changed");
}

#[test]
fn a_store_out_of_reach_is_125_unless_asked_to_run_without() {
    let site = Site::new();
    let run = |options: &[&str]| {
        let script = "echo ran ${FENCEPOST_TOKEN-without}; exit 3";
        site.say(&[&["run", "j", "--store", OUT_OF_REACH], options, &["-c", script]].concat())
    };
    let said = run(&[]);
    assert_eq!((said.code, said.stdout.as_str()), (125, ""));
    contains(&said.stderr, &["/proc/no/such"]);
    let said = run(&["--on-store-error", "run"]);
    assert_eq!((said.code, said.stdout.as_str()), (3, "ran without\n"));
    contains(&said.stderr, &["WITHOUT a lease", "Nothing keeps another run away"]);
}

#[test]
fn a_place_that_is_not_text_is_refused_rather_than_mistaken() {
    let site = Site::new();
    let odd = OsStr::from_bytes(b"/tmp/\xff");
    for name in ["FENCEPOST_STORE", "FENCEPOST_STATE_DIR"] {
        let said = Said::of(site.command(&["run", "j", "--", "echo", "ran"]).env(name, odd).output().unwrap());
        assert_eq!((said.code, said.stdout.as_str()), (125, ""), "{name}");
        contains(&said.stderr, &[name]);
    }
}

#[test]
fn a_lease_taken_away_by_force_ends_the_run_with_112() {
    let site = Site::new();
    let mut holder = site.holder("j", &["--ttl", "2s"]);
    let said = site.say(&["lease", "release", "j", "--force"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    eventually("the run was stopped", || !holder.is_running());
    let said = holder.wait();
    assert_eq!(said.code, 112);
    contains(&said.stderr, &["j: lease lost"]);
    let last = &site.runs(&[])[0];
    assert_eq!(last["status"], "lost");
    contains(last["note"].as_str().unwrap(), &["released by force"]);
}

/// On this host the holder need not wait for its next renewal, here 20 minutes away.
#[test]
fn a_holder_on_this_host_hears_of_a_release_by_force_at_once() {
    let site = Site::new();
    let mut holder: Holder = site.holder("j", &["--ttl", "1h"]);
    assert_eq!(site.say(&["lease", "release", "j", "--force"]).code, 0);
    eventually("the run was stopped", || !holder.is_running());
    assert_eq!(holder.wait().code, 112);
}
