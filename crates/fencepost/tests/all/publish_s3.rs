//! `fencepost publish s3` from the outside.

use fencepost_testkit::servers::{S3_PASSWORD, S3Server};

use crate::common::{Said, Site, contains};

#[test]
fn an_object_is_written_under_its_fence() {
    let (site, server) = (Site::new(), S3Server::good());
    let (id, secret) = S3_PASSWORD.split_once(':').unwrap();
    let url = server.url().replace("/fencepost", "/site/report.json");
    let said = |arguments: &[&str]| {
        let mut command = site.command(arguments);
        command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret);
        Said::of(command.output().unwrap())
    };
    std::fs::write(site.path("report.json"), "{}").unwrap();
    let from = site.path("report.json").display().to_string();
    let token = said(&["lease", "acquire", "daily", "--ttl", "1h"]).stdout;
    let publish = |options: &[&str]| {
        let common = ["publish", "s3", &url, "--job", "daily", "--token", token.trim(), "--from", &from, "--json"];
        said(&[&common[..], options].concat())
    };
    let dry = publish(&["--dry-run"]);
    assert_eq!(dry.code, 0, "{dry:?}");
    let written =
        publish(&["--content-type", "application/json", "--cache-control", "max-age=60", "--metadata", "owner=jobs"]);
    assert_eq!(written.code, 0, "{written:?}");
    contains(&written.stdout, &[r#""level":"gated""#, r#""already_applied":false"#, "s3://locks/site/report.json"]);
    contains(&publish(&[]).stdout, &[r#""already_applied":true"#]);
    let wrong = publish(&["--metadata", "owner"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    contains(&said(&["status", "--json"]).stdout, &["s3://locks/site/report.json"]);
    for said in [dry, written, wrong] {
        assert!(!said.stdout.contains(secret) && !said.stderr.contains(secret), "{said:?}");
    }
}
