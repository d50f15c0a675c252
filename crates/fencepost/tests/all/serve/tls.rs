//! TLS: a certificate of the server's own, and clients that know it by its pin.

use std::os::unix::fs::PermissionsExt;

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
    for file in ["serve-tls/key.pem", "serve-tls"] {
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
    assert!(code == Some(125) && why.contains("certificate") && !why.contains(&token), "{why}");
    let unpinned = format!("https://127.0.0.1:{}", first.port);
    let mut command = Site::new().command(&["--store", &unpinned, "run", "j", "--", "true"]);
    let said = command.env("FENCEPOST_STORE_PASSWORD", &token).output().unwrap();
    assert_eq!(said.status.code(), Some(125), "an unknown authority is refused");
    drop(first);
    assert_eq!(pin(&served(&site)), pin_of_first, "the certificate is made once");
}
