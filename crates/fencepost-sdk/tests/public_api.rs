//! The public interface is the one that `public-api.txt` lists, so a change of it is seen.

use std::fs;
use std::path::Path;

/// Writes the list instead of comparing it, if this variable is set.
const BLESS: &str = "FENCEPOST_BLESS";

/// The public items of a source, each on one line. Bodies are left out.
fn items(source: &str) -> Vec<String> {
    let mut items = Vec::new();
    let mut lines = source.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if !line.starts_with("pub ") {
            continue;
        }
        let mut item = line.to_string();
        while !item.ends_with(['{', ';', ',', '}']) || item.matches('(').count() != item.matches(')').count() {
            let Some(next) = lines.next() else { break };
            item = format!("{item} {next}");
        }
        items.push(item.trim_end_matches(['{', ';', ',', ' ']).replace("( ", "(").replace(", )", ")"));
    }
    items
}

#[test]
fn the_list_of_public_items_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = String::new();
    for file in ["lib.rs", "guard.rs", "claim.rs", "lease.rs", "publish.rs", "error.rs"] {
        let source = fs::read_to_string(root.join("src").join(file)).unwrap();
        found += &format!("# {file}\n{}\n", items(&source).join("\n"));
        let variants = source.split("pub enum GuardError {").nth(1).and_then(|rest| rest.split("\n}").next());
        for variant in variants.into_iter().flat_map(str::lines).map(str::trim) {
            if variant.starts_with(char::is_uppercase) {
                found += &format!("GuardError::{}\n", variant.trim_end_matches([',', '{', ' ']));
            }
        }
    }
    let path = root.join("public-api.txt");
    if std::env::var_os(BLESS).is_some() {
        fs::write(&path, &found).unwrap();
    }
    let listed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        listed == found,
        "public-api.txt is out of date. If the change is meant: {BLESS}=1 cargo test -p fencepost-sdk\n{found}"
    );
}
