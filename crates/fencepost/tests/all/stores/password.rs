//! Passwords: from where they may come, and that they go nowhere else.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use fencepost_testkit::servers::{Postgres, Redis};

use crate::common::{Holder, Said, Site, contains};
use crate::stores::{POSTGRES, REDIS, say};

const PASSWORD: &str = "s3cret/with@signs:and%";

fn private(site: &Site, name: &str, text: &str) -> PathBuf {
    let path = site.path(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

/// A server that requires the password, and its URL without it.
fn postgres() -> (Postgres, String) {
    let server = Postgres::start(POSTGRES);
    let database = server.database();
    server.client(&database).batch_execute(&format!("CREATE ROLE keeper LOGIN PASSWORD '{PASSWORD}'")).unwrap();
    server.client(&database).batch_execute("GRANT ALL ON SCHEMA public TO keeper").unwrap();
    let rules = "host all keeper 127.0.0.1/32 scram-sha-256\nhost all fencepost 127.0.0.1/32 trust\n";
    fs::write(server.directory().join("data/pg_hba.conf"), rules).unwrap();
    server.client(&database).batch_execute("SELECT pg_reload_conf()").unwrap();
    let url = format!("postgres://keeper@127.0.0.1:{}/{database}?sslmode=disable", server.port);
    fencepost_testkit::eventually("the rules are in force", || {
        postgres::Client::connect(&url, postgres::NoTls).is_err()
    });
    (server, url)
}

/// Each way in, and no password anywhere that it can be seen.
fn every_way_in(url: &str) {
    let site = Site::new();
    let file = private(&site, "password", &format!("{PASSWORD}\n"));
    let script = "env; cat /proc/$PPID/cmdline | tr '\\0' ' '";
    let run = |change: &dyn Fn(&mut Command)| -> Said {
        let mut command = site.command(&["run", "a", "-v", "-c", script]);
        command.env("FENCEPOST_STORE", url);
        change(&mut command);
        let said = say(command);
        assert!(!format!("{said:?}").contains("s3cret"), "{said:?}");
        said
    };
    let said = run(&|_| {});
    assert_eq!(said.code, 125, "{said:?}");
    contains(
        &said.stderr,
        &["password", "nothing was changed. Put the password into a file", "FENCEPOST_STORE_PASSWORD_FILE="],
    );
    let said = run(&|command| {
        command.env("FENCEPOST_STORE_PASSWORD", PASSWORD);
    });
    assert_eq!(said.code, 0, "{said:?}");
    let said = run(&|command| {
        command.env("FENCEPOST_STORE_PASSWORD_FILE", &file);
    });
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["FENCEPOST_STORE_PASSWORD_FILE=", &format!("FENCEPOST_STORE={url}")]);
    // The one before a file that is wrong.
    let said = run(&|command| {
        command.env("FENCEPOST_STORE_PASSWORD", PASSWORD).env("FENCEPOST_STORE_PASSWORD_FILE", "/no/such");
    });
    assert_eq!(said.code, 0, "{said:?}");
    let said = run(&|command| {
        command.env("FENCEPOST_STORE_PASSWORD", "wr0ng");
    });
    assert_eq!(said.code, 125, "{said:?}");
    assert!(!said.stderr.contains("wr0ng"), "{said:?}");
    contains(
        &said.stderr,
        &["does not let us in (", "nothing was changed. User and password do not fit", "Try them by"],
    );

    // The configuration's file goes with the configuration's store, and with no other.
    let config = private(&site, "fencepost.toml", &format!("store = \"{url}\"\nstore_password_file = \"password\"\n"));
    let by_config = |arguments: &[&str]| {
        say({
            let mut command = site.command(arguments);
            command.env("FENCEPOST_CONFIG", &config);
            command
        })
    };
    let inner = r#""$BINARY" status --json"#;
    let said = by_config(&["run", "a", "-c", inner]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["\"a\""]);
    let other = format!("{url}&application_name=x");
    if url.starts_with("postgres") {
        let said = by_config(&["--store", &other, "run", "a", "--", "true"]);
        assert_eq!(said.code, 125, "{said:?}");
    }
    fs::set_permissions(&file, Permissions::from_mode(0o604)).unwrap();
    let said = by_config(&["run", "a", "--", "true"]);
    assert_eq!(said.code, 125, "{said:?}");
    contains(&said.stderr, &["chmod 600", "store_password_file"]);
}

#[test]
fn of_postgresql() {
    let (_server, url) = postgres();
    every_way_in(&url);
    let site = Site::new();
    let place = url.trim_start_matches("postgres://keeper@").replace(['/', '?'], ":");
    let fields: Vec<&str> = place.split(':').collect();
    let escaped = PASSWORD.replace(':', "\\:");
    let file = private(&site, "pgpass", &format!("{}:{}:{}:keeper:{escaped}\n", fields[0], fields[1], fields[2]));
    let mut command = site.command(&["--store", &url, "run", "a", "--", "true"]);
    command.env("PGPASSFILE", &file);
    let said = say(command);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
}

#[test]
fn of_redis() {
    let server = Redis::start(&[REDIS, &["--requirepass", PASSWORD]].concat());
    every_way_in(&server.url());
    // In a URL on the command line, which is warned about.
    let site = Site::new();
    let written = PASSWORD.replace('%', "%25").replace('/', "%2F").replace('@', "%40").replace(':', "%3A");
    let url = format!("redis://:{written}@127.0.0.1:{}", server.port);
    let said = site.say(&["--store", &url, "run", "a", "-c", "env | grep -v PATH"]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stderr, &["ps", "FENCEPOST_STORE_PASSWORD_FILE"]);
    assert!(!format!("{said:?}").contains("s3cret"), "{said:?}");
    // In one of the environment, it is not; and what a run starts gets no part of it.
    let mut command = site.command(&["run", "a", "-c", "env"]);
    command.env("FENCEPOST_STORE", &url);
    let said = say(command);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    assert!(!said.stdout.contains("s3cret"), "{said:?}");
    contains(&said.stdout, &[&format!("FENCEPOST_STORE=redis://127.0.0.1:{}\n", server.port)]);
}

/// What others see of the processes of a run while it goes on.
#[test]
fn not_in_the_arguments_of_any_process() {
    let server = Redis::start(&[REDIS, &["--requirepass", PASSWORD]].concat());
    let site = Site::new();
    let mut command = site.command(&["run", "a", "-c", "echo ready; exec cat"]);
    command.env("FENCEPOST_STORE", server.url()).env("FENCEPOST_STORE_PASSWORD", PASSWORD);
    let holder = Holder::start(command);
    let shown = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let leaks: Vec<&str> = shown.lines().filter(|line| line.contains("s3cret") && !line.contains("redis")).collect();
    assert_eq!(leaks, Vec::<&str>::new());
    assert_eq!(holder.finish().code, 0);
    for name in ["gate", "exec"] {
        let mut command = match name {
            "gate" => site.command(&["gate", "a", "--", "env"]),
            _ => site.command(&["run", "a", "-c", r#""$BINARY" publish exec --resource r -- env"#]),
        };
        command.env("FENCEPOST_STORE", server.url());
        command.env("FENCEPOST_STORE_PASSWORD_FILE", private(&site, "password", PASSWORD));
        command.env("FENCEPOST_STORE_PASSWORD", PASSWORD);
        let said = say(command);
        assert_eq!(said.code, 0, "{name}: {said:?}");
        assert!(!format!("{said:?}").contains("s3cret"), "{name}: {said:?}");
    }
}
