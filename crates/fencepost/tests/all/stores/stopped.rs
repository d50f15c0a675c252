//! A fencepost that is stopped and continued (ctrl-Z, `fg`) while it waits for a server.

use std::process::{Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use fencepost_testkit::eventually;
use fencepost_testkit::network::Relay;
use fencepost_testkit::process::{send, state};
use fencepost_testkit::servers::Redis;
use nix::sys::signal::Signal;

use crate::common::{Said, Site, contains};
use crate::stores::REDIS;

/// Stops and continues the command at every answer that it waits for. Says how often that was.
fn interrupted(mut command: Command, relay: &Relay) -> (Said, usize) {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id().cast_signed();
    let mut stops = 0;
    loop {
        match relay.arrived.recv_timeout(Duration::from_millis(50)) {
            Ok(()) => {
                // It waits for the answer, on any thread, before it is stopped.
                eventually("it waits", || state(pid) == Some('S'));
                send(pid, Signal::SIGSTOP);
                eventually("it is stopped", || state(pid) == Some('T'));
                send(pid, Signal::SIGCONT);
                eventually("it goes on", || state(pid) != Some('T'));
                relay.let_go();
                stops += 1;
            }
            Err(RecvTimeoutError::Timeout) if child.try_wait().unwrap().is_none() => {}
            Err(_) => break,
        }
    }
    (Said::of(child.wait_with_output().unwrap()), stops)
}

#[test]
fn a_redis_store_answers_a_command_that_was_stopped_meanwhile() {
    let (site, redis) = (Site::new(), Redis::start(REDIS));
    let relay = Relay::holding(redis.port);
    let url = format!("redis://127.0.0.1:{}", relay.port);
    let (said, stops) = interrupted(site.command(&["--store", &url, "lease", "acquire", "a", "--ttl", "1h"]), &relay);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(stops >= 2, "a read and a swap at least: {stops}");
    let shown = site.say(&["--store", &redis.url(), "lease", "show", "a", "--json"]);
    contains(&shown.stdout, &[said.stdout.trim(), "\"held\":true"]);
}

#[test]
fn publish_redis_is_answered_after_it_was_stopped() {
    let (site, redis) = (Site::new(), Redis::start(&[]));
    let relay = Relay::holding(redis.port);
    let url = format!("redis://127.0.0.1:{}", relay.port);
    let token = site.say(&["lease", "acquire", "a", "--ttl", "1h"]).stdout;
    let publish =
        ["publish", "redis", "report", "--url", &url, "--job", "a", "--token", token.trim(), "--from", "value"];
    std::fs::write(site.path("value"), "one").unwrap();
    let mut command = site.command(&publish);
    command.current_dir(site.path(""));
    let (said, stops) = interrupted(command, &relay);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(stops >= 3, "{stops}");
}
