//! `store move`, `store export`, `store import` and `store recover`.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Said, Site, contains, lines};

fn url(site: &Site, name: &str) -> String {
    format!("dir:{}", site.path(name).display())
}

fn sqlite(site: &Site) -> String {
    format!("sqlite:{}", site.database().display())
}

fn token(said: &Said) -> u64 {
    said.stdout.trim().parse().unwrap_or_else(|_| panic!("{said:?}"))
}

const TELL: &str = "echo $FENCEPOST_TOKEN";

#[test]
fn everything_moves_tokens_go_on_and_the_source_grants_nothing() {
    let site = Site::new();
    let (from, to) = (sqlite(&site), url(&site, "shared"));
    let mut last = 0;
    for _ in 0..40 {
        last = token(&site.say(&["run", "often", "-c", TELL]));
    }
    for job in ["a", "b/c"] {
        assert_eq!(site.say(&["run", job, "--", "true"]).code, 0);
    }
    assert_eq!(site.say(&["once", "bill/1", "--", "sh", "-c", "exit 0"]).code, 0);
    let holder = site.holder("held", &[]);
    assert_eq!(site.say(&["run", "held", "--", "true"]).code, 0);
    let before = site.runs(&["-n", "1000"]);

    // Not while a run is going, and the attempt changes nothing.
    let said = site.say(&["store", "move", &from, &to]);
    assert_eq!(said.code, 11, "{said:?}");
    contains(&said.stderr, &["held", "while no lease is held"]);
    assert_eq!(site.say(&["run", "often", "--", "true"]).code, 0);
    assert_eq!(holder.finish().code, 0);
    let before = before.len() + 1;

    let said = site.say(&["store", "move", &from, &to]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["5 jobs", "sealed", &format!("fencepost store use {to}")]);
    // Known jobs, new ones, items of work and leases by hand: each is refused and told where to go.
    for verb in [
        &["run", "often", "--", "touch", "ran"][..],
        &["run", "new", "--", "touch", "ran"],
        &["once", "bill/1", "--", "touch", "ran"],
        &["once", "bill/2", "--", "touch", "ran"],
        &["lease", "acquire", "a"],
        &["record", "a", "ok"],
        &["pause", "a"],
    ] {
        let said = site.say(verb);
        assert_eq!(said.code, 125, "{verb:?}: {said:?}");
        contains(&said.stderr, &["was moved to", &to]);
    }
    assert!(!site.path("ran").exists());

    let there = |arguments: &[&str]| site.say(&[&["--store", &to], arguments].concat());
    let moved: Vec<Value> = lines(&there(&["runs", "--json", "-n", "1000"]).stdout);
    assert_eq!(moved.len(), before);
    assert_eq!(token_of(&there(&["status", "held", "--json"]), "counts"), json!({ "ok": 1, "skipped_overlap": 1 }));
    assert!(token(&there(&["run", "often", "-c", TELL])) > last);
    let said = there(&["once", "bill/1", "--json", "--", "touch", "ran"]);
    contains(&said.stdout, &["\"replayed\":true"]);
    assert_eq!(there(&["run", "new", "--", "true"]).code, 0);
    // Again: nothing is left to do, and what happened there since stays.
    let newest = token_of(&there(&["status", "often", "--json"]), "token");
    assert_eq!(site.say(&["store", "move", &from, &to]).code, 0);
    assert_eq!(token_of(&there(&["status", "often", "--json"]), "token"), newest);

    // Neither to another place, nor to one with jobs of its own.
    let said = site.say(&["store", "move", &from, &url(&site, "third")]);
    assert_eq!(said.code, 2, "{said:?}");
    let other = Site::new();
    assert_eq!(other.say(&["run", "x", "--", "true"]).code, 0);
    let said = other.say(&["store", "move", &sqlite(&other), &to]);
    assert_eq!(said.code, 2, "{said:?}");
    contains(&said.stderr, &["jobs of its own"]);
    assert_eq!(other.say(&["run", "x", "--", "true"]).code, 0);
}

fn token_of(said: &Said, field: &str) -> Value {
    let status: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    status["jobs"][0][field].clone()
}

