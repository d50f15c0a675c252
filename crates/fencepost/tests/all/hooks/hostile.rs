//! Input of which nothing is known beforehand, by the real program. A unit test of the hook tries 40,000 mutated inputs.

use super::{answer, tool};
use crate::common::{BINARY, Site};

#[test]
fn hostile_input_never_crashes_the_hook() {
    let site = Site::new();
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let shells = ["$(", "`", "<<", "'", "git push <<EOF\n", "\u{0}", "sh -c 'sh -c \"git push\"'"]
        .map(|shell| tool("Bash", shell));
    let texts = [
        "",
        "{}",
        "[]",
        "null",
        "\u{0}",
        "{\"hook_event_name\":7}",
        "{\"toolCall\":null}",
        "{\"hook_event_name\":\"Stop\"}",
    ];
    let inputs = texts.iter().map(ToString::to_string).chain(shells.iter().map(ToString::to_string)).chain([deep]);
    let inputs: Vec<Vec<u8>> = inputs.map(String::into_bytes).chain([vec![0xff, 0xfe, b'{']]).collect();
    for agent in ["claude", "codex", "gemini", "antigravity"] {
        for input in &inputs {
            let said = answer(site.command(&["run", "agent", "-q", "--", BINARY, "hook", agent]), input);
            let shown = String::from_utf8_lossy(&input[..input.len().min(80)]);
            assert!([0, 2].contains(&said.code), "{agent} {shown}: {said:?}");
            assert!(!said.stderr.contains("panicked"), "{agent} {shown}: {said:?}");
        }
    }
}
