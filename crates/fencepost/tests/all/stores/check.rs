//! `store check` and `store use`, on stores that keep the contract and on one that does not.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Mutex;

use fencepost_testkit::http::message;
use fencepost_testkit::network::{Loopback, free_port};
use fencepost_testkit::servers::{Postgres, Redis, TOKEN, Worker};
use serde_json::{Value, json};

use crate::common::{Said, Site, contains, keys, sorted};
use crate::stores::{POSTGRES, REDIS, say};

fn results(report: &Value) -> Vec<(&str, &str)> {
    let checks = report["checks"].as_array().unwrap_or_else(|| panic!("{report}"));
    checks.iter().map(|check| (check["name"].as_str().unwrap(), check["result"].as_str().unwrap())).collect()
}

#[test]
fn a_sound_store_is_proved_and_nothing_is_left_in_it() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
    let report = site.json(&["store", "check"]);
    assert_eq!(keys(&report), sorted("v url verdict checks"), "{report}");
    assert_eq!((&report["v"], &report["verdict"]), (&json!(1), &json!("ok")));
    for check in report["checks"].as_array().unwrap() {
        assert_eq!(keys(check), sorted("name result detail"), "{check}");
        assert!(["proved", "declared"].contains(&check["result"].as_str().unwrap()), "{check}");
    }
    let found = results(&report);
    for name in ["create race", "stale swap", "counter race", "other handles", "keys", "largest value", "clock offset"]
    {
        assert!(found.contains(&(name, "proved")), "{name}: {found:?}");
    }
    assert!(found.contains(&("durability", "declared")), "{found:?}");
    let rows: i64 = rusqlite::Connection::open(site.database())
        .unwrap()
        .query_row("SELECT count(*) FROM entries WHERE key LIKE 'probe/%'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 0);
    let said = site.say(&["store", "check"]);
    assert_eq!(said.code, 0);
    contains(&said.stdout, &["P1 ", "P2 ", "P3 ", "P4 ", "P5 ", "kept", "ok: it may be used."]);
}

#[test]
fn servers_are_proved_and_their_settings_judged() {
    let site = Site::new();
    let postgres = Postgres::start(POSTGRES);
    let report = site.json(&["store", "check", &postgres.url(&postgres.database())]);
    assert_eq!(report["verdict"], "ok", "{report}");
    assert!(results(&report).contains(&("replication", "declared")), "{report}");
    let redis = Redis::start(REDIS);
    assert_eq!(site.say(&["store", "check", &redis.url()]).code, 0);
    // A server that keeps nothing forgets every record with the next restart.
    let forgetful = Redis::start(&[]);
    let report = site.json(&["store", "check", &forgetful.url()]);
    assert_eq!(report["verdict"], "refused", "{report}");
    assert!(results(&report).contains(&("durability", "failed")), "{report}");
    assert_eq!(site.say(&["store", "check", &forgetful.url()]).code, 1);
    let worker = Worker::start();
    let mut command = site.command(&["store", "check", &worker.url(), "--json"]);
    let said = say({
        command.env("FENCEPOST_STORE_PASSWORD", TOKEN);
        command
    });
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.stdout.contains(TOKEN) && !said.stderr.contains(TOKEN));
}

#[test]
fn a_store_that_cannot_be_reached_is_refused() {
    let site = Site::new();
    let url = format!("redis://127.0.0.1:{}", free_port());
    let report = site.json(&["store", "check", &url]);
    assert_eq!((results(&report), &report["verdict"]), (vec![("reach", "failed")], &json!("refused")));
    assert_eq!(site.say(&["store", "check", &url]).code, 1);
    assert_eq!(site.say(&["store", "check", "reddis://x"]).code, 2);
}

#[test]
fn a_store_that_does_not_compare_is_refused_and_never_used() {
    let site = Site::new();
    let server = Fake::start();
    let fake = server.url("");
    let with_password = |arguments: &[&str]| {
        let mut command = site.command(arguments);
        command.env("FENCEPOST_STORE_PASSWORD", "any");
        say(command)
    };
    let said = with_password(&["store", "check", &fake, "--json"]);
    let report: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!((said.code, &report["verdict"]), (1, &json!("refused")), "{said:?}");
    for name in ["create", "stale swap", "create race"] {
        assert!(results(&report).contains(&(name, "failed")), "{name}: {report}");
    }
    contains(&with_password(&["store", "check", &fake]).stdout, &["NOT KEPT", "refused: it must not be used."]);
    // The first use finds it out by itself, with any options.
    for options in [&[][..], &["--on-store-error", "run"]] {
        let said = with_password(&[&["--store", &fake, "run", "a"], options, &["--", "touch", "ran"]].concat());
        assert_eq!(said.code, 125, "{said:?}");
        contains(&said.stderr, &["does not keep what a store must", "store check"]);
    }
    assert!(!site.path("ran").exists());
    let config = site.path("fencepost.toml");
    fs::write(&config, "# mine\n").unwrap();
    let said = with_password(&["store", "use", &fake, "--config", config.to_str().unwrap()]);
    assert_eq!(said.code, 1, "{said:?}");
    assert_eq!(fs::read_to_string(&config).unwrap(), "# mine\n");
}