#[test]
fn a_fenced_file_takes_what_comes_after_the_move() {
    let site = Site::new();
    let (from, to) = (sqlite(&site), url(&site, "shared"));
    let out = site.path("out");
    let script = format!("echo $FENCEPOST_TOKEN | \"$BINARY\" publish file {}", out.display());
    assert_eq!(site.say(&["run", "a", "-c", &script]).code, 0);
    let exec = r#""$BINARY" publish exec --resource r -- true"#;
    assert_eq!(site.say(&["run", "a", "-c", exec]).code, 0);
    assert_eq!(site.say(&["store", "move", &from, &to]).code, 0);
    let said = site.say(&["--store", &to, "run", "a", "-c", &script]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(site.say(&["--store", &to, "run", "a", "-c", exec]).code, 0);
}

#[test]
fn a_move_can_be_tried_is_confirmed_on_a_terminal_and_has_an_old_name() {
    let site = Site::new();
    let (from, to) = (sqlite(&site), url(&site, "shared"));
    assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
    let said = site.say(&["store", "move", &from, &to, "--dry-run"]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["1 jobs", "would be moved", "Nothing was changed"]);
    assert!(!site.path("shared").exists(), "not even the store is created");
    // A terminal is asked, and "no" changes nothing.
    let script = format!("printf 'n\\n' | script -qec '\"$BINARY\" store move {from} {to}' /dev/null");
    let said = site.shell(&script);
    assert_eq!(said.code, 1, "{said:?}");
    contains(&said.stdout, &["[y/N]", "Nothing was changed"]);
    assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
    assert!(!site.path("shared").exists());
    let said = site.say(&["store", "copy", &from, &to]);
    assert_eq!((said.code, said.stderr.lines().count()), (0, 1), "{said:?}");
    contains(&said.stderr, &[&format!("fencepost store move {from} {to}")]);
    let said = site.say(&["status"]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["sealed", &format!("moved to {to}")]);
    assert_eq!(site.json(&["status"])["sealed"], json!({ "moved_to": to }));
    assert_eq!(site.say(&["store", "export"]).code, 2, "what is sealed is exported from where it is now");
}

/// Runs a job that publishes a file; the fence of the file names the store.
fn publishing(site: &Site, store: &str) -> Said {
    let script = format!("echo $FENCEPOST_TOKEN | \"$BINARY\" publish file {}", site.path("out").display());
    site.say(&["--store", store, "run", "a", "-c", &script])
}

#[test]
fn a_backup_fills_an_empty_store_and_replaces_a_lost_one() {
    let site = Site::new();
    let (from, fresh, backup) = (sqlite(&site), url(&site, "fresh"), site.path("backup"));
    assert_eq!(publishing(&site, &from).code, 0);
    assert_eq!(site.say(&["once", "bill/1", "--", "true"]).code, 0);
    let runs = site.runs(&["-n", "100"]);
    let piped = site.say(&["store", "export"]);
    assert_eq!(
        lines(&piped.stdout).len(),
        2 + lines(&piped.stdout).last().unwrap()["entries"].as_u64().unwrap() as usize
    );
    let file = backup.to_str().unwrap();
    assert_eq!(site.say(&["store", "export", file]).code, 0);
    // Not into a store that has something.
    let said = site.say(&["store", "import", file]);
    assert_eq!(said.code, 2, "{said:?}");
    contains(&said.stderr, &["not empty", "Nothing was changed"]);
    // A new store has an id of its own: the fence of the file refuses it.
    let said = site.say(&["--store", &fresh, "store", "import", file]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["an id of its own", "--adopt"]);
    assert_eq!(lines(&site.say(&["--store", &fresh, "runs", "--json", "-n", "100"]).stdout), runs);
    contains(&site.say(&["--store", &fresh, "once", "bill/1", "--json", "--", "false"]).stdout, &["\"replayed\":true"]);
    assert_eq!(publishing(&site, &fresh).code, 113);
    // The store is lost and replaced: its fences go on.
    let before = site.job("a")["token"].as_u64().unwrap();
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        std::fs::remove_file(site.state().join(name)).unwrap();
    }
    assert_eq!(site.say(&["run", "a", "--", "true"]).code, 125);
    let said = site.say(&["store", "import", file, "--replace-lost"]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["fences go on"]);
    assert_eq!(publishing(&site, &from).code, 0);
    assert!(site.job("a")["token"].as_u64().unwrap() > before);
}

#[test]
fn a_damaged_backup_is_refused_before_anything_is_written() {
    let site = Site::new();
    let (target, backup) = (url(&site, "fresh"), site.path("backup"));
    for job in ["a", "b"] {
        assert_eq!(site.say(&["run", job, "--", "true"]).code, 0);
    }
    let whole = site.say(&["store", "export"]).stdout;
    let cut = &whole[..whole.len() / 2];
    let without_end = whole.trim_end().rsplit_once('\n').unwrap().0;
    for damaged in
        ["", cut, without_end, &whole.replacen("job/b", "job/c", 1), &whole.replacen("exit_code", "exit_kode", 1)]
    {
        assert_ne!(damaged, whole);
        std::fs::write(&backup, damaged).unwrap();
        let said = site.say(&["--store", &target, "store", "import", backup.to_str().unwrap()]);
        assert_eq!(said.code, 2, "{said:?}");
        contains(&said.stderr, &["is not a whole export", "Nothing was changed"]);
        assert!(!site.path("fresh").exists());
    }
    std::fs::write(&backup, &whole).unwrap();
    assert_eq!(site.say(&["--store", &target, "store", "import", backup.to_str().unwrap()]).code, 0);
}

