//! The settings by which agents call `fencepost hook`: merged into the agent's own file, comments and order kept.

use std::path::{Path, PathBuf};

use fencepost_view::answer::InstalledDifference;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde_json::{Value, json};

use super::{At, TriggerChange, called_by, home};
use crate::args::Global;
use crate::args::hook::Agent;
use crate::args::operate::InstallOptions;
use crate::command::hook::quoted;
use crate::command::overdue::changed_at;
use crate::exit::Failure;

/// How long an agent waits for its hook.
const TIMEOUT_SECONDS: u64 = 10;

impl Agent {
    pub const ALL: [Self; 4] = [Self::Claude, Self::Codex, Self::Gemini, Self::Antigravity];

    /// The file with the agent's hooks, for a project or for a user.
    fn settings_file(self, user: bool) -> Result<PathBuf, Failure> {
        let here = || {
            std::env::current_dir()
                .map_err(|error| Failure::Other(format!("Cannot tell the current directory: {error}")))
        };
        let directory = if user { home()? } else { here()? };
        Ok(directory.join(match (self, user) {
            (Self::Claude, _) => ".claude/settings.json",
            (Self::Codex, _) => ".codex/hooks.json",
            (Self::Gemini, _) => ".gemini/settings.json",
            (Self::Antigravity, true) => ".gemini/config/hooks.json",
            (Self::Antigravity, false) => ".antigravitycli/hooks.json",
        }))
    }

    /// The events that the hook answers, each with the matcher for all tools if it is an event of tools.
    fn events(self) -> &'static [(&'static str, Option<&'static str>)] {
        match self {
            Self::Claude => {
                &[("UserPromptSubmit", None), ("PreToolUse", Some("*")), ("Stop", None), ("SessionEnd", None)]
            }
            Self::Codex => &[("UserPromptSubmit", None), ("PreToolUse", Some(".*")), ("Stop", None)],
            Self::Gemini => {
                &[("BeforeAgent", None), ("BeforeTool", Some(".*")), ("AfterAgent", None), ("SessionEnd", None)]
            }
            Self::Antigravity => &[("PreToolUse", Some(""))],
        }
    }

    /// What a person has to do after the settings were written.
    pub fn next_step(self) -> &'static str {
        match self {
            Self::Claude => "Now: start claude in this project once and accept its folder; /hooks shows the hooks.",
            Self::Codex => {
                "Now: start codex in this project and trust the hooks by /hooks. Until then `codex exec` does not call them, and \
                 does not say so."
            }
            Self::Gemini => "Now: start gemini in this project once and accept its folder; /hooks shows the hooks.",
            Self::Antigravity => "Now: start agy anew.",
        }
    }
}

/// The change that installs or removes the hook.
pub fn change(global: &Global, options: &InstallOptions, agent: Agent) -> Result<TriggerChange, Failure> {
    if options.fail_closed && agent != Agent::Claude {
        return Err(Failure::Usage(format!(
            "--fail-closed is for claude: {} has no setting that blocks when its hook is missing.",
            agent.word()
        )));
    }
    let path = agent.settings_file(options.user)?;
    let old = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(Failure::Other(format!("Cannot read {}: {error}", path.display()))),
    };
    let wanted = if options.remove { Vec::new() } else { groups(agent, options, &command(global, options, agent)?) };
    let new = merged(&path, old.as_deref(), agent, &wanted)?;
    let shown = json!({ "hooks": wanted.into_iter().map(|(event, group)| (event.to_string(), json!([group]))).collect::<serde_json::Map<_, _>>() });
    Ok(TriggerChange {
        name: path.display().to_string(),
        at: At::File(path),
        old,
        new,
        shown: Some(format!("{shown:#}\n")),
    })
}

