//! A real shell on a real terminal, with the wrapper as its job.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::openpty;

use crate::scene::PATIENCE;
use crate::wrapper::TERMINAL_ARGUMENT;

pub const TESTS: &[crate::Test] = &[
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

/// An interactive shell whose terminal is in our hands.
struct Shell {
    process: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Shell {
    fn new() -> Self {
        let pty = openpty(None, None).unwrap();
        for fd in [&pty.master, &pty.slave] {
            // Another test's shell that holds it keeps this one's terminal from hanging up.
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        }
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let process = Command::new("setsid")
            .args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"])
            .env("PS1", "$ ")
            .env("WRAPPER", std::env::current_exe().unwrap())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let keyboard = File::from(pty.master);
        let mut output = keyboard.try_clone().unwrap();
        let (sender, screen) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut shell = Self { process, keyboard, screen, seen: String::new() };
        shell.has_its_terminal();
        shell
    }

    fn run(&mut self, script: &str) {
        self.run_with("", script);
    }

    fn run_with(&mut self, before: &str, script: &str) {
        let script = script.replace('\'', "'\\''");
        self.say(&format!("{before} $WRAPPER {TERMINAL_ARGUMENT} '{script}'\n"));
        self.expect("began");
    }

    fn say(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// The shell answers, which it cannot without its terminal. The answer differs from its own echo.
    fn has_its_terminal(&mut self) {
        self.say("echo shell-\"answers\"\n");
        self.expect("shell-answers");
    }

    /// Waits for the text, and returns all that came up to it.
    fn expect(&mut self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            if let Some(at) = self.seen.find(text) {
                return self.seen.drain(..at + text.len()).collect();
            }
            match self.screen.recv_timeout(Duration::from_millis(100)) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(RecvTimeoutError::Timeout) if begun.elapsed() < PATIENCE => {}
                Err(_) => panic!("no {text:?} on the screen, but {:?}", self.seen),
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
