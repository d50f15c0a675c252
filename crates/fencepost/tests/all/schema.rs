//! The schema of the answers is current, and what the verbs print is what it says.

pub mod validator;

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use crate::common::{BINARY, Said, Site, lines};
use serde_json::Value;
use validator::Validator;

/// The schema in the documentation.
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/schema.json");

#[test]
fn the_reference_is_current() {
    let printed = Site::new().say(&["schema"]).stdout;
    assert!(
        fs::read_to_string(REFERENCE).unwrap_or_default() == printed,
        "docs/reference/schema.json is out of date. Write it anew: cargo run -p fencepost -- schema > docs/reference/schema.json"
    );
}

/// A site whose answers are compared with the schema.
struct Bench {
    site: Site,
    validator: Validator,
    seen: BTreeSet<String>,
}

impl Bench {
    fn new() -> Self {
        let site = Site::new();
        let schema = serde_json::from_str(&site.say(&["schema"]).stdout).unwrap();
        Self { site, validator: Validator::new(schema), seen: BTreeSet::new() }
    }

    /// Compares every line that a command prints.
    fn check(&mut self, answer: &str, arguments: &[&str]) -> Vec<Value> {
        let said = self.site.say(&[&["--json"], arguments].concat());
        let printed = lines(&said.stdout);
        assert!(!printed.is_empty(), "{arguments:?}: {said:?}");
        self.compare(answer, &printed);
        printed
    }

    fn compare(&mut self, answer: &str, printed: &[Value]) {
        for value in printed {
            self.validator.check(answer, value);
        }
        self.seen.insert(answer.to_string());
    }

    fn path(&self, name: &str) -> String {
        self.site.path(name).display().to_string()
    }
}

/// Answers that no verb prints by itself: the tests of `mcp`, of `serve` and of `session` compare them.
const UNPRINTED: [&str; 9] = [
    "graph",
    "store, as a server sees it",
    "serve, event",
    "runs, as one object",
    "logs, as one object",
    "run_now",
    "session, request",
    "session, answer",
    "session, event",
];

#[test]
fn every_verb_prints_what_the_schema_says() {
    let mut bench = Bench::new();
    runs(&mut bench);
    questions(&mut bench);
    by_hand(&mut bench);
    writes(&mut bench);
    setup(&mut bench);
    told(&mut bench);
    stores(&mut bench);
    let named: BTreeSet<String> =
        bench.validator.answers().filter(|name| !UNPRINTED.contains(name)).map(str::to_string).collect();
    assert_eq!(bench.seen, named, "each answer of the schema is printed by this test");
}

fn runs(bench: &mut Bench) {
    let events = bench.path("events");
    fs::write(bench.site.path("made"), "something").unwrap();
    let made = bench.path("made");
    bench.site.say(&["run", "up/stream", "--produces", &made, "--events", &events, "-c", &format!("echo x > {made}")]);
    bench.site.say(&["run", "j", "--needs", "up/stream@any", "--", "true"]);
    bench.site.say(&["run", "j", "--needs", "nothing@any", "--events", &events, "--", "true"]);
    bench.site.say(&["run", "j", "--timeout", "50ms", "--grace", "50ms", "--events", &events, "--", "sleep", "60"]);
    bench.site.say(&["run", "due", "--schedule", "* * * * *", "--now", "--", "true"]);
    let written = lines(&fs::read_to_string(&events).unwrap());
    assert!(written.len() > 8, "{written:?}");
    bench.compare("run --events", &written);
    bench.check("run --dry-run", &["run", "j", "--dry-run", "--", "true"]);
    bench.check("run --dry-run", &["run", "j", "--dry-run", "--needs", "nothing@any", "--", "true"]);
    bench.check("error", &["run", "j", "--", "./no-such-command"]);
    bench.check("error", &["why", "no-such-job"]);
    bench.check("error", &["no-such-verb"]);
    bench.check("demo", &["demo", "--fast", "--incident", "1"]);
}

fn questions(bench: &mut Bench) {
    bench.check("status", &["status"]);
    bench.check("runs", &["runs"]);
    bench.check("why", &["why", "j"]);
    bench.check("plan", &["plan", "due"]);
    bench.check("plan", &["plan", "new", "--schedule", "@daily"]);
    bench.check("overdue", &["overdue"]);
    (0..5).for_each(|_| assert_eq!(bench.site.say(&["run", "often", "--", "true"]).code, 0));
    bench.check("advise", &["advise"]);
    bench.check("gate", &["gate", "up/stream@any", "nothing"]);
    // A record that cannot be read is part of the answer, with its key.
    let database = rusqlite::Connection::open(bench.site.database()).unwrap();
    let keep: Vec<u8> =
        database.query_row("SELECT value FROM entries WHERE key = 'job/often'", [], |row| row.get(0)).unwrap();
    database.execute("UPDATE entries SET value = CAST('torn' AS BLOB) WHERE key = 'job/often'", []).unwrap();
    let status = &bench.check("status", &["status"])[0];
    assert_eq!(status["errors"][0]["key"], "job/often", "{status}");
    assert_eq!(status["errors"][0]["message"], status["unreadable"][0], "{status}");
    bench.check("overdue", &["overdue"]);
    let printed = bench.site.say(&["runs", "--json"]).stdout;
    let (errors, runs): (Vec<Value>, Vec<Value>) =
        lines(&printed).into_iter().partition(|line| line["error"].is_object());
    assert_eq!(errors[0]["error"]["key"], "job/often", "{errors:?}");
    bench.compare("error", &errors);
    bench.compare("runs", &runs);
    database.execute("UPDATE entries SET value = ?1 WHERE key = 'job/often'", [keep]).unwrap();
}

