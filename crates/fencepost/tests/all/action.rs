//! The GitHub Action: its shell code with the environment of a runner that is made up, and a bare repository for the store.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use fencepost_testkit::eventually;

use crate::common::{BINARY, Said, Site, contains};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A repository on a git host, and what runners of its workflow share.
struct Hub {
    site: Site,
    schedule: String,
}

impl Hub {
    fn new() -> Self {
        let site = Site::new();
        let made = Command::new("git").args(["init", "-q", "--bare"]).arg(site.path("o/r.git")).status().unwrap();
        assert!(made.success());
        // Daily, five minutes ago: as late as GitHub often is, and not again during the test.
        let now = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(5);
        let schedule = now.to_zoned(jiff::tz::TimeZone::UTC).strftime("%-M %-H * * *").to_string();
        Self { site, schedule }
    }

    /// A new machine, as GitHub has one for each job.
    fn runner(&self, name: &str) -> Runner<'_> {
        let place = self.site.path(name);
        for directory in ["temp", "state", "work"] {
            fs::create_dir_all(place.join(directory)).unwrap();
            fs::set_permissions(place.join(directory), fs::Permissions::from_mode(0o700)).unwrap();
        }
        let schedule = self.schedule.clone();
        let inputs = [("GUARD_JOB", "report"), ("GUARD_BINARY", BINARY), ("GUARD_EVENT_SCHEDULE", &schedule)];
        let inputs = inputs.map(|(name, value)| (name.to_string(), value.to_string())).into();
        Runner { hub: self, place, inputs, environment: BTreeMap::new() }
    }

    fn status_of_last(&self) -> String {
        let store = format!("git+file://{}", self.site.path("o/r.git").display());
        let said = self.site.say(&["--store", &store, "runs", "report", "-n", "1", "--json"]);
        let run: serde_json::Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
        run["status"].as_str().unwrap().to_string()
    }
}

struct Runner<'a> {
    hub: &'a Hub,
    place: PathBuf,
    inputs: BTreeMap<String, String>,
    /// What earlier steps wrote to `GITHUB_ENV`.
    environment: BTreeMap<String, String>,
}

/// How a step ended, and its outputs.
#[derive(Debug)]
struct Step {
    said: Said,
    outputs: BTreeMap<String, String>,
}

impl Step {
    fn proceeds(&self) -> Option<&str> {
        self.outputs.get("proceed").map(String::as_str)
    }
}

fn pairs(path: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
}

impl Runner<'_> {
    fn with(mut self, name: &str, value: &str) -> Self {
        self.inputs.insert(name.to_string(), value.to_string());
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.inputs.remove(name);
        self
    }

    /// A step that runs something else.
    fn command(&self, program: &str) -> Command {
        let mut command = self.hub.site.program(program, &[]);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("FENCEPOST_STATE_DIR", self.place.join("state"));
        command.current_dir(self.place.join("work")).envs(&self.environment);
        command
    }

    fn step(&mut self, inputs: &[(&str, &str)]) -> Step {
        let (outputs, environment) = (self.place.join("outputs"), self.place.join("environment"));
        let _ = fs::remove_file(&outputs);
        let mut command = self.command("bash");
        command.arg(format!("{ROOT}/action/guard"));
        command
            .env("RUNNER_TEMP", self.place.join("temp"))
            .env("GITHUB_OUTPUT", &outputs)
            .env("GITHUB_ENV", &environment);
        command.env("GITHUB_SERVER_URL", format!("file://{}", self.hub.site.directory().display()));
        command.env("GITHUB_REPOSITORY", "o/r").env("GUARD_REPOSITORY", "o/action").env("GUARD_TOKEN", "secret");
        command.envs(&self.inputs).envs(inputs.iter().copied());
        let said = Said::of(command.output().unwrap());
        self.environment = pairs(&environment);
        Step { said, outputs: pairs(&outputs) }
    }
}

#[test]
fn a_step_runs_once_per_slot_over_all_runners() {
    let hub = Hub::new();
    let script = "echo \"working on $FENCEPOST_SLOT\"; env | grep -c secret || true";
    let mut first = hub.runner("first").with("GUARD_RUN", script);
    let ran = first.step(&[]);
    assert_eq!((ran.said.code, ran.proceeds()), (0, Some("true")), "{ran:?}");
    let slot = &ran.outputs["slot"];
    assert_eq!(ran.said.stdout, format!("working on {slot}\n0\n"), "the token is not handed on");
    assert!(ran.outputs["token"].parse::<u64>().is_ok(), "{ran:?}");
    // GitHub delivers the event twice, and a person runs the workflow again.
    for name in ["first", "second"] {
        let again = hub.runner(name).with("GUARD_RUN", script).step(&[]);
        assert_eq!(
            (again.said.code, again.proceeds(), again.said.stdout.as_str()),
            (0, Some("false"), ""),
            "{again:?}"
        );
    }
    assert_eq!(hub.status_of_last(), "ok");
}

