//! Notifications of a run through the real binary: commands, webhooks and pings. The run does not wait for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::common::{Holder, contains};
use crate::triggers::Home;
use fencepost_testkit::eventually;
use fencepost_testkit::web::Web;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

fn lines(web: &Web, count: usize) -> Vec<String> {
    web.wait_for(count).iter().map(fencepost_testkit::http::Request::line).collect()
}

fn log(home: &Home) -> String {
    fs::read_to_string(home.site.state().join("notify.log")).unwrap_or_default()
}

#[test]
fn an_error_and_the_recovery_from_it_are_told_with_the_record() {
    let web = Web::answering(200);
    let config = format!(
        "[notify]\non_error = '{}'\non_recovered = '{}'\n[job.j]\ncommand = 'exit $(cat code)'\n",
        web.url("/error"),
        web.url("/recovered")
    );
    let home = Home::new(&config);
    let run = |code: &str| {
        fs::write(home.path("code"), code).unwrap();
        home.say(&["run", "j"]).code
    };
    assert_eq!(run("0"), 0);
    assert_eq!(run("7"), 7);
    let told = web.wait_for(1)[0].clone();
    assert_eq!(told.line(), "POST /error");
    let record = told.json();
    assert_eq!((&record["event"], &record["job"], &record["status"]), (&json!("error"), &json!("j"), &json!("error")));
    assert_eq!((&record["exit_code"], &record["v"], &record["ended_by"]), (&json!(7), &json!(1), &json!("child")));
    contains(record["text"].as_str().unwrap(), &["j failed (exit 7)."]);
    let last = home.json(&["status", "j"])["jobs"][0]["last"].clone();
    for (key, value) in last.as_object().unwrap() {
        assert_eq!(record[key], *value, "{key}");
    }
    // The streak was told.
    assert_eq!((run("8"), run("8")), (8, 8));
    assert_eq!(run("0"), 0);
    let told = web.wait_for(2)[1].clone();
    assert_eq!((told.line().as_str(), told.json()["event"].clone()), ("POST /recovered", json!("recovered")));
    contains(told.json()["text"].as_str().unwrap(), &["j works again: ok after error. It was down for "]);
    assert!(told.json()["down_ms"].as_u64().is_some() && told.json()["since"].is_string(), "{}", told.json());
    // It has recovered once.
    assert_eq!(run("0"), 0);
    assert_eq!(run("9"), 9);
    assert_eq!(lines(&web, 3), ["POST /error", "POST /recovered", "POST /error"]);
    assert_eq!(log(&home), "");
}

#[test]
fn a_command_gets_the_record_and_variables_in_the_configurations_directory() {
    let home = Home::new(
        "[defaults]\nenvironment = { GREETING = 'hello' }\n\
         [job.up]\ncommand = 'exit 3'\non_error = 'cat > told; echo \"$FENCEPOST_JOB $FENCEPOST_EVENT $FENCEPOST_STATUS \
         $FENCEPOST_EXIT_CODE $GREETING\" > env; mv told record'\n\
         [job.down]\ncommand = 'true'\nneeds = ['up@any']\non_halt = 'echo \"$FENCEPOST_EVENT: $FENCEPOST_MESSAGE\" > halted'\n",
    );
    assert_eq!(home.say(&["run", "up"]).code, 3);
    eventually("it is told", || home.path("record").exists());
    // Text for people first, the JSON on the last line.
    let message = fs::read_to_string(home.path("record")).unwrap();
    assert!(message.starts_with("up failed (exit 3).\n\nslot "), "{message}");
    let record: Value = serde_json::from_str(message.lines().last().unwrap()).unwrap();
    assert_eq!((&record["job"], &record["config"]), (&json!("up"), &json!(home.config())));
    assert_eq!(fs::read_to_string(home.path("env")).unwrap(), "up error error 3 hello\n");
    assert_eq!(home.say(&["run", "down"]).code, 115);
    eventually("the halt is told", || home.path("halted").metadata().is_ok_and(|file| file.len() > 0));
    contains(&fs::read_to_string(home.path("halted")).unwrap(), &["halted: down was halted, nothing was run: "]);
}