fn by_hand(bench: &mut Bench) {
    bench.check("lease", &["lease", "show", "free"]);
    let token = bench.check("lease", &["lease", "acquire", "free"])[0]["token"].to_string();
    bench.check("error", &["lease", "acquire", "free"]);
    bench.check("lease", &["lease", "renew", "free", "--token", &token]);
    bench.check("status", &["status"]);
    let file = bench.path("file");
    bench.check("publish", &["publish", "file", &file, "--job", "free", "--token", &token, "--from", "/dev/null"]);
    bench.check("lease", &["lease", "release", "free", "--token", &token]);
    let held = bench.site.command(&["lease", "hold", "free"]).stdin(Stdio::null()).output().unwrap();
    bench.compare("lease hold", &lines(&Said::of(held).stdout));
    bench.check("record", &["record", "hand", "ok", "--artifact", &bench.path("made")]);
    bench.check("pause", &["pause", "hand", "--note", "for a while"]);
    bench.check("status", &["status"]);
    bench.check("resume", &["resume", "hand"]);
    bench.check("pause --all", &["pause", "--all", "--for", "1h"]);
    bench.check("status", &["status"]);
    bench.check("plan, without a job", &["plan"]);
    bench.check("resume --all", &["resume", "--all"]);
    bench.site.say(&["once", "item", "--", "true"]);
    bench.check("once list", &["once", "list"]);
    bench.check("once show", &["once", "show", "item"]);
    bench.check("once forget", &["once", "forget", "item", "--yes"]);
    bench.site.say(&["run", "past", "--", "true"]);
    bench.check("forget", &["forget", "past", "--yes"]);
}

fn writes(bench: &mut Bench) {
    let file = bench.path("file");
    bench.site.say(&["publish", "file", &file, "--job", "j", "--token", "1", "--from", "/dev/null"]);
    bench.check("publish", &["publish", "file", &file, "--job", "j", "--token", "1", "--from", "/dev/null"]);
    bench.check("once", &["once", "item", "--", "true"]);
    bench.check("once", &["once", "item", "--", "true"]);
    bench.check("once", &["once", "other", "--", "false"]);
    let said = bench.site.say(&["run", "said", "-c", &format!("{BINARY} record empty --json")]);
    bench.compare("record, inside a run", &lines(&said.stdout));
    let repository = bench.path("repository");
    assert!(bench.site.program("git", &["init", "-q", &repository]).status().unwrap().success());
    bench.check("publish git --hook", &["publish", "git", "--hook", "--repo", &repository]);
}

fn setup(bench: &mut Bench) {
    let config = bench.path("fencepost.toml");
    let crontab = format!("crontab={}", bench.path("crontab"));
    fs::write(bench.site.path("crontab"), "* * * * * true\nnonsense\n").unwrap();
    bench.check("init", &["init", "--output", &config, "--from", &crontab]);
    bench.check("serve token", &["serve", "token", "laptop", "--token-file", &bench.path("tokens")]);
    bench.check("validate", &["validate", "--config", &config]);
    fs::write(&config, "timezone = \"Nowhere/Land\"\n[job.a]\nschedule = \"@daily\"\ncommand = \"true\"\n").unwrap();
    bench.check("validate", &["validate", "--config", &config]);
    fs::write(&config, "[logs]\n[job.a]\nschedule = \"@daily\"\ncommand = \"echo a\"\n").unwrap();
    bench.check("validate", &["validate", "--config", &config]);
    bench.site.say(&["run", "a", "--now", "--config", &config]);
    bench.check("logs", &["logs", "a", "--list", "--config", &config]);
    bench.check("install", &["install", "systemd", "--dry-run", "--config", &config]);
}

/// Notifications, and the lines of `up`.
fn told(bench: &mut Bench) {
    let config = bench.path("told.toml");
    let recipient = "cat > told.new; mv told.new told";
    let jobs = "[job.t]\nevery = '1s'\nslack = '1s'\ncommand = 'echo oh no; exit 3'\n";
    fs::write(&config, format!("{jobs}on_error = '{recipient}'\n")).unwrap();
    let webhook = |bench: &mut Bench| {
        let path = bench.site.path("told");
        fencepost_testkit::eventually("it is told", || path.exists());
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        bench.compare("webhook", &lines(text.lines().last().unwrap()));
    };
    bench.check("notify", &["notify", "--test", "t", "--config", &config]);
    webhook(bench);
    bench.site.say(&["run", "t", "--now", "--config", &config]);
    webhook(bench);
    fencepost_testkit::eventually("a slot is due", || {
        bench.check("up", &["up", "--once", "--config", &config]).iter().any(|line| line["event"] == "error")
    });
}

fn stores(bench: &mut Bench) {
    let url = |name: &str, bench: &Bench| format!("dir:{}", bench.path(name));
    let (from, to) = (format!("sqlite:{}", bench.site.database().display()), url("moved", bench));
    bench.check("store check", &["store", "check", &from]);
    bench.check("store recover", &["store", "recover", "j", "--above", "7"]);
    bench.check("store export", &["store", "export", &bench.path("export")]);
    bench.check("store import", &["store", "import", &bench.path("export"), "--store", &url("imported", bench)]);
    bench.check("store accept", &["store", "accept", &url("imported", bench)]);
    bench.check("store move", &["store", "move", &from, &to, "--dry-run"]);
    bench.check("store move", &["store", "move", &from, &to]);
    bench.check("status", &["status"]);
    fs::write(bench.site.path("used.toml"), "").unwrap();
    bench.check("store use", &["--config", &bench.path("used.toml"), "store", "use", &to]);
}