#[test]
fn the_exit_status_of_the_script_is_that_of_the_step() {
    let hub = Hub::new();
    let mut runner = hub.runner("only").without("GUARD_EVENT_SCHEDULE").without("GUARD_JOB");
    let ran = runner.step(&[
        ("GUARD_RUN", "false\necho not reached"),
        ("GITHUB_WORKFLOW", "Nightly build"),
        ("GITHUB_JOB", "all"),
    ]);
    assert_eq!((ran.said.code, ran.proceeds(), ran.said.stdout.as_str()), (1, Some("true"), ""), "{ran:?}");
    contains(&ran.said.stderr, &["Nightly-build/all"]);
    let refused = runner.step(&[("GUARD_RUN", "")]);
    assert_eq!(refused.said.code, 2);
    contains(&refused.said.stdout, &["::error", "the input run is empty"]);
    let refused = runner.step(&[("GUARD_MODE", "clam")]);
    assert_eq!(refused.said.code, 2);
    contains(&refused.said.stdout, &["clam", "run, claim or finish"]);
}

#[test]
fn a_claim_holds_for_the_whole_job() {
    let hub = Hub::new();
    let mut first = hub.runner("first");
    let claimed = first.step(&[("GUARD_MODE", "claim")]);
    assert_eq!((claimed.said.code, claimed.proceeds()), (0, Some("true")), "{claimed:?}");
    let mut second = hub.runner("second");
    let skipped = second.step(&[("GUARD_MODE", "claim")]);
    assert_eq!((skipped.said.code, skipped.proceeds()), (0, Some("false")), "{skipped:?}");
    let nothing = second.step(&[("GUARD_MODE", "finish"), ("GUARD_STATUS", "success")]);
    assert_eq!(nothing.said.code, 0, "{nothing:?}");
    contains(&nothing.said.stdout, &["nothing to finish"]);

    // A step in between writes under the claim's token, and says how the job ends.
    assert!(!first.environment.values().any(|value| value.contains("secret")), "{:?}", first.environment);
    let target = first.place.join("work/article");
    let script = format!("echo text | {BINARY} publish file {} --json && {BINARY} record empty", target.display());
    let published = Said::of(first.command("sh").args(["-c", &script]).output().unwrap());
    assert_eq!(published.code, 0, "{published:?}");
    contains(&published.stdout, &[&format!("\"token\":{}", claimed.outputs["token"])]);

    assert_eq!(hub.status_of_last(), "running");
    let finished = first.step(&[("GUARD_MODE", "finish"), ("GUARD_STATUS", "success")]);
    assert_eq!(finished.said.code, 0, "{finished:?}");
    assert_eq!(hub.status_of_last(), "empty");
    let done = hub.runner("third").step(&[("GUARD_MODE", "claim")]);
    assert_eq!((done.said.code, done.proceeds()), (0, Some("false")), "{done:?}");
}

#[test]
fn a_cancelled_job_is_tried_again_and_a_failed_one_is_recorded() {
    let hub = Hub::new();
    let mut first = hub.runner("first");
    assert_eq!(first.step(&[("GUARD_MODE", "claim")]).proceeds(), Some("true"));
    let cancelled = first.step(&[("GUARD_MODE", "finish"), ("GUARD_STATUS", "cancelled")]);
    assert_eq!(cancelled.said.code, 0, "{cancelled:?}");
    let mut second = hub.runner("second");
    let claimed = second.step(&[("GUARD_MODE", "claim")]);
    assert_eq!((claimed.said.code, claimed.proceeds()), (0, Some("true")), "{claimed:?}");
    let failed = second.step(&[("GUARD_MODE", "finish"), ("GUARD_STATUS", "failure")]);
    assert_eq!(failed.said.code, 0, "the job has failed by itself: {failed:?}");
    assert_eq!(hub.status_of_last(), "error");
    // The slot is over: a trigger that changes nothing about that is no success.
    let again = hub.runner("third").step(&[("GUARD_MODE", "claim")]);
    assert_eq!((again.said.code, again.proceeds()), (1, Some("false")), "{again:?}");
}

