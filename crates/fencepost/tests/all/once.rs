//! `fencepost once`: one effect or an unknown one, never two.

use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{BINARY, Holder, Said, Site, contains, keys, sorted};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const KEY: &str = "invoices/2026-11/alice";

/// A command that has its effect, at once and as a whole: a line in a file.
fn effect(site: &Site) -> String {
    format!("echo \"$FENCEPOST_KEY\" >> {}", site.path("effects").display())
}

fn effects(site: &Site) -> usize {
    fs::read_to_string(site.path("effects")).unwrap_or_default().lines().count()
}

fn once(site: &Site, options: &[&str], script: &str) -> Said {
    site.say(&[&["once", KEY], options, &["-c", script]].concat())
}

/// What `--json` prints.
fn shown(said: &Said) -> Value {
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

/// An attempt that died between its effect and its record.
fn dead(site: &Site) {
    let script = format!("{}; echo done; exec cat >/dev/null", effect(site));
    Holder::start(site.command(&["once", KEY, "-c", &script])).kill();
    assert_eq!(effects(site), 1);
}

#[test]
fn what_is_done_is_not_done_again() {
    let site = Site::new();
    for replayed in [false, true, true] {
        let said = once(&site, &["--json"], &effect(&site));
        assert_eq!(said.code, 0, "{said:?}");
        let shown = shown(&said);
        assert_eq!(keys(&shown), sorted("v key state exit_code replayed"));
        assert_eq!(shown, json!({ "v": 1, "key": KEY, "state": "done", "exit_code": 0, "replayed": replayed }));
    }
    assert_eq!(fs::read_to_string(site.path("effects")).unwrap(), format!("{KEY}\n"));
}

#[test]
fn what_failed_by_itself_may_be_tried_again() {
    let site = Site::new();
    let said = once(&site, &["--json"], "exit 3");
    assert_eq!((said.code, &shown(&said)["state"]), (3, &json!("failed")));
    let said = once(&site, &["--json"], "no-such-program-anywhere");
    assert_eq!((said.code, &shown(&said)["state"]), (127, &json!("failed")));
    assert_eq!(once(&site, &[], &effect(&site)).code, 0);
    assert_eq!(once(&site, &[], &effect(&site)).code, 0);
    assert_eq!(effects(&site), 1);
}

#[test]
fn what_another_is_at_is_in_progress() {
    let site = Site::new();
    let holder = Holder::start(site.command(&["once", KEY, "-c", "echo going; exec cat >/dev/null"]));
    let said = once(&site, &["--json"], &effect(&site));
    assert_eq!((said.code, &shown(&said)["state"]), (11, &json!("in_progress")));
    assert_eq!(holder.finish().code, 0);
    assert_eq!(once(&site, &[], &effect(&site)).code, 0);
    assert_eq!(effects(&site), 0, "it was done by the other");
}

#[test]
fn whoever_waits_for_another_finds_it_done() {
    let site = Site::new();
    let holder = Holder::start(site.command(&["once", KEY, "-c", "echo going; exec cat >/dev/null"]));
    let script = effect(&site);
    let mut waiting = site.command(&["once", KEY, "--wait", "30s", "-c", &script]).spawn().unwrap();
    thread::sleep(Duration::from_millis(300));
    holder.finish();
    assert_eq!(waiting.wait().unwrap().code(), Some(0));
    assert_eq!(effects(&site), 0);
}

#[test]
fn other_parameters_are_an_error() {
    let site = Site::new();
    let (one, other) = (site.path("one.json"), site.path("other.json"));
    fs::write(&one, "{\"cents\": 500}").unwrap();
    fs::write(&other, "{\"cents\": 600}").unwrap();
    let with = |path: &std::path::Path| {
        let path = path.display().to_string();
        once(&site, &["--json", "--params", &path], &effect(&site))
    };
    assert_eq!(with(&one).code, 0);
    let said = with(&other);
    assert_eq!(said.code, 125);
    let shown = shown(&said);
    assert_eq!((&shown["error"]["reason"], &shown["state"]), (&json!("other_parameters"), &Value::Null), "{shown}");
    assert_eq!(with(&one).code, 0);
    assert_eq!(with(&site.path("none.json")).code, 125);
    assert_eq!(effects(&site), 1);
}

#[test]
fn what_died_between_effect_and_record_halts() {
    let site = Site::new();
    dead(&site);
    for _ in 0..3 {
        let said = once(&site, &["--json"], &effect(&site));
        assert_eq!((said.code, &shown(&said)["state"]), (117, &json!("unknown")));
        contains(&said.stderr, &["died", "--on-unknown retry", "verify=CMD"]);
    }
    assert_eq!(effects(&site), 1);
}

#[test]
fn what_was_ended_by_a_signal_or_its_timeout_is_unknown() {
    for (options, tail) in [(&[][..], "kill -9 $$"), (&["--timeout", "300ms"][..], "exec sleep 60")] {
        let site = Site::new();
        let script = format!("{}; {tail}", effect(&site));
        let said = once(&site, &[options, &["--json"]].concat(), &script);
        assert!(said.code == 137 || said.code == 124, "{said:?}");
        assert_eq!(shown(&said)["state"], "unknown", "{said:?}");
        assert_eq!(once(&site, &[], &effect(&site)).code, 117);
        assert_eq!(effects(&site), 1);
    }
}

/// An exit code of 1 would say that there was no effect.
#[test]
fn a_command_that_exits_0_and_is_no_success_is_unknown_by_its_exit_code() {
    let site = Site::new();
    let broken = "mkdir -p \"${FENCEPOST_OUTCOME%/*}\"; rm -f \"$FENCEPOST_OUTCOME\"; mkfifo \"$FENCEPOST_OUTCOME\"";
    for (key, script) in [("broken", broken.to_string()), ("said", format!("{BINARY} record error"))] {
        for _ in 0..2 {
            let said = site.say(&["once", key, "--json", "-c", &script]);
            assert_eq!((said.code, shown(&said)["state"].as_str()), (117, Some("unknown")), "{key}: {said:?}");
        }
    }
}

#[test]
fn what_is_unknown_is_retried_if_that_is_said() {
    let site = Site::new();
    dead(&site);
    assert_eq!(once(&site, &["--on-unknown", "retry"], &effect(&site)).code, 0);
    assert_eq!(once(&site, &["--on-unknown", "retry"], &effect(&site)).code, 0);
    assert_eq!(effects(&site), 2);
    assert_eq!(once(&site, &["--on-unknown", "maybe"], "true").code, 125);
}

#[test]
fn a_command_says_whether_the_effect_is_there() {
    // 0: it is. 1: it is not. Anything else says nothing.
    let table = [("exit 0", 0, "done", 1), ("exit 1", 0, "done", 2), ("exit 2", 117, "unknown", 1)];
    for (verify, code, state, count) in table {
        let site = Site::new();
        dead(&site);
        let said = once(&site, &["--json", "--on-unknown", &format!("verify={verify}")], &effect(&site));
        assert!(!said.stderr.contains("nothing was run:"), "who is asked is not told to ask: {said:?}");
        assert_eq!((said.code, shown(&said)["state"].as_str()), (code, Some(state)), "{verify}: {said:?}");
        assert_eq!(effects(&site), count, "{verify}");
        // What was found out is known from then on.
        assert_eq!(once(&site, &[], &effect(&site)).code, code, "{verify}");
        assert_eq!(effects(&site), count, "{verify}");
    }
    for _ in 0..10 {
        let site = Site::new();
        dead(&site);
        let said = once(&site, &["--on-unknown", "verify=exit 1"], &effect(&site));
        assert_eq!(said.code, 0, "another attempt starts afresh: {said:?}");
    }
    let site = Site::new();
    dead(&site);
    let said = once(&site, &["--on-unknown", "verify=test $FENCEPOST_KEY = invoices/2026-11/alice"], "true");
    assert_eq!(said.code, 0, "the command is told the key: {said:?}");
}

#[test]
fn a_verdict_is_about_the_attempts_until_then() {
    let site = Site::new();
    dead(&site);
    // While it is asked, another tries again and dies, with its effect.
    let script = effect(&site);
    // The wrapper dies a moment before its keeper, which has to be dead too before it proves that the attempt died.
    let keeper = site.path("keeper").display().to_string();
    let meanwhile = format!(
        "verify=$BINARY once {KEY} --on-unknown retry \
         -c '{script}; echo $PPID > {keeper}; kill -9 $(ps -o ppid= -p $PPID) $PPID $$'; \
         while grep -q \"^State:.[RSDTt]\" /proc/$(cat {keeper})/status 2>/dev/null; do sleep 0.02; done; exit 1"
    );
    let said = once(&site, &["--on-unknown", &meanwhile], &script);
    assert_eq!((said.code, effects(&site)), (117, 2), "{said:?}");
}

#[test]
fn of_eight_that_race_for_one_key_one_has_the_effect() {
    let site = Site::new();
    let script = format!("{}; sleep 0.05", effect(&site));
    for round in 1..=10 {
        let key = format!("race/{round}");
        let racers: Vec<Child> = (0..8)
            .map(|_| {
                let mut command = site.command(&["once", &key, "-c", &script]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        let said: Vec<Said> = racers.into_iter().map(|racer| Said::of(racer.wait_with_output().unwrap())).collect();
        assert!(said.iter().all(|said| [0, 11].contains(&said.code)), "{said:?}");
        assert_eq!(effects(&site), round);
    }
}

/// The next callers, with nothing said about the unknown attempt, until it is settled one way or the other.
fn settled(site: &Site, context: &str) {
    let begun = Instant::now();
    loop {
        let said = once(site, &[], &effect(site));
        match said.code {
            0 => assert_eq!(effects(site), 1, "{context}: done"),
            117 => assert!(effects(site) <= 1, "{context}: unknown"),
            11 if begun.elapsed() < Duration::from_secs(30) => {
                thread::sleep(Duration::from_millis(50));
                continue;
            }
            _ => panic!("{context}: {said:?}"),
        }
        return;
    }
}

#[test]
fn killed_at_any_moment_it_has_one_effect_or_nobody_knows() {
    // The wrapper, its keeper, or the command.
    let lanes = ["wrapper", "keeper", "command"];
    thread::scope(|scope| {
        for (lane, victim) in lanes.into_iter().enumerate() {
            scope.spawn(move || {
                for round in 0..14_u64 {
                    let site = Site::new();
                    let script = format!("sleep 0.03; {}; sleep 0.03", effect(&site));
                    let mut command = site.command(&["once", KEY, "--grace", "200ms", "-c", &script]);
                    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
                    let pid = child.id() as i32;
                    let moment = (round * 11 + lane as u64 * 4) % 160;
                    thread::sleep(Duration::from_millis(moment));
                    let target = match victim {
                        "wrapper" => Some(pid),
                        "keeper" => below(pid),
                        _ => below(pid).and_then(below),
                    };
                    if let Some(target) = target {
                        let _ = kill(Pid::from_raw(target), Signal::SIGKILL);
                    }
                    child.wait().unwrap();
                    settled(&site, &format!("{victim} after {moment} ms"));
                }
            });
        }
    });
}

fn below(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[test]
fn killed_at_every_write_it_has_one_effect_or_nobody_knows() {
    // Each kind of call that changes something, until there is no further one.
    let calls =
        ["pwrite64", "fdatasync", "fsync", "ftruncate", "unlink", "mkdir", "rename", "sendto", "clone3", "execve"];
    let begun = Instant::now();
    let (mut faults, mut cut) = (0, 0);
    for call in calls {
        for number in 1.. {
            if begun.elapsed() > Duration::from_secs(20) {
                cut += 1;
                break;
            }
            let site = Site::new();
            let log = site.path("strace.log");
            let mut command = site.program("strace", &["-f", "-qq", "-e", &format!("trace={call}")]);
            command.args(["-e", &format!("inject={call}:signal=KILL:when={number}"), "-o"]).arg(&log);
            command.args([BINARY, "once", KEY, "--grace", "200ms", "-c", &effect(&site)]);
            let output = command.stderr(Stdio::null()).output().expect("strace is installed: apt-get install strace");
            let happened = fs::read_to_string(&log).unwrap_or_default().contains("killed by SIGKILL");
            settled(&site, &format!("{call} {number}: {:?}", output.status));
            if !happened {
                break;
            }
            faults += 1;
            assert!(number < 300, "{call} never ends");
        }
    }
    println!("{faults} faults, {cut} kinds cut short");
    assert!(faults >= 20, "{faults}");
}
