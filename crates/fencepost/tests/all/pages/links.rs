//! Links between the documents: each leads to a file and a heading that exist, on GitHub and in the book.

use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// All documents, by their paths in the repository.
pub(super) fn documents() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("README.md"), PathBuf::from("CHANGELOG.md")];
    let mut directories = vec![PathBuf::from("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root().join(&directory)).unwrap() {
            let path = directory.join(entry.unwrap().file_name());
            match path.extension() {
                _ if root().join(&path).is_dir() => directories.push(path),
                Some(end) if end == "md" => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// The lines of a document outside its fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// The targets of the links in a line.
fn targets(line: &str) -> Vec<&str> {
    let starts = line.match_indices("](").map(|(place, _)| &line[place + 2..]);
    starts.filter_map(|rest| rest.split_once(')').map(|(target, _)| target)).collect()
}

/// What GitHub and mdBook make of a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn headings(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let titles = prose(&text).filter_map(|(_, line)| line.strip_prefix('#'));
    titles.map(|title| slug(title.trim_start_matches('#').trim())).collect()
}

/// Why a link leads nowhere.
fn broken(document: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let page = root().join(document);
    let path = if file.is_empty() { page } else { page.parent().unwrap().join(file) };
    let Ok(path) = path.canonicalize() else { return Some(format!("there is no {file}")) };
    if document.starts_with("docs") && !path.starts_with(root().join("docs")) {
        return Some(format!("{file} is not part of the book"));
    }
    let is_missing = !heading.is_empty() && !headings(&path).iter().any(|known| known == heading);
    is_missing.then(|| format!("{} has no heading #{heading}", path.display()))
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let mut mistakes = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(root().join(&document)).unwrap();
        for (number, line) in prose(&text) {
            let found = targets(line).into_iter().filter_map(|target| broken(&document, target));
            mistakes.extend(found.map(|why| format!("{}:{number}: {why}", document.display())));
        }
    }
    assert!(mistakes.is_empty(), "\n{}", mistakes.join("\n"));
}

#[test]
fn every_document_is_in_the_book() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed: Vec<&str> = summary.lines().flat_map(targets).collect();
    let in_docs = documents().into_iter().filter_map(|path| path.strip_prefix("docs").map(Path::to_path_buf).ok());
    let missing: Vec<PathBuf> =
        in_docs.filter(|path| path != Path::new("SUMMARY.md") && !listed.contains(&path.to_str().unwrap())).collect();
    assert!(missing.is_empty(), "missing in docs/SUMMARY.md: {missing:?}");
}

#[test]
fn headings_and_links_are_recognised() {
    assert_eq!(slug("`run JOB [options] [-- CMD…]`"), "run-job-options----cmd");
    assert_eq!(targets("see [a](b.md#c), and ![p](../q.svg)"), ["b.md#c", "../q.svg"]);
    assert_eq!(prose("a\n```sh\n[x](y)\n```\nb").map(|(number, _)| number).collect::<Vec<_>>(), [1, 5]);
}
