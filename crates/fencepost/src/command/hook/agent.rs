//! The agents: how each describes an event to its hook, and how it is answered.

use serde_json::{Value, json};

use crate::args::hook::Agent;

/// The shells among the tools.
const SHELL_TOOLS: [&str; 7] =
    ["Bash", "shell", "exec_command", "shell_command", "local_shell", "run_shell_command", "run_command"];

/// The tools that write, of all agents: no name means another thing elsewhere.
const WRITE_TOOLS: [&str; 12] = [
    "Edit",
    "MultiEdit",
    "Write",
    "NotebookEdit",
    "apply_patch",
    "write_file",
    "replace",
    "edit_file",
    "write_to_file",
    "*replace_file_content",
    "mcp_*",
    "*__*",
];

/// What an agent is about to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookEvent {
    /// It begins a turn with this prompt.
    Prompt(String),
    Tool(ToolCall),
    /// It ends its turn. `again`: a hook has sent it back before.
    Stop {
        again: bool,
    },
    SessionEnd,
    /// Anything else.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    pub name: String,
    /// The text that a shell is given.
    pub command: Option<String>,
}

impl ToolCall {
    pub fn is_shell(&self) -> bool {
        SHELL_TOOLS.contains(&self.name.as_str())
    }

    /// Whether the tool writes. The last pattern of the job that fits counts, before the built-in list.
    pub fn writes(&self, patterns: &[String]) -> bool {
        let own = patterns.iter().rev().find_map(|pattern| match pattern.strip_prefix('!') {
            Some(pattern) => fits(pattern, &self.name).then_some(false),
            None => fits(pattern, &self.name).then_some(true),
        });
        own.unwrap_or_else(|| self.is_shell() || WRITE_TOOLS.iter().any(|pattern| fits(pattern, &self.name)))
    }
}

/// An event as an agent tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookInput {
    pub event: HookEvent,
    pub session: Option<String>,
}

impl Agent {
    /// Understands the JSON that the agent passes to its hook.
    pub fn understand(self, bytes: &[u8]) -> Result<HookInput, String> {
        let input: Value = serde_json::from_slice(bytes).map_err(|error| format!("its input is not JSON: {error}"))?;
        if !input.is_object() {
            return Err("its input is not a JSON object".to_string());
        }
        let text = |key: &str| input[key].as_str().map(str::to_string);
        if self == Self::Antigravity {
            let name = input["toolCall"]["name"].as_str().map(str::to_string);
            let command = text_of(&input["toolCall"]["args"]["CommandLine"]);
            let event = match name {
                Some(name) => HookEvent::Tool(ToolCall { name, command }),
                None if input.get("toolCall").is_some() => return Err("its tool call has no name".to_string()),
                None => HookEvent::Other,
            };
            return Ok(HookInput { event, session: text("conversationId") });
        }
        let Some(event) = text("hook_event_name") else { return Err("it does not say which event it is".to_string()) };
        let event = match event.as_str() {
            "UserPromptSubmit" | "BeforeAgent" => HookEvent::Prompt(text("prompt").ok_or("its prompt is missing")?),
            "PreToolUse" | "BeforeTool" => HookEvent::Tool(ToolCall {
                name: text("tool_name").ok_or("its tool has no name")?,
                command: text_of(&input["tool_input"]["command"]).or_else(|| text_of(&input["tool_input"]["cmd"])),
            }),
            "Stop" | "AfterAgent" => HookEvent::Stop { again: input["stop_hook_active"].as_bool().unwrap_or(false) },
            "SessionEnd" => HookEvent::SessionEnd,
            _ => HookEvent::Other,
        };
        Ok(HookInput { event, session: text("session_id") })
    }

    /// The answer by which the agent does not do it, and gives the reason to its model.
    pub fn refusal(self, event: &HookEvent, reason: &str) -> Value {
        match (self, event) {
            (Self::Claude | Self::Codex, HookEvent::Tool(_)) => json!({ "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            } }),
            (Self::Claude | Self::Codex, _) => json!({ "decision": "block", "reason": reason }),
            (Self::Gemini | Self::Antigravity, _) => json!({ "decision": "deny", "reason": reason }),
        }
    }

    /// The answer that changes nothing. An explicit permission would skip the agent's own question to its user.
    pub fn pass(self) -> Option<Value> {
        matches!(self, Self::Gemini | Self::Antigravity).then(|| json!({}))
    }

    /// Whether the agent tells its hook that a turn has ended. Otherwise the end of its process is the end of its work.
    pub fn tells_stop(self) -> bool {
        self != Self::Antigravity
    }
}

/// A command as text, or as a list of words.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => {
            let words: Option<Vec<String>> = words.iter().map(|word| word.as_str().map(super::shell::quoted)).collect();
            words.map(|words| words.join(" "))
        }
        _ => None,
    }
}

/// Whether a name fits a pattern in which `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(head) else { return false };
    let is_end = |(at, _): (usize, char)| fits(rest, &name[at..]);
    rest.is_empty() || name.char_indices().any(is_end) || fits(rest, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(name: &str, patterns: &[&str]) -> bool {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        ToolCall { name: name.to_string(), command: None }.writes(&patterns)
    }

    #[test]
    fn a_job_widens_and_narrows_the_tools_that_write() {
        assert!(writes("Bash", &[]) && writes("mcp__github__create_issue", &[]) && writes("apply_patch", &[]));
        assert!(!writes("Read", &[]) && !writes("Grep", &[]) && !writes("view_file", &[]));
        assert!(writes("Deploy", &["Deploy"]) && !writes("mcp__docs__search", &["!mcp__docs__*"]));
        assert!(writes("mcp__docs__write", &["!mcp__docs__*", "*__write"]));
        assert!(!writes("Bash", &["!*"]) && writes("Read", &["*"]));
    }

    #[test]
    fn a_pattern_fits_as_a_whole() {
        for (pattern, name) in
            [("a*c", "abc"), ("a*c", "ac"), ("*", ""), ("*b*", "abc"), ("a*b*c", "aXbYbc"), ("é*", "éa")]
        {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a*c", "abcd"), ("a", "ab"), ("", "a"), ("a*b", "a"), ("*b", "bc")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
