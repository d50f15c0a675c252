//! How a store and the state directory are named, and what is refused with advice.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};

use fencepost_testkit::servers::{Postgres, Redis};
use fencepost_testkit::web::Web;
use nix::unistd::geteuid;
use serde_json::json;

use crate::common::{Said, Site, contains};
use crate::stores::{POSTGRES, REDIS, say};
use crate::triggers::Home;

#[test]
fn postgresql_is_another_name_for_postgres() {
    let server = Postgres::start(POSTGRES);
    let url = server.url(&server.database());
    let site = Site::new();
    let long = url.replacen("postgres:", "postgresql:", 1);
    assert_eq!(site.say(&["--store", &long, "run", "a", "--", "true"]).code, 0);
    let said = site.say(&["--store", &url, "status", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["\"job\":\"a\""]);
}

#[test]
fn a_git_address_without_a_scheme_gets_the_right_one() {
    let said = Site::new().say(&["--store", "git@github.com:owner/jobs.git", "status"]);
    assert_eq!(said.code, 2, "{said:?}");
    contains(&said.stderr, &["git+ssh://git@github.com/owner/jobs.git"]);
    assert!(!said.stderr.contains("password"), "{said:?}");
}

#[test]
fn a_password_with_a_question_mark_is_not_shown() {
    let said = Site::new().say(&["--store", "postgres://u:s3?cret?x@127.0.0.1:1/db", "run", "a", "--", "true"]);
    assert_eq!(said.code, 125, "{said:?}");
    assert!(!said.stderr.contains("s3") && !said.stderr.contains("cret"), "{said:?}");
}

#[test]
fn no_directory_is_created_outside_the_state_directory() {
    let site = Site::new();
    let url = format!("sqlite:{}", site.path("no/such/store.db").display());
    let said = site.say(&["--store", &url, "run", "a", "--", "true"]);
    assert_eq!((said.code, site.path("no").exists()), (125, false), "{said:?}");
    let next = format!("Create the directory {} first", site.path("no/such").display());
    contains(&said.stderr, &["no/such/store.db cannot be used", &next]);
    let inside = format!("sqlite:{}", site.path("state/sub/store.db").display());
    assert_eq!(site.say(&["--store", &inside, "run", "a", "--", "true"]).code, 0);
}

#[test]
fn help_and_version_are_verbs_too() {
    let site = Site::new();
    let said = site.say(&["version"]);
    assert_eq!((said.code, said.stdout), (0, site.say(&["--version"]).stdout));
    let said = site.say(&["help"]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["Usage: fencepost"]);
    contains(&site.say(&["help", "lease"]).stdout, &["acquire"]);
}

#[test]
fn without_a_configuration_store_use_writes_no_file() {
    let site = Site::new();
    let said = site.say(&["store", "use", &format!("sqlite:{}", site.database().display())]);
    assert_eq!(said.code, 2, "{said:?}");
    contains(&said.stderr, &["FENCEPOST_CONFIG=", "nothing was written", "fencepost --config FILE store use URL"]);
    assert!(!site.state().exists(), "the store was not made either");
}

#[test]
fn store_use_creates_the_configuration_that_was_named() {
    let site = Site::new();
    let (url, config) = (format!("sqlite:{}", site.database().display()), site.path("new.toml"));
    let said = site.say(&["--config", config.to_str().unwrap(), "store", "use", &url]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(fs::read_to_string(&config).unwrap(), format!("store = \"{url}\"\n"));
    let said = site.say(&["--config", site.path("other.toml").to_str().unwrap(), "status"]);
    assert_eq!(said.code, 2, "every other command needs it: {said:?}");
}

/// The state directory is trusted by the rule for configurations.
#[test]
fn a_state_directory_that_others_can_change_is_refused() {
    let site = Site::new();
    let run = || site.say(&["run", "a", "--", "true"]);
    let refused = |said: Said, parts: &[&str]| {
        assert_eq!(said.code, 125, "{said:?}");
        contains(&said.stderr, &["The state directory", "is refused"]);
        contains(&said.stderr, parts);
    };
    fs::create_dir(site.state()).unwrap();
    for mode in [0o777, 0o1777] {
        fs::set_permissions(site.state(), Permissions::from_mode(mode)).unwrap();
        refused(run(), &[]);
    }
    fs::set_permissions(site.state(), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run().code, 0);
    fs::rename(site.state(), site.path("real")).unwrap();
    symlink(site.path("real"), site.state()).unwrap();
    refused(run(), &["symbolic link", &format!("FENCEPOST_STATE_DIR to {}", site.path("real").display())]);
    fs::remove_file(site.state()).unwrap();
    if geteuid().is_root() {
        fs::create_dir(site.state()).unwrap();
        lchown(site.state(), Some(12345), None).unwrap();
        refused(run(), &["belongs to user 12345"]);
    }
}

/// The notifier finds the password that the run was given, and no command it starts does.
#[test]
fn notifications_know_the_password_of_the_store() {
    let server = Redis::start(&[REDIS, &["--requirepass", "s3cret"]].concat());
    let web = Web::answering(200);
    let config = format!(
        "[notify]\non_error = ['sh', '-c', 'env > told']\non_recovered = '{}'\n[job.j]\ncommand = 'exit $(cat code)'\n",
        web.url("/recovered")
    );
    let home = Home::new(&config);
    let run = |code: &str| {
        fs::write(home.path("code"), code).unwrap();
        let mut command = home.command(&["run", "j"]);
        say({
            command.env("FENCEPOST_STORE", server.url()).env("FENCEPOST_STORE_PASSWORD", "s3cret");
            command
        })
    };
    let said = run("7");
    assert_eq!(said.code, 7, "{said:?}");
    fencepost_testkit::eventually("the error is told", || {
        fs::read_to_string(home.path("told")).is_ok_and(|told| told.contains("FENCEPOST_EXIT_CODE=7"))
    });
    let told = fs::read_to_string(home.path("told")).unwrap();
    assert!(!told.contains("s3cret"), "{told}");
    assert_eq!(run("0").code, 0);
    let recovered = web.wait_for(1)[0].json();
    assert_eq!((&recovered["event"], &recovered["exit_code"]), (&json!("recovered"), &json!(0)), "{recovered}");
}
