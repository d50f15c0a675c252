//! Shell completions and man pages, in the shells and formatters that are installed.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{BINARY, Said, Site};

/// The candidates for the last word.
fn candidates(site: &Site, words: &[&str]) -> Vec<String> {
    let said = site.say(&[&["__complete", "--"], words].concat());
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{words:?}");
    said.stdout.lines().map(|line| line.split('\t').next().unwrap().to_string()).collect()
}

#[test]
fn verbs_options_values_and_jobs_are_completed() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "nightly", "-c", "true"]).code, 0);
    let config = site.path("fencepost.toml");
    std::fs::write(&config, "[job.noon]\ncommand = 'true'\n[job.\"a:b\"]\ncommand = 'true'\n").unwrap();
    let config = config.display().to_string();
    let with_config = |words: &[&str]| candidates(&site, &[&["--config", &config], words].concat());
    assert_eq!(candidates(&site, &["st"]), ["status", "store"]);
    assert_eq!(candidates(&site, &["publish", "g"]), ["git"]);
    assert_eq!(candidates(&site, &["run", "--ret"]), ["--retries", "--retry-backoff"]);
    assert_eq!(candidates(&site, &["run", "j", "--overlap", ""]), ["skip", "replace"]);
    assert_eq!(candidates(&site, &["run", "j", "--overlap=r"]), ["--overlap=replace"]);
    assert_eq!(candidates(&site, &["status", "--js"]), ["--json"]);
    assert_eq!(
        candidates(&site, &["install", ""]),
        ["systemd", "launchd", "crontab", "claude", "codex", "gemini", "antigravity"]
    );
    assert_eq!(candidates(&site, &["run", ""]), ["nightly"]);
    assert_eq!(with_config(&["run", ""]), ["a:b", "nightly", "noon"]);
    assert_eq!(with_config(&["run", "--ttl", "5m", "no"]), ["noon"]);
    assert_eq!(with_config(&["run", "x", "--needs", "ni"]), ["nightly"]);
    assert_eq!(with_config(&["up", "noon", "ni"]), ["nightly"]);
    assert_eq!(with_config(&["record", "noon", ""]), ["ok", "empty", "error"]);
    assert_eq!(candidates(&site, &["run", "j", "--", "l"]), [""; 0], "the command's own words");
    assert_eq!(candidates(&site, &["run", "nightly", ""]), [""; 0]);
    assert!(!candidates(&site, &[""]).iter().any(|verb| verb.starts_with('_') || verb == "notifier"));
    // A verb and an option have their meaning beside them.
    assert!(site.say(&["__complete", "--", "valid"]).stdout.starts_with("validate\tCheck the configuration"));
    let new_word = site.say(&["__complete", "--new-word", "--", "run"]).stdout;
    assert_eq!(new_word, "nightly\n");
}

#[test]
fn a_store_that_hangs_or_fails_leaves_the_configured_jobs_and_prints_nothing_else() {
    let site = Site::new();
    let config = site.path("fencepost.toml");
    std::fs::write(&config, "[job.noon]\ncommand = 'true'\n").unwrap();
    let config = config.display().to_string();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hangs = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let begun = Instant::now();
    assert_eq!(candidates(&site, &["--store", &hangs, "--config", &config, "why", ""]), ["noon"]);
    // The client itself would wait for seconds.
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(candidates(&site, &["--store", "sqlite:/proc/none/x.db", "--config", &config, "why", ""]), ["noon"]);
    assert_eq!(candidates(&site, &["--store", "nonsense", "--config", &config, "why", ""]), ["noon"]);
    std::fs::write(site.path("fencepost.toml"), "[job.").unwrap();
    assert_eq!(candidates(&site, &["--config", &config, "why", ""]), [""; 0]);
    assert!(!site.state().exists());
}

