//! One page as a bash script, and the comparison of what it printed with what the page says.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use fencepost_testkit::faketime;
use fencepost_testkit::process::install;
use fencepost_testkit::servers::{Postgres, Redis};
use tempfile::TempDir;

use super::{Block, Page, blocks};
use crate::common::BINARY;

/// Longest time for one page, in seconds.
const PAGE_LIMIT: &str = "180";

/// The places that pages name, and where they are in the test.
const PLACES: [(&str, &str); 4] = [
    ("git+ssh://git@git.example.org/ops/fencepost-state.git", "git+file://{here}/git/fencepost-state.git"),
    ("/mnt/shared", "{here}/shared"),
    ("/srv/www", "{here}/www"),
    ("/usr/local/bin/fencepost", "{here}/bin/fencepost"),
];
const REDIS: &str = "rediss://redis.example.org:6379";
const POSTGRES: &str = "postgres://fencepost@db.example.org/fencepost";

/// A page that is walked through, in a directory of its own.
pub struct Walk<'a> {
    page: &'a Page,
    blocks: Vec<Block>,
    here: TempDir,
}

impl<'a> Walk<'a> {
    pub fn new(page: &'a Page) -> Self {
        let here = TempDir::new().unwrap();
        for directory in ["home", "bin", "out", "a", "b", "shared", "www", "git/fencepost-state.git", "state"] {
            fs::create_dir_all(here.path().join(directory)).unwrap();
        }
        Self { page, blocks: blocks(page), here }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.here.path().join(name)
    }

    /// Runs the page, and says what is not as it is written, each with its line.
    pub fn failures(&self) -> Vec<String> {
        self.install_programs();
        let servers = Servers::for_page(self);
        fs::write(self.path("page.sh"), servers.placed(&self.script())).unwrap();
        let output = self.run();
        if !output.status.success() {
            return vec![self.stopped(&output)];
        }
        let consoles = self.blocks.iter().filter(|block| block.is_run() && block.language == "console");
        consoles.flat_map(|block| self.differences(block)).collect()
    }

    /// The page with everything but its blocks blanked, so that the lines of the script are the lines of the page.
    fn script(&self) -> String {
        let mut lines: Vec<String> = vec![String::new(); self.page.text.lines().count()];
        for block in &self.blocks {
            let (open, close) = (block.line - 1, block.line + block.lines.len());
            if let Some(file) = block.attribute("file") {
                lines[open] = format!("{}install -D -m 755 /dev/stdin '{file}' <<'END_OF_FILE'", self.place(block));
                lines[open + 1..close].clone_from_slice(&block.lines);
                lines[close] = "END_OF_FILE".into();
            } else if block.is_run() {
                lines[open] = format!("{} {{ :", self.place(block));
                for (index, line) in block.lines.iter().enumerate() {
                    lines[open + 1 + index] = match block.language.as_str() {
                        "console" => console(block.line + 1 + index, line),
                        _ => line.clone(),
                    };
                }
                lines[close] = match block.attribute("exit") {
                    Some(code) if block.language == "sh" => {
                        format!("}} >>\"$HERE/out/all\" 2>&1 || code=$?; [ \"$code\" = {code} ]")
                    }
                    _ => "} >>\"$HERE/out/all\" 2>&1".into(),
                };
            }
        }
        lines.join("\n") + "\n"
    }

    /// Sets machine and time of a block.
    fn place(&self, block: &Block) -> String {
        let host = block.attribute("host").unwrap_or("a");
        let at = block.attribute("at").map(|at| format!("@{at}")).unwrap_or_default();
        format!("on {host} '{at}';")
    }

    /// `fencepost` and `crontab` as the page finds them.
    fn install_programs(&self) {
        let library = faketime("MT").display().to_string();
        let fencepost = format!(
            "#!/bin/sh\n[ -z \"$CLOCK\" ] || export LD_PRELOAD='{library}' FAKETIME=\"$CLOCK\" \
             FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1\nexec '{BINARY}' \"$@\"\n"
        );
        let crontab = "#!/bin/sh\nspool=\"$HOME/crontab\"\ncase \"$1\" in\n\
             -l) [ -e \"$spool\" ] && exec cat \"$spool\"; echo 'no crontab for you' >&2; exit 1 ;;\n\
             -V) exit 1 ;;\n-) cat >\"$spool\" ;;\n*) cat \"$1\" >\"$spool\" ;;\nesac\n";
        // Switches to the directory and the state directory of a machine, once for each change of machine.
        let prologue = "set -eE\ncode=0 machine=\n\
             on() {\n    [ \"$1\" = \"$machine\" ] || cd \"$HERE/$1\"\n    machine=$1\n\
             export FENCEPOST_STATE_DIR=\"$HERE/state/$1\" CLOCK=\"$2\"\n}\n\
             trap 'echo \"$LINENO\" >\"$HERE/out/line\"' ERR\n";
        for (name, text) in [("fencepost", fencepost.as_str()), ("crontab", crontab)] {
            fs::write(self.path("draft"), text).unwrap();
            install(self.path("draft"), self.path("bin").join(name), "755");
        }
        fs::write(self.path("prologue.sh"), prologue).unwrap();
    }

