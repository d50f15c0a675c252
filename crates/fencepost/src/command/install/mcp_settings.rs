//! Checks the settings by which agents start `fencepost mcp`. The agents write them; fencepost only reads them.

use std::path::{Path, PathBuf};

use fencepost_view::answer::InstalledDifference;
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::{home, is_in_path};
use crate::command::overdue::changed_at;
use crate::config;

/// A file with MCP servers, and the agent that reads it.
struct SettingsFile {
    agent: &'static str,
    path: PathBuf,
    is_toml: bool,
}

/// Those of this project and of this user.
fn files() -> Vec<SettingsFile> {
    let (here, home) = (std::env::current_dir().ok(), home().ok());
    let file = |agent, directory: &Option<PathBuf>, name: &str, is_toml| {
        directory.as_ref().map(|directory| SettingsFile { agent, path: directory.join(name), is_toml })
    };
    let all = [
        file("claude", &here, ".mcp.json", false),
        file("claude", &home, ".claude.json", false),
        file("codex", &here, ".codex/config.toml", true),
        file("codex", &home, ".codex/config.toml", true),
    ];
    all.into_iter().flatten().collect()
}

/// The files that this module reads.
pub fn paths() -> Vec<PathBuf> {
    files().into_iter().map(|file| file.path).collect()
}

/// What is wrong with the servers that are fencepost.
pub fn differences() -> Vec<InstalledDifference> {
    files().iter().flat_map(check).collect()
}

fn check(file: &SettingsFile) -> Vec<InstalledDifference> {
    let text = std::fs::read_to_string(&file.path).unwrap_or_default();
    if !text.contains("fencepost") {
        return Vec::new();
    }
    let wrong = match file.parsed(&text) {
        Err(why) => vec![format!("{why}. {} cannot read it either.", file.agent)],
        Ok(settings) => file.servers(&settings).iter().filter_map(mistake).collect(),
    };
    let difference = |message: String| InstalledDifference {
        job: None,
        kind: "mcp",
        message: format!("{}: {message}", file.path.display()),
        place: Some(file.path.display().to_string()),
        since: changed_at(&file.path),
    };
    wrong.into_iter().map(difference).collect()
}

impl SettingsFile {
    fn parsed(&self, text: &str) -> Result<Value, String> {
        match self.is_toml {
            true => {
                let table = DeTable::parse(text);
                table.map(|table| of_table(table.get_ref())).map_err(|error| error.message().to_string())
            }
            false => serde_json::from_str(text).map_err(|error| error.to_string()),
        }
    }

    /// The servers for all projects and for this one.
    fn servers(&self, settings: &Value) -> Vec<Value> {
        let of = |table: &Value| table.as_object().map(|table| table.values().cloned().collect()).unwrap_or_default();
        let mut servers: Vec<Value> = of(&settings[if self.is_toml { "mcp_servers" } else { "mcpServers" }]);
        let here = std::env::current_dir().unwrap_or_default();
        servers.extend::<Vec<Value>>(of(&settings["projects"][here.display().to_string()]["mcpServers"]));
        servers
    }
}

fn of_table(table: &DeTable<'_>) -> Value {
    table.iter().map(|(key, value)| (key.get_ref().to_string(), of_toml(value.get_ref()))).collect()
}

/// The texts of a TOML value. Nothing else matters here.
fn of_toml(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Array(values) => values.iter().map(|value| of_toml(value.get_ref())).collect(),
        DeValue::Table(table) => of_table(table),
        _ => Value::Null,
    }
}

/// Why a server cannot start `fencepost mcp`. Servers of other programs are none of ours.
fn mistake(server: &Value) -> Option<String> {
    let command = server["command"].as_str()?;
    Path::new(command).file_name().filter(|name| *name == "fencepost")?;
    let arguments: Vec<&str> = server["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !arguments.contains(&"mcp") {
        return Some("it starts fencepost without the verb mcp. Write: \"args\": [\"mcp\"]".to_string());
    }
    if !is_there(command) {
        return Some(format!(
            "it starts {command}, which is not there. Name the program that is: command -v fencepost"
        ));
    }
    let config = arguments.iter().position(|argument| *argument == "--config").and_then(|at| arguments.get(at + 1));
    let missing = config.filter(|config| !Path::new(config).exists())?;
    Some(format!("it names the configuration {missing}, which is not there. Name {}", config::FILE_NAME))
}

fn is_there(command: &str) -> bool {
    if command.contains('/') { Path::new(command).exists() } else { is_in_path(command) }
}
