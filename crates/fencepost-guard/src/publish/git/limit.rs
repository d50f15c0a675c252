//! Waits for a child process and for what it prints, no longer than a limit. Then the child and its descendants, such as
//! hooks and credential helpers, are killed.

use std::fs;
use std::io::{self, Read};
use std::process::Child;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::clock;

/// How long the output is waited for once the child has ended. A background process of a hook may hold it open.
const LINGER: Duration = Duration::from_secs(1);

/// How a child ended, and what it printed.
#[derive(Debug)]
pub(super) struct Ended {
    pub ok: bool,
    pub timed_out: bool,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

enum Event {
    Closed,
    Ended,
}

/// Waits for the child, whose output goes into pipes.
pub(super) fn wait(mut child: Child, limit: Duration) -> io::Result<Ended> {
    let (tell, heard) = channel();
    let stdout = collect(child.stdout.take(), tell.clone());
    let stderr = collect(child.stderr.take(), tell.clone());
    let pid = Pid::from_raw(child.id().cast_signed());
    // The child is not reaped here, so its number stays its own until it is.
    thread::spawn(move || {
        while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(nix::errno::Errno::EINTR) {}
        let _ = tell.send(Event::Ended);
    });
    let mut give_up = clock::boot_now() + limit;
    let (mut open, mut ended) = (2, false);
    while open > 0 || !ended {
        match heard.recv_timeout(give_up.since(clock::boot_now())) {
            Ok(Event::Closed) => open -= 1,
            Ok(Event::Ended) => {
                ended = true;
                give_up = give_up.min(clock::boot_now() + LINGER);
            }
            Err(_) => break,
        }
    }
    if !ended {
        end_tree(pid);
    }
    let ok = child.wait()?.success();
    let taken = |output: Arc<Mutex<Vec<u8>>>| output.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Ended { ok: ok && ended, timed_out: !ended, stdout: taken(stdout), stderr: taken(stderr) })
}

/// Reads to the end on a thread of its own. What has come so far can be seen at any time.
fn collect(from: Option<impl Read + Send + 'static>, tell: Sender<Event>) -> Arc<Mutex<Vec<u8>>> {
    let output = Arc::new(Mutex::new(Vec::new()));
    let shared = output.clone();
    thread::spawn(move || {
        let mut chunk = [0; 8192];
        if let Some(mut from) = from {
            loop {
                match from.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(read) => {
                        shared.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..read]);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
        let _ = tell.send(Event::Closed);
    });
    output
}

/// Kills a process and its descendants. Without `/proc` only the process itself is known.
fn end_tree(pid: Pid) {
    let mut ahead = vec![pid];
    while let Some(pid) = ahead.pop() {
        // Stopped first: it starts nothing while its children are listed.
        let _ = kill(pid, Signal::SIGSTOP);
        ahead.extend(children(pid));
        let _ = kill(pid, Signal::SIGKILL);
    }
}

fn children(pid: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .map(Pid::from_raw)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    fn run(script: &str, limit: Duration) -> Ended {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        wait(shell.spawn().unwrap(), limit).unwrap()
    }

    #[test]
    fn a_child_that_ends_is_heard_out() {
        let ended = run("echo out; echo err >&2; exit 3", Duration::from_secs(60));
        assert!(!ended.ok && !ended.timed_out);
        assert_eq!((ended.stdout, ended.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
    }

    #[test]
    fn a_child_that_hangs_is_killed_with_its_own_children() {
        let begun = Instant::now();
        let ended = run("echo $$; sh -c 'echo $$; sleep 600; :'; :", Duration::from_millis(500));
        assert!(ended.timed_out && !ended.ok && begun.elapsed() < Duration::from_secs(60));
        let pids = String::from_utf8(ended.stdout).unwrap();
        assert_eq!(pids.lines().count(), 2, "{pids}");
        for pid in pids.lines() {
            let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            assert!(state.is_empty() || state.contains(") Z "), "{state}");
        }
    }

    #[test]
    fn a_background_process_that_holds_the_output_is_not_waited_for() {
        let begun = Instant::now();
        let ended = run("sleep 30 & echo done", Duration::from_secs(600));
        assert!(ended.ok && begun.elapsed() < Duration::from_secs(25));
        assert_eq!(ended.stdout, b"done\n");
    }
}
