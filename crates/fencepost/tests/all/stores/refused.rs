//! Stores that are refused before they are used, because a promise could not be kept in them.

use std::fs;

use fencepost_testkit::network::from_another_host;
use fencepost_testkit::servers::{Postgres, Redis};

use crate::common::{Said, Site, contains};
use crate::stores::{POSTGRES, REDIS};

#[test]
fn a_database_that_is_bind_mounted_by_itself_is_refused() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
    fs::create_dir(site.path("elsewhere")).unwrap();
    fs::write(site.path("elsewhere/store.db"), b"").unwrap();
    let script = "mount --bind state/store.db elsewhere/store.db && touch mounted || exit 99
                  \"$BINARY\" --store sqlite:elsewhere/store.db run a -- touch ran; echo $?
                  ls -A elsewhere
                  umount elsewhere/store.db && mount --bind state elsewhere || exit 99
                  \"$BINARY\" --store sqlite:elsewhere/store.db run a -- touch ran; echo $?";
    let mut command = site.program("unshare", &["-m", "sh", "-c", script]);
    let said = Said::of(command.current_dir(site.path("")).output().unwrap());
    if !site.path("mounted").exists() {
        return println!("skipped: mounting needs root: {said:?}");
    }
    assert_eq!(said.stdout, "125\nstore.db\n0\n", "no log beside the file, and its directory may be mounted: {said:?}");
    contains(&said.stderr, &["elsewhere/store.db is a mount point", "nothing was changed", "Mount the directory"]);
    assert!(site.path("ran").exists());
}

#[test]
fn plain_text_to_another_host_is_refused_and_the_error_names_the_option() {
    let site = Site::new();
    // 192.0.2.0/24 is reserved for documentation: the refusal comes without a connection.
    for (url, option) in [
        ("redis://:s3cret@192.0.2.1:6379", "?insecure=1"),
        ("postgres://u:s3cret@192.0.2.1/d?sslmode=prefer", "sslmode=disable"),
        ("http://192.0.2.1:8787", "?insecure=1"),
    ] {
        for verb in [&["status"][..], &["run", "a", "--", "touch", "ran"]] {
            let said = site.say(&[&["--store", url], verb].concat());
            assert_eq!(said.code, 125, "{url}: {said:?}");
            contains(&said.stderr, &["not encrypted", "192.0.2.1", option, "Nothing was sent"]);
            assert!(!said.stderr.contains("s3cret"), "{said:?}");
        }
    }
    assert!(!site.path("ran").exists());
}

#[test]
fn a_store_that_cannot_be_opened_gives_the_same_error_from_every_verb() {
    let site = Site::new();
    fs::write(site.path("foreign.db"), "this is not a database, and longer than a header of SQLite is".repeat(20))
        .unwrap();
    let (ran, written) = (site.path("ran").display().to_string(), site.path("x").display().to_string());
    let verbs: &[&[&str]] = &[
        &["once", "k", "--", "touch", &ran],
        &["lease", "acquire", "a", "--ttl", "10m"],
        &["lease", "renew", "a", "--token", "1"],
        &["lease", "release", "a", "--token", "1"],
        &["lease", "show", "a"],
        &["lease", "hold", "a", "--ttl", "10m"],
        &["publish", "file", &written, "--job", "a", "--token", "1"],
        &["publish", "exec", "--resource", "r", "--job", "a", "--token", "1", "--", "touch", &ran],
        &["record", "a", "ok"],
        &["gate", "a"],
        &["plan", "a", "--schedule", "@daily"],
        &["pause", "a"],
        &["resume", "a"],
        &["status"],
        &["runs"],
        &["why", "a"],
        &["advise", "a"],
        &["overdue"],
        &["store", "check"],
        &["store", "export"],
    ];
    // The first one is a mistake of the caller, the others are failures of a store.
    let foreign = format!("sqlite:{}", site.path("foreign.db").display());
    for (url, by_hand) in [("mysql://h/d", 2), ("redis://192.0.2.1:6379", 125), (&foreign, 125)] {
        let run = site.say(&["--store", url, "run", "a", "--", "touch", &ran]);
        assert_eq!(run.code, 125, "{url}: {run:?}");
        let sentence = run.stderr.trim().trim_start_matches("fencepost: ");
        for verb in verbs {
            let said = site.say(&[&["--store", url], *verb].concat());
            let expected = match (verb[0], by_hand) {
                ("once", _) => 125,
                // What cannot be read is no ground to proceed.
                ("gate", 125) => 15,
                // A URL that is refused has failed its check.
                ("store", 125) if verb[1] == "check" && url.starts_with("redis") => 1,
                _ => by_hand,
            };
            assert_eq!(said.code, expected, "{url} {verb:?}: {said:?}");
            let words = format!("{}{}", said.stdout, said.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(sentence), "{url} {verb:?}: {words}\nand not: {sentence}");
        }
    }
    assert!(!site.path("ran").exists() && !site.path("x").exists());
}

#[test]
fn plain_text_to_another_host_works_where_the_url_allows_it_and_is_reported() {
    let site = Site::new();
    let (redis, postgres) = (Redis::start(REDIS), Postgres::start(POSTGRES));
    let Some(((host, to_redis), (_, to_postgres))) =
        from_another_host(redis.port).zip(from_another_host(postgres.port))
    else {
        return println!("skipped: this machine has no address but loopback");
    };
    let database = postgres.database();
    let place = format!("postgres://fencepost@{host}:{}/{database}", to_postgres.port);
    // Without a word about TLS it is demanded, and this server has none.
    let said = site.say(&["--store", &place, "run", "a", "--", "touch", "ran"]);
    assert_eq!(said.code, 125, "{said:?}");
    contains(&said.stderr, &["does not support TLS", "sslmode=disable"]);
    let report = site.json(&["store", "check", &redis.url()]);
    contains(&report.to_string(), &["\"transport\"", "on this machine"]);
    for url in [format!("redis://{host}:{}?insecure=1", to_redis.port), format!("{place}?sslmode=disable")] {
        let said = site.say(&["--store", &url, "run", "a", "--", "true"]);
        assert_eq!(said.code, 0, "{said:?}");
        let report = site.json(&["store", "check", &url]);
        assert_eq!(report["verdict"], "ok", "{report}");
        contains(&report.to_string(), &["\"transport\"", "Plain text to another host"]);
    }
}
