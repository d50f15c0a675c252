//! What may be typed: names, options, and the way out of a mistake.

use crate::common::{Site, contains, keys};

#[test]
fn names_are_taken_or_refused_by_the_rule() {
    let site = Site::new();
    let longest = "x".repeat(128);
    for name in ["a", "A", "0", "_", "a/b", "a:b", "a.b", "a-b", "x.lock", "/a", ":", "a/", longest.as_str()] {
        let said = site.say(&["run", name, "--", "true"]);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{name}");
    }
    // All of them are different jobs.
    assert_eq!(site.json(&["status"])["jobs"].as_array().map(Vec::len), Some(13));
    let too_long = "x".repeat(129);
    for name in ["", ".a", "..", "a..b", "a b", "a\nb", "ä", "a@b", "a\\b", "*", too_long.as_str()] {
        let said = site.say(&["run", name, "--", "touch", site.path("ran").to_str().unwrap()]);
        assert_eq!(said.code, 125, "{name:?}: {said:?}");
        contains(&said.stderr, &["is not a name", "1 to 128 letters"]);
        assert_eq!(site.say(&["lease", "show", name]).code, 2, "{name:?}");
        assert_eq!(site.say(&["status", name]).code, 2, "{name:?}");
    }
    assert_eq!(site.say(&["run", "-a", "--", "true"]).code, 125);
    assert!(!site.path("ran").exists());
}

#[test]
fn a_usage_error_is_125_under_run_and_2_elsewhere() {
    let site = Site::new();
    for wrong in [
        &["run"][..],
        &["run", "j"],
        &["run", "j", "--"],
        &["run", "j", "--no-such-option", "--", "true"],
        &["run", "j", "--ttl", "10s", "--grace", "5s", "--", "true"],
        &["run", "j", "--ttl", "600", "--", "true"],
        &["run", "j", "--ttl", "500ms", "--", "true"],
        &["run", "j", "--ttl", "40d", "--", "true"],
        &["run", "j", "-E", "256", "--", "true"],
        &["run", "j", "-q", "-v", "--", "true"],
        &["run", "j", "-c", "true", "--", "true"],
        &["run", "j", "--overlap", "queue", "--", "true"],
        &["run", "j", "--events", "fd:x", "--", "true"],
        &["run", "j", "--events", "/no/such/directory/file", "--", "true"],
        &["run", "j", "--store", "mysql://h/d", "--", "true"],
        &["-v", "run", "j"],
        &["--store", "sqlite:/tmp/x.db", "run", "j"],
    ] {
        let said = site.say(wrong);
        assert_eq!((said.code, said.stdout.as_str()), (125, ""), "{wrong:?}: {said:?}");
        assert!(!said.stderr.is_empty(), "{wrong:?}");
    }
    for wrong in [
        &[][..],
        &["rnu", "j"],
        &["lease"],
        &["lease", "acquire"],
        &["lease", "acquire", "j", "--ttl", "5"],
        &["lease", "acquire", "j", "--ttl", "500ms"],
        &["lease", "renew", "j"],
        &["lease", "renew", "j", "--token", "x"],
        &["lease", "renew", "j", "--token", "9007199254740992"],
        &["lease", "release", "j"],
        &["lease", "release", "j", "--token", "1", "--force"],
        &["status", "a", "b"],
        &["status", "--store", "mysql://h/d"],
        &["runs", "--status", "fine"],
        &["runs", "-n", "many"],
    ] {
        let said = site.say(wrong);
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{wrong:?}: {said:?}");
        assert!(!said.stderr.is_empty(), "{wrong:?}");
    }
    assert!(!site.state().exists(), "nothing was touched");
}

#[test]
fn a_mistake_is_answered_with_the_nearest_right_word_or_the_way_out() {
    let site = Site::new();
    let table: &[(&[&str], &[&str])] = &[
        (&["rum", "j", "--", "true"], &["run"]),
        (&["stauts"], &["fencepost status"]),
        (&["lease", "acquier", "j"], &["fencepost lease acquire"]),
        (&["run", "j", "--tll", "5m", "--", "true"], &["'--ttl'"]),
        (&["run", "j", "--overlap", "replce", "--", "true"], &["'replace'"]),
        (&["run", "j", "--ttl", "600", "--", "true"], &["600s"]),
        (
            &["run", "j", "--ttl", "10s", "--grace", "5s", "--", "true"],
            &["three times --grace", "--ttl of at least 15"],
        ),
        (&["run", "j"], &["no command", "fencepost run j -- "]),
        (&["run", "j", "./job.sh", "now"], &["-- ./job.sh"]),
        (&["status", "--store", "sqlit:/x"], &["did you mean sqlite"]),
        (&["status", "--store", "/x.db"], &["did you mean sqlite:/x.db"]),
        (&["runs", "--status", "fine"], &["ok", "skipped_overlap"]),
    ];
    for (typed, parts) in table {
        let said = site.say(typed);
        assert_ne!(said.code, 0, "{typed:?}");
        contains(&said.stderr, parts);
    }
}