/// The command line of the hook. Others who share a project have the program elsewhere, so that it is found by their PATH.
fn command(global: &Global, options: &InstallOptions, agent: Agent) -> Result<String, Failure> {
    let mut words = match options.user {
        true => vec![called_by()?.display().to_string()],
        false => vec!["fencepost".to_string()],
    };
    if let Some(config) = &global.config {
        words.extend(["--config".to_string(), config.display().to_string()]);
    }
    if let Some(store) = &global.store {
        words.extend(["--store".to_string(), store.clone()]);
    }
    words.extend(["hook".to_string(), agent.word().to_string()]);
    if let Some(job) = &options.job {
        words.extend(["--job".to_string(), job.to_string()]);
    }
    if let Some(pattern) = &options.match_prompt {
        words.extend(["--match-prompt".to_string(), pattern.as_str().to_string()]);
    }
    Ok(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
}

/// One group of hooks for each event.
fn groups(agent: Agent, options: &InstallOptions, command: &str) -> Vec<(&'static str, Value)> {
    let timeout = if agent == Agent::Gemini { TIMEOUT_SECONDS * 1000 } else { TIMEOUT_SECONDS };
    let mut hook = json!({ "type": "command", "command": command, "timeout": timeout });
    if options.fail_closed {
        hook["onFailure"] = json!("block");
    }
    let group = |matcher: &Option<&str>| match matcher {
        Some(matcher) => json!({ "matcher": matcher, "hooks": [hook] }),
        None => json!({ "hooks": [hook] }),
    };
    agent.events().iter().map(|(event, matcher)| (*event, group(matcher))).collect()
}

/// The text of the file with these groups in place of the ones that were installed. None: nothing is left of it.
fn merged(
    path: &Path,
    old: Option<&str>,
    agent: Agent,
    wanted: &[(&'static str, Value)],
) -> Result<Option<String>, Failure> {
    let refuse = |why: String| {
        Failure::Usage(format!(
            "{}: {why}. The file was not changed. Correct it, then repeat the command.",
            path.display()
        ))
    };
    let text = old.filter(|text| !text.trim().is_empty()).unwrap_or("{}\n");
    let root = CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| refuse(error.to_string()))?;
    let settings = root.object_value().ok_or_else(|| refuse("it does not hold a JSON object".to_string()))?;
    let hooks = match settings.get("hooks") {
        None if wanted.is_empty() => return Ok(old.map(str::to_string)),
        None => settings.object_value_or_set("hooks"),
        Some(hooks) => hooks.object_value().ok_or_else(|| refuse("\"hooks\" in it is not an object".to_string()))?,
    };
    let mut is_changed = false;
    for property in hooks.properties() {
        let name = property.decoded_name().unwrap_or_default();
        let Some(groups) = property.array_value() else { continue };
        let kept = wanted.iter().find(|(event, _)| *event == name).map(|(_, group)| group);
        is_changed |= prune(&groups, agent, kept);
        if groups.elements().is_empty() && kept.is_none() {
            property.remove();
        }
    }
    for (event, group) in wanted {
        let is_there =
            |groups: &CstArray| groups.elements().iter().any(|found| found.to_serde_value().as_ref() == Some(group));
        if hooks.array_value(event).is_some_and(|groups| is_there(&groups)) {
            continue;
        }
        let groups = match hooks.get(event) {
            Some(found) => found.array_value().ok_or_else(|| refuse(format!("{event:?} in it is not an array")))?,
            None => hooks.array_value_or_set(event),
        };
        groups.ensure_multiline();
        groups.append(input(group));
        is_changed = true;
    }
    Ok(finished(old, &root, &settings, &hooks, is_changed))
}

fn finished(
    old: Option<&str>,
    root: &CstRootNode,
    settings: &CstObject,
    hooks: &CstObject,
    is_changed: bool,
) -> Option<String> {
    if !is_changed {
        return old.map(str::to_string);
    }
    if hooks.properties().is_empty()
        && let Some(hooks) = settings.get("hooks")
    {
        hooks.remove();
    }
    let text = root.to_string();
    let has_comments = text.contains("//") || text.contains("/*");
    (has_comments || !settings.properties().is_empty()).then_some(text)
}

/// Removes the hooks of fencepost for an agent, except a group that is as it should be. Returns whether there were any.
fn prune(groups: &CstArray, agent: Agent, kept: Option<&Value>) -> bool {
    let (mut is_changed, mut is_kept) = (false, false);
    for group in groups.elements() {
        if !is_kept && kept.is_some() && group.to_serde_value().as_ref() == kept {
            is_kept = true;
            continue;
        }
        let Some(hooks) = group.as_object().and_then(|group| group.array_value("hooks")) else { continue };
        for hook in hooks.elements().into_iter().filter(|hook| is_ours(hook, agent)) {
            hook.remove();
            is_changed = true;
        }
        if hooks.elements().is_empty() {
            group.remove();
        }
    }
    is_changed
}

/// Whether a hook calls this program for the agent.
fn is_ours(hook: &CstNode, agent: Agent) -> bool {
    let hook = hook.to_serde_value().unwrap_or_default();
    let command = hook["command"].as_str().unwrap_or_default();
    let words: Vec<&str> = command.split_whitespace().map(|word| word.trim_matches('\'')).collect();
    let is_program = words.first().is_some_and(|word| word.rsplit('/').next() == Some("fencepost"));
    is_program && words.windows(2).any(|pair| pair == ["hook", agent.word()])
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(fields) => {
            CstInputValue::Object(fields.iter().map(|(name, value)| (name.clone(), input(value))).collect())
        }
    }
}

/// The agents' settings for this project and this user.
fn all_settings() -> impl Iterator<Item = (Agent, PathBuf)> {
    let places = Agent::ALL.into_iter().flat_map(|agent| [(agent, false), (agent, true)]);
    places.filter_map(|(agent, user)| Some((agent, agent.settings_file(user).ok()?)))
}

/// What is wrong with the hooks that are installed for this project and this user.
pub fn differences() -> Vec<InstalledDifference> {
    all_settings().filter_map(|(agent, path)| check(agent, &path)).collect()
}

/// The files that may hold hooks.
pub fn paths() -> Vec<PathBuf> {
    all_settings().map(|(_, path)| path).collect()
}

/// What only a person can check of the hooks that are installed.
pub fn remarks() -> Vec<String> {
    let codex = [false, true].into_iter().filter_map(|user| Agent::Codex.settings_file(user).ok());
    let is_hooked = |path: &PathBuf| std::fs::read_to_string(path).is_ok_and(|text| text.contains("fencepost"));
    let remark = |path: PathBuf| {
        let place = path.display();
        format!(
            "{place}: fencepost cannot tell whether Codex trusts these hooks, and an untrusted one is not called. Look at /hooks in codex."
        )
    };
    codex.filter(is_hooked).map(remark).collect()
}

fn check(agent: Agent, path: &Path) -> Option<InstalledDifference> {
    let text = std::fs::read_to_string(path).ok().filter(|text| text.contains("fencepost"))?;
    let difference = |message: String| {
        Some(InstalledDifference {
            job: None,
            kind: "hook",
            message: format!("{}: {message}", path.display()),
            place: Some(path.display().to_string()),
            since: changed_at(path),
        })
    };
    let root = match CstRootNode::parse(&text, &ParseOptions::default()) {
        Ok(root) => root.to_serde_value().unwrap_or_default(),
        Err(error) => return difference(format!("{error}. {} cannot read it either.", agent.word())),
    };
    let calls = |event: &str| {
        let groups = root["hooks"][event].as_array().cloned().unwrap_or_default();
        let hooks = groups.iter().flat_map(|group| group["hooks"].as_array().cloned().unwrap_or_default());
        let command = |hook: Value| hook["command"].as_str().map(str::to_string);
        let called = format!("hook {}", agent.word());
        hooks.filter_map(command).any(|command| command.contains("fencepost") && command.contains(&called))
    };
    let (there, missing): (Vec<&str>, Vec<&str>) =
        agent.events().iter().map(|(event, _)| *event).partition(|event| calls(event));
    if there.is_empty() || missing.is_empty() {
        return None;
    }
    let again = format!("fencepost install {} --write", agent.word());
    difference(format!("{} does not call the hook for {}. Install it again: {again}", agent.word(), missing.join(", ")))
}
