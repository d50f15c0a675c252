//! `fencepost run` as the job of a real shell on a real terminal.

use std::ops::{Deref, DerefMut};
use std::thread;
use std::time::{Duration, Instant};

use fencepost_testkit::{PATIENCE, eventually, terminal};

use crate::common::BINARY;
use crate::process::{Place, TTL};

#[test]
fn the_job_reads_from_the_terminal() {
    let mut shell = Shell::new();
    shell.run("a", "read x; echo got-$x");
    shell.say("apples\n");
    shell.expect("got-apples");
    shell.expect_code(0);
}

#[test]
fn nothing_overdue_is_said_on_a_terminal() {
    let mut shell = Shell::new();
    shell.run("a", "true");
    shell.expect_code(0);
    shell.say("$FENCEPOST overdue\n");
    shell.expect("Nothing is overdue.");
    shell.expect_code(0);
}

#[test]
fn forgetting_is_asked_about() {
    let mut shell = Shell::new();
    shell.run("a", "true");
    shell.expect_code(0);
    for (answer, end) in [("\n", "Nothing was changed."), ("n\n", "Nothing was changed."), ("y\n", "a is forgotten.")] {
        assert_eq!(shell.place.statuses("a"), ["ok"]);
        shell.say("$FENCEPOST forget a\n");
        shell.expect("No slot runs again by this. [y/N] ");
        shell.say(answer);
        shell.expect(end);
        shell.expect_code(0);
    }
    shell.say("$FENCEPOST once mail -- true\n");
    shell.expect_code(0);
    shell.say("$FENCEPOST once forget mail\n");
    shell.expect("may happen a second time. [y/N] ");
    shell.say("yes\n");
    shell.expect_code(0);
}

#[test]
fn ctrl_c_means_the_job() {
    let mut shell = Shell::new();
    shell.run("a", "echo is-\"ready\"; exec sleep 60");
    shell.expect("is-ready");
    shell.say("\x03");
    shell.expect_code(130);
    shell.run("a", "trap 'echo int-\"heard\"; exit 3' INT; echo is-\"ready\"; while :; do sleep 0.1; done");
    shell.expect("is-ready");
    shell.say("\x03");
    shell.expect("int-heard");
    shell.expect_code(3);
    assert_eq!(shell.place.statuses("a"), ["error", "error"]);
}

/// The terminal gives ctrl-C to the job alone. The script around it has to end by it all the same.
#[test]
fn ctrl_c_ends_the_script_around_the_job() {
    let mut shell = Shell::new();
    let script = "$FENCEPOST run a -- sh -c 'echo is-\"ready\"; exec sleep 60'\necho went-\"on\"\n";
    for interpreter in ["bash", "sh"] {
        shell.interrupt_script(interpreter, script);
    }
    assert_eq!(shell.place.statuses("a"), ["error", "error"]);
    shell.interrupt_script("bash", &script.replace("run a", "once a"));
    shell.interrupt_script("bash", &script.replace("run a", "run --store sqlite:/proc/x --on-store-error run a"));
    // Here the script has the terminal together with the wrapper, and goes by how that ends.
    let mut holder = shell.place.run(&["held"], &["sleep", "600"]);
    eventually("it is held", || shell.place.statuses("held") == ["running"]);
    shell.interrupt_script("bash", "echo is-\"ready\"; $FENCEPOST run -w 1h held -- true\necho went-\"on\"\n");
    holder.send(nix::sys::signal::Signal::SIGTERM);
    holder.wait();
}

#[test]
fn ctrl_z_and_fg() {
    let mut shell = Shell::new();
    shell.run("a", "echo is-\"ready\"; read x; echo got-$x");
    shell.expect("is-ready");
    shell.say("\x1a");
    shell.expect("Stopped");
    shell.has_its_terminal();
    shell.say("fg\n");
    shell.say("pears\n");
    shell.expect("got-pears");
    shell.expect_code(0);
    assert_eq!(shell.place.statuses("a"), ["ok"]);
}

#[test]
fn ctrl_z_twice() {
    let mut shell = Shell::new();
    shell.run("a", "echo is-\"ready\"; read x; echo got-$x; read y; echo got-$y");
    shell.expect("is-ready");
    for word in ["apples", "pears"] {
        shell.say("\x1a");
        shell.expect("Stopped");
        shell.has_its_terminal();
        shell.say("fg\n");
        shell.say(&format!("{word}\n"));
        shell.expect(&format!("got-{word}"));
    }
    shell.expect_code(0);
}

#[test]
fn ctrl_z_and_bg() {
    let mut shell = Shell::new();
    // Not a child of the shell: one that is stopped between vfork and exec keeps the shell itself from stopping.
    shell.run("a", "echo is-\"ready\"; exec sleep 1");
    shell.expect("is-ready");
    shell.say("\x1a");
    shell.expect("Stopped");
    shell.say("bg\n");
    shell.has_its_terminal();
    shell.say("wait %1; echo waited-$?-\n");
    shell.expect("waited-0-");
    shell.has_its_terminal();
    assert_eq!(shell.place.statuses("a"), ["ok"]);
}

#[test]
fn a_background_job_that_reads_is_stopped_until_it_has_the_terminal() {
    let mut shell = Shell::new();
    // A shell that starts a command at this moment cannot be stopped until it has, and the command is stopped: so it waits.
    shell.run("a", "sleep 1 & echo is-\"ready\"; wait; read x; echo got-$x");
    shell.expect("is-ready");
    shell.say("\x1a");
    shell.expect("Stopped");
    shell.say("bg\n");
    shell.has_its_terminal();
    shell.until_says("jobs", "Stopped");
    shell.say("fg\n");
    shell.say("plums\n");
    shell.expect("got-plums");
    shell.expect_code(0);
}