#[test]
fn the_help_names_every_option() {
    let site = Site::new();
    let table: &[(&[&str], &str)] = &[
        (&[], "run lease status runs --store --json --verbose --quiet --help --version"),
        (
            &["run"],
            "--ttl --grace --timeout --wait --skip-exit --overlap skip replace --per-host --on-store-error fail \
             --leave-children --output-on-failure --events fd:N --dry-run -c -w -E -q -v --store --json CMD",
        ),
        (&["lease"], "acquire renew release show hold"),
        (&["lease", "acquire"], "--ttl --wait --per-host --json"),
        (&["lease", "renew"], "--token"),
        (&["lease", "release"], "--token --force"),
        (&["lease", "hold"], "--ttl --wait"),
        (&["status"], "--json --store"),
        (&["runs"], "--status -n --json"),
    ];
    for (verb, words) in table {
        let said = site.say(&[*verb, &["--help"]].concat());
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{verb:?}");
        contains(&said.stdout, &words.split_whitespace().collect::<Vec<_>>());
    }
}

#[test]
fn the_version_says_on_request_how_it_was_built() {
    let site = Site::new();
    let version = format!("fencepost {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(site.say(&["--version"]).stdout, version);
    assert_eq!(site.say(&["version"]).stdout, version);
    let verbose = site.say(&["--version", "--verbose"]);
    assert_eq!((verbose.code, verbose.stderr.as_str()), (0, ""));
    assert!(verbose.stdout.starts_with(&version), "{verbose:?}");
    contains(&verbose.stdout, &["\ncommit: ", "\ntarget: ", "\nfeatures: default\n", "\nstores: sqlite "]);
    for arguments in [&["-v", "--version"][..], &["version", "-v"]] {
        assert_eq!(site.say(arguments), verbose, "{arguments:?}");
    }
}

#[test]
fn global_options_stand_on_either_side_of_the_verb_and_never_after_the_dashes() {
    let site = Site::new();
    let url = format!("sqlite:{}", site.path("elsewhere.db").display());
    let before = site.say(&["--json", "--store", &url, "lease", "acquire", "j"]);
    assert_eq!(before.code, 0, "{before:?}");
    let between = site.say(&["lease", "--store", &url, "--json", "show", "j"]);
    let after = site.say(&["lease", "show", "j", "--store", &url, "--json"]);
    for said in [between, after] {
        let shown: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
        assert_eq!(shown["held"], true, "{said:?}");
    }
    assert!(!site.database().exists());
    let said = site.say(&["run", "j", "--", "echo", "--json", "-q", "--store"]);
    assert_eq!(said.stdout, "--json -q --store\n");
}

#[test]
fn a_failure_is_one_json_object_whose_code_is_the_exit_code() {
    let site = Site::new();
    let said = site.say(&["lease", "acquire", "taken"]);
    let token = said.stdout.trim().to_string();
    let bad_store = format!("sqlite:{}", site.path("foreign.db").display());
    std::fs::write(site.path("foreign.db"), "no database at all").unwrap();
    let table: &[(&[&str], i32, &str)] = &[
        (&["lease", "acquire", "taken"], 11, "held"),
        (&["lease", "renew", "taken", "--token", "7"], 12, "lost"),
        (&["lease", "release", "never", "--token", "7"], 12, "lost"),
        (&["lease", "renew", "taken", "--token", "9007199254740992"], 2, "usage"),
        (&["lease", "acquire", "a b"], 2, "usage"),
        (&["lease", "acquire", "taken", "--ttl", "1ms"], 2, "usage"),
        (&["status", "--nonsense"], 2, "usage"),
        (&["status", "--store", &bad_store], 125, "store_failed"),
        (&["runs", "--store", &bad_store], 125, "store_failed"),
        (&["run", "j"], 125, "usage"),
        (&["run", "j", "--nonsense"], 125, "usage"),
        (&["run", "j", "--store", &bad_store], 125, "usage"),
        (&["run", "j", "-c", "true", "--store", &bad_store], 125, "store_failed"),
        (&["run", "j", "-c", "sleep 60", "--timeout", "10ms"], 124, "timeout"),
        (&["run", "j", "-c", "\"$BINARY\" run j -c true --json"], 125, "nested"),
    ];
    for (typed, code, reason) in table {
        let said = site.say(&[&["--json"], *typed].concat());
        let shown = crate::common::lines(&said.stdout);
        assert_eq!((said.code, shown.len()), (*code, 1), "{typed:?}: {said:?}");
        assert_eq!(keys(&shown[0]), ["error", "v"], "{typed:?}: {said:?}");
        assert_eq!(keys(&shown[0]["error"]), ["code", "message", "reason"]);
        assert_eq!(shown[0]["error"]["code"], *code, "{typed:?}: {said:?}");
        assert_eq!(shown[0]["error"]["reason"], *reason, "{typed:?}: {said:?}");
        assert!(shown[0]["error"]["message"].as_str().is_some_and(|text| text.len() > 10), "{said:?}");
    }
    for (command, code) in [("/no/such/command", 127), ("/etc/passwd", 126)] {
        let said = site.say(&["--json", "run", "j", "--", command]);
        assert_eq!(
            (said.code, &crate::common::lines(&said.stdout)[0]["error"]["code"]),
            (code, &serde_json::json!(code))
        );
    }
    assert_eq!(site.say(&["lease", "release", "taken", "--token", &token]).code, 0);
}
