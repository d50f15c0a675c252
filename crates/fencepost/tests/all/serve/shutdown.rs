//! How the server starts and ends.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

use fencepost_testkit::eventually;
use fencepost_testkit::process::send;
use nix::sys::signal::Signal;
use nix::unistd::geteuid;

use super::{Reply, Served, add_token, json, request, token_file};
use crate::common::{Said, Site};
use crate::desk::Desk;

#[test]
fn a_signal_ends_it_in_order() {
    let site = Site::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let served = Served::of(&site, &[]);
        let mut viewer = served.connect();
        viewer.write_all(request(served.port, "GET", "/api/v1/events", &[], "").as_bytes()).unwrap();
        assert_eq!(served.get("/healthz").status, 200);
        assert_eq!(served.end(signal), 0);
        // The stream is ended, not cut.
        let mut rest = String::new();
        viewer.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("\r\n0\r\n\r\n"), "{rest:?}");
    }
}

#[test]
fn a_port_in_use_is_named_with_a_command_that_works() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = Site::new().say(&["serve", "--listen", &address]);
    assert_eq!((said.code, said.stdout.as_str()), (125, ""));
    assert!(said.stderr.contains(&address) && said.stderr.contains("--listen 127.0.0.1:0"), "{said:?}");
}

#[test]
fn a_port_that_is_not_permitted_is_named_with_a_command_that_works() {
    let (site, first) = (Site::new(), fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap());
    if first.trim() == "0" || !geteuid().is_root() {
        return eprintln!("skipped: every port is permitted here, or this user has no privilege to give up");
    }
    let command = site.command(&["serve", "--listen", "127.0.0.1:1"]);
    let mut unprivileged =
        site.program("setpriv", &["--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service"]);
    unprivileged.arg(command.get_program()).args(command.get_args());
    let said = Said::of(unprivileged.output().unwrap());
    assert_eq!((said.code, said.stdout.as_str()), (125, ""), "{said:?}");
    for part in ["127.0.0.1:1", "this user may not use this port", "--listen 127.0.0.1:0"] {
        assert!(said.stderr.contains(part), "{said:?}");
    }
}

#[test]
fn an_action_in_progress_is_answered_whole_and_its_run_goes_on() {
    let desk = Desk::configured("[job.j]\ncommand = 'touch begun; until [ -e go ]; do sleep 0.05; done; echo done'\n");
    let token = add_token(&desk.site, "laptop");
    let served = Served::of_desk(&desk, &["--token-file", &token_file(&desk.site), "--allow-actions"]);
    let mut client = served.connect();
    let bearer = format!("Bearer {token}");
    let asked = request(served.port, "POST", "/api/v1/jobs/j/run_now", &[("Authorization", &bearer)], "");
    client.write_all(asked.as_bytes()).unwrap();
    eventually("the run has begun", || desk.has("begun"));
    send(served.child.id() as i32, Signal::SIGTERM);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    let answer = Reply::parse(&answer);
    assert_eq!((answer.status, &answer.json()["state"]), (200, &"running".into()), "{answer:?}");
    assert_eq!(served.end(Signal::SIGTERM), 0);
    desk.write("go", "");
    eventually("its end is recorded", || json(&desk, &["status", "j"])["jobs"][0]["last"]["status"] == "ok");
}

#[test]
fn any_number_of_servers_run_side_by_side() {
    let site = Site::new();
    let served = [Served::of(&site, &[]), Served::of(&site, &[])];
    site.say(&["run", "j", "--", "true"]);
    for served in &served {
        assert_eq!(served.get("/api/v1/jobs/j").json()["jobs"][0]["last"]["status"], "ok");
    }
}
