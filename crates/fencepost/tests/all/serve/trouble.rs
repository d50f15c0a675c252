//! A store that cannot be read: the server goes on, and says so.

use std::fs;

use fencepost_testkit::eventually;

use super::Served;
use crate::common::Site;

#[test]
fn pages_show_the_last_known_state_and_the_api_answers_503() {
    let site = Site::new();
    site.say(&["run", "j", "--", "true"]);
    let served = Served::of(&site, &[]);
    assert_eq!(served.get("/api/v1/status").status, 200);
    fs::rename(site.database(), site.path("elsewhere")).unwrap();
    eventually("it is noticed", || served.get("/api/v1/status").status == 503);
    let error = served.get("/api/v1/jobs/j").json();
    assert_eq!(error["error"]["reason"], "store_failed", "{error}");
    assert_eq!(served.get("/api/v1/jobs/j/why").status, 503);
    assert_eq!(served.get("/status/j").status, 503);
    assert_eq!(served.get("/healthz").status, 200);
    let store = served.get("/api/v1/store").json();
    assert!(store["available"] == false && store["error"].is_string() && store["jobs"] == 1, "{store}");
    for path in ["/", "/timeline", "/jobs/j", "/stores"] {
        let page = served.get(path);
        assert_eq!(page.status, 200, "{path}");
        assert!(page.body.contains("unavailable"), "{path}: {}", page.body);
    }
    let metrics = || served.get("/metrics").body;
    let polls = |metrics: String| {
        metrics.lines().find(|line| line.starts_with("fencepost_store_polls_total")).map(String::from)
    };
    let before = metrics();
    assert!(before.contains("fencepost_store_up{} 0\n"));
    assert_eq!(polls(before), polls(metrics()), "a look that fails reads nothing");
    fs::rename(site.path("elsewhere"), site.database()).unwrap();
    eventually("it is read again", || served.get("/api/v1/status").status == 200);
    eventually("it says so", || served.said().contains("can be read again"));
}

#[test]
fn a_store_that_never_answered_keeps_the_server_running() {
    let site = Site::new();
    let served = Served::of(&site, &["--store", "redis://127.0.0.1:1"]);
    assert_eq!(served.get("/healthz").status, 200);
    assert_eq!(served.get("/api/v1/status").status, 503);
    assert_eq!(served.get("/").status, 503);
}