#[test]
fn skips_are_told_when_there_were_so_many_in_a_row() {
    let web = Web::answering(204);
    let home = Home::new(&format!(
        "[job.j]\ncommand = 'echo going; exec cat >/dev/null'\non_skips = {{ count = 3, notify = '{}' }}\n",
        web.url("/skips")
    ));
    let holder = Holder::start(home.command(&["run", "j"]));
    for _ in 0..5 {
        home.done(&["run", "j"]);
    }
    let told = web.wait_for(1)[0].json();
    assert_eq!(
        (&told["event"], &told["in_a_row"], &told["status"]),
        (&json!("skips"), &json!(3), &json!("skipped_overlap"))
    );
    contains(told["text"].as_str().unwrap(), &["3 skips in a row: j skipped: it is held by"]);
    holder.finish();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(web.seen().len(), 1);
}

#[test]
fn pings_follow_a_run_in_their_order() {
    let web = Web::answering(200);
    let home = Home::new(&format!(
        "[job.j]\ncommand = '''case $(cat code) in wait) echo going; exec cat >/dev/null;; *) exit $(cat code);; esac'''\n\
         ping = '{}'\nretries = 1\nretry_backoff = '1ms'\n",
        web.url("/ping/s3cret?tag=x")
    ));
    let run = |code: &str| {
        fs::write(home.path("code"), code).unwrap();
        home.say(&["run", "j"])
    };
    assert_eq!(run("0").code, 0);
    assert_eq!(lines(&web, 2), ["GET /ping/s3cret/start?tag=x", "GET /ping/s3cret?tag=x"]);
    // A retry is no failure yet.
    assert_eq!(run("5").code, 5);
    let seen = web.wait_for(6);
    let mut told: Vec<String> = seen[2..].iter().map(fencepost_testkit::http::Request::line).collect();
    told.sort();
    let start = "GET /ping/s3cret/start?tag=x";
    assert_eq!(told, [start, start, "POST /ping/s3cret/fail?tag=x", "POST /ping/s3cret/log?tag=x"]);
    let fail = seen.iter().find(|request| request.target.contains("/fail")).unwrap();
    contains(&fail.text(), &["(exit 5)"]);
    // A skip is only worth a line in the log.
    fs::write(home.path("code"), "wait").unwrap();
    let holder = Holder::start(home.command(&["run", "j"]));
    web.wait_for(7);
    home.done(&["run", "j"]);
    let skip = web.wait_for(8)[7].clone();
    assert_eq!(skip.line(), "POST /ping/s3cret/log?tag=x");
    contains(&skip.text(), &["j skipped"]);
    // A wrapper that was killed cannot say how it went; that is told for it.
    kill(Pid::from_raw(holder.pid()), Signal::SIGKILL).unwrap();
    let fail = web.wait_for(9)[8].clone();
    assert_eq!(fail.line(), "POST /ping/s3cret/fail?tag=x");
    contains(&fail.text(), &["was killed"]);
    assert!(!home.done(&["validate"]).stdout.contains("s3cret"));
}

#[test]
fn a_run_that_died_is_told_by_the_one_that_takes_over() {
    let web = Web::answering(200);
    let home = Home::new(&format!(
        "[job.j]\ncommand = 'echo going; exec cat >/dev/null'\non_error = '{}'\n",
        web.url("/error")
    ));
    Holder::start(home.command(&["run", "j"])).kill();
    assert!(web.seen().is_empty());
    home.done(&["run", "j"]);
    let told = web.wait_for(1)[0].json();
    assert_eq!((&told["event"], &told["status"]), (&json!("error"), &json!("lost")));
    contains(told["text"].as_str().unwrap(), &["A run of j did not end properly"]);
}

