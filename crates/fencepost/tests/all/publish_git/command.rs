//! The command itself: exit codes, JSON, and a writer that is stopped between its check and its push.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::publish_git::scene::{Clone, Scene, git, text};

struct Cli<'a> {
    scene: &'a Scene,
    path: Option<PathBuf>,
}

impl Cli<'_> {
    fn command(&self, directory: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
        command.args(arguments).current_dir(directory);
        command.env("FENCEPOST_CONFIG", "").env("FENCEPOST_STATE_DIR", self.scene.directory.path().join("state"));
        for name in ["FENCEPOST_RUN", "FENCEPOST_TOKEN", "FENCEPOST_JOB", "FENCEPOST_STORE"] {
            command.env_remove(name);
        }
        if let Some(path) = &self.path {
            let rest = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{}:{rest}", path.display()));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, directory: &Path, arguments: &[&str]) -> Output {
        self.command(directory, arguments).output().unwrap()
    }

    fn publish(&self, clone: &Clone, token: &str, more: &[&str]) -> Output {
        self.run(&clone.path, &[&["publish", "git", "--job", "report", "--token", token, "--json"], more].concat())
    }

    fn acquire(&self) -> String {
        let output = self.run(self.scene.directory.path(), &["lease", "acquire", "report"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    fn release(&self, token: &str) {
        let output = self.run(self.scene.directory.path(), &["lease", "release", "report", "--token", token]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn exit_codes_and_json() {
    let scene = Scene::new();
    let cli = Cli { scene: &scene, path: None };
    let clone = scene.clone("a");
    let token = cli.acquire();
    clone.commit("b");
    let dry = cli.publish(&clone, &token, &["--dry-run"]);
    assert_eq!((dry.status.code(), json(&dry)["accepted"].as_bool()), (Some(0), Some(true)));
    assert_eq!(scene.subjects("main"), ["seed"]);
    let done = cli.publish(&clone, &token, &[]);
    let said = json(&done);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!((said["level"].as_str(), said["kind"].as_str()), (Some("atomic"), Some("git")));
    assert_eq!(json(&cli.publish(&clone, &token, &[]))["already_applied"], true);
    cli.release(&token);
    cli.acquire();
    clone.commit("c");
    let stale = cli.publish(&clone, &token, &["--branch", "main"]);
    assert_eq!((stale.status.code(), json(&stale)["error"]["reason"].as_str()), (Some(13), Some("stale")));
    assert_eq!(cli.publish(&clone, &token, &["--remote", "nowhere"]).status.code(), Some(2));
    let status = json(&cli.run(&clone.path, &["status", "--json"]));
    let resource = &status["resources"][0];
    assert_eq!(resource["resource"], format!("{} main", scene.url()));
    assert_eq!(resource["refused"], 1, "{status}");
    assert_eq!(
        cli.publish(&clone, &token, &["--remote", "/nowhere/at/all.git"]).status.code(),
        Some(13),
        "no need to ask it"
    );
}

#[test]
fn inside_a_run_it_needs_nothing_and_a_bare_push_is_refused() {
    let scene = Scene::new();
    let cli = Cli { scene: &scene, path: None };
    let clone = scene.clone("a");
    let hook = cli.run(&clone.path, &["publish", "git", "--hook", "--json"]);
    assert_eq!((hook.status.code(), json(&hook)["changed"].as_bool()), (Some(0), Some(true)));
    clone.commit("b");
    let fencepost = env!("CARGO_BIN_EXE_fencepost");
    let bare = cli.run(&clone.path, &["run", "report", "-c", "git push origin main"]);
    assert_eq!(bare.status.code(), Some(1));
    assert!(text(&bare.stderr).contains("Use instead: fencepost publish git"));
    assert_eq!(scene.subjects("main"), ["seed"]);
    let fenced = cli.run(&clone.path, &["run", "report", "--", fencepost, "publish", "git", "--branch", "main"]);
    assert_eq!(fenced.status.code(), Some(0), "{}", text(&fenced.stderr));
    assert_eq!(scene.subjects("main"), ["seed", "b"]);
    let removed = cli.run(&clone.path, &["publish", "git", "--hook", "--remove"]);
    assert_eq!(removed.status.code(), Some(0));
    assert!(!clone.path.join(".git/hooks/pre-push").exists());
}

#[test]
fn a_failed_push_is_125_and_says_the_next_step() {
    let scene = Scene::new();
    let cli = Cli { scene: &scene, path: None };
    let clone = scene.clone("a");
    let token = cli.acquire();
    let person = scene.clone("person");
    person.commit("of a person");
    git(&person.path, &["push", "--quiet", "origin", "main"]);
    clone.commit("b");
    let behind = cli.publish(&clone, &token, &[]);
    assert_eq!(behind.status.code(), Some(125));
    assert!(text(&behind.stderr).contains("git pull --rebase origin main"));
    let nowhere = cli.publish(&clone, &token, &["--remote", "/nowhere/at/all.git"]);
    assert_eq!(nowhere.status.code(), Some(125));
    assert!(text(&nowhere.stderr).contains("nothing was pushed"));
}

/// A push that waits at a gate, and what opens it.
struct Gate {
    waiting: PathBuf,
    open: PathBuf,
}

impl Gate {
    fn of(scene: &Scene) -> Self {
        let at = |name: &str| scene.directory.path().join(name);
        Self { waiting: at("waiting"), open: at("open") }
    }

    /// Shell commands that wait.
    fn script(&self) -> String {
        let (waiting, open) = (self.waiting.display(), self.open.display());
        format!("touch '{waiting}'; until [ -e '{open}' ]; do sleep 0.05; done")
    }

    fn wait(&self, zombie: &mut Child) {
        let give_up = Instant::now() + Duration::from_secs(60);
        while !self.waiting.exists() {
            assert!(zombie.try_wait().unwrap().is_none(), "it ended before its push");
            assert!(Instant::now() < give_up, "it never came to its push");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The zombie has passed every check and is about to push; token and branch pass on; then it goes on.
fn overtake(scene: &Scene, cli: &Cli, zombie: &Clone, gate: &Gate) {
    let newer = scene.clone("newer");
    let by_hand = Cli { scene, path: None };
    let old = by_hand.acquire();
    // The fence is there already, so that the next push of the zombie is the one with its commits.
    by_hand.publish(zombie, &old, &[]);
    zombie.commit("zombie");
    let publish = ["publish", "git", "--job", "report", "--token", &old, "--json"];
    let mut stopped = cli.command(&zombie.path, &publish).spawn().unwrap();
    gate.wait(&mut stopped);
    by_hand.release(&old);
    let token = by_hand.acquire();
    newer.commit("newer");
    let landed = by_hand.publish(&newer, &token, &["--branch", "main:other"]);
    assert_eq!(landed.status.code(), Some(0), "{}", text(&landed.stderr));
    let before = scene.refs();
    fs::write(&gate.open, "").unwrap();
    let refused = stopped.wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(13), "{}", text(&refused.stderr));
    let said = json(&refused);
    assert_eq!((said["error"]["reason"].as_str(), said["level"].as_str()), (Some("stale"), Some("atomic")));
    assert_eq!(said["seen"].to_string(), token);
    assert_eq!(scene.refs(), before);
}

#[test]
fn a_writer_stopped_before_its_push_lands_nothing() {
    for scene in Scene::both() {
        let gate = Gate::of(&scene);
        let bin = scene.directory.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let real = text(&Command::new("sh").args(["-c", "command -v git"]).output().unwrap().stdout);
        let wrapper = format!("#!/bin/sh\n[ \"$1\" != push ] || {{ {}; }}\nexec '{real}' \"$@\"\n", gate.script());
        fs::write(bin.join("git"), wrapper).unwrap();
        fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
        let cli = Cli { scene: &scene, path: Some(bin) };
        overtake(&scene, &cli, &scene.clone("zombie"), &gate);
    }
}

#[test]
fn a_writer_stopped_within_its_push_lands_nothing() {
    for scene in Scene::both() {
        let gate = Gate::of(&scene);
        let zombie = scene.clone("zombie");
        // Only the push that is meant waits, and not the one that makes the fence.
        zombie.meanwhile(&format!("[ -z \"$STOP_HERE\" ] || {{ {}; }}", gate.script()));
        let cli = Cli { scene: &scene, path: None };
        let bin = scene.directory.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let real = text(&Command::new("sh").args(["-c", "command -v git"]).output().unwrap().stdout);
        fs::write(bin.join("git"), format!("#!/bin/sh\nSTOP_HERE=1 exec '{real}' \"$@\"\n")).unwrap();
        fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
        overtake(&scene, &Cli { path: Some(bin), ..cli }, &zombie, &gate);
    }
}
