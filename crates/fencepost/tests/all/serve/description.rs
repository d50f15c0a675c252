//! The API keeps what `/openapi.json` says, by schemathesis, which makes requests of its own.

use std::path::Path;
use std::process::Command;

use super::{Served, add_token, token_file};
use crate::desk::Desk;

const JOBS: &str = "timezone = 'Asia/Tokyo'
[job.report]
schedule = '@daily'
command = 'true'
";

/// The stream of events does not end. A schema cannot say which texts are a time, a length of time, a zone, a schedule or a
/// cursor, so a text that fits the description may be refused where these are parameters.
const SETTINGS: &str = "[[operations]]
include-path = '/api/v1/events'
enabled = false
[[operations]]
include-path-regex = '/(runs|why|plan|logs|pause)$'
checks.positive_data_acceptance.enabled = false
";

/// A server that wants a token from every caller, so that a request without one must fail.
#[test]
fn answers_fit_the_description() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/schemathesis/bin/schemathesis");
    assert!(program.is_file(), "schemathesis is missing: run ./test, which fetches it");
    let desk = Desk::configured(JOBS);
    desk.say(&["run", "report", "--now"]);
    let token = add_token(&desk.site, "tester");
    let file = token_file(&desk.site);
    let options = ["--token-file", &file, "--behind-proxy", "--public-host", "127.0.0.1", "--allow-actions"];
    let served = Served::of_desk(&desk, &options);
    let settings = desk.site.path("schemathesis.toml");
    std::fs::write(&settings, SETTINGS).unwrap();
    let mut command = Command::new(program);
    command.arg("--config-file").arg(&settings);
    command.args(["run", &format!("{}/openapi.json", served.url())]);
    command.args(["--max-examples", "10", "--phases", "examples,coverage,fuzzing", "--seed", "7", "--workers", "2"]);
    command.args(["--header", &format!("Authorization: Bearer {token}")]);
    let output = command.current_dir(desk.site.directory()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}
