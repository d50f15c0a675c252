//! An interactive shell on a terminal whose keyboard and screen belong to the test.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::openpty;

use crate::PATIENCE;

pub struct Shell {
    pub process: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Shell {
    /// Starts bash on a new terminal. The command is `setsid`, or one like it, with the environment and
    /// directory for the shell.
    pub fn start(mut setsid: Command) -> Self {
        let pty = openpty(None, None).unwrap();
        for fd in [&pty.master, &pty.slave] {
            // The shell of another test that inherits it would keep this terminal from hanging up.
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
        }
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        setsid.args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"]).env("PS1", "$ ");
        let process = setsid.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
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

    pub fn say(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// The shell answers, which it cannot without its terminal. The answer differs from its own echo.
    pub fn has_its_terminal(&mut self) {
        self.say("echo shell-\"answers\"\n");
        self.expect("shell-answers");
    }

    /// Waits for the text, and returns all that came up to it.
    #[track_caller]
    pub fn expect(&mut self, text: &str) -> String {
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
