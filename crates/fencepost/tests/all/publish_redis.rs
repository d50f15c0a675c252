//! `fencepost publish redis` from the outside.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Output, Stdio};

use fencepost_testkit::servers::Redis;

use crate::common::Site;

fn fencepost(site: &Site, arguments: &[&str], variables: &[(&str, &str)], input: &[u8]) -> Output {
    let mut command = site.command(arguments);
    command.env_remove("REDISCLI_AUTH").envs(variables.iter().copied());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that reads no input may have ended by now.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stderr[..], &output.stdout[..]].concat()).into_owned()
}

/// Asks the server without any client of ours.
fn ask(server: &Redis, commands: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.write_all(format!("{commands}QUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_key_and_its_fence_are_set_together() {
    let server = Redis::start(&["--requirepass", "s3cret"]);
    let content = || ask(&server, "AUTH s3cret\r\nGET report\r\n");
    let machines = [Site::new(), Site::new()];
    let [first, second] = machines.each_ref().map(|site| {
        let output = fencepost(site, &["lease", "acquire", "daily", "--ttl", "1h"], &[], b"");
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    });
    let url = server.url();
    let publish = |site: &Site, token: &str, options: &[&str], input: &[u8]| {
        let common = ["publish", "redis", "report", "--url", &url, "--job", "daily", "--token", token, "-v"];
        fencepost(site, &[&common[..], options].concat(), &[("REDISCLI_AUTH", "s3cret")], input)
    };
    let dry = publish(&machines[0], &first, &["--dry-run"], b"one");
    assert_eq!(dry.status.code(), Some(0), "{}", words(&dry));
    assert!(content().contains("$-1"), "{}", content());
    let written = publish(&machines[0], &first, &["--json"], b"one");
    assert_eq!(written.status.code(), Some(0), "{}", words(&written));
    assert!(words(&written).contains(r#""level":"atomic""#), "{}", words(&written));
    assert!(content().contains("one"), "{}", content());
    let stranger = publish(&machines[1], &second, &[], b"two");
    assert_eq!(stranger.status.code(), Some(13), "{}", words(&stranger));
    assert!(content().contains("one"), "{}", content());

    let wrong = fencepost(
        &machines[0],
        &["publish", "redis", "report", "--job", "daily", "--token", &first],
        &[("FENCEPOST_REDIS_URL", &url.replace("redis://", "redis://:wr0ng@"))],
        b"three",
    );
    assert_eq!(wrong.status.code(), Some(125), "{}", words(&wrong));
    let status = fencepost(&machines[0], &["status", "--json"], &[], b"");
    assert!(words(&status).contains("redis:report"), "{}", words(&status));
    for output in [dry, written, stranger, wrong, status] {
        assert!(!words(&output).contains("s3cret") && !words(&output).contains("wr0ng"), "{}", words(&output));
    }
    let odd = publish(&machines[0], &first, &["--resource", "x", "--op", "y"], b"four");
    assert_eq!(odd.status.code(), Some(0), "{}", words(&odd));
}

#[test]
fn tls_believes_only_whom_the_system_vouches_for() {
    let directory = fencepost_testkit::servers::own_directory();
    let (key, certificate) = fencepost_testkit::servers::certificate(directory.path());
    let port = fencepost_testkit::network::free_port().to_string();
    let [key, certificate] = [&key, &certificate].map(|path| path.display().to_string());
    let settings =
        ["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-auth-clients", "no"];
    let server = Redis::start(&settings);
    let site = Site::new();
    let token = fencepost(&site, &["lease", "acquire", "daily", "--ttl", "1h"], &[], b"");
    let token = String::from_utf8(token.stdout).unwrap();
    let url = format!("rediss://localhost:{port}");
    let common = ["publish", "redis", "report", "--url", &url, "--job", "daily", "--token", token.trim()];
    let stranger = fencepost(&site, &common, &[], b"one");
    assert_eq!(stranger.status.code(), Some(125), "{}", words(&stranger));
    let known = fencepost(&site, &common, &[("SSL_CERT_FILE", &certificate)], b"one");
    assert_eq!(known.status.code(), Some(0), "{}", words(&known));
    assert!(ask(&server, "GET report\r\n").contains("one"));
}