    fn run(&self) -> Output {
        let mut command = Command::new("timeout");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FENCEPOST_")) {
            command.env_remove(name);
        }
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        command.args([PAGE_LIMIT, "bash", "-c", ". \"$HERE/prologue.sh\"; . \"$HERE/page.sh\""]);
        command.env("HERE", self.here.path()).env("HOME", self.path("home")).env("PATH", path).env("LC_ALL", "C.UTF-8");
        command.env("GIT_CONFIG_GLOBAL", self.path("home/.gitconfig")).env("GIT_CONFIG_NOSYSTEM", "1");
        fs::write(
            self.path("home/.gitconfig"),
            "[user]\nname = Ann\nemail = ann@example.org\n[init]\ndefaultBranch = main\n",
        )
        .unwrap();
        let repository = self.path("git/fencepost-state.git");
        let made = Command::new("git").args(["init", "-q", "--bare"]).current_dir(repository).status();
        assert!(made.is_ok_and(|status| status.success()));
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn stopped(&self, output: &Output) -> String {
        let read = |name: &str| fs::read_to_string(self.path("out").join(name)).unwrap_or_default();
        let line = read("line");
        let line = if line.trim().is_empty() { "?".to_string() } else { line.trim().to_string() };
        let said = format!("{}{}", read("all"), String::from_utf8_lossy(&output.stderr));
        format!("{}:{line}: the commands stopped ({}):\n{said}", self.page.name, output.status)
    }

    /// What the commands of a console printed otherwise, or with which other code they ended.
    fn differences(&self, block: &Block) -> Vec<String> {
        let mut differences = Vec::new();
        let starts: Vec<usize> = (0..block.lines.len()).filter(|&index| block.lines[index].starts_with("$ ")).collect();
        for (place, &start) in starts.iter().enumerate() {
            let end = starts.get(place + 1).copied().unwrap_or(block.lines.len());
            let line = block.line + 1 + start;
            let read =
                |end: &str| fs::read_to_string(self.path("out").join(format!("{line}.{end}"))).unwrap_or_default();
            let (printed, code) = (read("out"), read("code"));
            let wanted = if end == block.lines.len() { block.attribute("exit").unwrap_or("0") } else { "0" };
            let expected = &block.lines[start + 1..end];
            let printed: Vec<&str> = printed.lines().collect();
            if code.trim() != wanted || (!expected.is_empty() && !matches(expected, &printed)) {
                let (name, code, printed) = (&self.page.name, code.trim(), printed.join("\n"));
                differences.push(format!("{name}:{line}: exit {code}, expected {wanted}; printed:\n{printed}"));
            }
        }
        differences
    }
}

/// A line of a console: a command whose output and exit code are kept by its line, or nothing.
fn console(number: usize, line: &str) -> String {
    match line.strip_prefix("$ ") {
        Some(command) => format!(
            "code=0; {{ {command}; }} >\"$HERE/out/{number}.out\" 2>&1 || code=$?; echo \"$code\" >\"$HERE/out/{number}.code\""
        ),
        None => String::new(),
    }
}

/// Whether the lines are as expected. `…` stands for any text, alone on a line for any lines.
fn matches(expected: &[String], printed: &[&str]) -> bool {
    match (expected.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first == "…" => {
            matches(rest, printed) || printed.split_first().is_some_and(|(_, later)| matches(expected, later))
        }
        (Some((first, rest)), Some((line, later))) => fits(first, line.trim_end()) && matches(rest, later),
        _ => false,
    }
}

fn fits(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(place) = rest.find(part) else { return false };
        rest = &rest[place + part.len()..];
    }
    rest.is_empty()
}

/// The servers that a page names.
struct Servers {
    here: PathBuf,
    redis: Option<Redis>,
    postgres: Option<(std::sync::Arc<Postgres>, String)>,
}

impl Servers {
    fn for_page(walk: &Walk<'_>) -> Self {
        let names = |place: &str| {
            walk.blocks
                .iter()
                .filter(|block| block.attribute("no-test").is_none())
                .any(|block| block.lines.iter().any(|line| line.contains(place)))
        };
        let redis = names(REDIS).then(|| Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]));
        let postgres = names(POSTGRES).then(|| {
            let server = Postgres::shared();
            let database = server.database();
            (server, database)
        });
        Self { here: walk.here.path().to_path_buf(), redis, postgres }
    }

    /// The script with the places of the test instead of those of the page.
    fn placed(&self, script: &str) -> String {
        let mut script = script.to_string();
        for (place, here) in PLACES {
            script = script.replace(place, &here.replace("{here}", &self.here.display().to_string()));
        }
        if let Some(redis) = &self.redis {
            script = script.replace(REDIS, &redis.url());
        }
        if let Some((server, database)) = &self.postgres {
            // The tests' server does not flush, because no power cut is tested with it.
            script = script.replace(POSTGRES, &format!("{}&flush=elsewhere", server.url(database)));
        }
        script
    }
}
