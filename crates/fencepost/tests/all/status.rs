//! `fencepost status` and `fencepost runs`: for people, and as JSON exactly as the contract says.

use crate::common::{Said, Site, contains, keys, sorted};
use serde_json::{Value, json};

const STATUS: &str = "v store config attention jobs resources";
const JOB: &str = "job state needs_attention configured enabled schedule timezone token grants holder lost_run paused \
                   last last_ok next_slot streak recent counts skips upstreams";
const HOLDER: &str = "run host pid since until";
const RUN: &str = "v job slot date timezone status token run host trigger started finished duration_ms exit_code \
                   ended_by artifacts upstreams note";

#[test]
fn status_has_the_fields_of_the_contract() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "j", "--", "true"]).code, 0);
    assert_eq!(site.say(&["run", "j", "--", "false"]).code, 1);
    assert_eq!(site.say(&["run", "j", "--", "false"]).code, 1);
    let holder = site.holder("j", &[]);
    let status = site.json(&["status"]);
    assert_eq!(keys(&status), sorted(STATUS), "{status}");
    assert_eq!((&status["v"], &status["config"], &status["resources"]), (&json!(1), &json!(null), &json!([])));
    assert_eq!(status["store"], format!("sqlite:{}", site.database().display()));
    let job = &status["jobs"][0];
    assert_eq!(keys(job), sorted(JOB), "{job}");
    assert_eq!(keys(&job["holder"]), sorted(HOLDER), "{job}");
    assert_eq!((&job["job"], &job["token"], &job["grants"]), (&json!("j"), &json!(holder.token()), &json!(4)));
    assert_eq!(job["holder"]["pid"], holder.pid());
    assert_eq!((&job["last"]["status"], &job["last_ok"]["status"]), (&json!("error"), &json!("ok")));
    assert_eq!(keys(&job["last"]), sorted(RUN), "{job}");
    assert_eq!(job["streak"], json!({ "status": "error", "count": 2 }));
    assert_eq!(job["counts"], json!({ "ok": 1, "error": 2 }));
    assert_eq!(job["upstreams"], json!([]));
    assert_eq!(holder.finish().code, 0);
    assert_eq!(site.job("j")["holder"], json!(null));
}

#[test]
fn status_is_a_table_for_people_and_says_first_which_store() {
    let site = Site::new();
    let store = format!("store   sqlite:{}", site.database().display());
    let said = site.say(&["status"]);
    assert_eq!(said.stdout.lines().next(), Some(store.as_str()));
    contains(&said.stdout, &["No job has run", "fencepost run"]);
    site.say(&["run", "free", "--", "true"]);
    let token = site.say(&["lease", "acquire", "by-hand"]).stdout;
    let going = site.holder("going", &[]);
    let dead = site.holder("dead", &[]);
    dead.kill();
    site.say(&["run", "going", "--", "true"]);

    let said = site.say(&["status"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert_eq!(said.stdout.lines().next(), Some(store.as_str()));
    let row = |job: &str| {
        let row = said.stdout.lines().find(|line| line.starts_with(job)).unwrap();
        row.split_whitespace().map(str::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("JOB"), "JOB NEXT LAST RECENT HOST SKIPS");
    contains(&row("free "), &["free - ok ", "s + ", " 0"]);
    contains(&row("by-hand "), &["by-hand held ", " never "]);
    contains(&row("going "), &["going running ", " never ~ ", "1 (50%)"]);
    contains(&row("dead "), &["dead - lost ? "]);
    let verbose = site.say(&["status", "-v"]).stdout;
    contains(&verbose, &["STATE", "PROCESS", "TOKEN", "GRANTS", "TOOK", "by hand", token.trim()]);
    contains(&verbose, &[&format!("pid {}", going.pid())]);

    let one = site.say(&["status", "going"]);
    assert_eq!(one.stdout.lines().next(), Some(store.as_str()));
    contains(&one.stdout, &["state     running: ", "since", "until", "token", "skipped   1 (50.0 %)"]);
    assert!(!one.stdout.contains("by-hand"));
    contains(&site.say(&["status", "dead"]).stdout, &["lost: run", "did not end properly", "takes over"]);
    let said = site.say(&["status", "ded"]);
    assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{said:?}");
    contains(&said.stderr, &["No job ded is known", "Did you mean dead?"]);
}

#[test]
fn runs_have_the_fields_of_the_contract() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "j", "-c", "exit 3"]).code, 3);
    let runs = site.runs(&[]);
    assert_eq!(runs.len(), 1);
    let run = &runs[0];
    assert_eq!(keys(run), sorted(RUN), "{run}");
    let fields = |names: &[&str]| names.iter().map(|name| run[*name].clone()).collect::<Vec<Value>>();
    let named = fields(&["v", "job", "timezone", "status", "trigger", "exit_code", "ended_by", "note"]);
    assert_eq!(json!(named), json!([1, "j", "UTC", "error", "manual", 3, "child", null]));
    assert_eq!(json!(fields(&["artifacts", "upstreams"])), json!([[], []]));
    assert!(run["token"].is_u64() && run["duration_ms"].is_u64(), "{run}");
    for moment in fields(&["slot", "started", "finished"]) {
        assert!(moment.as_str().is_some_and(|text| text.ends_with("+00:00") && text.contains('T')), "{run}");
    }
    assert!(run["slot"].as_str().unwrap().starts_with(run["date"].as_str().unwrap()), "{run}");
}

