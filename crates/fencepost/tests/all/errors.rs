//! Likely errors as a newcomer meets them: what failed, why, what state things are in, and the next command.

use std::fs;
use std::path::Path;

use fencepost_testkit::servers::{Postgres, Redis};

use crate::common::{Said, Site, contains};
use crate::stores::{POSTGRES, REDIS};

/// A lease by hand, and its token.
fn token(site: &Site) -> String {
    let said = site.say(&["lease", "acquire", "s", "--ttl", "1h"]);
    assert_eq!(said.code, 0, "{said:?}");
    said.stdout.trim().to_string()
}

fn publish(site: &Site, target: &[&str], token: &str) -> Said {
    fs::write(site.path("payload"), "select 1").unwrap();
    let path = site.path("payload");
    let from = ["--from", path.to_str().unwrap(), "--job", "s", "--token", token];
    let mut command = site.command(&[&["publish"], target, &from].concat());
    command.env_remove("REDISCLI_AUTH").env_remove("PGPASSWORD").env("PGPASSFILE", "/dev/null");
    Said::of(command.output().unwrap())
}

#[test]
fn a_target_with_another_password() {
    let (site, redis, postgres) = (Site::new(), Redis::start(&["--requirepass", "right"]), Postgres::start(POSTGRES));
    let database = postgres.database();
    postgres.client(&database).batch_execute("CREATE ROLE keeper LOGIN PASSWORD 'right'").unwrap();
    let rules = "host all keeper 127.0.0.1/32 scram-sha-256\nhost all fencepost 127.0.0.1/32 trust\n";
    fs::write(postgres.directory().join("data/pg_hba.conf"), rules).unwrap();
    postgres.client(&database).batch_execute("SELECT pg_reload_conf()").unwrap();
    let token = token(&site);
    let sql = format!("postgres://keeper:wr0ng@127.0.0.1:{}/{database}?sslmode=disable", postgres.port);
    let key = format!("redis://:wr0ng@127.0.0.1:{}", redis.port);
    let targets =
        [(vec!["redis", "k", "--url", key.as_str()], "redis-cli"), (vec!["sql", "--url", sql.as_str()], "psql")];
    for (target, client) in targets {
        let said = publish(&site, &target, &token);
        assert_eq!(said.code, 125, "{said:?}");
        let next = format!("nothing was changed. User and password do not fit. Try them by {client}");
        contains(&said.stderr, &["Cannot connect to ", &next]);
        assert!(!said.stderr.contains("wr0ng"), "{said:?}");
    }
}

#[test]
fn plain_text_to_another_host_is_refused_alike() {
    let site = Site::new();
    let token = token(&site);
    for target in [
        vec!["redis", "k", "--url", "redis://203.0.113.1:6379"],
        vec!["sql", "--url", "postgres://u@203.0.113.1/d?sslmode=prefer"],
    ] {
        let said = publish(&site, &target, &token);
        assert_eq!(said.code, 125, "{said:?}");
        contains(&said.stderr, &["is not encrypted", "Nothing was sent."]);
    }
    let said = site.say(&["--store", "redis://203.0.113.1:6379", "run", "j", "--", "true"]);
    assert_eq!(said.code, 125, "{said:?}");
}

#[test]
fn a_stale_token() {
    let site = Site::new();
    let stale = token(&site);
    assert_eq!(site.say(&["lease", "release", "s", "--token", &stale]).code, 0);
    token(&site);
    let page = site.path("page");
    let said = publish(&site, &["file", page.to_str().unwrap()], &stale);
    assert_eq!(said.code, 13, "{said:?}");
    contains(
        &said.stderr,
        &["is stale: the job was granted again", "Nothing was changed. Who has the job: fencepost status s."],
    );
    assert!(!page.exists());
}

#[test]
fn a_wrong_clock() {
    let Some(library) = ["x86_64", "aarch64"].into_iter().find_map(|machine| {
        let path = format!("/usr/lib/{machine}-linux-gnu/faketime/libfaketime.so.1");
        Path::new(&path).exists().then_some(path)
    }) else {
        println!("skipped: libfaketime is not installed");
        return;
    };
    let (site, server) = (Site::new(), Redis::start(REDIS));
    let mut command = site.command(&["--store", &server.url(), "run", "j", "--", "true"]);
    command.env("LD_PRELOAD", library).env("FAKETIME", "2040-01-02 03:04:05").env("TZ", "UTC");
    let said = Said::of(command.output().unwrap());
    assert_eq!(said.code, 125, "{said:?}");
    contains(
        &said.stderr,
        &["j was not run", "more than 24 hours apart", "here 2040-01-02T03:04:05", "none was granted", "date -u"],
    );
}

#[test]
fn a_moment_after_the_end_of_time_and_a_store_by_ssh() {
    let site = Site::new();
    site.say(&["run", "j", "--schedule", "0 7 * * *", "--tz", "UTC", "--", "true"]);
    let said = site.say(&["plan", "j", "--at", "9999-12-31"]);
    assert_eq!(said.code, 2, "{said:?}");
    contains(&said.stderr, &["\"9999-12-31\" is too late"]);
    assert!(!said.stderr.contains("clocks skip"), "{said:?}");
    let said = site.say(&["--store", "ssh://git@h/r.git", "run", "j", "--", "true"]);
    assert_eq!(said.code, 125, "{said:?}");
    contains(&said.stderr, &["did you mean git+ssh, as in git+ssh://git@host/repository.git?"]);
}
