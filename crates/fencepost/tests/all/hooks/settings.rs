//! `install claude` and the others: the hook's settings, merged into the agent's own file.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::common::{BINARY, Said, Site, contains};

/// The settings of an agent, in a project and a home of their own.
struct Project {
    site: Site,
}

impl Project {
    fn new() -> Self {
        let site = Site::new();
        fs::create_dir_all(site.path("project")).unwrap();
        fs::create_dir_all(site.path("home")).unwrap();
        Self { site }
    }

    fn install(&self, arguments: &str) -> Said {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        let mut command = self.site.command(&[&["install"], words.as_slice()].concat());
        Said::of(command.current_dir(self.site.path("project")).env("HOME", self.site.path("home")).output().unwrap())
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.site.path(path)).unwrap_or_default()
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.text(path)).unwrap_or_default()
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.site.path(path).parent().unwrap()).unwrap();
        fs::write(self.site.path(path), text).unwrap();
    }
}

const CLAUDE: &str = "project/.claude/settings.json";

#[test]
fn each_agent_gets_its_events_in_its_file() {
    let files = [
        ("claude", CLAUDE, "home/.claude/settings.json", "PreToolUse", 4),
        ("codex", "project/.codex/hooks.json", "home/.codex/hooks.json", "PreToolUse", 3),
        ("gemini", "project/.gemini/settings.json", "home/.gemini/settings.json", "BeforeTool", 4),
        ("antigravity", "project/.antigravitycli/hooks.json", "home/.gemini/config/hooks.json", "PreToolUse", 1),
    ];
    for (agent, project, user, event, events) in files {
        let place = Project::new();
        let printed = place.install(agent);
        assert!(printed.code == 0 && !place.site.path(project).exists(), "{printed:?}");
        assert_eq!(serde_json::from_str::<Value>(&printed.stdout).unwrap()["hooks"].as_object().unwrap().len(), events);
        let written = place.install(&format!("{agent} --write"));
        assert_eq!(written.code, 0, "{written:?}");
        assert!(written.stdout.contains("Now: "), "{written:?}");
        let hook = &place.json(project)["hooks"][event][0]["hooks"][0];
        assert_eq!(hook["command"], format!("fencepost hook {agent}"), "{agent}");
        // For a user the program is named by its path.
        assert_eq!(place.install(&format!("{agent} --user --write")).code, 0);
        let command = place.json(user)["hooks"][event][0]["hooks"][0]["command"].as_str().unwrap().to_string();
        assert_eq!(command, format!("{BINARY} hook {agent}"));
        // A second time changes nothing; removal leaves nothing.
        let before = place.text(project);
        let again = place.install(&format!("{agent} --write -v"));
        assert!(again.stderr.contains("nothing was changed") && place.text(project) == before, "{again:?}");
        assert_eq!(place.install(&format!("{agent} --remove")).code, 0);
        assert!(!place.site.path(project).exists());
    }
}

#[test]
fn what_the_file_held_stays_with_its_comments_and_order() {
    let place = Project::new();
    let before = "{\n  // mine\n  \"model\": \"opus\",\n  \"hooks\": {\n    \"PreToolUse\": [\n      { \"matcher\": \"Bash\", \"hooks\": \
                  [{ \"type\": \"command\", \"command\": \"./lint.sh\" }] } // keep\n    ],\n    \"Stop\": []\n  },\n  \
                  \"permissions\": { \"allow\": [\"Bash\"] }\n}\n";
    place.write(CLAUDE, before);
    fs::set_permissions(place.site.path(CLAUDE), fs::Permissions::from_mode(0o600)).unwrap();
    let dry = place.install("claude --dry-run");
    contains(&dry.stdout, &["+++", "fencepost hook claude"]);
    assert_eq!(place.text(CLAUDE), before);
    assert_eq!(place.install("claude --write --fail-closed").code, 0);
    let after = place.text(CLAUDE);
    contains(&after, &["// mine", "// keep", "./lint.sh", "\"onFailure\": \"block\""]);
    let order = ["\"model\"", "\"hooks\"", "\"permissions\""].map(|key| after.find(key).unwrap());
    assert!(order.is_sorted(), "{after}");
    assert_eq!(fs::metadata(place.site.path(CLAUDE)).unwrap().permissions().mode() & 0o777, 0o600);
    // Other settings replace the earlier ones of fencepost, and nothing else.
    assert_eq!(place.install("claude --write --job nightly --match-prompt ^nightly:").code, 0);
    let after = place.text(CLAUDE);
    assert!(!after.contains("onFailure"), "{after}");
    assert_eq!(after.matches("fencepost hook claude --job nightly --match-prompt '^nightly:'").count(), 4, "{after}");
    assert_eq!(place.install("claude --remove").code, 0);
    let after = place.text(CLAUDE);
    contains(&after, &["// mine", "// keep", "./lint.sh", "\"permissions\""]);
    assert!(!after.contains("fencepost"), "{after}");
}

