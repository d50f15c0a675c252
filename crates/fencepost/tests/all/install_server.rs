//! `fencepost install … --serve`: a unit or an agent that keeps the server running.

use std::fs;
use std::process::Command;

use crate::common::{BINARY, Said, contains};
use crate::install::has;
use crate::triggers::Home;

const JOBS: &str = "[job.a]\nschedule = '0 7 * * *'\ncommand = 'true'\n";

/// Characters that mean something to systemd and XML.
const ODD: &str = "it's 50% <of> $HOME & \"more\"";

#[test]
fn a_unit_keeps_the_server_running() {
    let home = Home::named(ODD, JOBS);
    let install =
        ["install", "systemd", "--serve", "--write", "--", "--listen", "127.0.0.1:7444", "--share-file", "50%.db"];
    let refused = home.say(&install);
    assert!(refused.code == 2 && refused.stderr.contains("--share"), "its options are checked now: {refused:?}");
    let said = home.done(&[&install[..], &["--share", "--token-file", "tokens"]].concat());
    contains(&said.stdout, &["systemctl --user", "fencepost-serve.service"]);
    let path = home.units().join("fencepost-serve.service");
    let unit = fs::read_to_string(&path).unwrap();
    let command = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
    assert!(command.contains(BINARY) && command.contains("50%% <of> $$HOME & \\\"more\\\"/fencepost.toml"), "{unit}");
    assert!(
        command.ends_with(" serve --listen 127.0.0.1:7444 --share-file \"50%%.db\" --share --token-file tokens"),
        "{unit}"
    );
    let here =
        format!("WorkingDirectory={}\n", home.path("").display().to_string().trim_end_matches('/').replace('%', "%%"));
    let state = format!("FENCEPOST_STATE_DIR={}", home.site.state().display());
    contains(
        &unit,
        &["Type=exec\n", "Restart=on-failure\n", "KillMode=process\n", "WantedBy=default.target\n", &here, &state],
    );
    if has("systemd-analyze") {
        let mut verify = Command::new("systemd-analyze");
        verify.args(["--user", "verify"]).arg(&path).env("XDG_RUNTIME_DIR", home.site.path("home"));
        let said = Said::of(verify.output().unwrap());
        assert!(!said.stderr.contains("fencepost"), "{said:?}");
    }
    // The triggers of jobs and the server come and go by themselves.
    home.done(&["install", "systemd", "--write"]);
    home.done(&["install", "systemd", "--remove"]);
    assert!(path.exists() && !home.units().join("fencepost.service").exists());
    home.done(&["install", "systemd", "--serve", "--remove"]);
    assert!(!path.exists());
}

#[test]
fn an_agent_keeps_the_server_running() {
    let home = Home::named(ODD, JOBS);
    home.done(&["install", "launchd", "--serve", "--write", "--", "--public-host", "a&b"]);
    let path = home.site.path("home/Library/LaunchAgents/fencepost.serve.plist");
    let agent = fs::read_to_string(&path).unwrap();
    contains(&agent, &["<string>serve</string>\n\t\t<string>--public-host</string>\n\t\t<string>a&amp;b</string>"]);
    if has("python3") {
        let script = "import plistlib, sys\np = plistlib.load(open(sys.argv[1], 'rb'))\n\
                      print(p['Label'], p['RunAtLoad'], p['KeepAlive'], p['WorkingDirectory'])\nprint(p['ProgramArguments'])";
        let mut python = Command::new("python3");
        let said = Said::of(python.args(["-c", script]).arg(&path).output().unwrap());
        let directory = home.path("").display().to_string();
        let expected = format!("fencepost.serve True True {}\n", directory.trim_end_matches('/'));
        assert!(said.stdout.starts_with(&expected), "{said:?}");
        assert!(said.stdout.contains("'serve', '--public-host', 'a&b']"), "{said:?}");
    }
    home.done(&["install", "launchd", "--write"]);
    home.done(&["install", "launchd", "--remove"]);
    assert!(path.exists(), "the triggers of jobs and the server come and go by themselves");
    home.done(&["install", "launchd", "--serve", "--remove"]);
    assert!(!path.exists());
    let crontab = home.say(&["install", "crontab", "--serve"]);
    assert!(crontab.code == 2 && crontab.stderr.contains("systemd and launchd"), "{crontab:?}");
}
