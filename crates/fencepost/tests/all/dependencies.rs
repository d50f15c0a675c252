//! What may be linked into fencepost: permissive licences, the public registry, no OpenSSL, one version of each crate.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// The systems whose dependencies are checked.
const TARGETS: [&str; 3] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "aarch64-apple-darwin"];

const LICENCES: [&str; 10] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "Unicode-3.0",
    "Unlicense",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "CDLA-Permissive-2.0",
];

/// Crates with another licence that is as permissive.
const EXCEPTIONS: [(&str, &str); 1] = [("xxhash-rust", "BSL-1.0")];

/// TLS is rustls.
const BANNED: [&str; 2] = ["openssl-sys", "native-tls"];

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Crates in two versions, because crates that we need have not moved to the newer one yet.
const TWICE: [&str; 7] = ["base64", "bitflags", "const-oid", "fallible-iterator", "getrandom", "syn", "synstructure"];

/// The crates that are built for a target. Those of other systems than this one may have to be fetched first.
fn packages(target: &str) -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ask = |offline: &[&str]| {
        let mut command = Command::new(&cargo);
        command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target]).args(offline);
        command.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo is there")
    };
    let known = Some(ask(&["--offline"])).filter(|output| output.status.success()).unwrap_or_else(|| ask(&[]));
    assert!(known.status.success(), "{target}: {}", String::from_utf8_lossy(&known.stderr));
    let metadata: Value = serde_json::from_slice(&known.stdout).unwrap();
    let nodes: BTreeSet<&str> =
        metadata["resolve"]["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_str().unwrap()).collect();
    let all = metadata["packages"].as_array().unwrap();
    all.iter().filter(|package| nodes.contains(package["id"].as_str().unwrap())).cloned().collect()
}

/// Whether one of the choices that a licence expression gives is allowed: `AND` binds closer than `OR`.
fn is_allowed(name: &str, expression: &str) -> bool {
    let mut text = expression.replace('/', " OR ");
    while let Some((start, end)) = text.find(')').and_then(|end| Some((text[..end].rfind('(')?, end))) {
        let is_good = if is_allowed(name, &text[start + 1..end]) { LICENCES[0] } else { "refused" };
        text.replace_range(start..=end, is_good);
    }
    let is_good = |licence: &str| LICENCES.contains(&licence) || EXCEPTIONS.contains(&(name, licence));
    text.split(" OR ").any(|choice| choice.split(" AND ").all(|licence| is_good(licence.trim())))
}

#[test]
fn licences_sources_and_versions_are_as_agreed() {
    let (mut wrong, mut versions) = (Vec::new(), BTreeMap::<String, BTreeSet<String>>::new());
    for target in TARGETS {
        let packages = packages(target);
        assert!(packages.len() > 100, "{target}: {} crates", packages.len());
        for package in &packages {
            let text = |key: &str| package[key].as_str().unwrap_or_default();
            let (name, version) = (text("name"), text("version"));
            if !is_allowed(name, text("license")) {
                wrong.push(format!("{name} {version} has the licence {:?}", text("license")));
            }
            let is_ours = package["source"].is_null() && name.starts_with("fencepost");
            if !is_ours && text("source") != REGISTRY {
                wrong.push(format!("{name} {version} comes from {}", package["source"]));
            }
            if BANNED.contains(&name) {
                wrong.push(format!("{name} is not to be used"));
            }
            versions.entry(name.to_string()).or_default().insert(version.to_string());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let twice: Vec<&str> = versions.iter().filter(|(_, all)| all.len() > 1).map(|(name, _)| name.as_str()).collect();
    assert_eq!(twice, TWICE, "crates in more than one version: unify them, or correct the list");
}

#[test]
fn licence_expressions_are_read() {
    for (expression, is_good) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(MIT OR Apache-2.0) AND GPL-3.0", false),
        ("(GPL-2.0 AND MIT) OR ISC", true),
        ("BSL-1.0", false),
    ] {
        assert_eq!(is_allowed("some", expression), is_good, "{expression}");
    }
    assert!(is_allowed("xxhash-rust", "BSL-1.0"));
}
