//! A store that was wiped, recreated or removed is refused by every host that has used it, until it is accepted.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use fencepost_testkit::eventually;
use fencepost_testkit::servers::{Postgres, Redis, TOKEN, Worker};

use crate::common::{Said, Site, contains};
use crate::stores::{POSTGRES, REDIS, on_host, say};

/// A store of the tests, as a host names it.
struct Lost<'a> {
    site: &'a Site,
    url: &'a str,
    password: Option<&'a str>,
}

impl Lost<'_> {
    fn command(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = on_host(self.site, host, arguments);
        command.env("FENCEPOST_STORE", self.url);
        if let Some(password) = self.password {
            command.env("FENCEPOST_STORE_PASSWORD", password);
        }
        command
    }

    fn say(&self, host: &str, arguments: &[&str]) -> Said {
        say(self.command(host, arguments))
    }

    /// The daily slot of a job, which writes a line each time it runs.
    fn daily(&self, host: &str) -> Said {
        let script = format!("echo ran >> {}", self.site.path("ran").display());
        self.say(host, &["run", "daily", "--slot", "day", "--ttl", "5s", "-c", &script])
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.site.path("ran")).unwrap_or_default().lines().count()
    }
}

/// Uses a store, loses it by `wipe`, and goes through what each verb and each host makes of that.
fn wiped(url: &str, password: Option<&str>, wipe: impl FnOnce()) {
    let site = Site::new();
    let lost = Lost { site: &site, url, password };
    let said = lost.daily("one");
    assert_eq!((said.code, lost.runs()), (0, 1), "{said:?}");
    assert_eq!((lost.daily("one").code, lost.runs()), (0, 1), "it is done");
    wipe();
    let accept = match url.contains('?') {
        true => format!("fencepost store accept '{url}'"),
        false => format!("fencepost store accept {url}"),
    };
    let verbs: &[&[&str]] = &[
        &["run", "daily", "--slot", "day", "--", "true"],
        &["run", "other", "--", "true"],
        &["lease", "acquire", "daily"],
        &["lease", "show", "daily"],
        &["record", "daily", "ok"],
        &["once", "key", "--", "true"],
        &["gate", "daily"],
        &["status"],
        &["runs"],
        &["why", "daily"],
        &["pause", "daily"],
        &["overdue"],
        &["store", "check"],
    ];
    for verb in verbs {
        let said = lost.say("one", verb);
        let refused = if verb[0] == "gate" { 15 } else { 125 };
        assert_eq!(said.code, refused, "{verb:?}: {said:?}");
        contains(&said.stderr, &[&accept, "Nothing was changed"]);
    }
    assert_eq!((lost.daily("one").code, lost.runs()), (125, 1));
    // A host that never used it accepts it, and remembers it.
    assert_eq!((lost.daily("other").code, lost.runs()), (0, 2));
    assert_eq!(lost.daily("one").code, 125, "another host has made another store of it");
    let said = lost.say("one", &["store", "accept", url]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["may run again", "--adopt", "This host accepts store"]);
    assert_eq!((lost.daily("one").code, lost.runs()), (0, 2), "it is done in the new store");
    let said = lost.say("one", &["store", "accept", url]);
    contains(&said.stdout, &["nothing to accept"]);
}

#[test]
fn postgresql_whose_table_was_dropped() {
    let server = Postgres::start(POSTGRES);
    let database = server.database();
    wiped(&server.url(&database), None, || {
        server.client(&database).batch_execute("DROP TABLE fencepost_entries").unwrap();
    });
}

#[test]
fn redis_that_was_flushed() {
    let server = Redis::start(REDIS);
    wiped(&server.url(), None, || assert_eq!(ask(&server, &["FLUSHDB"]), ["+OK"]));
}

/// What a server answers to commands, each in one line.
fn ask(server: &Redis, commands: &[&str]) -> Vec<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut answer = |command: &&str| {
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        answers.next().unwrap().unwrap()
    };
    commands.iter().map(&mut answer).collect()
}

#[test]
fn redis_that_was_restarted_without_persistence() {
    let mut server = Redis::start(&["--appendonly", "no", "--save", ""]);
    let url = server.url();
    wiped(&url, None, || server.kill_and_restart());
}

#[test]
fn a_git_repository_that_was_created_again() {
    let directory = tempfile::tempdir().unwrap();
    let repository = directory.path().join("store.git");
    let create = |path: &Path| {
        assert!(Command::new("git").args(["init", "-q", "--bare"]).arg(path).status().unwrap().success());
    };
    create(&repository);
    wiped(&format!("git+file://{}", repository.display()), None, || {
        fs::remove_dir_all(&repository).unwrap();
        create(&repository);
    });
}