#[test]
fn use_writes_the_store_and_no_password_and_keeps_everything_else() {
    let site = Site::new();
    let config = site.path("fencepost.toml");
    fs::write(&config, "# the house\n\ntimezone = 'UTC' # why\n\n[job.a]\ncommand = 'echo $FENCEPOST_STORE'\n")
        .unwrap();
    let named = config.to_str().unwrap();
    let said = site.say(&["store", "use", &format!("dir:{}", site.path("shared").display()), "--config", named]);
    assert_eq!(said.code, 0, "{said:?}");
    let text = fs::read_to_string(&config).unwrap();
    let line = format!("store = \"dir:{}\"\n", site.path("shared").display());
    assert!(text.starts_with(&format!("# the house\n\n{line}")), "{text}");
    contains(&text, &["timezone = 'UTC' # why", "[job.a]"]);
    let ran = site.say(&["run", "a", "--config", named]);
    assert_eq!((ran.code, ran.stdout), (0, format!("dir:{}\n", site.path("shared").display())));

    let redis = Redis::start(&[REDIS, &["--requirepass", "s3cret"]].concat());
    let url = format!("redis://:s3cret@127.0.0.1:{}", redis.port);
    let said = site.say(&["store", "use", &url, "--config", named]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stderr, &["store_password_file", "FENCEPOST_STORE_PASSWORD_FILE"]);
    let text = fs::read_to_string(&config).unwrap();
    contains(&text, &[&format!("store = \"redis://127.0.0.1:{}\"\n", redis.port), "# why", "[job.a]"]);
    assert!(!text.contains("s3cret") && !said.stderr.contains("s3cret") && !said.stdout.contains("s3cret"));
}

#[test]
fn looking_makes_no_store() {
    let site = Site::new();
    let directory = site.path("shared");
    let urls = [format!("sqlite:{}", site.path("new/store.db").display()), format!("dir:{}", directory.display())];
    for url in &urls {
        for verb in [&["status"][..], &["runs"], &["plan", "a", "--schedule", "0 7 * * *"], &["lease", "show", "a"]] {
            let said: Said = site.say(&[&["--store", url], verb].concat());
            assert_eq!(said.code, 0, "{verb:?} {said:?}");
        }
    }
    assert!(!site.path("new").exists() && !directory.exists());
    // One that was there and is gone is not one that was never made.
    assert_eq!(site.say(&["--store", &urls[1], "run", "a", "--", "true"]).code, 0);
    fs::rename(&directory, site.path("aside")).unwrap();
    let said = site.say(&["--store", &urls[1], "status"]);
    assert_eq!(said.code, 125, "{said:?}");
    contains(&said.stderr, &["Mount its disk", "fencepost store accept dir:"]);
}

/// Versions and values by their keys.
type Entries = Mutex<BTreeMap<String, (u64, Vec<u8>)>>;

/// A server that speaks the protocol and accepts every write.
struct Fake;

impl Fake {
    fn start() -> Loopback {
        let entries = Entries::default();
        Loopback::start(move |client| while Self::answer(&client, &entries).is_some() {})
    }

    fn answer(mut client: &TcpStream, entries: &Entries) -> Option<()> {
        let request = message(client)?;
        let end = request.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&request[..end]).into_owned();
        let header = |name: &str| {
            let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_string())
        };
        let mut words = head.split_whitespace();
        let (method, path) = (words.next()?, words.next()?);
        let mut entries = entries.lock().unwrap();
        let (status, word, version, body) = match (method, path.strip_prefix("/v1/keys/")) {
            ("GET", Some(key)) => match entries.get(key) {
                Some((version, bytes)) => (200, "entry", format!("{version:016x}"), bytes.clone()),
                None => (404, "absent", "none".to_string(), Vec::new()),
            },
            (_, Some(key)) => {
                let next = entries.values().map(|(version, _)| *version).max().unwrap_or(0) + 1;
                if header("fencepost-new")? == "value" {
                    entries.insert(key.to_string(), (next, request[end + 4..].to_vec()));
                    (200, "won", format!("{next:016x}"), Vec::new())
                } else {
                    entries.remove(key);
                    (200, "won", "none".to_string(), Vec::new())
                }
            }
            _ if path.starts_with("/v1/keys") => {
                let query = path.split_once('?').map_or("", |(_, query)| query);
                let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
                let (prefix, after) = (value("prefix").unwrap_or(""), value("after").unwrap_or(""));
                let limit = value("limit").and_then(|limit| limit.parse().ok()).unwrap_or(1000);
                let keys = entries.keys().filter(|key| key.starts_with(prefix) && key.as_str() > after).take(limit);
                (200, "keys", String::new(), keys.map(|key| format!("{key}\n")).collect::<String>().into_bytes())
            }
            _ => {
                let about = r#"{"protocol":1,"server":"fake","declares":[{"name":"durability","standing":"sound","detail":"Sure."}]}"#;
                (200, "about", String::new(), about.as_bytes().to_vec())
            }
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        let mut answer = format!(
            "HTTP/1.1 {status} X\r\nFencepost-Answer: {word}\r\nFencepost-Request: {}\r\nCache-Control: no-store, \
             no-transform\r\nFencepost-Clock: wall={now}; tick={now}; era=fake\r\nContent-Length: {}\r\n",
            header("fencepost-request")?,
            body.len()
        );
        if !version.is_empty() {
            answer.push_str(&format!("Fencepost-Version: {version}\r\n"));
        }
        client.write_all(format!("{answer}\r\n").as_bytes()).ok()?;
        client.write_all(&body).ok()
    }
}