#[test]
fn a_store_that_fails_is_told_too() {
    let web = Web::answering(200);
    let home = Home::new(&format!("[job.j]\ncommand = 'true'\non_error = '{}'\n", web.url("/error")));
    fs::create_dir_all(home.site.state()).unwrap();
    fs::write(home.site.database(), "not a database").unwrap();
    assert_eq!(home.say(&["run", "j"]).code, 125);
    let told = web.wait_for(1)[0].json();
    assert_eq!((&told["event"], &told["status"], &told["job"]), (&json!("error"), &json!("error"), &json!("j")));
    contains(told["text"].as_str().unwrap(), &["j was not run: "]);
}

#[test]
fn nobody_waits_for_a_webhook_that_hangs() {
    let web = Web::hanging();
    let config =
        format!("[job.j]\ncommand = 'exit 4'\non_error = '{}'\nping = '{}'\n", web.url("/error"), web.url("/ping"));
    let home = Home::new(&config);
    let begun = Instant::now();
    // As cron does: until the end of its output.
    let said = home.say(&["run", "j"]);
    let took = begun.elapsed();
    assert_eq!(said.code, 4, "{said:?}");
    assert!(took < Duration::from_secs(8), "it took {took:?}");
    web.wait_for(1);
    // The notifier may be killed, and the next run continues.
    let notifier = notifiers(&home);
    assert!(!notifier.is_empty());
    for pid in notifier {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    assert_eq!(home.say(&["run", "j"]).code, 4);
    fs::remove_file(home.config()).unwrap();
    home.write("fencepost.toml", "[job.j]\ncommand = 'true'\n");
    home.done(&["run", "j"]);
    for pid in notifiers(&home) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// The processes of this very test that tell others something, by what they are called and whose state they keep.
fn notifiers(home: &Home) -> Vec<i32> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is_ours = |pid: &i32| {
        let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
        line.starts_with(crate::common::BINARY)
            && line.trim_end_matches('\0').ends_with("notifier")
            && String::from_utf8_lossy(&read("environ")).contains(home.site.state().to_str().unwrap())
    };
    all.filter(is_ours).collect()
}

#[test]
fn whoever_tells_it_may_be_killed_while_the_job_runs() {
    let web = Web::answering(200);
    let home =
        Home::new(&format!("[job.j]\ncommand = 'echo going; exec cat >/dev/null'\nping = '{}'\n", web.url("/ping")));
    let holder = Holder::start(home.command(&["run", "j"]));
    assert_eq!(lines(&web, 1), ["GET /ping/start"]);
    let children = fencepost_testkit::process::children_of(holder.pid());
    let is_notifier =
        |pid: &&i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().contains("notifier");
    let notifier = children.iter().find(is_notifier).unwrap();
    kill(Pid::from_raw(*notifier), Signal::SIGKILL).unwrap();
    // Until it has exited, its pipe takes what it will never read.
    eventually("the notifier is dead", || !fencepost_testkit::process::is_alive(*notifier));
    assert_eq!(holder.finish().code, 0);
    assert_eq!(lines(&web, 2)[1], "GET /ping");
}

#[test]
fn what_could_not_be_told_is_noted_without_secrets() {
    let web = Web::answering(404);
    let config = format!(
        "[job.web]\ncommand = 'exit 4'\non_error = '{}'\n[job.cmd]\ncommand = 'exit 4'\non_error = 'echo oh no >&2; exit 9'\n",
        web.url("/s3cret")
    );
    let home = Home::new(&config);
    assert_eq!(home.say(&["run", "web"]).code, 4);
    eventually("it is noted", || log(&home).contains("web (run "));
    contains(&log(&home), &["error by http://127.0.0.1:", "/*** failed: it answered 404"]);
    assert_eq!(home.say(&["run", "cmd"]).code, 4);
    eventually("it is noted", || log(&home).contains("cmd (run "));
    contains(&log(&home), &["oh no\n", "failed: it ended with exit status: 9"]);
    assert!(!log(&home).contains("s3cret"), "{}", log(&home));
    // With -v it is said aloud. Another streak begins.
    home.done(&["record", "web", "ok"]);
    home.done(&["record", "cmd", "ok"]);
    let said = home.say(&["run", "web", "-v"]);
    contains(&said.stderr, &["web (run ", "failed: it answered 404"]);
    // It does not grow for ever.
    let path = home.site.state().join("notify.log");
    fs::write(&path, "x\n".repeat(200_000)).unwrap();
    home.say(&["run", "cmd"]);
    eventually("it is cut", || log(&home).contains("cmd (run "));
    assert!(log(&home).len() < 300_000);
}

#[test]
fn what_up_runs_is_told_as_well() {
    let home = Home::new(
        "[job.j]\nevery = '1s'\nslack = '1s'\ncommand = 'exit 6'\non_error = 'echo \"$FENCEPOST_JOB $FENCEPOST_EXIT_CODE\" >> told'\n",
    );
    let told = || fs::read_to_string(home.path("told")).unwrap_or_default();
    // On its first sight nothing may have been due yet.
    eventually("it is told", || {
        home.say(&["up", "--once"]);
        std::thread::sleep(Duration::from_millis(300));
        !told().is_empty()
    });
    contains(&told(), &["j 6\n"]);
}

#[test]
fn a_redirect_is_not_followed_and_is_a_failure_in_the_log() {
    for status in [301, 302, 303, 307, 308] {
        let target = Web::answering(200);
        let web = Web::redirecting(status, target.url("/target"));
        let home = Home::new(&format!(
            "[job.j]\ncommand = 'exit 3'\non_error = '{}'\nping = '{}'\n",
            web.url("/error"),
            web.url("/ping")
        ));
        assert_eq!(home.say(&["run", "j"]).code, 3);
        eventually("both failures are in the log", || {
            log(&home).matches(&format!("it answered {status}")).count() >= 3
        });
        contains(&log(&home), &["error by http://127.0.0.1", "a redirect, which is not followed"]);
        assert_eq!(target.seen(), []);
        assert_eq!(web.seen().len(), 3, "no redirect is tried again");
    }
}

#[test]
fn no_command_receives_the_stores_password_and_the_log_is_private() {
    let home = Home::new(
        "[job.j]\nprepare = 'env > prepared'\ncommand = 'env > ran; exit 3'\non_error = 'env > told.new; mv told.new told; echo out; exit 4'\n",
    );
    let run = |store: Option<&str>| {
        let mut command = home.command(&["run", "j"]);
        command.env("FENCEPOST_STORE_PASSWORD", "s3cret").env("FENCEPOST_CONFIG", home.config());
        command.envs(store.map(|store| ("FENCEPOST_STORE", store)));
        command.output().unwrap().status.code()
    };
    let told = || {
        eventually("it is told", || home.path("told").exists());
        let text = fs::read_to_string(home.path("told")).unwrap();
        fs::remove_file(home.path("told")).unwrap();
        text
    };
    assert_eq!(run(None), Some(3));
    let texts = ["prepared", "ran"].map(|name| fs::read_to_string(home.path(name)).unwrap());
    for text in texts.iter().chain([&told()]) {
        assert!(!text.contains("s3cret"), "{text}");
        contains(text, &["FENCEPOST_JOB=j"]);
    }
    // A store that cannot be reached, with a password in its URL.
    assert_eq!(run(Some("redis://:s3cret@127.0.0.1:1/0")), Some(125));
    let text = told();
    assert!(!text.contains("s3cret"), "{text}");
    eventually("the failure is in the log", || log(&home).contains("it ended with"));
    let path = home.site.state().join("notify.log");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o600);
    // One that an older version left is made private, also when its oldest half is dropped.
    fs::write(&path, "x\n".repeat(200_000)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    home.done(&["record", "j", "ok"]);
    assert_eq!(run(None), Some(3));
    eventually("the log was shortened", || fs::metadata(&path).unwrap().len() < 300_000);
    eventually("the failure is in it", || log(&home).contains("it ended with"));
    assert_eq!(mode(), 0o600);
}

/// The job that fails unless its file `good` exists, with recipients.
fn flaky(keys: &str) -> Home {
    Home::new(&format!("{keys}\n[job.j]\ncommand = 'echo begun; echo \"<!here> @everyone\"; test -e good'\n"))
}

#[test]
fn each_service_gets_the_body_that_it_documents() {
    let web = Web::answering(200);
    let keys = format!(
        "[notify]\non_error = ['slack:{}', 'discord:{}', 'ntfy:{}', 'healthchecks:{}', '{}']\non_recovered = ['ntfy:{}', 'healthchecks:{}']",
        web.url("/slack"),
        web.url("/discord"),
        web.url("/ntfy"),
        web.url("/hc/uuid"),
        web.url("/own"),
        web.url("/ntfy"),
        web.url("/hc/uuid"),
    );
    let home = flaky(&keys);
    assert_eq!(home.say(&["run", "j"]).code, 1);
    let seen = web.wait_for(5);
    let to =
        |path: &str| seen.iter().find(|request| request.target == path).unwrap_or_else(|| panic!("{path}: {seen:?}"));
    let text = "j failed (exit 1). Last output: <!here> @everyone\n\nslot ";
    let slack = to("/slack").json();
    assert_eq!(slack.as_object().unwrap().len(), 1, "{slack}");
    contains(slack["text"].as_str().unwrap(), &["j failed (exit 1). Last output: &lt;!here&gt; @everyone\n\nslot "]);
    contains(slack["text"].as_str().unwrap(), &["\n\nLast lines of its output:\n    begun\n    &lt;!here&gt;"]);
    let discord = to("/discord").json();
    contains(discord["content"].as_str().unwrap(), &[text]);
    assert_eq!(discord["allowed_mentions"], json!({ "parse": [] }));
    let ntfy = to("/ntfy");
    contains(&ntfy.text(), &[text]);
    let header = |request: &fencepost_testkit::http::Request, name: &str| request.header(name).map(str::to_string);
    assert_eq!(header(ntfy, "title").as_deref(), Some("j failed"));
    assert_eq!(header(ntfy, "priority").as_deref(), Some("high"));
    assert_eq!(header(ntfy, "tags").as_deref(), Some("rotating_light"));
    assert_eq!(to("/hc/uuid/fail").line(), "POST /hc/uuid/fail");
    contains(&to("/hc/uuid/fail").text(), &[text]);
    let own = to("/own").json();
    assert_eq!(own["last_output"], json!(["begun", "<!here> @everyone"]));
    assert_eq!((&own["reminder"], &own["exit_code"]), (&json!(false), &json!(1)));
    fs::write(home.path("good"), "").unwrap();
    home.done(&["run", "j"]);
    let seen = web.wait_for(7);
    let mut recovered: Vec<String> = seen[5..].iter().map(fencepost_testkit::http::Request::line).collect();
    recovered.sort();
    assert_eq!(recovered, ["POST /hc/uuid", "POST /ntfy"]);
    let ntfy = seen[5..].iter().find(|request| request.target == "/ntfy").unwrap();
    assert_eq!(header(ntfy, "title").as_deref(), Some("j works again"));
    assert_eq!(log(&home), "");
}

#[test]
fn mail_goes_through_the_systems_mail_with_text_first() {
    let home = flaky("[notify]\non_error = ['mail:me@example.org', ['sh', '-c', 'cat > second']]");
    let bin = home.path("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("mail"), "#!/bin/sh\necho \"$@\" > mailed.new\ncat >> mailed.new\nmv mailed.new mailed\n")
        .unwrap();
    fs::set_permissions(bin.join("mail"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    assert_eq!(home.command(&["run", "j"]).env("PATH", path).output().unwrap().status.code(), Some(1));
    eventually("both were told", || home.path("mailed").exists() && home.path("second").exists());
    let mail = fs::read_to_string(home.path("mailed")).unwrap();
    assert!(mail.starts_with("-s fencepost: j failed me@example.org\nj failed (exit 1). Last output: "), "{mail}");
    contains(&mail, &["\n\nLast lines of its output:\n    begun\n", "\n\n{\"text\":"]);
}

#[test]
fn a_test_message_goes_to_each_recipient_once_and_each_result_is_printed() {
    let (good, bad) = (Web::answering(200), Web::answering(404));
    let keys = format!(
        "[notify]\non_error = ['slack:{0}', 'ntfy:{1}']\non_recovered = 'slack:{0}'\non_missed = 'cat > tested.new; mv tested.new tested'",
        good.url("/s3cret"),
        good.url("/topic"),
    );
    let home = flaky(&keys);
    let said = home.say(&["notify", "--test", "j"]);
    assert_eq!(said.code, 0, "{said:?}");
    let mut lines: Vec<&str> = said.stdout.lines().collect();
    lines.sort_unstable();
    let host = good.url("").trim_end_matches('/').to_string();
    assert_eq!(lines[0], "sent    cat (on_missed)");
    assert_eq!(lines[1], format!("sent    ntfy {host}/*** (on_error)"));
    assert_eq!(lines[2], format!("sent    slack {host}/*** (on_error, on_recovered)"));
    assert_eq!((good.seen().len(), home.path("tested").exists()), (2, true));
    contains(&fs::read_to_string(home.path("tested")).unwrap(), &["Test message of fencepost for j from "]);
    // Nothing was run, and nothing is recorded.
    assert_eq!(
        home.json(&["status"])["jobs"]
            .as_array()
            .map_or(0, |jobs| jobs.iter().filter(|job| !job["last"].is_null()).count()),
        0
    );
    let keys =
        format!("[notify]\non_error = ['{}', 'discord:{}', 'mail:me@example.org']", good.url("/a"), bad.url("/s3cret"));
    let home = flaky(&keys);
    let mut command = home.command(&["notify", "--test", "j", "--json"]);
    let output = command.env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let results: Vec<(bool, &str)> = answer["recipients"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["sent"].as_bool().unwrap(), one["error"].as_str().unwrap_or("")))
        .collect();
    assert_eq!(results, [(true, ""), (false, "it answered 404 Not Found"), (false, "there is no program \"mail\"")]);
    assert!(!String::from_utf8_lossy(&output.stdout).contains("s3cret"));
    // A job without recipients, an unknown job, and no --test.
    let home = Home::new("[job.alone]\ncommand = 'true'\n");
    let said = home.say(&["notify", "--test", "alone"]);
    assert_eq!(said.code, 1);
    contains(&said.stdout, &["alone has no recipients. Add on_error = "]);
    let said = home.say(&["notify", "--test", "alon"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["No job alon is known: it is not in ", "Did you mean alone?"]);
    assert_eq!(home.say(&["notify", "alone"]).code, 2);
}

#[test]
fn two_hosts_send_one_message_per_streak_and_a_reminder_when_it_lasts() {
    let web = Web::answering(200);
    let config = |remind: &str| {
        format!("[notify]\non_error = '{}'\nremind = '{remind}'\n[job.j]\ncommand = 'false'\n", web.url("/e"))
    };
    let one = Home::new(&config("1d"));
    let two = Home::new(&config("1d"));
    let shared = format!("sqlite:{}", one.site.database().display());
    let run = |home: &Home| home.command(&["run", "j"]).env("FENCEPOST_STORE", &shared).output().unwrap().status.code();
    assert_eq!(run(&one), Some(1));
    web.wait_for(1);
    assert_eq!((run(&two), run(&one)), (Some(1), Some(1)));
    // A period that has passed by now: the next failure is told again, as a reminder.
    fs::write(two.config(), config("1ms")).unwrap();
    assert_eq!(run(&two), Some(1));
    let told = web.wait_for(2)[1].json();
    assert_eq!((&told["reminder"], web.seen().len()), (&json!(true), 2));
    contains(told["text"].as_str().unwrap(), &["j failed (exit 1). It has been failing since "]);
}

/// The first hour: a job fails, then its user says where messages go, and runs it again.
#[test]
fn recipients_that_were_added_while_a_job_fails_hear_of_its_next_failure() {
    let job = "[job.j]\ncommand = 'exit $(cat code)'\n";
    let home = Home::new(job);
    home.write("code", "3");
    assert_eq!(home.say(&["run", "j"]).code, 3);
    // The time of a file is that of the kernel's last tick.
    std::thread::sleep(Duration::from_millis(50));
    let tell = "'head -n 1 >> told'";
    home.write("fencepost.toml", &format!("[notify]\non_error = {tell}\non_recovered = {tell}\n{job}"));
    let told = || fs::read_to_string(home.path("told")).unwrap_or_default();
    assert_eq!(home.say(&["run", "j"]).code, 3);
    eventually("the failure is told", || told().ends_with('\n'));
    for _ in 0..2 {
        assert_eq!(home.say(&["run", "j"]).code, 3);
    }
    home.write("code", "0");
    assert_eq!(home.say(&["run", "j"]).code, 0);
    eventually("the recovery is told", || told().contains("works again"));
    eventually("every end is judged", || notifiers(&home).is_empty());
    let told = told();
    assert!(told.starts_with("j failed (exit 3). It has been failing since ") && told.lines().count() == 2, "{told}");
}

#[test]
fn a_store_that_stays_away_is_told_once_per_host_and_then_that_it_works_again() {
    let web = Web::answering(200);
    let home = Home::new(&format!(
        "[job.j]\ncommand = 'true'\non_error = '{}'\non_recovered = '{}'\n",
        web.url("/error"),
        web.url("/recovered")
    ));
    let away = |home: &Home| {
        let mut command = home.command(&["run", "j"]);
        command
            .env("FENCEPOST_STORE", "redis://127.0.0.1:1/0")
            .env("FENCEPOST_CONFIG", home.config())
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!(away(&home), Some(125));
    web.wait_for(1);
    eventually("it is noted", || home.site.state().join("notify").read_dir().is_ok_and(|files| files.count() == 1));
    assert_eq!((away(&home), away(&home)), (Some(125), Some(125)));
    home.done(&["run", "j"]);
    assert_eq!(lines(&web, 2), ["POST /error", "POST /recovered"]);
    contains(web.seen()[1].json()["text"].as_str().unwrap(), &["j works again: ok after error. It was down for "]);
}

#[test]
fn missed_slots_are_told() {
    let web = Web::answering(200);
    let home = Home::new(&format!(
        "timezone = 'Asia/Tokyo'\n[job.j]\nevery = '1s'\nslack = '0s'\ncatch_up = 1\ncommand = 'true'\non_missed = '{}'\n",
        web.url("/missed")
    ));
    eventually("slots were missed", || {
        home.say(&["run", "j"]);
        std::thread::sleep(Duration::from_millis(2500));
        !web.seen().is_empty()
    });
    let told = web.seen()[0].json();
    assert_eq!((&told["event"], &told["status"], &told["job"]), (&json!("missed"), &json!("missed"), &json!("j")));
    assert!(told["missed"]["count"].as_u64().unwrap() >= 1, "{told}");
    contains(told["text"].as_str().unwrap(), &["j missed ", "+09:00", "no machine ran it in time"]);
}

#[test]
fn a_recipient_that_is_not_one_is_a_mistake() {
    for (written, message) in [
        ("'slak:https://hooks.example.org/x'", "There is no recipient \"slak\""),
        ("'slack:hooks.example.org'", "is a URL: it begins with https://"),
        ("'mail:'", "has an address after mail:"),
        ("'mail:-me'", "has an address after mail:"),
        (
            "['./tell.sh', 'slack:https://hooks.example.org/x']",
            "is a command here, because its first text is a program",
        ),
    ] {
        let home = Home::new(&format!("[job.j]\ncommand = 'true'\non_error = {written}\n"));
        let said = home.say(&["validate"]);
        assert_eq!(said.code, 1, "{written}: {said:?}");
        contains(&format!("{}{}", said.stdout, said.stderr), &[message]);
    }
    // An array that begins with a program is a command, also if an argument is a URL.
    let home = Home::new("[job.j]\ncommand = 'true'\non_error = ['sh', '-c', 'true', 'https://example.org']\n");
    home.done(&["validate"]);
}
