//! The page of reasons: every word that programs branch on, with its cause and its remedy.

use std::collections::BTreeSet;
use std::path::Path;

use fencepost_view::ReasonCode;
use fencepost_view::attention::AttentionReason;

#[test]
fn the_page_has_every_reason_with_cause_and_remedy_and_no_other() {
    let page = page();
    let sections: Vec<&str> = page.split("\n### ").skip(1).collect();
    let described: BTreeSet<&str> =
        sections.iter().map(|section| section.lines().next().unwrap().trim_matches('`')).collect();
    let known: BTreeSet<&str> = ReasonCode::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(described, known, "docs/reference/reasons.md (left) and ReasonCode (right)");
    assert_eq!(sections.len(), known.len(), "no reason has two sections");
    for section in sections {
        for part in ["\n**Cause**: ", "\n**Remedy**: "] {
            let text = section.split(part).nth(1).unwrap_or_default();
            assert!(text.trim().len() > 4, "no {part:?} in: {section}");
        }
    }
}

#[test]
fn the_page_has_every_reason_for_attention_and_no_other() {
    let page = page();
    let section = page.split("\n## What needs attention").nth(1).expect("the section of `status`");
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let described: Vec<&str> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    let known: Vec<&str> = AttentionReason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(described, known, "docs/reference/reasons.md (left) and AttentionReason (right)");
    assert!(rows.iter().all(|row| row.len() == 3), "each has a cause and a remedy");
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/reasons.md");
    std::fs::read_to_string(path).unwrap()
}
