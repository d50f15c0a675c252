//! What the ledger suggests about a job's terms.

use crate::common::{Site, contains};

#[test]
fn runs_are_measured_and_terms_suggested() {
    let site = Site::new();
    for _ in 0..6 {
        assert_eq!(site.say(&["run", "j", "--", "true"]).code, 0);
    }
    assert_eq!(site.say(&["run", "j", "--", "false"]).code, 1);
    let said = site.say(&["advise", "j"]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["Of 6 runs that ended well", "--ttl of 5m00s", "which is healthy"]);
    let json = site.json(&["advise", "j"]);
    assert_eq!((&json["jobs"][0]["job"], &json["jobs"][0]["runs"]), (&"j".into(), &6.into()));
    assert!(json["jobs"][0]["worst_ms"].as_u64() >= json["jobs"][0]["median_ms"].as_u64());
}

#[test]
fn too_few_runs_say_nothing_and_an_unknown_job_is_a_mistake() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "j", "--", "true"]).code, 0);
    contains(&site.say(&["advise"]).stdout, &["Too few runs"]);
    assert_eq!(site.say(&["advise", "other"]).code, 2);
}
