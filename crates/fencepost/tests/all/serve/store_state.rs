//! The store as the server shows it: its declarations, and the last check of this host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::Served;
use crate::common::Site;
use crate::schema::validator::Validator;

/// The file in which this host remembers the last check of a store.
fn kept(site: &Site) -> Option<PathBuf> {
    let files = fs::read_dir(site.state().join("memory/stores")).ok()?.map(|entry| entry.unwrap().path());
    { files }.find(|path| path.extension().is_some_and(|extension| extension == "check"))
}

#[test]
fn the_last_check_is_remembered_and_shown() {
    let site = Site::new();
    let served = Served::of(&site, &[]);
    assert_eq!(served.get("/api/v1/store").json()["declares"], serde_json::json!([]), "there is no store yet");
    site.say(&["run", "j", "--", "true"]);
    let validator = Validator::new(serde_json::from_str(&site.say(&["schema"]).stdout).unwrap());
    let state = || {
        let state = served.get("/api/v1/store").json();
        validator.check("store, as a server sees it", &state);
        state
    };
    let unchecked = state();
    assert_eq!((&unchecked["available"], &unchecked["last_check"]), (&true.into(), &serde_json::Value::Null));
    let names: Vec<&str> =
        unchecked["declares"].as_array().unwrap().iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"durability") && names.contains(&"kind of clock"), "{names:?}");
    let page = served.get("/stores").body;
    assert!(
        page.contains("never checked") && page.contains("fencepost store check") && page.contains("durability"),
        "{page}"
    );

    assert_eq!(site.say(&["store", "check"]).code, 0);
    let checked = state()["last_check"].clone();
    assert_eq!((&checked["exit_code"], &checked["verdict"]), (&0.into(), &"ok".into()));
    assert!(checked["checks"].as_array().unwrap().iter().any(|line| line["name"] == "create race"), "{checked}");
    let page = served.get("/stores").body;
    assert!(page.contains("create race") && !page.contains("never checked"), "{page}");
    assert_eq!(fs::metadata(kept(&site).unwrap()).unwrap().permissions().mode() & 0o777, 0o600);

    // A check that fails is remembered like any other.
    fs::rename(site.database(), site.path("elsewhere")).unwrap();
    assert_eq!(site.say(&["store", "check"]).code, 125);
    fs::rename(site.path("elsewhere"), site.database()).unwrap();
    fencepost_testkit::eventually("the store is read again", || {
        served.get("/api/v1/store").json()["available"] == true
    });
    let failed = state()["last_check"].clone();
    assert_eq!((&failed["exit_code"], &failed["verdict"]), (&125.into(), &"refused".into()), "{failed}");
    assert!(failed["checks"][0]["detail"].as_str().unwrap().contains("is missing"), "{failed}");
    // Once another store is accepted in its place, nothing is known of it.
    fs::remove_file(site.database()).unwrap();
    assert_eq!(site.say(&["store", "accept", &format!("sqlite:{}", site.database().display())]).code, 0);
    assert_eq!(kept(&site), None);
}

#[test]
fn no_password_is_remembered() {
    let site = Site::new();
    let said = site.say(&["store", "check", "redis://me:s3cret@127.0.0.1:1"]);
    assert_eq!(said.code, 1, "{said:?}");
    let text = fs::read_to_string(kept(&site).unwrap()).unwrap();
    assert!(text.contains("reach") && !text.contains("s3cret"), "{text}");
}
