//! A store that the first version wrote is read and carried on.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

use serde_json::Value;

use crate::common::Site;

/// Copies the store of the first version into the state directory of a new place.
fn old_store() -> Site {
    let site = Site::new();
    fs::DirBuilder::new().mode(0o700).create(site.state()).unwrap();
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store-format-1.db"), site.database()).unwrap();
    fs::set_permissions(site.database(), fs::Permissions::from_mode(0o600)).unwrap();
    site
}

/// The bytes of a job's record.
fn stored(site: &Site, key: &str) -> String {
    let database = rusqlite::Connection::open(site.database()).unwrap();
    let read = |row: &rusqlite::Row<'_>| row.get::<_, Vec<u8>>(0);
    String::from_utf8(database.query_row("select value from entries where key = ?", [key], read).unwrap()).unwrap()
}

#[test]
fn a_store_of_format_1_is_read_as_it_is() {
    let site = old_store();
    let status = site.json(&["status"]);
    let jobs: Vec<&str> = status["jobs"].as_array().unwrap().iter().filter_map(|job| job["job"].as_str()).collect();
    assert_eq!(jobs, ["held", "hourly", "many", "nightly", "report"]);
    assert_eq!(site.job("many")["counts"]["ok"], 45);
    assert_eq!(site.runs(&["many"]).len(), 45, "the ring and the history");
    assert_eq!(site.runs(&["nightly"])[0]["note"], "disk full");
    assert!(stored(&site, "job/report").starts_with(r#"{"v":1,"#), "reading rewrites nothing");
}

#[test]
fn a_store_of_format_1_is_carried_on_in_format_2() {
    let site = old_store();
    let before = site.job("report");
    // A finished slot stays finished, an item done once stays done.
    let again = site.say(&["run", "report", "--slot", "2026-01-03T00:00:00Z", "--", "echo", "AGAIN"]);
    assert_eq!((again.code, again.stdout.as_str()), (0, ""), "{again:?}");
    let once = site.say(&["once", "invoice/7", "--", "echo", "CHARGED"]);
    assert_eq!((once.code, once.stdout.as_str()), (0, ""), "{once:?}");
    let paused = site.say(&["run", "hourly", "--schedule", "0 * * * *", "--tz", "UTC", "--", "echo", "RAN"]);
    assert_eq!((paused.code, paused.stdout.as_str()), (0, ""), "{paused:?}");

    let ran = site.say(&["run", "report", "--slot", "2026-01-05T00:00:00Z", "--", "echo", "NEW"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "NEW\n"), "{ran:?}");
    assert!(stored(&site, "job/report").starts_with(r#"{"v":2,"#));
    let after = site.job("report");
    assert!(after["token"].as_u64() > before["token"].as_u64(), "tokens go on: {before} {after}");
    let count = |job: &Value, status: &str| job["counts"][status].as_u64().unwrap_or_default();
    assert_eq!(count(&after, "ok"), count(&before, "ok") + 1);
    assert_eq!(count(&after, "empty"), count(&before, "empty"));
}

/// A later version writes a field that this one does not know. Runs of this version leave it in place.
#[test]
fn a_field_of_a_later_version_survives_a_run() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "report", "--slot", "2026-01-05T00:00:00Z", "--", "true"]).code, 0);
    {
        let database = rusqlite::Connection::open(site.database()).unwrap();
        let later = stored(&site, "job/report").replacen(r#"{"v":2,"#, r#"{"v":2,"later":{"x":[1]},"#, 1);
        let later = later.replacen(r#""ring":[{"#, r#""ring":[{"mood":"fine","#, 1);
        let done = database.execute("update entries set value = ? where key = 'job/report'", [later.as_bytes()]);
        assert_eq!(done.unwrap(), 1);
    }
    assert_eq!(site.say(&["run", "report", "--slot", "2026-01-06T00:00:00Z", "--", "true"]).code, 0);
    let record = stored(&site, "job/report");
    assert!(record.contains(r#""later":{"x":[1]}"#) && record.contains(r#""mood":"fine""#), "{record}");
    assert_eq!(site.runs(&["report"]).len(), 2);
}

#[test]
fn a_record_of_a_newer_format_is_refused_and_left_alone() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "report", "--", "true"]).code, 0);
    let newer = stored(&site, "job/report").replacen(r#"{"v":2,"#, r#"{"v":3,"#, 1);
    {
        let database = rusqlite::Connection::open(site.database()).unwrap();
        database.execute("update entries set value = ? where key = 'job/report'", [newer.as_bytes()]).unwrap();
    }
    let refused = site.say(&["run", "report", "--", "echo", "RAN"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
    assert!(refused.stderr.contains("format 3") && refused.stderr.contains("Upgrade fencepost"), "{refused:?}");
    assert_eq!(stored(&site, "job/report"), newer);
}
