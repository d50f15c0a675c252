//! `validate --drift`, through the real binary: what differs, since when, and what is not known.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use fencepost_core::name::{Job, Key};
use fencepost_core::record::Record;
use fencepost_store::{Access, StoreHandle};
use fencepost_testkit::eventually;
use serde_json::{Value, json};

use crate::common::{Said, contains};
use crate::triggers::Home;

const DAY: Duration = Duration::from_secs(24 * 3600);

const CONFIG: &str = "[job.report]\ncommand = './job.sh < prompt.md'\n";

fn home(config: &str) -> Home {
    let home = Home::new(config);
    write_script(&home, "cat > /dev/null");
    home.write("prompt.md", "Write the report.\n");
    home
}

fn write_script(home: &Home, script: &str) {
    let path = home.write("job.sh", &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn drift(home: &Home) -> Said {
    home.say(&["validate", "--drift"])
}

/// The layer, kind and subject of each difference.
fn differences(home: &Home) -> Vec<String> {
    let answer = home.json(&["validate", "--drift"]);
    let all = answer["drift"]["differences"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let word = |value: &Value| value.as_str().unwrap_or("-").to_string();
    all.iter().map(|one| [word(&one["layer"]), word(&one["kind"]), word(&one["subject"])].join(" ")).collect()
}

/// Dates a file so many days from now, and returns that day.
fn date(home: &Home, name: &str, days: u32) -> String {
    let at = SystemTime::now() + DAY * days;
    fs::File::options().write(true).open(home.path(name)).unwrap().set_modified(at).unwrap();
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    jiff::Timestamp::from_second(seconds as i64).unwrap().strftime("%Y-%m-%d").to_string()
}

fn record(home: &Home, job: &str) -> Record {
    let job = Job::parse(job).unwrap();
    let store = StoreHandle::new(&format!("sqlite:{}", home.site.database().display()), Access::default());
    let entry = store.open_to_read().unwrap().read(&Key::job(&job)).unwrap().value.unwrap();
    Record::decode(&entry.bytes, &job).unwrap()
}

#[test]
fn a_definition_is_compared_with_the_last_good_run() {
    let home = home(CONFIG);
    let said = drift(&home);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["report has no good run yet", "Drift: no differences."]);
    assert_eq!(home.json(&["validate", "--drift"])["drift"]["no_good_run"], json!(["report"]));
    home.done(&["run", "report"]);
    let said = drift(&home);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");

    home.write("prompt.md", "Write another report.\n");
    let day = date(&home, "prompt.md", 2);
    let said = drift(&home);
    assert_eq!(said.code, 1, "{said:?}");
    contains(
        &said.stderr,
        &["definition: report names prompt.md, which is not as at the last good run", &format!("Since {day}.")],
    );
    assert_eq!(differences(&home), ["definition file prompt.md"]);

    let config = format!("{CONFIG}timeout = '1h'\n");
    home.write("fencepost.toml", &config);
    let day = date(&home, "fencepost.toml", 3);
    contains(&drift(&home).stderr, &["report has another value of timeout", &format!("Since {day}.")]);

    // A run that fails is no measure; a good one is.
    write_script(&home, "exit 3");
    assert_eq!(home.say(&["run", "report"]).code, 3);
    let expected =
        ["definition key timeout", "definition file ./job.sh", "definition file prompt.md", "runs failing -"];
    assert_eq!(differences(&home), expected);
    write_script(&home, "cat > /dev/null");
    home.done(&["run", "report"]);
    assert_eq!(differences(&home), [""; 0]);

    fs::remove_file(home.path("prompt.md")).unwrap();
    assert_eq!(differences(&home), ["definition file prompt.md"]);
    fs::create_dir(home.path("prompt.md")).unwrap();
    let said = drift(&home);
    assert_eq!(said.code, 125, "{said:?}");
    contains(&said.stderr, &["definition: unknown: report names", "prompt.md, which cannot be read"]);
    contains(&said.stdout, &["Drift: no differences, 1 unknown."]);
}

#[test]
fn a_record_keeps_short_digests_and_loses_them_when_the_job_is_forgotten() {
    let home = home("[job.report]\ncommand = './job.sh < prompt.md > out.txt'\nenvironment = { KEY = 'secret' }\n");
    home.done(&["run", "report"]);
    let good = record(&home, "report").definition.unwrap();
    assert_eq!(good.digests.keys.keys().collect::<Vec<_>>(), ["command", "environment"]);
    // What the command writes is no part of its definition.
    assert_eq!(good.digests.files.keys().collect::<Vec<_>>(), ["./job.sh", "prompt.md"]);
    assert!(good.digests.keys.values().chain(good.digests.files.values()).all(|digest| digest.len() == 16), "{good:?}");
    home.done(&["forget", "report", "--yes"]);
    assert_eq!(record(&home, "report").definition, None);
    assert_eq!(differences(&home), [""; 0]);
    // A job that no configuration names has no definition.
    home.done(&["run", "other", "--", "./job.sh"]);
    assert_eq!(record(&home, "other").definition, None);
}

#[test]
fn the_same_bytes_are_stuck_and_an_artifact_of_other_bytes_is_named() {
    let home = home("[defaults]\nstuck_after = 3\n[job.report]\ncommand = './job.sh'\nproduces = ['out.md']\n");
    write_script(&home, "echo same > out.md");
    for _ in 0..2 {
        home.done(&["run", "report"]);
    }
    assert_eq!(differences(&home), [""; 0]);
    home.done(&["run", "report"]);
    let said = drift(&home);
    let today = home.json(&["validate", "--drift"])["drift"]["differences"][0]["since"].to_string();
    assert_eq!(said.code, 1, "{said:?}");
    contains(&said.stderr, &["runs: report is stuck: its last 3 good runs left the same bytes. Since ", &today[1..11]]);

    write_script(&home, "date +%N > out.md");
    home.done(&["run", "report"]);
    assert_eq!(differences(&home), [""; 0]);
    home.write("out.md", "by hand\n");
    let day = date(&home, "out.md", 4);
    contains(
        &drift(&home).stderr,
        &["out.md, which has other bytes than its last good run wrote.", &format!("Since {day}.")],
    );
    fs::remove_file(home.path("out.md")).unwrap();
    assert_eq!(differences(&home), ["runs artifact_gone out.md"]);
    fs::create_dir(home.path("out.md")).unwrap();
    let said = drift(&home);
    assert_eq!(said.code, 125, "{said:?}");
    contains(&said.stderr, &["runs: unknown: report left", "out.md, which cannot be read"]);
}

#[test]
fn a_difference_without_a_date_is_dated_by_when_it_was_first_seen() {
    let home = home("[job.report]\nschedule = '0 7 * * *'\ncommand = './job.sh'\n");
    let said = drift(&home);
    assert_eq!(said.code, 1, "{said:?}");
    contains(
        &said.stderr,
        &["installed: report has no trigger here: neither crontab, systemd nor launchd starts it. Since 20"],
    );
    let path = home.site.state().join("drift.json");
    let mut seen: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for at in seen.as_object_mut().unwrap().values_mut() {
        *at = json!(at.as_i64().unwrap() - 40 * 24 * 3_600_000);
    }
    fs::write(&path, seen.to_string()).unwrap();
    let answer = home.json(&["validate", "--drift"]);
    let since = answer["drift"]["differences"][0]["since"].as_str().unwrap();
    let age = jiff::Timestamp::now().duration_since(since.parse().unwrap()).as_hours();
    assert!((39 * 24..41 * 24).contains(&age), "{answer}");
    // It is over when the trigger is there, and then begins anew.
    home.done(&["install", "crontab", "--write"]);
    assert_eq!(differences(&home), [""; 0]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "{}");
}

#[test]
fn settings_of_mcp_servers_are_part_of_what_is_installed() {
    let home = home(CONFIG);
    home.program("fencepost", "#!/bin/sh\n");
    let server = |command: &str, arguments: &[&str]| {
        json!({ "mcpServers": { "f": { "command": command, "args": arguments } } }).to_string()
    };
    for (text, part) in [
        (server("fencepost", &["mcp"]), ""),
        (server("other", &["fencepost"]), ""),
        (server("/no/such/fencepost", &["mcp"]), "it starts /no/such/fencepost, which is not there"),
        (server("fencepost", &["status"]), "it starts fencepost without the verb mcp"),
        (
            server("fencepost", &["mcp", "--config", "/no/fencepost.toml"]),
            "it names the configuration /no/fencepost.toml",
        ),
        ("{ \"fencepost\"".to_string(), "claude cannot read it either"),
    ] {
        home.write(".mcp.json", &text);
        let day = date(&home, ".mcp.json", 5);
        let said = drift(&home);
        assert_eq!(said.code, i32::from(!part.is_empty()), "{text}: {said:?}");
        let parts = [part, if part.is_empty() { "" } else { &day }];
        contains(&said.stderr, &parts);
    }
    fs::remove_file(home.path(".mcp.json")).unwrap();
    fs::create_dir_all(home.site.path("home/.codex")).unwrap();
    let codex = home.site.path("home/.codex/config.toml");
    fs::write(&codex, "[mcp_servers.f]\ncommand = 'fencepost'\nargs = ['mcp']\n").unwrap();
    assert_eq!(drift(&home).code, 0);
    fs::write(&codex, "[mcp_servers.f]\ncommand = 'fencepost'\nargs = []\n").unwrap();
    assert_eq!(differences(&home), [format!("installed mcp {}", codex.display())]);
    assert_eq!(home.say(&["validate", "--installed"]).code, 1);
}

#[test]
fn what_cannot_be_read_is_unknown_and_not_equal() {
    let home = home("[job.report]\nschedule = '0 7 * * *'\ncommand = './job.sh'\n");
    home.done(&["install", "crontab", "--write"]);
    assert_eq!(drift(&home).code, 0);
    // An agent's settings.
    fs::create_dir_all(home.path(".claude/settings.json")).unwrap();
    let said = drift(&home);
    assert_eq!(said.code, 125, "{said:?}");
    contains(&said.stderr, &["installed: unknown:", ".claude/settings.json cannot be read"]);
    fs::remove_dir(home.path(".claude/settings.json")).unwrap();
    // The crontab: then it is not known what starts the job.
    home.program("crontab", "#!/bin/sh\necho 'you are not allowed' >&2\nexit 1\n");
    contains(&drift(&home).stderr, &["installed: unknown: crontab -l failed: you are not allowed"]);
    // The store.
    let store = "sqlite:/dev/null/store.db";
    let said = home.say(&["validate", "--drift", "--store", store]);
    contains(&said.stderr, &["definition: unknown:", "runs: unknown:"]);
    let answer = home.json(&["validate", "--drift", "--store", store]);
    assert_eq!((&answer["ok"], answer["drift"]["no_good_run"].as_array().map(Vec::len)), (&json!(false), Some(0)));
}

#[test]
fn drift_is_told_once_and_again_after_it_was_over() {
    let home = home(
        "[notify]\non_drift = 'echo \"$FENCEPOST_EVENT $FENCEPOST_MESSAGE\" >> told; tail -n 1 > body.new; mv body.new body'\n\
         on_recovered = 'echo recovered >> told'\n\
         [job.report]\nstuck_after = 2\ncommand = './job.sh'\nproduces = ['out.md']\n",
    );
    write_script(&home, ". ./does");
    let told = || fs::read_to_string(home.path("told")).unwrap_or_default();
    let run = |does: &str| {
        home.write("does", does);
        home.say(&["run", "report"]);
    };
    run("echo a > out.md");
    run("echo a > out.md");
    eventually("it is told", || told().lines().count() == 1 && home.path("body").exists());
    contains(
        &told(),
        &["drift report is stuck: its last 2 good runs left the same bytes. Since 20", "fencepost validate --drift"],
    );
    let body: Value = serde_json::from_str(&fs::read_to_string(home.path("body")).unwrap()).unwrap();
    assert_eq!((&body["event"], &body["drift"][0]["kind"]), (&json!("drift"), &json!("stuck")));
    // The third is the same streak. A failure is no drift, but the definition that it has is.
    run("echo a > out.md");
    write_script(&home, ". ./does # with a comment");
    run("exit 4");
    eventually("the definition is told", || told().lines().count() == 2);
    contains(told().lines().nth(1).unwrap(), &["drift report names ./job.sh, which is not as at the last good run"]);
    run("echo b > out.md");
    eventually("it works again", || told().contains("recovered"));
    let notes = fs::read_dir(home.site.state().join("notify")).unwrap().map(|note| note.unwrap().path());
    let is_kept = |path: &PathBuf| path.to_str().is_some_and(|path| path.ends_with(".drift.json"));
    let notes = notes.into_iter().find(is_kept).expect("what was told is kept");
    eventually("the streak is over", || fs::read_to_string(&notes).is_ok_and(|notes| notes == "{}"));
    run("echo b > out.md");
    eventually("a new streak is told", || told().matches("is stuck").count() == 2);
    assert_eq!(told().lines().count(), 4, "{}", told());
}

#[test]
fn validate_tells_what_only_it_can_see() {
    let home = home(
        "[notify]\non_drift = 'echo \"$FENCEPOST_MESSAGE\" >> told'\n[job.report]\nschedule = '0 7 * * *'\ncommand = './job.sh'\n",
    );
    let told = || fs::read_to_string(home.path("told")).unwrap_or_default();
    assert_eq!(drift(&home).code, 1);
    assert_eq!(told(), "");
    for _ in 0..2 {
        assert_eq!(home.say(&["validate", "--drift", "--notify"]).code, 1);
        assert_eq!(told().lines().count(), 1, "{}", told());
    }
    contains(&told(), &["report has no trigger here"]);
    assert_eq!(home.say(&["validate", "--notify"]).code, 2);
}
