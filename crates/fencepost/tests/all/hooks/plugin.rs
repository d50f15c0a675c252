//! The plugin for Claude Code says what `install claude` writes, and what the program has.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::common::Site;

fn file(name: &str) -> String {
    let place = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../plugins/claude").join(name);
    fs::read_to_string(&place).unwrap_or_else(|error| panic!("{}: {error}", place.display()))
}

fn json(name: &str) -> Value {
    serde_json::from_str(&file(name)).unwrap()
}

#[test]
fn its_hooks_are_those_of_install_and_its_version_is_the_programs() {
    let site = Site::new();
    let printed = site.say(&["install", "claude"]);
    assert_eq!(json("hooks/hooks.json"), serde_json::from_str::<Value>(&printed.stdout).unwrap());
    assert_eq!(json(".claude-plugin/plugin.json")["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn its_server_answers_and_its_skill_names_verbs_that_exist() {
    let site = Site::new();
    let server = &json(".mcp.json")["mcpServers"]["fencepost"];
    assert_eq!((server["command"].as_str(), server["args"][0].as_str()), (Some("fencepost"), Some("mcp")));
    assert_eq!(site.say(&["mcp"]).code, 0, "it ends with its input");
    let skill = file("skills/fencepost/SKILL.md");
    assert!(skill.starts_with("---\nname: fencepost\ndescription: ") && skill.lines().count() < 60);
    let mut commands = 0;
    for command in skill.split('`').skip(1).step_by(2).filter(|text| text.starts_with("fencepost ")) {
        let words: Vec<&str> = command
            .split_whitespace()
            .skip(1)
            .take_while(|word| word.chars().all(|c| c.is_ascii_lowercase()))
            .collect();
        let verb: Vec<&str> =
            words.iter().copied().take(if words[0] == "publish" || words[0] == "lease" { 2 } else { 1 }).collect();
        let help = site.say(&[&["help"], verb.as_slice()].concat());
        assert_eq!(help.code, 0, "{command}: {help:?}");
        commands += 1;
    }
    assert!(commands >= 10, "{commands}");
}