#[test]
fn a_directory_whose_creation_was_cut_short_is_taken_as_empty() {
    let site = Site::new();
    let (from, to) = (sqlite(&site), url(&site, "shared"));
    assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
    std::fs::create_dir(site.path("shared")).unwrap();
    std::fs::write(site.path("shared/t-unfinished"), "").unwrap();
    let said = site.say(&["store", "move", &from, &to]);
    assert_eq!(said.code, 0, "{said:?}");
}

/// Killed wherever it happens to be, it is repeated until it ends, and every job is in exactly one store.
#[test]
fn a_copy_that_is_killed_goes_on_when_it_is_repeated() {
    let site = Site::new();
    let (from, to) = (sqlite(&site), url(&site, "shared"));
    let jobs: Vec<String> = (0..30).map(|number| format!("j{number}")).collect();
    let tokens: Vec<u64> = jobs.iter().map(|job| token(&site.say(&["run", job, "-c", TELL]))).collect();
    for delay in [5, 15, 25, 40, 60, 90, 130, 200] {
        let mut command = site.command(&["store", "move", &from, &to]);
        let mut copy = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(delay));
        let _ = copy.kill();
        copy.wait().unwrap();
        // Before it has taken the other store, that one belongs to no job.
        if site.say(&["--store", &from, "run", "unseen", "--", "true"]).code == 0 {
            continue;
        }
        // In every half-done state: no job is granted by both.
        let job = &jobs[delay as usize % jobs.len()];
        let both = [&from, &to].map(|store| {
            let said = site.say(&["--store", store, "run", job, "-c", TELL]);
            assert!([0, 125].contains(&said.code), "{said:?}");
            said.code == 0
        });
        assert_ne!(both, [true, true], "{job} after {delay} ms");
    }
    let said = site.say(&["store", "move", &from, &to]);
    assert_eq!(said.code, 0, "{said:?}");
    for (job, before) in jobs.iter().zip(tokens) {
        assert!(token(&site.say(&["--store", &to, "run", job, "-c", TELL])) > before);
        assert_eq!(site.say(&["--store", &from, "run", job, "--", "true"]).code, 125);
    }
}

#[test]
fn a_token_is_raised_above_what_targets_have_seen_and_never_lowered() {
    let site = Site::new();
    let out = site.path("out");
    let script = format!("echo $FENCEPOST_TOKEN | \"$BINARY\" publish file {}", out.display());
    assert_eq!(site.say(&["run", "a", "-c", &script]).code, 0);
    let now = site.job("a")["token"].as_u64().unwrap();
    let ahead = now + 1_000_000_000;
    for (options, least) in [
        (vec!["--above".to_string(), ahead.to_string()], ahead),
        (vec!["--above".to_string(), "7".to_string()], ahead),
        (vec!["--fence".to_string(), (ahead + 5).to_string()], ahead + 5),
        (vec!["--fence".to_string(), out.display().to_string()], ahead + 5),
    ] {
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let said = site.say(&[&["store", "recover", "a"], &options[..]].concat());
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(site.job("a")["token"], least);
    }
    assert!(token(&site.say(&["run", "a", "-c", TELL])) > ahead + 5);
    assert_eq!(site.say(&["run", "a", "-c", &script]).code, 0);

    // The store is lost, and its identity too. The file's fence is above this clock.
    std::fs::remove_dir_all(site.state()).unwrap();
    let said = site.say(&["store", "recover", "a", "--fence", out.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stderr, &["another store", "--adopt"]);
    assert!(token(&site.say(&["run", "a", "-c", TELL])) > ahead + 5);

    // Not under a lease, not for another job's file, and not without a number.
    let holder = site.holder("a", &[]);
    assert_eq!(site.say(&["store", "recover", "a", "--above", "7"]).code, 11);
    assert_eq!(holder.finish().code, 0);
    for wrong in [
        &["store", "recover", "b", "--fence", out.to_str().unwrap()][..],
        &["store", "recover", "a", "--fence", "/no/such/file"],
        &["store", "recover", "a"],
        &["store", "recover", "a", "--above", "9007199254740992"],
    ] {
        assert_eq!(site.say(wrong).code, 2, "{wrong:?}");
    }
}