#[test]
fn a_claim_whose_processes_died_is_reported_at_the_end() {
    let hub = Hub::new();
    let mut runner = hub.runner("first");
    assert_eq!(runner.step(&[("GUARD_MODE", "claim")]).proceeds(), Some("true"));
    let claim = PathBuf::from(&runner.environment["FENCEPOST_ACTION_CLAIM"]);
    let pid = fs::read_to_string(claim.join("pid")).unwrap();
    assert!(Command::new("kill").args(["-KILL", pid.trim()]).status().unwrap().success());
    eventually("the end of the run is noted", || claim.join("exit").exists());
    let finished = runner.step(&[("GUARD_MODE", "finish"), ("GUARD_STATUS", "success")]);
    assert_eq!(finished.said.code, 137, "{finished:?}");
    contains(&finished.said.stdout, &["::error", "report ended before the job did"]);
}

#[test]
fn a_missing_permission_is_named() {
    let hub = Hub::new();
    let hook = hub.site.path("o/r.git/hooks/pre-receive");
    fs::write(&hook, "#!/bin/sh\necho 'Permission to o/r.git denied to github-actions[bot].'\nexit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    for (mode, name) in [("run", "first"), ("claim", "second")] {
        let refused = hub.runner(name).step(&[("GUARD_MODE", mode), ("GUARD_RUN", "echo RAN")]);
        assert_eq!((refused.said.code, refused.proceeds()), (125, Some("false")), "{refused:?}");
        contains(&refused.said.stdout, &["::error", "permissions: contents: write"]);
        assert!(!refused.said.stdout.contains("RAN") && !refused.said.stdout.contains("secret"), "{refused:?}");
    }
}

/// The program comes from the release that the action belongs to, if its checksum is right.
#[test]
fn the_program_is_fetched_and_checked() {
    let hub = Hub::new();
    let name = format!("fencepost-{}-{}-unknown-linux-musl", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let release = hub.site.path(&format!("o/action/releases/download/v{}", env!("CARGO_PKG_VERSION")));
    fs::create_dir_all(release.join(&name)).unwrap();
    symlink(BINARY, release.join(&name).join("fencepost")).unwrap();
    let pack = format!("tar -czf {name}.tar.gz {name} && sha256sum {name}.tar.gz >SHA256SUMS");
    assert!(Command::new("sh").args(["-c", &pack]).current_dir(&release).status().unwrap().success());
    let ran = hub.runner("first").without("GUARD_BINARY").step(&[("GUARD_RUN", "echo RAN")]);
    assert_eq!((ran.said.code, ran.said.stdout.as_str()), (0, "RAN\n"), "{ran:?}");
    fs::write(release.join("SHA256SUMS"), format!("{}  {name}.tar.gz\n", "0".repeat(64))).unwrap();
    let refused = hub.runner("second").without("GUARD_BINARY").step(&[("GUARD_RUN", "echo RAN")]);
    assert_eq!(refused.said.code, 1, "{refused:?}");
    contains(&refused.said.stdout, &["checksum of SHA256SUMS"]);
}

/// With `uses: ./` there is no release that the action belongs to.
#[test]
fn without_a_release_the_program_has_to_be_named() {
    let hub = Hub::new();
    let mut runner = hub.runner("only").without("GUARD_BINARY");
    let refused = runner.step(&[("GUARD_RUN", "echo RAN"), ("GUARD_REPOSITORY", "")]);
    assert_eq!((refused.said.code, refused.said.stderr.as_str()), (2, ""), "{refused:?}");
    contains(&refused.said.stdout, &["::error", "uses: ./", "the input binary"]);
}

#[test]
fn action_yml_hands_over_every_input_that_the_script_reads() {
    let action = fs::read_to_string(format!("{ROOT}/action.yml")).unwrap();
    let script = fs::read_to_string(format!("{ROOT}/action/guard")).unwrap();
    let words = |text: &str| -> Vec<String> {
        let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
        let mut found: Vec<String> = text
            .split(|c| !is_part(c))
            .filter(|word| word.starts_with("GUARD_") && word.len() > 6)
            .map(str::to_string)
            .collect();
        found.sort();
        found.dedup();
        found
    };
    assert_eq!(words(&action), words(&script));
    let (inputs, rest) = action.split_once("\noutputs:\n").unwrap();
    let names = inputs
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.strip_suffix(':'))
        .filter(|name| !name.starts_with(' '));
    for name in names {
        assert!(rest.contains(&format!("inputs.{name}")), "the input {name} is used");
    }
}
