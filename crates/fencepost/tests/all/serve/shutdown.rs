//! How the server starts and ends.

use std::io::Read;
use std::io::Write;
use std::net::TcpListener;

use nix::sys::signal::Signal;

use super::{Served, request};
use crate::common::Site;

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
fn any_number_of_servers_run_side_by_side() {
    let site = Site::new();
    let served = [Served::of(&site, &[]), Served::of(&site, &[])];
    site.say(&["run", "j", "--", "true"]);
    for served in &served {
        assert_eq!(served.get("/api/v1/jobs/j").json()["jobs"][0]["last"]["status"], "ok");
    }
}