#[test]
fn http_whose_entries_are_gone() {
    let mut worker = Worker::start();
    let url = worker.url();
    wiped(&url, Some(TOKEN), || worker.meddle("DELETE FROM entries"));
}

#[test]
fn sqlite_that_was_replaced_by_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    wiped(&format!("sqlite:{}", path.display()), None, || {
        for name in ["store.db", "store.db-wal", "store.db-shm"] {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
    });
}

#[test]
fn a_directory_that_was_emptied() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared");
    wiped(&format!("dir:{}", path.display()), None, || {
        fs::remove_dir_all(&path).unwrap();
        fs::create_dir(&path).unwrap();
    });
}

/// `up` opens the store as `run` does: with its password, and not if it is another one.
#[test]
fn up_refuses_it_too_and_knows_the_password() {
    let server = Redis::start(&[REDIS, &["--requirepass", "s3cret"]].concat());
    let site = Site::new();
    let config = "[job.a]\nevery = \"1s\"\ncommand = \"echo ran >> ran\"\n";
    fs::write(site.path("fencepost.toml"), config).unwrap();
    let lost = Lost { site: &site, url: &server.url(), password: Some("s3cret") };
    let ran = || fs::read_to_string(site.path("ran")).unwrap_or_default().lines().count();
    let up = || {
        let mut command = lost.command("one", &["up", "--config", site.path("fencepost.toml").to_str().unwrap()]);
        let output = fs::File::create(site.path("up.out")).unwrap();
        Ended(command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap())
    };
    let first = up();
    eventually("a slot has run", || ran() > 0);
    drop(first);
    eventually("no run goes on", || {
        let said = lost.say("one", &["status", "--json"]);
        said.stdout.contains("\"holder\":null")
    });
    assert_eq!(ask(&server, &["AUTH s3cret", "FLUSHDB"]), ["+OK", "+OK"]);
    let before = ran();
    let second = up();
    let out = || fs::read_to_string(site.path("up.out")).unwrap_or_default();
    eventually("up says why", || out().contains("fencepost store accept"));
    drop(second);
    assert_eq!(ran(), before, "{}", out());
    assert_eq!(ask(&server, &["AUTH s3cret", "DBSIZE"]), ["+OK", ":0"], "nothing was written: {}", out());
    assert!(!out().contains("s3cret"));
}

/// A process that is asked to end with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

#[test]
fn a_missing_store_that_is_accepted_is_created_by_the_next_run() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        fs::remove_file(site.state().join(name)).unwrap();
    }
    let url = format!("sqlite:{}", site.database().display());
    let said = site.say(&["run", "a", "--", "true"]);
    assert_eq!(said.code, 125, "{said:?}");
    let said = site.json(&["store", "accept", &url]);
    assert!(said["known"].is_string() && said["found"].is_null(), "{said}");
    assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
}

/// A monitor needs no right to write, and changes nothing.
#[test]
fn overdue_reads_with_a_role_that_can_only_read() {
    let server = Postgres::start(POSTGRES);
    let database = server.database();
    let site = Site::new();
    let url = server.url(&database);
    let run = |arguments: &[&str]| {
        let mut command = on_host(&site, "worker", arguments);
        command.env("FENCEPOST_STORE", &url);
        say(command)
    };
    let monitor = |arguments: &[&str]| {
        let mut command = on_host(&site, "monitor", arguments);
        command.env("FENCEPOST_STORE", url.replace("postgres://fencepost@", "postgres://monitor@"));
        say(command)
    };
    let mut client = server.client(&database);
    client.batch_execute("CREATE ROLE monitor LOGIN; GRANT USAGE ON SCHEMA public TO monitor").unwrap();
    let said = monitor(&["status"]);
    assert_eq!(said.code, 0, "there is no table yet: {said:?}");
    let absent: bool = client.query_one("SELECT to_regclass('fencepost_entries') IS NULL", &[]).unwrap().get(0);
    assert!(absent, "a command that reads makes no table");
    assert_eq!(run(&["run", "a", "--every", "1h", "--now", "--", "true"]).code, 0);
    client.batch_execute("GRANT SELECT ON fencepost_entries TO monitor").unwrap();
    for arguments in [&["overdue"][..], &["status"], &["runs"], &["why", "a"]] {
        let said = monitor(arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
    }
    assert!(!site.path("state-monitor").exists(), "nor in the state directory");
}