#[test]
fn started_in_the_background() {
    let mut shell = Shell::new();
    shell.say("$FENCEPOST run a -- sh -c 'sleep 0.5; echo is-\"done\"' &\n");
    shell.has_its_terminal();
    shell.expect("is-done");
    shell.say("wait %1; echo waited-$?-\n");
    shell.expect("waited-0-");
}

#[test]
fn a_password_prompt_with_input_from_a_pipe() {
    let mut shell = Shell::new();
    let script = "read x; stty -echo < /dev/tty; printf word-\"please\" > /dev/tty; read y < /dev/tty; \
                  stty echo < /dev/tty; echo got-$x-$y";
    shell.run_with("echo piped |", "a", script, "");
    shell.expect("word-please");
    shell.say("secret\n");
    shell.expect("got-piped-secret");
    shell.expect_code(0);
}

#[test]
fn a_pipeline_of_the_shell() {
    let mut shell = Shell::new();
    shell.run_with("", "a", "echo one; echo two", "| cat | tr a-z A-Z");
    shell.expect("ONE\r\nTWO");
    shell.has_its_terminal();
    shell.run_with("", "a", "read x; echo got-$x", "| cat");
    shell.say("apples\n");
    shell.expect("got-apples");
    shell.has_its_terminal();
    shell.run_with("", "a", "exec sleep 60", "| cat");
    thread::sleep(Duration::from_millis(500));
    shell.say("\x03");
    shell.has_its_terminal();
    assert_eq!(shell.place.statuses("a"), ["error", "ok", "ok"]);
}

#[test]
fn ctrl_z_longer_than_the_lease_goes_on_if_nobody_took_over() {
    let mut shell = Shell::new();
    shell.run("a --ttl 3s --grace 500ms", "echo is-\"ready\"; read x; echo got-$x");
    shell.expect("is-ready");
    shell.say("\x1a");
    shell.expect("Stopped");
    thread::sleep(TTL + Duration::from_secs(1));
    shell.has_its_terminal();
    shell.say("fg\n");
    shell.say("figs\n");
    shell.expect("got-figs");
    shell.expect_code(0);
    assert_eq!(shell.place.statuses("a"), ["ok"]);
}

#[test]
fn ctrl_z_longer_than_the_lease_is_the_end_if_somebody_took_over() {
    let mut shell = Shell::new();
    shell.run("a --ttl 3s --grace 500ms", "echo is-\"ready\"; read x; echo got-$x");
    shell.expect("is-ready");
    shell.say("\x1a");
    shell.expect("Stopped");
    shell.place.successor("a").succeeded_alone();
    shell.say("fg\n");
    shell.expect("lease had passed");
    shell.expect_code(112);
    assert_eq!(shell.place.statuses("a"), ["ok", "lost"]);
}

#[test]
fn the_job_in_the_foreground_ends_with_its_session() {
    let mut shell = Shell::new();
    shell.run("a", "echo is-\"ready\"; exec sleep 600");
    shell.expect("is-ready");
    // The kernel sends a hangup to the process group in the foreground, which is the job and not the wrapper.
    shell.process.kill().unwrap();
    shell.process.wait().unwrap();
    eventually("all of it has gone", || shell.place.is_deserted());
    assert_eq!(shell.place.statuses("a"), ["error"]);
    assert_eq!(shell.place.runs(&["a"])[0]["exit_code"], 128 + 1);
}

/// An interactive shell in a place, whose processes end with it.
struct Shell {
    shell: terminal::Shell,
    place: Place,
}

impl Shell {
    fn new() -> Self {
        let place = Place::new();
        let mut setsid = place.program("setsid");
        setsid.env("FENCEPOST", BINARY);
        Self { shell: terminal::Shell::start(setsid), place }
    }

    fn run(&mut self, options: &str, script: &str) {
        self.run_with("", options, script, "");
    }

    fn run_with(&mut self, before: &str, options: &str, script: &str, after: &str) {
        let script = script.replace('\'', "'\\''");
        self.say(&format!("{before} $FENCEPOST run {options} -- sh -c '{script}' {after}\n"));
        // Its own echo is not what is waited for afterwards.
        self.expect("run ");
    }

    /// The run has ended with this code, and the shell has its terminal back.
    fn expect_code(&mut self, code: i32) {
        self.say("echo code-\"is\"-$?-\n");
        self.expect(&format!("code-is-{code}-"));
        self.has_its_terminal();
    }

    /// Asks until the answer is there.
    fn until_says(&mut self, question: &str, answer: &str) {
        let begun = Instant::now();
        loop {
            self.say(&format!("{question}; echo is-\"answered\"\n"));
            if self.expect("is-answered").contains(answer) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{question} never says {answer}");
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ctrl-C ends the script, which would say that it went on.
    fn interrupt_script(&mut self, interpreter: &str, script: &str) {
        let path = self.place.path("script");
        std::fs::write(&path, script).unwrap();
        self.say(&format!("{interpreter} {}\n", path.display()));
        self.expect("is-ready");
        // What has just said so has to be asleep, or waiting.
        thread::sleep(Duration::from_millis(300));
        self.say("\x03");
        self.say("echo code-\"is\"-$?-\n");
        let seen = self.expect("code-is-130-");
        assert!(!seen.contains("went-on"), "{seen}");
        self.has_its_terminal();
    }
}

impl Deref for Shell {
    type Target = terminal::Shell;

    fn deref(&self) -> &terminal::Shell {
        &self.shell
    }
}

impl DerefMut for Shell {
    fn deref_mut(&mut self) -> &mut terminal::Shell {
        &mut self.shell
    }
}
