//! The command `setsid`, played by this very program: macOS has none.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::unistd::{setsid, ttyname};

pub const ARGUMENT: &str = "be-setsid";

/// The command, for a shell.
pub fn words() -> String {
    format!("'{}' {ARGUMENT}", std::env::current_exe().unwrap().display())
}

/// Becomes the program, in a session of its own; with `--ctty`, on the terminal that is standard input.
pub fn become_program(arguments: &[String]) -> ! {
    setsid().unwrap();
    let is_on_terminal = arguments.first().is_some_and(|first| first == "--ctty");
    if is_on_terminal {
        // The first terminal that the leader of a session opens becomes that of the session.
        let terminal = ttyname(std::io::stdin()).unwrap();
        File::options().read(true).write(true).open(terminal).unwrap();
    }
    let program = &arguments[usize::from(is_on_terminal)..];
    panic!("{}: {}", program[0], Command::new(&program[0]).args(&program[1..]).exec());
}