/// A directory with the program under its name, for shells that look it up in PATH.
fn on_path(site: &Site, mut command: Command) -> Said {
    let bin = site.path("bin");
    if !bin.exists() {
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(BINARY, bin.join("fencepost")).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    Said::of(command.env("PATH", path).env("HOME", site.directory()).output().unwrap())
}

#[test]
fn bash_completes() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "team:nightly", "-c", "true"]).code, 0);
    let script = r#"
        source <(fencepost completions bash)
        complete -p fencepost
        try() { COMP_LINE=$1 COMP_POINT=${#1}; _fencepost fencepost; echo "${COMPREPLY[*]}"; }
        try 'fencepost sta'
        try 'fencepost publish gi'
        try 'fencepost run '
        try 'fencepost run team:ni'
        try 'fencepost run j --overlap=re'
        try 'fencepost run j -- x'
    "#;
    let said = on_path(&site, site.program("bash", &["--norc", "-c", script]));
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    assert!(lines[0].contains("-F _fencepost fencepost"), "{said:?}");
    // After a colon or an equals sign bash replaces only the rest of the word.
    assert_eq!(lines[1..], ["status", "git", "team:nightly", "nightly", "replace", ""], "{said:?}");
}

#[test]
fn fish_completes() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "nightly", "-c", "true"]).code, 0);
    let script = "fencepost completions fish | source; complete -C 'fencepost stat'; complete -C 'fencepost run ni'; \
                  complete -C 'fencepost run --overl'";
    let said = on_path(&site, site.program("fish", &["--no-config", "-c", script]));
    let words: Vec<&str> = said.stdout.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!((said.code, words), (0, vec!["status", "nightly", "--overlap"]), "{said:?}");
}

#[test]
fn zsh_completes() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "team:nightly", "-c", "true"]).code, 0);
    // `_describe` is what zsh calls to show the candidates.
    let script = r#"
        autoload -Uz compinit && compinit -u -D
        eval "$(fencepost completions zsh)"
        echo "for ${_comps[fencepost]}"
        _describe() { local list=$3; print -rl -- "${(@P)list}" }
        _default() { echo files }
        try() { words=("$@"); CURRENT=$#; _fencepost }
        try fencepost stat
        try fencepost run te
        try fencepost run j -- x
    "#;
    let said = on_path(&site, site.program("zsh", &["-f", "-c", script]));
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!((said.code, lines.len(), lines[0]), (0, 4, "for _fencepost"), "{said:?}");
    assert!(lines[1].starts_with("status:List"), "{said:?}");
    assert_eq!(lines[2..], ["team\\:nightly", "files"], "{said:?}");
}

#[test]
fn powershell_gets_a_script() {
    let said = Site::new().say(&["completions", "powershell"]);
    assert!(said.code == 0 && said.stdout.contains("Register-ArgumentCompleter -Native -CommandName fencepost"));
}

#[test]
fn there_is_a_man_page_for_each_verb_and_no_formatter_complains() {
    let site = Site::new();
    let directory = site.path("man/man1");
    let said = site.say(&["man", &directory.display().to_string()]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "", ""));
    let names: Vec<String> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for page in ["fencepost.1", "fencepost-run.1", "fencepost-publish.1", "fencepost-publish-git.1", "fencepost-man.1"]
    {
        assert!(names.iter().any(|name| name == page), "{page}: {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains('_') || name.contains("notifier")), "{names:?}");
    let main = std::fs::read_to_string(directory.join("fencepost.1")).unwrap();
    assert_eq!(site.say(&["man"]).stdout, main);
    for name in &names {
        formatted(&directory.join(name));
    }
    let run = formatted(&directory.join("fencepost-run.1"));
    for part in
        ["NAME", "fencepost-run - Run a command", "--retries N", "EXAMPLES", "fencepost run nightly -- ./backup.sh"]
    {
        assert!(run.contains(part), "{part}: {run}");
    }
}

/// The page as `man` prints it. A warning fails the test.
#[track_caller]
fn formatted(page: &Path) -> String {
    let lint = Command::new("mandoc").args(["-Tlint", "-Wwarning"]).arg(page).output().unwrap();
    let lint = String::from_utf8_lossy(&lint.stdout).into_owned();
    let complaints: Vec<&str> = lint.lines().filter(|line| !line.contains("missing date")).collect();
    assert!(complaints.is_empty(), "{}: {complaints:#?}", page.display());
    let output = Command::new("mandoc").args(["-Tascii", "-O", "width=100"]).arg(page).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // An overstruck letter is printed twice with a backspace between.
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '\u{8}' => drop(plain.pop()),
            c => plain.push(c),
        }
    }
    plain
}
