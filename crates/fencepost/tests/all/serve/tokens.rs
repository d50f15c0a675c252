//! The token file: how it is written, who may read it, and what a mistake in it does.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use fencepost_testkit::eventually;

use super::{Served, add_token, token_file};
use crate::common::Site;

#[test]
fn a_token_is_printed_once_and_kept_as_a_digest() {
    let site = Site::new();
    let token = add_token(&site, "laptop");
    let other = add_token(&site, "desk.2");
    let text = fs::read_to_string(token_file(&site)).unwrap();
    assert!(token.len() == 64 && token != other && !text.contains(&token), "{text}");
    assert_eq!(text.lines().map(|line| line.split(' ').next().unwrap()).collect::<Vec<_>>(), ["laptop", "desk.2"]);
    assert_eq!(fs::metadata(token_file(&site)).unwrap().permissions().mode() & 0o777, 0o600);
    let again = site.say(&["serve", "token", "laptop", "--token-file", &token_file(&site)]);
    assert_eq!((again.code, again.stdout.as_str()), (2, ""));
    assert!(again.stderr.contains("Nothing was changed"), "{again:?}");
    assert_eq!(fs::read_to_string(token_file(&site)).unwrap(), text);
    assert_eq!(site.say(&["serve", "token", "a b", "--token-file", &token_file(&site)]).code, 2);
}

#[test]
fn a_file_that_others_can_read_is_refused_with_the_command_that_mends_it() {
    let site = Site::new();
    add_token(&site, "laptop");
    for mode in [0o640, 0o604, 0o660] {
        fs::set_permissions(token_file(&site), Permissions::from_mode(mode)).unwrap();
        let said = site.say(&["serve", "--listen", "127.0.0.1:0", "--token-file", &token_file(&site)]);
        assert_eq!(said.code, 2, "{mode:o}: {said:?}");
        assert!(said.stderr.contains(&format!("chmod 600 {}", token_file(&site))), "{said:?}");
    }
    let key = site.path("key.pem");
    fs::write(&key, "x").unwrap();
    fs::write(site.path("cert.pem"), "x").unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let (cert, key) = (site.path("cert.pem").display().to_string(), key.display().to_string());
    let said = site.say(&["serve", "--listen", "127.0.0.1:0", "--tls-cert", &cert, "--tls-key", &key]);
    assert!(said.code == 2 && said.stderr.contains(&format!("chmod 600 {key}")), "{said:?}");
}

#[test]
fn mistakes_in_the_file_are_named_by_their_line_and_change_nothing() {
    let site = Site::new();
    let token = add_token(&site, "laptop");
    let good = fs::read_to_string(token_file(&site)).unwrap();
    let served = Served::of(&site, &["--token-file", &token_file(&site)]);
    let asks = |token: &str| served.get_as(token, "/api/v1/jobs/none/logs").status;
    assert_eq!(asks(&token), 404);
    fs::write(token_file(&site), format!("# a comment\n\n{good}s3cret sha256:zz\n")).unwrap();
    assert_eq!(asks(&token), 404, "the tokens from before still count");
    eventually("it says so", || served.said().contains("line 4"));
    assert!(!served.said().contains("s3cret"), "{}", served.said());
    fs::write(token_file(&site), "").unwrap();
    assert_eq!(asks(&token), 401, "an empty file revokes all");
    fs::write(token_file(&site), good).unwrap();
    assert_eq!(asks(&token), 404);
    fs::write(token_file(&site), "laptop sha256:1\n").unwrap();
    let said = site.say(&["serve", "--listen", "127.0.0.1:0", "--token-file", &token_file(&site)]);
    assert!(said.code == 2 && said.stderr.contains("line 1"), "{said:?}");
}

#[test]
fn what_is_missing_is_named() {
    let site = Site::new();
    let file = token_file(&site);
    for (options, parts) in [
        (&["--listen", "0.0.0.0:0"][..], &["--tls-cert", "--tls-self-signed", "--behind-proxy"][..]),
        (&["--listen", "0.0.0.0:0", "--tls-self-signed"], &["--token-file"]),
        (&["--listen", "127.0.0.1:0", "--behind-proxy"], &["--public-host"]),
        (&["--listen", "127.0.0.1:0", "--behind-proxy", "--public-host", "x"], &["--token-file"]),
        (&["--listen", "127.0.0.1:0", "--allow-actions"], &["--token-file"]),
        (&["--listen", "127.0.0.1:0", "--share"], &["--token-file"]),
        (&["--listen", "127.0.0.1:0", "--share-file", "x"], &["--share"]),
        (&["--listen", "127.0.0.1:0", "--tls-cert", "x"], &["--tls-key"]),
        (&["--listen", "7333"], &["127.0.0.1:7333"]),
        (&["--listen", "127.0.0.1:0", "--token-file", &file], &["cannot be read"]),
    ] {
        let said = site.say(&[&["serve"], options].concat());
        assert_eq!(said.code, 2, "{options:?}: {said:?}");
        parts.iter().for_each(|part| assert!(said.stderr.contains(part), "{options:?}: {said:?}"));
    }
}
