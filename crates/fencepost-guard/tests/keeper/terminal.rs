//! A real shell on a real terminal, with the wrapper as its job.

use std::ops::{Deref, DerefMut};
use std::process::Command;

use fencepost_testkit::runner::Test;
use fencepost_testkit::terminal;

use crate::session;
use crate::wrapper::TERMINAL_ARGUMENT;

pub const TESTS: &[Test] = &[
    ("the_job_reads_from_the_terminal", the_job_reads_from_the_terminal),
    ("ctrl_c_means_the_job", ctrl_c_means_the_job),
    ("ctrl_z_and_fg", ctrl_z_and_fg),
    ("ctrl_z_bg_and_the_shell_keeps_its_terminal", ctrl_z_bg_and_the_shell_keeps_its_terminal),
    ("a_prompt_in_a_pipeline_is_lent_the_terminal", a_prompt_in_a_pipeline_is_lent_the_terminal),
    ("a_killed_editor_leaves_no_broken_terminal", a_killed_editor_leaves_no_broken_terminal),
];

fn the_job_reads_from_the_terminal() {
    let mut shell = Shell::new();
    shell.run("read x; echo got-$x");
    shell.say("apples\n");
    shell.expect("got-apples");
    shell.expect("ended Code(0)");
    shell.has_its_terminal();
}

fn ctrl_c_means_the_job() {
    let mut shell = Shell::new();
    shell.run("trap 'echo int-\"heard\"; exit 3' INT; echo is-\"ready\"; while :; do sleep 0.1; done");
    shell.expect("is-ready");
    shell.say("\x03");
    shell.expect("int-heard");
    shell.expect("ended Code(3)");
    shell.has_its_terminal();
}

fn ctrl_z_and_fg() {
    let mut shell = Shell::new();
    shell.run("echo is-\"ready\"; read x; echo got-$x");
    shell.expect("is-ready");
    shell.say("\x1a");
    shell.expect("Stopped");
    shell.has_its_terminal();
    shell.say("fg\n");
    shell.expect("continued");
    shell.say("pears\n");
    shell.expect("got-pears");
    shell.expect("ended Code(0)");
    shell.has_its_terminal();
}

fn ctrl_z_bg_and_the_shell_keeps_its_terminal() {
    let mut shell = Shell::new();
    // Not a child of the shell: one that is stopped between vfork and exec keeps the shell itself from stopping.
    shell.run("echo is-\"ready\"; exec sleep 1");
    shell.expect("is-ready");
    shell.say("\x1a");
    shell.expect("Stopped");
    shell.say("bg\n");
    shell.expect("continued");
    shell.expect("ended Code(0)");
    shell.has_its_terminal();
}

fn a_prompt_in_a_pipeline_is_lent_the_terminal() {
    let mut shell = Shell::new();
    shell.run_with("echo piped |", "read x; read y < /dev/tty; echo got-$x-$y");
    shell.expect("lent");
    shell.say("secret\n");
    shell.expect("got-piped-secret");
    shell.expect("ended Code(0)");
    shell.has_its_terminal();
}

fn a_killed_editor_leaves_no_broken_terminal() {
    let mut shell = Shell::new();
    shell.run("stty raw -echo; kill -KILL $$");
    shell.expect("ended Signal(9)");
    shell.say("stty -a | grep -c -e ' echo ' -e ' icanon '; echo is-\"checked\"\n");
    let seen = shell.expect("is-checked");
    assert!(!seen.contains("\n0\r\n"), "{seen}");
    shell.has_its_terminal();
}

/// An interactive shell that runs the wrapper as its job.
struct Shell(terminal::Shell);

impl Shell {
    fn new() -> Self {
        let myself = std::env::current_exe().unwrap();
        let mut setsid = Command::new(&myself);
        setsid.arg(session::ARGUMENT).env("WRAPPER", myself);
        Self(terminal::Shell::start(setsid))
    }

    fn run(&mut self, script: &str) {
        self.run_with("", script);
    }

    fn run_with(&mut self, before: &str, script: &str) {
        let script = script.replace('\'', "'\\''");
        self.say(&format!("{before} $WRAPPER {TERMINAL_ARGUMENT} '{script}'\n"));
        self.expect("began");
    }
}

impl Deref for Shell {
    type Target = terminal::Shell;

    fn deref(&self) -> &terminal::Shell {
        &self.0
    }
}

impl DerefMut for Shell {
    fn deref_mut(&mut self) -> &mut terminal::Shell {
        &mut self.0
    }
}
