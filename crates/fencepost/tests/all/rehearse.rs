//! `run --rehearse`: fencepost's own writes are shown and not made. `publish --if-digest` writes only what was rehearsed.

use std::fs;

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::common::{BINARY, Holder, Said, Site, contains};

/// Every key, version and value of the store.
fn everything(site: &Site) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let database = Connection::open(site.database()).unwrap();
    let mut statement = database.prepare("SELECT key, version, value FROM entries ORDER BY key").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

fn script(site: &Site, script: &str) -> String {
    format!("B='{BINARY}'; cd '{}'; {script}", site.directory().display())
}

fn rehearse(site: &Site, text: &str) -> Said {
    Said::of(site.command(&["run", "agent", "--rehearse", "-c", &script(site, text)]).output().unwrap())
}

/// A site whose job has published a page once.
fn published() -> Site {
    let site = Site::new();
    fs::write(site.path("old"), "one\ntwo\n").unwrap();
    fs::write(site.path("new"), "one\nthree\n").unwrap();
    let first = site.say(&["run", "agent", "-c", &script(&site, "$B publish file page --from old")]);
    assert_eq!(first.code, 0, "{first:?}");
    site
}

#[test]
fn a_rehearsal_leaves_store_target_and_fence_as_they_were() {
    let site = published();
    let before = (everything(&site), fs::read(site.path("page")).unwrap());
    let fence = fs::read(site.path(".page.fencepost-fence")).unwrap();
    let said = rehearse(
        &site,
        "$B publish file page --from new && env -i $B publish file page --from new -q && $B record empty --note none && \
         $B record other ok && $B once charge/7 -- touch charged && $B publish exec --resource r -- touch ran && touch real",
    );
    assert_eq!(said.code, 0, "{said:?}");
    contains(
        &said.stderr,
        &[
            "agent rehearsed: its command exited 0",
            "would publish file",
            "(sha256:",
            "would be recorded as empty",
            "record other as ok",
            "once for charge/7",
            "publish exec r",
        ],
    );
    assert_eq!(before, (everything(&site), fs::read(site.path("page")).unwrap()));
    assert_eq!(fence, fs::read(site.path(".page.fencepost-fence")).unwrap());
    assert!(!site.path("charged").exists() && !site.path("ran").exists());
    assert!(site.path("real").exists(), "the command's own effects are real");
    // The only trace is in this host's logs, with the difference.
    let logs = site.say(&["logs", "agent"]);
    contains(&logs.stdout, &["agent rehearsed", "-two", "+three"]);
    assert_eq!(site.runs(&["agent"]).len(), 1);
    assert_eq!(fs::read_dir(site.path("state/said")).unwrap().count(), 0);
}

#[test]
fn a_job_that_never_ran_is_rehearsed_without_making_a_store() {
    let site = Site::new();
    fs::write(site.path("new"), "x").unwrap();
    let said = rehearse(&site, "$B publish file page --from new; exit 3");
    assert_eq!(said.code, 3, "{said:?}");
    assert!(!site.database().exists() && !site.path("page").exists());
}

#[test]
fn only_the_content_that_was_rehearsed_is_written() {
    let site = published();
    let json = rehearse(&site, "$B publish file page --from new --json");
    let answer: Value = serde_json::from_str(&json.stdout).unwrap();
    let digest = answer["digest"].as_str().unwrap().to_string();
    let publish = |from: &str| {
        let text = format!("$B publish file page --from {from} --if-digest {digest}; echo $? > code; exit 0");
        let said = site.say(&["run", "agent", "--json", "-c", &script(&site, &text)]);
        (said, fs::read_to_string(site.path("code")).unwrap())
    };
    let (said, code) = publish("old");
    assert_eq!((said.code, code.as_str()), (118, "18\n"), "{said:?}");
    contains(&said.stdout, &["digest_mismatch"]);
    assert_eq!(fs::read_to_string(site.path("page")).unwrap(), "one\ntwo\n");
    assert_eq!(site.runs(&["agent"])[0]["status"], "error");
    let (said, code) = publish("new");
    assert_eq!((said.code, code.as_str()), (0, "0\n"), "{said:?}");
    assert_eq!(fs::read_to_string(site.path("page")).unwrap(), "one\nthree\n");
}

#[test]
fn the_hook_redirects_in_a_rehearsal_and_needs_no_lease() {
    let site = published();
    let tool = |command: &str| json!({ "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": { "command": command } });
    fs::write(site.path("push"), tool("git push").to_string()).unwrap();
    fs::write(site.path("ls"), tool("ls").to_string()).unwrap();
    let said = rehearse(&site, "$B hook claude < push; echo; $B hook claude < ls");
    contains(&said.stdout, &["publish git"]);
    assert_eq!(said.stdout.matches("deny").count(), 1, "{said:?}");
    contains(&said.stderr, &["the hook refused git push"]);
}

#[test]
fn once_in_a_rehearsal_looks_whether_the_item_is_done() {
    let site = published();
    assert_eq!(site.say(&["once", "charge/7", "--", "true"]).code, 0);
    let holder = Holder::start(site.command(&["once", "charge/9", "-c", "echo begun; exec cat >/dev/null"]));
    let before = everything(&site);
    let said = rehearse(
        &site,
        "for item in 7 8 9; do $B once charge/$item -- touch charged; echo $?; done; $B once charge/7 --json -- touch charged",
    );
    contains(&said.stdout, &["0\n0\n11\n", "\"state\":\"done\""]);
    contains(
        &said.stderr,
        &[
            "would not run \"touch\" for charge/7: the slot is done already: ok",
            "would run \"touch\" once for charge/8",
            "would not run \"touch\" for charge/9: another process is doing it",
        ],
    );
    assert_eq!(before, everything(&site));
    assert!(!site.path("charged").exists());
    assert_eq!(holder.finish().code, 0);
}

#[test]
fn leases_pauses_and_inner_runs_are_not_real_in_a_rehearsal() {
    let site = published();
    let before = everything(&site);
    for verb in ["lease acquire other", "lease release agent --force", "forget agent --yes", "up"] {
        let said = rehearse(&site, &format!("$B {verb}; echo $?; env -i $B {verb}; echo $?"));
        assert_eq!(said.stdout, "2\n2\n", "{verb}: {said:?}");
        contains(&said.stderr, &["is not done in a rehearsal: it would be real. Nothing was changed."]);
    }
    let said = rehearse(
        &site,
        "$B pause agent && env -i $B resume agent && $B lease show agent && $B run inner -c 'touch inside'",
    );
    assert_eq!(said.code, 0, "{said:?}");
    contains(
        &said.stderr,
        &["agent would pause agent.", "agent would resume agent.", "inner rehearsed: its command exited 0"],
    );
    assert_eq!(before, everything(&site));
    assert!(site.path("inside").exists());
}
