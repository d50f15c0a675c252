//! Processes seen from outside.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};

use fencepost_sys::{ProcessState, process, processes};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Three generations, the last a daemon in its own session whose parents are gone. Each writes its pid to a file of its
/// own, complete or not at all. Until there is a file `go`, each adds the time to `beats` every 50 ms.
pub const TREE: &str = r#"
note() { echo $$ > .$1.new; mv .$1.new $1; }
if [ -z "$ROLE" ]; then
    note child
    ROLE=grandchild sh "$0" & ROLE=between setsid sh "$0" &
elif [ $ROLE = between ]; then
    ROLE=daemon sh "$0" & exit
else
    note $ROLE
fi
while [ ! -e go ]; do date +%s%N >> beats; sleep 0.05; done
"#;

/// [`TREE`], as far as it is promised to end with its job. A process control without a subreaper, that of macOS, does
/// not find a daemon in a session of its own. There the daemon only loses its parents.
pub fn tree_script(is_portable: bool) -> String {
    if is_portable { TREE.replace("setsid ", "") } else { TREE.to_string() }
}

/// The names of the files in which the processes of [`TREE`] write their pids.
pub const TREE_FILES: [&str; 3] = ["child", "grandchild", "daemon"];

/// Whether the process runs. A zombie is dead: the process that inherits it here may never reap it.
pub fn is_alive(pid: i32) -> bool {
    process(pid).is_some_and(|entry| entry.state != ProcessState::Dead)
}

/// Stopped, or deep in the kernel with the signal waiting for it: a shell between fork and exec waits there for a child
/// that is stopped.
pub fn is_stopped(pid: i32) -> bool {
    process(pid).is_some_and(|entry| matches!(entry.state, ProcessState::Stopped | ProcessState::Deep))
}

pub fn all_dead(pids: &[i32]) -> bool {
    !pids.iter().any(|&pid| is_alive(pid))
}

pub fn send(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// The letter of the process's state in Linux's `/proc`: `R` running, `S` asleep, `T` stopped, `Z` zombie.
pub fn state(pid: i32) -> Option<char> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    String::from_utf8_lossy(&stat).rsplit_once(") ")?.1.chars().next()
}

pub fn parent_of(pid: i32) -> Option<i32> {
    process(pid).map(|entry| entry.parent)
}

/// The children of the process; none if it is gone.
pub fn children_of(pid: i32) -> Vec<i32> {
    processes().unwrap().into_iter().filter(|entry| entry.parent == pid).map(|entry| entry.pid).collect()
}

pub fn all_pids() -> Vec<i32> {
    processes().unwrap().into_iter().map(|entry| entry.pid).collect()
}

/// The process's name, as `ps` shows it.
pub fn name(pid: i32) -> String {
    process(pid).map(|entry| entry.name).unwrap_or_default()
}

/// The exit code as a shell shows it: 128 and more for a signal.
pub fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Makes a program of a file, by a process of its own. If this process wrote it, a program that another test starts
/// meanwhile would inherit the open file, and until then the kernel refuses to run it ("text file busy").
pub fn install(from: impl AsRef<Path>, to: impl AsRef<Path>, mode: &str) {
    let done = Command::new("install").arg("-m").arg(mode).arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(done.is_ok_and(|status| status.success()), "{} is installed", to.as_ref().display());
}