#[test]
fn a_file_that_cannot_be_understood_is_left_as_it_is() {
    let place = Project::new();
    for (text, why) in [
        ("{\n  \"hooks\": {,}\n}", "line 2"),
        ("[]", "does not hold a JSON object"),
        ("{\"hooks\": []}", "\"hooks\" in it is not an object"),
        ("{\"hooks\": {\"Stop\": {}}}", "\"Stop\" in it is not an array"),
    ] {
        place.write(CLAUDE, text);
        let said = place.install("claude --write");
        assert_eq!((said.code, place.text(CLAUDE).as_str()), (2, text), "{said:?}");
        contains(&said.stderr, &[".claude/settings.json", why, "not changed"]);
    }
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let place = Project::new();
    for (arguments, why) in [
        ("codex --fail-closed --write", "--fail-closed is for claude"),
        ("claude nightly", "not for single jobs"),
        ("crontab --user", "are for hooks of agents"),
        ("claude --match-prompt x", "--job"),
        ("claude --job nightly --match-prompt (", "--match-prompt"),
    ] {
        let said = place.install(arguments);
        assert_eq!(said.code, 2, "{said:?}");
        contains(&said.stderr, &[why]);
    }
}

#[test]
fn validate_says_which_events_are_not_hooked() {
    let place = Project::new();
    place.write("project/fencepost.toml", "[job.a]\ncommand = 'true'\n");
    let validate = || {
        let mut command = place.site.command(&["validate", "--installed", "--json"]);
        command.current_dir(place.site.path("project")).env("HOME", place.site.path("home"));
        let said = Said::of(command.env("FENCEPOST_CONFIG", "fencepost.toml").output().unwrap());
        let answer: Value = serde_json::from_str(&said.stdout).unwrap();
        let hooks = answer["installed"].as_array().cloned().unwrap_or_default();
        hooks.into_iter().filter(|difference| difference["kind"] == "hook").collect::<Vec<_>>()
    };
    assert_eq!(place.install("claude --write").code, 0);
    assert_eq!(validate(), Vec::<Value>::new());
    let mut settings = place.json(CLAUDE);
    settings["hooks"].as_object_mut().unwrap().remove("Stop");
    place.write(CLAUDE, &settings.to_string());
    let found = validate();
    assert_eq!(found.len(), 1, "{found:?}");
    contains(found[0]["message"].as_str().unwrap(), &["does not call the hook for Stop", "install claude --write"]);
    place.write(CLAUDE, "{ fencepost");
    assert_eq!(validate().len(), 1);
}

#[test]
fn validate_says_what_only_a_person_can_check_of_codex() {
    let place = Project::new();
    place.write("project/fencepost.toml", "[job.a]\ncommand = 'true'\n");
    let validate = || {
        let mut command = place.site.command(&["validate", "--installed"]);
        command.current_dir(place.site.path("project")).env("HOME", place.site.path("home"));
        Said::of(command.env("FENCEPOST_CONFIG", "fencepost.toml").output().unwrap())
    };
    assert!(!validate().stderr.contains("Codex"));
    assert_eq!(place.install("codex --write").code, 0);
    let said = validate();
    contains(&said.stderr, &[".codex/hooks.json", "whether Codex trusts these hooks", "/hooks"]);
    assert_eq!(said.code, 0, "it is no difference: {said:?}");
}
