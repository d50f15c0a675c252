//! The public interface is the one that `public-api.txt` lists, so a change of it is seen.

use std::fs;
use std::path::Path;

use fencepost_sdk::{Error, Guard, JobClaim, Lease, Outcome, Published};

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

/// The variants of each public enumeration of a source with their fields, each on one line.
fn variants(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for declared in source.split("pub enum ").skip(1) {
        let (name, rest) = declared.split_once(" {\n").expect("an enumeration has a body");
        let body = rest.split("\n}").next().unwrap_or_default();
        let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("///") && !line.starts_with('#'));
        let mut variant = String::new();
        for line in lines {
            variant += line;
            if variant.matches('{').count() == variant.matches('}').count() && variant.ends_with(',') {
                found.push(format!(
                    "{name}::{}",
                    variant.trim_end_matches(',').replace('{', "{ ").replace(",}", " }").replace(',', ", ")
                ));
                variant.clear();
            }
        }
    }
    found
}

#[test]
fn the_list_of_public_items_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = fs::read_dir(root.join("src")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.iter().all(|file| file.is_file()), "a directory of sources is not looked at");
    let mut found = String::new();
    for file in files {
        let source = fs::read_to_string(&file).unwrap();
        let lines = [items(&source), variants(&source)].concat().join("\n");
        found += &format!("# {}\n{lines}\n", file.file_name().unwrap().display());
    }
    // What is exported from another crate.
    for (file, name) in [("contract.rs", "Word"), ("fence.rs", "Level")] {
        let source = fs::read_to_string(root.join("../fencepost-core/src").join(file)).unwrap();
        let of_it = variants(&source).into_iter().filter(|variant| variant.starts_with(&format!("{name}::")));
        found += &format!("# fencepost-core {file}\n{}\n", of_it.collect::<Vec<_>>().join("\n"));
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

#[test]
fn every_type_may_be_used_by_any_thread() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Guard>();
    is_shared::<JobClaim>();
    is_shared::<Lease>();
    is_shared::<Error>();
    is_shared::<Published>();
    is_shared::<Outcome>();
}
