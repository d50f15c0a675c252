//! A mistake in one job of the configuration stops that job, and no other.

use std::fs;

use crate::common::contains;
use crate::triggers::Home;
use crate::up::scene::Scene;
use fencepost_testkit::eventually;
use nix::sys::signal::Signal;
use serde_json::json;

/// A file of 60 jobs, one of them with a mistake, on line 4 of the file.
fn sixty() -> String {
    let others: String =
        (1..60).map(|n| format!("[job.j{n}]\nschedule = '0 7 * * *'\ncommand = 'touch ran{n}'\n")).collect();
    format!("[job.bad]\nschedule = '0 7 * * *'\ncommand = 'touch bad'\nretires = 3\n{others}")
}

#[test]
fn one_bad_job_of_sixty_stops_itself_only() {
    let home = Home::new(&sixty());
    for arguments in [&["run", "bad", "--now"][..], &["run", "bad", "--dry-run"], &["run", "bad", "--", "touch", "bad"]]
    {
        let said = home.say(arguments);
        assert_eq!((said.code, said.stdout.as_str()), (125, ""), "{said:?}");
        contains(
            &said.stderr,
            &[
                "fencepost.toml:4:1: There is no key \"retires\"",
                "Did you mean \"retries\"?",
                "  4 | retires = 3\n    | ^^^^^^^",
            ],
        );
        contains(&said.stderr, &["The job bad does not run until this is corrected. Other jobs do."]);
    }
    assert!(!home.path("bad").exists());
    home.done(&["run", "j7", "--now"]);
    assert!(home.path("ran7").exists());
    let said = home.say(&["validate"]);
    assert_eq!(said.code, 1);
    contains(
        &said.stdout,
        &["Refused: 60 jobs, 1 mistake, no warnings. The job with mistakes does not run; the others do."],
    );
    contains(&said.stdout, &["bad\n  broken     it does not run: it has a mistake, shown below\n"]);
    let object = home.json(&["validate"]);
    assert_eq!(object["mistakes"][0]["jobs"], json!(["bad"]));
    let broken: Vec<&str> = object["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|job| job["broken"] == true)
        .map(|job| job["job"].as_str().unwrap())
        .collect();
    assert_eq!((object["jobs"].as_array().unwrap().len(), broken), (60, vec!["bad"]));
}

#[test]
fn verbs_work_for_the_other_jobs_and_show_the_broken_one() {
    let home = Home::new(
        "[job.bad]\nschedule = '0 7 * *'\ncommand = 'true'\n[job.good]\nschedule = '@hourly'\ncommand = 'true'\n",
    );
    home.done(&["run", "good", "--now"]);
    let sentence = format!("bad does not run because of a mistake in {}:2: ", home.config().display());
    contains(&home.done(&["status"]).stdout, &[&sentence, "good"]);
    let status = home.json(&["status"]);
    assert_eq!((&status["broken"][0]["job"], &status["broken"][0]["mistakes"][0]["line"]), (&json!("bad"), &json!(2)));
    contains(&home.done(&["why", "bad"]).stdout, &[&sentence, "has never run on this store"]);
    assert_eq!(home.json(&["why", "bad"])["sentences"][0]["about"], json!("configuration"));
    assert!(!home.done(&["why", "good"]).stdout.contains("mistake"));
    home.done(&["plan", "good"]);
    let said = home.say(&["plan", "bad"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["fencepost.toml:2:"]);
    for verb in [&["notify", "--test", "bad"][..], &["install", "crontab", "bad"]] {
        let said = home.say(verb);
        assert_eq!(said.code, 2);
        contains(&said.stderr, &["fencepost.toml:2:", "The job bad does not run until this is corrected."]);
    }
    let said = home.done(&["overdue"]);
    contains(&said.stderr, &[&sentence]);
    assert_eq!(home.json(&["overdue"])["broken"][0]["job"], json!("bad"));
    // It may be paused: `up` may run it by its last good settings.
    home.done(&["pause", "bad"]);
    contains(&home.done(&["overdue", "-v"]).stderr, &[&sentence]);
    // Its date depends on its zone, so nothing is recorded by hand.
    assert_eq!(home.say(&["record", "bad", "ok"]).code, 2);
    home.done(&["record", "good", "ok"]);
}

#[test]
fn a_broken_job_is_overdue_by_its_last_schedule() {
    let home = Home::new("[job.often]\nevery = '1s'\nslack = '1s'\ncommand = 'true'\n");
    home.done(&["run", "often", "--now"]);
    home.write("fencepost.toml", "[job.often]\nevery = '1 fortnight'\nslack = '1s'\ncommand = 'true'\n");
    eventually("it is overdue", || home.say(&["overdue"]).code == 1);
    contains(&home.say(&["overdue"]).stdout, &["often: nothing is recorded for its slot"]);
}

#[test]
fn a_downstream_of_a_broken_job_goes_by_its_record() {
    let text = |schedule: &str| {
        format!(
            "[job.up]\nschedule = {schedule}\ncommand = 'echo made > data'\nproduces = ['data']\n\
             [job.down]\nneeds = [{{ job = 'up', artifact = 'data' }}]\ncommand = 'cat $FENCEPOST_IN_UP >> seen'\n"
        )
    };
    let home = Home::new(&text("'@yearly'"));
    // This one is for the next slot. The newest that is due is recorded by hand.
    home.done(&["run", "up", "--now"]);
    home.done(&["record", "up", "ok", "--artifact", "data"]);
    home.write("fencepost.toml", &text("'@yearyl'"));
    assert_eq!(home.say(&["run", "up", "--now"]).code, 125);
    home.done(&["run", "down"]);
    assert_eq!(fs::read_to_string(home.path("seen")).unwrap(), "made\n");
    fs::write(home.path("data"), "changed").unwrap();
    assert_eq!(home.say(&["run", "down"]).code, 115);
}

#[test]
fn jobs_that_wait_for_each_other_and_bad_names_stop_only_themselves() {
    let home = Home::new(
        "[job.a]\ncommand = 'true'\nneeds = ['b']\n[job.b]\ncommand = 'true'\nneeds = ['a']\n\
         [job.'not a name']\ncommand = 7\n[job.c]\ncommand = 'true'\n",
    );
    for job in ["a", "b"] {
        let said = home.say(&["run", job]);
        assert_eq!(said.code, 125, "{said:?}");
        contains(&said.stderr, &["a needs b needs a"]);
    }
    home.done(&["run", "c"]);
    let object = home.json(&["validate"]);
    let jobs: Vec<_> = object["mistakes"].as_array().unwrap().iter().map(|mistake| mistake["jobs"].clone()).collect();
    assert_eq!(jobs, [json!(["a", "b"]), json!(["not a name"]), json!(["not a name"])]);
}

#[test]
fn a_mistake_outside_any_job_stops_all() {
    for text in [
        "colour = 1\n",
        "[defaults]\nttl = 5\n",
        "[defaults]\ncatch_up = 5000\n",
        "[up]\nspread = 1\n",
        "= 1\n",
        "timezone = 'X'\n",
    ] {
        let home = Home::new(&format!("{text}[job.a]\ncommand = 'true'\n[job.b]\ncommand = 'true'\n"));
        assert_eq!(home.say(&["run", "a"]).code, 125, "{text}");
        assert_eq!(home.say(&["status"]).code, 2, "{text}");
        contains(&home.say(&["validate"]).stdout, &["Nothing runs until this is corrected."]);
    }
    // A default that suits the others and not one job is that job's mistake.
    let home =
        Home::new("[defaults]\ngrace = '20s'\n[job.a]\nttl = '30s'\ncommand = 'true'\n[job.b]\ncommand = 'true'\n");
    assert_eq!(home.say(&["run", "a"]).code, 125);
    home.done(&["run", "b"]);
}

#[test]
fn the_triggers_of_a_broken_job_stay_as_they_are() {
    let good = "[job.a]\nschedule = '0 7 * * *'\ncommand = 'a'\n";
    let home = Home::new(&format!("{good}[job.b]\nschedule = '0 8 * * *'\ncommand = 'b'\n"));
    home.done(&["install", "crontab", "--write"]);
    home.done(&["install", "systemd", "--per-job", "--write"]);
    let crontab = fs::read_to_string(home.spool()).unwrap();
    home.write("fencepost.toml", &format!("{good}[job.b]\nschedule = '0 88 * * *'\ncommand = 'b'\n"));
    for arguments in [&["install", "crontab", "--write"][..], &["install", "systemd", "--per-job", "--write"]] {
        let said = home.done(arguments);
        contains(&said.stderr, &["b does not run because of a mistake in ", "Its trigger was not changed."]);
    }
    assert_eq!(fs::read_to_string(home.spool()).unwrap(), crontab);
    assert!(home.units().join("fencepost-job-b.timer").exists());
    assert_eq!(home.say(&["install", "crontab", "b"]).code, 2);
}

const EVERY_SECOND: &str = "schedule = '* * * * * *'\n";

#[test]
fn up_starts_the_other_jobs_and_names_the_broken_one() {
    let scene = Scene::new(&format!(
        "[job.bad]\n{EVERY_SECOND}comand = 'x'\n[job.good]\n{EVERY_SECOND}command = 'echo >> good'\n[job.idle]\n{EVERY_SECOND}"
    ));
    let mut up = scene.plain(&[]);
    eventually("the good one runs", || scene.path("good").exists());
    let said = up.stdout();
    contains(
        &said,
        &[
            " - up jobs=1 ",
            " bad broken runs_as_before=false message=",
            "fencepost.toml:3:1",
            "Did you mean \\\"command\\\"?",
        ],
    );
    contains(&said, &[" idle broken runs_as_before=false ", "The job idle has no command."]);
    up.send(Signal::SIGTERM);
    assert_eq!(up.wait(), 0);
    // Nothing is left to schedule.
    let said = scene.say(&["up", "bad"]);
    assert_eq!(said.code, 2, "{said:?}");
    contains(&said.stderr, &["No job can be scheduled.", "fencepost.toml:3:1"]);
}

#[test]
fn a_job_that_breaks_on_reload_keeps_its_last_good_settings() {
    let text = |key: &str, word: &str| {
        format!(
            "[job.a]\n{EVERY_SECOND}command = 'echo {word} >> a'\n{key}\n[job.b]\n{EVERY_SECOND}command = 'echo {word} >> b'\n"
        )
    };
    let scene = Scene::new(&text("", "first"));
    let mut up = scene.plain(&[]);
    eventually("both run", || scene.path("a").exists() && scene.path("b").exists());
    scene.write("fencepost.toml", &text("retires = 3", "second"));
    eventually("the other takes its new settings", || scene.read("b").contains("second"));
    let before = scene.read("a").len();
    eventually("it goes on", || scene.read("a").len() > before + 12);
    contains(&up.stdout(), &["reloaded jobs=2", " a broken runs_as_before=true message=", "fencepost.toml:4:1"]);
    // An edit elsewhere moves the mistake. It is not told again.
    scene.write("fencepost.toml", &format!("# A comment.\n{}", text("retires = 3", "third")));
    eventually("it is taken over", || scene.read("b").contains("third"));
    let before = scene.read("a").len();
    eventually("it still goes on", || scene.read("a").len() > before + 12);
    assert_eq!(up.count(" broken "), 1, "{}", up.stdout());
    assert!(!scene.read("a").contains("second") && !scene.read("a").contains("third"));
    scene.write("fencepost.toml", &text("retries = 3", "fourth"));
    eventually("corrected, it takes its new settings", || scene.read("a").contains("fourth"));
    up.send(Signal::SIGTERM);
    assert_eq!(up.wait(), 0);
}
