//! Input of which nothing is known beforehand.

use super::{answer, prompt, stop, tool};
use crate::common::{BINARY, Site};

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides.max(1)
    }

    /// Changes some bytes of a text: replaced, removed, repeated, cut.
    fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.throw(6) {
            let at = self.throw(bytes.len());
            match self.throw(5) {
                0 if !bytes.is_empty() => bytes[at] = self.throw(256) as u8,
                1 if !bytes.is_empty() => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"\"{}[]:,\\$`'\n\0 "[self.throw(14)]),
                3 => bytes.truncate(at),
                _ => {
                    let part = bytes[at..].to_vec();
                    bytes.extend(part);
                }
            }
        }
        bytes
    }
}

#[test]
fn random_and_mutated_inputs_never_crash_the_hook() {
    let site = Site::new();
    let mut dice = Dice(7);
    let shell = r#"cd "$(pwd)" && git -C x push 2>&1 | tee <<EOF; `ls` "a \" b" ${x#y} >>f <(z) &"#;
    let seeds = [tool("Bash", shell), tool("Write", "x"), stop(false), prompt("s", "go")].map(|seed| seed.to_string());
    // A sample by the real program; the rest, 10^4 inputs for each agent, is a test of the program's own (hook::tests).
    for round in 0..60 {
        let agent = ["claude", "codex", "gemini", "antigravity"][round % 4];
        let seed = &seeds[dice.throw(4)];
        let input = dice.mutated(seed.as_bytes());
        let said = answer(site.command(&["run", "agent", "-q", "--", BINARY, "hook", agent]), &input);
        assert!([0, 2].contains(&said.code), "{agent} {input:?}: {said:?}");
        assert!(!said.stderr.contains("panicked"), "{said:?}");
    }
}
