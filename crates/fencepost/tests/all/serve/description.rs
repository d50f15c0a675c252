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

#[test]
fn answers_fit_the_description() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/schemathesis/bin/schemathesis");
    assert!(program.is_file(), "schemathesis is missing: run ./test, which fetches it");
    let desk = Desk::configured(JOBS);
    desk.say(&["run", "report", "--now"]);
    let token = add_token(&desk.site, "tester");
    let served = Served::of_desk(&desk, &["--token-file", &token_file(&desk.site)]);
    let mut command = Command::new(program);
    // The stream of events does not end, and actions are not for a tester that repeats itself.
    command.args(["run", &format!("{}/openapi.json", served.url()), "--exclude-path", "/api/v1/events"]);
    command.args(["--exclude-method", "POST", "--max-examples", "10", "--phases", "examples,coverage,fuzzing"]);
    command.args(["--header", &format!("Authorization: Bearer {token}"), "--seed", "7", "--workers", "2"]);
    // Reading is open on a loopback address. A schema cannot say which texts are a time, a zone or a cursor.
    command.args(["--exclude-checks", "ignored_auth,positive_data_acceptance"]);
    let output = command.current_dir(desk.site.directory()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}
