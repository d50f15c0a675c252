//! `awake = true`: a Mac does not sleep while the command runs. Other systems accept the key.

use std::fs;

use crate::common::{Said, Site, contains};

fn site() -> Site {
    let site = Site::new();
    let config = "[job.long]\nawake = true\ncommand = 'cat asked 2>/dev/null; exit 3'\n[job.short]\ncommand = 'true'\n";
    fs::write(site.path("fencepost.toml"), config).unwrap();
    site
}

fn run(site: &Site, job: &str, awake: &str) -> Said {
    let config = site.path("fencepost.toml").display().to_string();
    let mut command = site.command(&["--config", &config, "run", job]);
    Said::of(command.env("FENCEPOST_TEST_AWAKE", awake).output().unwrap())
}

#[test]
fn only_a_job_that_says_so_keeps_the_machine_awake() {
    let site = site();
    let asked = site.path("asked");
    assert_eq!(run(&site, "short", asked.to_str().unwrap()).code, 0);
    assert!(!asked.exists());
    let said = run(&site, "long", asked.to_str().unwrap());
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(fs::read_to_string(&asked).unwrap(), "fencepost: long");
}

#[test]
fn a_machine_that_cannot_be_kept_awake_runs_the_job_all_the_same() {
    let site = site();
    let said = run(&site, "long", "fail");
    assert_eq!(said.code, 3, "{said:?}");
    contains(&said.stderr, &["long: this machine cannot be kept awake (a test made it fail). The job runs anyway"]);
    assert_eq!(site.runs(&["long"])[0]["exit_code"], 3);
}
