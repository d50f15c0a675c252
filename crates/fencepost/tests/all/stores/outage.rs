//! A store that goes away: before a run, under it, and for a moment.

use std::thread;
use std::time::Duration;

use fencepost_testkit::eventually;
use fencepost_testkit::network::free_port;
use fencepost_testkit::servers::{Postgres, Redis, TOKEN, Worker};

use crate::common::{Holder, Site, contains};
use crate::stores::{POSTGRES, REDIS, say};

#[test]
fn a_store_that_cannot_be_reached_starts_nothing_unless_asked() {
    let site = Site::new();
    let port = free_port();
    for url in [
        format!("redis://127.0.0.1:{port}"),
        format!("postgres://x@127.0.0.1:{port}/x?sslmode=disable"),
        format!("http://127.0.0.1:{port}"),
        format!("git+file://{}", site.path("no/such.git").display()),
        format!("dir:{}", site.path("no/such/shared").display()),
    ] {
        let run = |options: &[&str], script: &str| {
            let mut command = site.command(&[&["--store", &url, "run", "a"], options, &["-c", script]].concat());
            command.env("FENCEPOST_STORE_PASSWORD", "x");
            say(command)
        };
        let said = run(&[], "touch ran");
        assert_eq!((said.code, said.stdout.as_str()), (125, ""), "{url}: {said:?}");
        assert!(said.stderr.len() > 40 && !site.path("ran").exists(), "{url}: {said:?}");
        let out = site.path("out");
        let script = format!("echo ${{FENCEPOST_TOKEN-none}}; echo x | \"$BINARY\" publish file {}", out.display());
        let said = run(&["--on-store-error", "run"], &script);
        assert_eq!((said.code, said.stdout.as_str()), (2, "none\n"), "{url}: {said:?}");
        contains(&said.stderr, &["WITHOUT a lease", "There is no token to write under"]);
        assert!(!out.exists());
    }
}

/// The job outlives the lease that it had when the store went away: a renewal came through when it was back.
fn goes_on(site: &Site, url: &str, password: &str, restart: impl FnOnce()) {
    let script = "echo $FENCEPOST_TOKEN; exec cat >/dev/null";
    let mut command = site.command(&["--store", url, "run", "a", "--ttl", "6s", "-c", script]);
    command.env("FENCEPOST_STORE_PASSWORD", password);
    let mut holder = Holder::start(command);
    restart();
    thread::sleep(Duration::from_millis(6500));
    assert!(holder.is_running(), "{:?}", holder.wait());
    let said = holder.finish();
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn a_server_that_comes_back_in_time_is_noticed() {
    thread::scope(|scope| {
        scope.spawn(|| {
            let (site, mut server) = (Site::new(), Redis::start(REDIS));
            goes_on(&site, &server.url(), "", || server.kill_and_restart());
        });
        scope.spawn(|| {
            let (site, mut server) = (Site::new(), Postgres::start(POSTGRES));
            let url = server.url(&server.database());
            goes_on(&site, &url, "", || server.kill_and_restart());
        });
        scope.spawn(|| {
            let (site, mut server) = (Site::new(), Worker::start());
            let url = server.url();
            goes_on(&site, &url, TOKEN, || server.kill_and_restart());
        });
    });
}

#[test]
fn a_server_that_does_not_come_back_ends_the_job_before_its_lease() {
    let (site, server) = (Site::new(), Redis::start(REDIS));
    let events = site.path("events");
    let options = ["--ttl", "4s", "--grace", "500ms", "--events", events.to_str().unwrap()];
    let script = "echo $FENCEPOST_TOKEN; exec cat >/dev/null";
    let url = server.url();
    let holder = Holder::start(site.command(&[&["--store", &url, "run", "a"], &options[..], &["-c", script]].concat()));
    drop(server);
    let said = holder.wait();
    assert_eq!(said.code, 112, "{said:?}");
    contains(&said.stderr, &["could not be renewed", "lease lost"]);
    eventually("its end is written down", || std::fs::read_to_string(&events).unwrap().contains("112"));
}
