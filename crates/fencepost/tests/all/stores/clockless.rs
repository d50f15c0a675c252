//! etcd and buckets from the command line: proved, refused where they do not compare, and moved to and from.

use fencepost_testkit::servers::{Etcd, S3_PASSWORD, S3Server};

use crate::common::{Said, Site, contains};
use crate::stores::say;

/// Runs a command with the credentials of the buckets.
fn with_keys(site: &Site, arguments: &[&str]) -> Said {
    let (id, secret) = S3_PASSWORD.split_once(':').unwrap();
    let mut command = site.command(arguments);
    command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret);
    say(command)
}

/// The same check of a bucket takes SeaweedFS a minute of both processors; the suite runs on it in the tests of the store.
#[test]
fn a_sound_etcd_is_proved() {
    let site = Site::new();
    let etcd = Etcd::start();
    let said = with_keys(&site, &["store", "check", &etcd.url()]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["One member", "The store has no clock", "ok: it may be used."]);
}

/// s3s-fs keeps a key below another in a directory of that name, and answers 500. Its races are tests of the store.
#[test]
fn a_bucket_that_cannot_be_a_store_is_refused() {
    let site = Site::new();
    let bucket = S3Server::s3s();
    let said = with_keys(&site, &["store", "check", &bucket.url()]);
    assert_eq!(said.code, 1, "{said:?}");
    contains(&said.stdout, &["refused: it must not be used."]);
}

#[test]
fn jobs_move_to_etcd_to_a_bucket_and_back() {
    let site = Site::new();
    let (etcd, bucket) = (Etcd::start(), S3Server::good());
    let places = [
        format!("sqlite:{}", site.database().display()),
        etcd.url(),
        bucket.url(),
        format!("dir:{}", site.path("shared").display()),
    ];
    let mut last = 0;
    for (at, place) in places.iter().enumerate() {
        if at > 0 {
            let said = with_keys(&site, &["store", "move", &places[at - 1], place]);
            assert_eq!(said.code, 0, "{said:?}");
            contains(&said.stdout, &["1 jobs", "sealed"]);
            let said = with_keys(&site, &["--store", &places[at - 1], "run", "a", "--", "true"]);
            assert_eq!(said.code, 125, "{said:?}");
        }
        let said = with_keys(&site, &["--store", place, "run", "a", "-c", "echo $FENCEPOST_TOKEN"]);
        let token: u64 = said.stdout.trim().parse().unwrap_or_else(|_| panic!("{said:?}"));
        assert!(token > last, "{place}: {token} after {last}");
        last = token;
    }
    let said = with_keys(&site, &["--store", &places[3], "runs", "--json"]);
    assert_eq!(said.stdout.lines().count(), 4, "every run came along: {said:?}");
}