#[test]
fn runs_are_shown_newest_first_and_can_be_chosen() {
    let site = Site::new();
    for code in [0, 1, 2, 3] {
        site.say(&["run", "a", "-c", &format!("exit {code}")]);
    }
    site.say(&["run", "b", "--", "true"]);
    let codes = |arguments: &[&str]| -> Vec<String> {
        let shown = |run: &Value| format!("{}{}", run["job"].as_str().unwrap(), run["exit_code"]);
        site.runs(arguments).iter().map(shown).collect()
    };
    assert_eq!(codes(&[]), ["b0", "a3", "a2", "a1", "a0"]);
    assert_eq!(codes(&["a"]), ["a3", "a2", "a1", "a0"]);
    assert_eq!(codes(&["-n", "2"]), ["b0", "a3"]);
    assert_eq!(codes(&["--status", "error", "-n", "2"]), ["a3", "a2"]);
    assert_eq!(codes(&["--status", "ok"]), ["b0", "a0"]);
    assert_eq!(codes(&["--status", "ok", "--status", "error", "a"]), ["a3", "a2", "a1", "a0"]);
    assert_eq!(codes(&["--status", "lost"]), Vec::<String>::new());
    let said = site.say(&["runs", "a"]);
    assert_eq!(said.stdout.lines().next(), Some(format!("store   sqlite:{}", site.database().display()).as_str()));
    contains(&said.stdout, &["SLOT", "STATUS", "EXIT", "TOKEN", "HOST", "NOTE", "error", "ok"]);
    contains(&site.say(&["runs", "--status", "lost"]).stdout, &["No runs."]);
}

#[test]
fn a_run_that_is_going_is_shown_as_running_and_a_dead_one_as_lost() {
    let site = Site::new();
    let holder = site.holder("j", &["--ttl", "1h"]);
    let run = &site.runs(&[])[0];
    assert_eq!(keys(run), sorted(RUN), "{run}");
    assert_eq!((&run["status"], &run["token"]), (&json!("running"), &json!(holder.token())));
    assert_eq!(
        json!([run["finished"], run["duration_ms"], run["exit_code"], run["ended_by"]]),
        json!([null, null, null, null])
    );
    contains(&site.say(&["runs"]).stdout, &["running"]);
    holder.kill();
    let run = &site.runs(&[])[0];
    assert_eq!(keys(run), sorted(RUN), "{run}");
    assert_eq!(run["status"], "lost");
    assert_eq!(site.runs(&["--status", "running"]), Vec::<Value>::new());
    assert_eq!(site.runs(&["--status", "lost"]).len(), 1);
    contains(&site.say(&["runs"]).stdout, &["lost"]);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let site = Site::new();
    for job in ["a", "b", "c"] {
        site.say(&["run", job, "--", "true"]);
    }
    let token = site.say(&["lease", "acquire", "d"]).stdout.trim().to_string();
    let table: &[&[&str]] = &[
        &["status"],
        &["status", "--json"],
        &["runs"],
        &["runs", "--json"],
        &["lease", "show", "d"],
        &["lease", "renew", "d", "--token", &token],
        &["--help"],
    ];
    for typed in table {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let said = Said::of(site.command(typed).stdout(writer).output().unwrap());
        assert_eq!(said, Said { code: 0, stdout: String::new(), stderr: String::new() }, "{typed:?}");
    }
    let said = site.shell(r#""$BINARY" runs | head -1"#);
    assert_eq!((said.code, said.stdout.lines().count(), said.stderr.as_str()), (0, 1, ""));
}

#[test]
fn an_upstream_that_keeps_a_job_from_working_is_counted_with_its_last_reason() {
    let site = Site::new();
    site.say(&["run", "quiet", "--empty-exit", "75", "-c", "exit 75"]);
    for upstream in ["broken", "broken", "quiet"] {
        site.say(&["run", "j", "--tz", "Asia/Tokyo", "--needs", &format!("{upstream}@any"), "--", "true"]);
    }
    let job = site.job("j");
    assert_eq!(job["counts"], json!({ "halted": 2, "skipped_barrier": 1 }));
    let gauges = job["upstreams"].as_array().unwrap();
    assert_eq!(keys(&gauges[0]), sorted("job halts skips at reason"));
    let shown: Vec<_> = gauges.iter().map(|gauge| json!([gauge["job"], gauge["halts"], gauge["skips"]])).collect();
    assert_eq!(json!(shown), json!([["broken", 2, 0], ["quiet", 0, 1]]));
    contains(gauges[0]["reason"].as_str().unwrap(), &["broken has never run"]);
    assert!(gauges[0]["at"].as_str().unwrap().ends_with("+09:00"), "{job}");
    contains(&site.say(&["status", "j"]).stdout, &["upstream  broken halted it 2 ×, skipped it 0 ×", "never run"]);
    contains(&site.say(&["status"]).stdout, &["UPSTREAM", "HALTS", "SKIPS", "REASON", "quiet had nothing"]);
}

#[test]
fn one_job_shows_what_its_last_good_run_left() {
    let site = Site::new();
    let path = site.path("out.txt");
    let path = path.to_str().unwrap();
    let said = site.say(&["run", "j", "--produces", path, "-c", &format!("echo hello > {path}")]);
    assert_eq!(said.code, 0, "{said:?}");
    site.say(&["run", "j", "--", "false"]);
    let start = "5891b5b522d5";
    contains(&site.say(&["status", "j"]).stdout, &["last ok", "left      ", &format!("(6 bytes, SHA-256 {start}…)")]);
    let artifact = site.job("j")["last_ok"]["artifacts"][0].clone();
    assert_eq!(keys(&artifact), sorted("path size sha256"));
    assert!(artifact["sha256"].as_str().unwrap().starts_with(start), "{artifact}");
}
