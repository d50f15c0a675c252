//! Which job waits for which: `status` and `why` while one guard is around another.

use std::process::{Child, Command};

use crate::common::{BINARY, Site, contains};
use fencepost_testkit::eventually;
use fencepost_testkit::process::send;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(mut command: Command) -> Ended {
    Ended(command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap())
}

fn waiting(site: &Site) -> Vec<Value> {
    site.json(&["status"])["waiting"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_job_waits_for_the_clone_that_another_job_holds() {
    let site = Site::new();
    let end = site.path("end");
    let hold = format!("while ! [ -e {} ]; do sleep 0.05; done", end.display());
    let photos = start(site.command(&["run", "site-clone", "--", BINARY, "run", "photos", "-c", &hold]));
    eventually("photos runs inside", || {
        let status = site.json(&["status", "photos"]);
        status["jobs"][0]["holder"]["inside"] == json!(["site-clone"])
    });
    assert_eq!(site.job("site-clone")["holder"]["around"], json!(["photos"]));
    assert_eq!(waiting(&site), Vec::<Value>::new());

    let mut article =
        start(site.command(&["run", "site-clone", "-w", "10m", "--", BINARY, "run", "article", "--", "true"]));
    eventually("article waits", || waiting(&site).len() == 1);
    let wait = &waiting(&site)[0];
    assert_eq!(
        json!([wait["job"], wait["waits_for"], wait["reason"], wait["held_by"], wait["pid"]]),
        json!(["article", "site-clone", "lease", ["photos"], article.0.id()])
    );
    let sentence = "article waits for site-clone, held by photos, since ";
    contains(&site.say(&["status"]).stdout, &[sentence, "at most until"]);
    contains(&site.say(&["status", "site-clone"]).stdout, &[sentence, "runs      photos"]);
    contains(&site.say(&["status", "photos"]).stdout, &["inside    the run of site-clone"]);
    contains(&site.say(&["why", "site-clone"]).stdout, &[sentence]);
    let before_its_first_run = site.say(&["status", "article"]);
    assert_eq!(before_its_first_run.code, 0, "{before_its_first_run:?}");
    contains(&before_its_first_run.stdout, &["article has never run on this store.", sentence]);
    contains(&site.say(&["why", "article"]).stdout, &["article has never run on this store.", sentence]);

    std::fs::write(&end, "").unwrap();
    let code = article.0.wait().unwrap().code();
    assert_eq!(code, Some(0));
    assert_eq!(waiting(&site), Vec::<Value>::new());
    assert_eq!(site.job("article")["last"]["status"], "ok");
    drop(photos);
}

#[test]
fn a_run_that_died_while_it_waited_waits_no_more() {
    let site = Site::new();
    let holder = site.holder("j", &[]);
    let waiter = start(site.command(&["run", "j", "-w", "10m", "--", "true"]));
    eventually("it waits", || waiting(&site).len() == 1);
    contains(&site.say(&["why", "j"]).stdout, &["A run of j waits for the one that is going, since "]);
    send(waiter.0.id() as i32, Signal::SIGKILL);
    drop(waiter);
    eventually("it is gone", || waiting(&site).is_empty());
    assert_eq!(holder.finish().code, 0);
}

#[test]
fn a_job_that_waits_for_its_upstream_says_so() {
    let site = Site::new();
    let mut waiter =
        start(site.command(&["run", "article", "--needs", "reference@any", "--needs-wait", "10m", "--", "true"]));
    eventually("it waits", || waiting(&site).len() == 1);
    let wait = &waiting(&site)[0];
    assert_eq!(json!([wait["job"], wait["waits_for"], wait["reason"]]), json!(["article", "reference", "upstream"]));
    contains(&site.say(&["why", "article"]).stdout, &["article waits for reference, since "]);
    assert_eq!(site.say(&["run", "reference", "--", "true"]).code, 0);
    assert_eq!(waiter.0.wait().unwrap().code(), Some(0));
    assert_eq!(waiting(&site), Vec::<Value>::new());
}
