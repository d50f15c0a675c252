//! `fencepost status --format prom`, judged by Prometheus' own checker.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Said, Site, contains};
use crate::ledger::{Past, ended};
use fencepost_core::fence::Level;
use fencepost_core::lease::Intent;
use fencepost_core::ledger::{Barred, Ending, Status};
use fencepost_core::said::Published;
use fencepost_core::time::Wall;
use fencepost_core::token::{RunId, Token};

pub fn promtool() -> PathBuf {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/usr/bin/promtool");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|directory| directory.join("promtool"));
    let found = installed.chain([fetched]).find(|program| program.is_file());
    found.expect("promtool is missing: run ./test, which fetches it, or install Debian's package prometheus")
}

/// Fails if the checker has anything to say.
pub fn check(text: &str) {
    let mut command = Command::new(promtool());
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let said = Said::of(child.wait_with_output().unwrap());
    assert_eq!(said, Said { code: 0, stdout: String::new(), stderr: String::new() }, "{text}");
}

fn filled() -> Site {
    let site = Site::new();
    site.say(&["run", "a/b:c", "--", "true"]);
    site.say(&["run", "j", "--", "true"]);
    site.say(&["run", "j", "--", "false"]);
    site.say(&["run", "j", "--", "false"]);
    let past = Past::of(&site, "j", "UTC");
    let barred = |job: &str, halt| Barred { job: job.to_string(), halt, reason: "why".to_string() };
    let barred = vec![barred("up", true), barred("up@host-1", false)];
    past.record("2026-08-01T07:00", Ending { barred, ..ended(Status::Halted) });
    let token = Token::new(7).unwrap();
    past.intend(Intent::NotePublish(Published {
        resource: "/a \"b\"\\c\nd é".to_string(),
        kind: "file".to_string(),
        level: Level::Atomic,
        token,
        run: RunId(uuid::Uuid::now_v7()),
        at: Wall(0),
        seen: token,
        refused: Some("stale".to_string()),
    }));
    site
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let site = Site::new();
    assert_eq!(site.say(&["status", "--format", "prom"]).stdout, "");
    let site = filled();
    let holder = site.holder("held", &[]);
    assert_eq!(site.say(&["run", "held", "--", "true"]).code, 0);
    let said = site.say(&["status", "--format", "prom"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    check(&said.stdout);
    contains(
        &said.stdout,
        &[
            "# HELP fencepost_runs_total ",
            "# TYPE fencepost_runs_total counter\n",
            "fencepost_runs_total{job_name=\"j\",status=\"ok\"} 1\n",
            "fencepost_runs_total{job_name=\"j\",status=\"error\"} 2\n",
            "fencepost_runs_total{job_name=\"j\",status=\"lost\"} 0\n",
            "fencepost_runs_total{job_name=\"a/b:c\",status=\"ok\"} 1\n",
            "# TYPE fencepost_streak gauge\n",
            "fencepost_streak{job_name=\"j\",status=\"halted\"} 1\n",
            "fencepost_streak{job_name=\"held\",status=\"skipped_overlap\"} 1\n",
            "fencepost_held{job_name=\"j\"} 0\n",
            "fencepost_held{job_name=\"held\"} 1\n",
            "fencepost_duration_seconds{job_name=\"j\"} ",
            "fencepost_skipped_overlap_total{job_name=\"j\"} 0\n",
            "fencepost_skipped_overlap_total{job_name=\"held\"} 1\n",
            "fencepost_upstream_halts_total{job_name=\"j\",upstream=\"up\"} 1\n",
            "fencepost_upstream_skips_total{job_name=\"j\",upstream=\"up@host-1\"} 1\n",
            r#"fencepost_refused_writes_total{job_name="j",resource="/a \"b\"\\c\nd é"} 1"#,
        ],
    );
    let finished: jiff::Timestamp = site.job("j")["last_ok"]["finished"].as_str().unwrap().parse().unwrap();
    let seconds = finished.as_millisecond() as f64 / 1000.0;
    contains(&said.stdout, &[&format!("fencepost_last_ok_timestamp_seconds{{job_name=\"j\"}} {seconds}\n")]);
    assert!(!said.stdout.contains("timestamp_seconds{job_name=\"held\"}"), "it was never ok");
    let one = site.say(&["status", "j", "--format", "prom"]).stdout;
    check(&one);
    assert!(!one.contains("held\""), "{one}");
    assert_eq!(holder.finish().code, 0);
}

#[test]
fn a_file_is_replaced_as_a_whole_and_others_may_read_it() {
    let site = filled();
    let place = site.path("textfile");
    fs::create_dir(&place).unwrap();
    let path = place.join("fencepost.prom");
    let shown = path.to_str().unwrap();
    for _ in 0..2 {
        let said = site.shell(&format!(r#"umask 077; exec "$BINARY" status --format prom -o '{shown}'"#));
        assert_eq!(said, Said { code: 0, stdout: String::new(), stderr: String::new() });
    }
    let text = fs::read_to_string(&path).unwrap();
    check(&text);
    assert_eq!(text, site.say(&["status", "--format", "prom"]).stdout);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
    // A reader during the replacement reads all of the old file or all of the new one.
    let reader = std::thread::spawn({
        let (path, text) = (path.clone(), text.clone());
        move || (0..20_000).all(|_| fs::read_to_string(&path).is_ok_and(|read| read == text))
    });
    while !reader.is_finished() {
        assert_eq!(site.say(&["status", "--format", "prom", "-o", shown]).code, 0);
    }
    assert!(reader.join().unwrap());
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "no draft is left");
    // Relative to where we are.
    let said =
        Said::of(site.command(&["status", "--format", "prom", "-o", "x.prom"]).current_dir(&place).output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(fs::read_to_string(place.join("x.prom")).unwrap(), text);
}

#[test]
fn what_cannot_be_written_is_said_and_what_was_there_stays() {
    let site = filled();
    let directory = site.path("d");
    fs::create_dir(&directory).unwrap();
    let said = site.say(&["status", "--format", "prom", "-o", directory.to_str().unwrap()]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["is a directory. Name a file in it."]);
    assert!(directory.is_dir());
    for path in ["/proc/fencepost.prom", "/no/such/directory/fencepost.prom"] {
        let said = site.say(&["status", "--format", "prom", "-o", path]);
        assert_eq!(said.code, 125, "{said:?}");
        contains(&said.stderr, &["Cannot write", path]);
    }
    let said = site.say(&["status", "--format", "prom", "-o", "/dev/null"]);
    assert_eq!(said.code, 2, "{said:?}");
    for wrong in
        [&["-o", "x"][..], &["--format", "table", "-o", "x"], &["--format", "prom", "--json"], &["--format", "xml"]]
    {
        let said = site.say(&[&["status"], wrong].concat());
        assert_eq!(said.code, 2, "{wrong:?}: {said:?}");
    }
}

#[test]
fn the_other_formats_are_those_without_a_format() {
    let site = filled();
    let without_times = |text: &str| text.lines().next().unwrap().split("\"jobs\"").next().unwrap().to_string();
    let json = site.say(&["status", "--format", "json"]).stdout;
    assert_eq!(without_times(&json), without_times(&site.say(&["status", "--json"]).stdout));
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
    contains(&site.say(&["status", "--format", "table"]).stdout, &["JOB", "NEXT", "LAST"]);
}

/// What Prometheus would see at each minute, and which of the documented alerts it would raise.
const RULE_TEST: &str = r#"rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'fencepost_last_ok_timestamp_seconds{job="node", job_name="article"}'
        values: '0x2000'
      - series: 'fencepost_last_ok_timestamp_seconds{job="node", job_name="other"}'
        values: '0x2000'
      - series: 'fencepost_streak{job="node", job_name="article", status="error"}'
        values: '2 3 3 3'
      - series: 'fencepost_streak{job="node", job_name="other", status="ok"}'
        values: '9x10'
      - series: 'fencepost_refused_writes_total{job="node", job_name="article", resource="/srv/x"}'
        values: '0 0 1 1'
      - series: 'fencepost_skipped_overlap_total{job="node", job_name="article"}'
        values: '0 2 4 8 8'
      - series: 'fencepost_unreadable_records{job="node"}'
        values: '0 1 1'
      - series: 'node_textfile_mtime_seconds{job="node", file="/var/lib/prometheus/node-exporter/fencepost.prom"}'
        values: '0x20'
    alert_rule_test:
      - {eval_time: 1500m, alertname: JobStale, exp_alerts: []}
      - eval_time: 1600m
        alertname: JobStale
        exp_alerts: [{exp_labels: {job: node, job_name: article}}]
      - {eval_time: 0m, alertname: JobFailing, exp_alerts: []}
      - eval_time: 2m
        alertname: JobFailing
        exp_alerts: [{exp_labels: {job: node, job_name: article, status: error}}]
      - {eval_time: 1m, alertname: StaleWriter, exp_alerts: []}
      - eval_time: 3m
        alertname: StaleWriter
        exp_alerts: [{exp_labels: {job: node, job_name: article, resource: /srv/x}}]
      - {eval_time: 1m, alertname: JobOverlapping, exp_alerts: []}
      - eval_time: 4m
        alertname: JobOverlapping
        exp_alerts: [{exp_labels: {job: node, job_name: article}}]
      - {eval_time: 0m, alertname: RecordUnreadable, exp_alerts: []}
      - eval_time: 2m
        alertname: RecordUnreadable
        exp_alerts: [{exp_labels: {job: node}}]
      - {eval_time: 9m, alertname: FencepostSilent, exp_alerts: []}
      - eval_time: 12m
        alertname: FencepostSilent
        exp_alerts: [{exp_labels: {job: node, file: /var/lib/prometheus/node-exporter/fencepost.prom}}]
"#;

#[test]
fn the_documented_alert_rules_pass_promtool_test_rules() {
    let document = include_str!("../../../../docs/LEDGER.md");
    let (_, after) = document.split_once("```yaml\n").expect("docs/LEDGER.md has rules");
    let rules = after.split("```").next().unwrap();
    let site = Site::new();
    fs::write(site.path("rules.yml"), rules).unwrap();
    fs::write(site.path("test.yml"), RULE_TEST).unwrap();
    for arguments in [&["check", "rules", "rules.yml"][..], &["test", "rules", "test.yml"]] {
        let output = Command::new(promtool()).args(arguments).current_dir(site.path("")).output().unwrap();
        let said = Said::of(output);
        assert_eq!(said.code, 0, "{said:?}");
    }
    // Every metric that the rules use is one that fencepost, or the node exporter, exports.
    let site = filled();
    let exported = site.say(&["status", "--format", "prom"]).stdout;
    let words = rules.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    for metric in words.filter(|word| word.starts_with("fencepost_")) {
        contains(&exported, &[&format!("\n{metric}{{")]);
    }
    for line in exported.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.starts_with("fencepost_"), "{line}");
    }
}
