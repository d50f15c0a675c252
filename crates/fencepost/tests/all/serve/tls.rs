//! TLS: a certificate of the server's own, which clients know by its pin, or the user's, which an authority has signed.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread;

use fencepost_testkit::servers::signed_certificate;

use super::{Served, add_token, token_file};
use crate::common::Site;

fn served(site: &Site) -> Served {
    Served::of(site, &["--tls-self-signed", "--token-file", &token_file(site), "--share"])
}

fn pin(served: &Served) -> String {
    served.greeting.lines().find_map(|line| line.strip_prefix("pin ")).expect("a pin").to_string()
}

#[test]
fn two_machines_know_the_server_by_its_pin_alone() {
    let site = Site::new();
    let token = add_token(&site, "laptop");
    let first = served(&site);
    let pin_of_first = pin(&first);
    assert!(pin_of_first.starts_with("sha256:") && pin_of_first.len() == 71, "{pin_of_first}");
    for file in ["serve-tls/identity.pem", "serve-tls"] {
        let mode = std::fs::metadata(site.state().join(file)).unwrap().permissions().mode() & 0o077;
        assert_eq!(mode, 0, "{file}");
    }
    let run = |pin: &str| {
        let url = format!("https://127.0.0.1:{}?pin={pin}", first.port);
        let laptop = Site::new();
        let mut command = laptop.command(&["--store", &url, "run", "j", "--", "true"]);
        let said = command.env("FENCEPOST_STORE_PASSWORD", &token).output().unwrap();
        (said.status.code(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    assert_eq!(run(&pin_of_first), (Some(0), String::new()));
    let (code, why) = run(&format!("sha256:{}", "0".repeat(64)));
    assert!(code == Some(125) && why.contains("another certificate") && !why.contains(&token), "{why}");
    assert!(why.contains("Compare the pin") && !why.contains("SSL_CERT_FILE"), "{why}");
    let unpinned = format!("https://127.0.0.1:{}", first.port);
    let mut command = Site::new().command(&["--store", &unpinned, "run", "j", "--", "true"]);
    let said = command.env("FENCEPOST_STORE_PASSWORD", &token).output().unwrap();
    assert_eq!(said.status.code(), Some(125), "an unknown authority is refused");
    drop(first);
    assert_eq!(pin(&served(&site)), pin_of_first, "the certificate is made once");
}

#[test]
fn servers_that_start_together_have_one_certificate() {
    let site = Site::new();
    add_token(&site, "laptop");
    let start = || pin(&Served::of(&site, &["--tls-self-signed", "--token-file", &token_file(&site)]));
    let pins: Vec<String> = thread::scope(|scope| {
        let started: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        started.into_iter().map(|server| server.join().unwrap()).collect()
    });
    assert!(pins.iter().all(|pin| *pin == pins[0]), "{pins:?}");
    assert_eq!(fs::read_dir(site.state().join("serve-tls")).unwrap().count(), 1, "no draft is left");
}

#[test]
fn the_users_certificate_is_known_by_its_authority() {
    let site = Site::new();
    let token = add_token(&site, "laptop");
    let (authority, cert, key) = signed_certificate(site.directory());
    let [cert, key] = [cert, key].map(|path| path.display().to_string());
    let options = ["--tls-cert", &cert, "--tls-key", &key, "--token-file", &token_file(&site), "--share"];
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let refused = site.say(&[&["serve", "--listen", "127.0.0.1:0"], &options[..]].concat());
    assert!(refused.code == 2 && refused.stderr.contains(&format!("chmod 600 {key}")), "{refused:?}");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let served = Served::of(&site, &options);
    assert!(served.greeting.starts_with("listening on https://127.0.0.1:"), "{}", served.greeting);

    let page = |host: &str| {
        let mut client = Command::new("openssl");
        client
            .args(["s_client", "-quiet", "-verify_return_error", "-verify_hostname", host, "-CAfile"])
            .arg(&authority);
        client.args(["-connect", &format!("127.0.0.1:{}", served.port)]);
        let mut client =
            client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("openssl starts");
        let request = super::request(served.port, "GET", "/login", &[], "");
        // A client that refuses the certificate does not read it.
        let _ = client.stdin.as_mut().unwrap().write_all(request.as_bytes());
        String::from_utf8_lossy(&client.wait_with_output().unwrap().stdout).into_owned()
    };
    assert!(page("localhost").starts_with("HTTP/1.1 200 OK\r\n"), "{}", page("localhost"));
    assert_eq!(page("other.example"), "");

    let laptop = Site::new();
    let run = |authority: &str| {
        let url = format!("https://localhost:{}", served.port);
        let mut command = laptop.command(&["--store", &url, "run", "j", "--", "true"]);
        command.env("FENCEPOST_STORE_PASSWORD", &token).env("SSL_CERT_FILE", authority).env_remove("SSL_CERT_DIR");
        command.output().unwrap().status.code()
    };
    assert_eq!(run(&authority.display().to_string()), Some(0));
    assert_eq!(run("/dev/null"), Some(125), "an unknown authority is refused");
}

#[test]
fn files_that_are_no_certificate_and_key_are_refused_and_no_key_is_shown() {
    let site = Site::new();
    let (_, cert, key) = signed_certificate(site.directory());
    let (other, junk) = (site.path("ca.key"), site.path("junk"));
    fs::write(&junk, "s3cret-key\n").unwrap();
    fs::set_permissions(&junk, Permissions::from_mode(0o600)).unwrap();
    for (cert, key, part) in [
        (&junk, &key, "holds no certificate"),
        (&cert, &junk, "holds no key as PEM"),
        (&cert, &other, "does not fit the key"),
        (&site.path("none"), &key, "cannot be read"),
    ] {
        let [cert, key] = [cert, key].map(|path| path.display().to_string());
        let said = site.say(&["serve", "--listen", "127.0.0.1:0", "--tls-cert", &cert, "--tls-key", &key]);
        assert!(said.code == 2 && said.stderr.contains(part) && !said.stderr.contains("s3cret"), "{said:?}");
    }
}
