//! `fencepost up`: what it starts, how it stops, and that several of them complete each slot once.

mod checker;
pub mod scene;

use std::fs;
use std::time::Duration;

use crate::common::contains;
use fencepost_testkit::eventually;
use nix::sys::signal::Signal;
use scene::Scene;

#[test]
fn it_runs_jobs_at_their_time_with_their_environment_and_says_so_in_lines() {
    let scene = Scene::new(
        r#"
timezone = "Asia/Tokyo"
[defaults]
ttl = "5s"
[job.good]
schedule = "* * * * * *"
command = "pwd; echo $COLOUR $FENCEPOST_JOB >> seen"
environment = { COLOUR = "blue" }
[job.bad]
schedule = "* * * * * *"
command = "exit 3"
[job.resting]
schedule = "* * * * * *"
command = "echo >> resting"
enabled = false
[job.manual]
command = "echo >> manual"
"#,
    );
    let mut up = scene.plain(&[]);
    eventually("both have run twice", || up.stdout().matches(" good ok ").count() > 1 && up.count(" bad error ") > 1);
    up.send(Signal::SIGTERM);
    assert_eq!(up.wait(), 0);
    contains(&scene.read("seen"), &["blue good\n"]);
    assert!(!scene.path("resting").exists() && !scene.path("manual").exists());
    let said = up.stdout();
    contains(
        &said,
        &[" - up jobs=2 ", " bad error slot=", " exit=3 ", "+09:00 good started slot=", " - stopping signal=15"],
    );
    assert!(said.ends_with("stopped\n"), "{said}");
    // Each slot once, though it was triggered every second.
    let slots: Vec<&str> =
        said.lines().filter(|line| line.contains(" good ok ")).map(|line| field(line, "slot")).collect();
    let mut once = slots.clone();
    once.dedup();
    assert_eq!(slots, once);
    assert_eq!(fs::read_dir(scene.path("state/up")).unwrap().count(), 0, "it leaves nothing behind");
}

#[test]
fn a_run_reads_only_what_it_needs_of_the_configuration() {
    let scene = Scene::new(
        r#"
[defaults]
ttl = "5s"

[job.first]
command = "true"
produces = ["made/a.txt"]
working_directory = "elsewhere"

[job.second]
schedule = "* * * * * *"
needs = [{ job = "first", when = "any", artifact = "elsewhere/made/a.txt" }]
command = "cat $FENCEPOST_IN_FIRST >> seen; test -e go && exit; echo once >> tries; sleep 1; exit 5"
retries = 1
retry_backoff = "0s"

[job.third]
schedule = "0 0 1 1 *"
command = "true"
"#,
    );
    fs::create_dir_all(scene.path("elsewhere/made")).unwrap();
    let made = scene.say(&["run", "first", "-c", "echo made > made/a.txt"]);
    assert_eq!(made.code, 0, "{made:?}");
    let mut up = scene.plain(&[]);
    eventually("it reads its input", || scene.read("seen").contains("made"));
    let excerpts: Vec<_> = fs::read_dir(scene.path("state/up")).unwrap().flatten().collect();
    let [excerpt] = &excerpts[..] else { panic!("{excerpts:?}") };
    let text = fs::read_to_string(excerpt.path()).unwrap();
    contains(&text, &["[defaults]", "[job.first]", "[job.second]", "# Lines of the configuration: 2-3 5-8 10-15\n"]);
    assert!(!text.contains("third"), "{text}");
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&excerpt.metadata().unwrap()) & 0o777, 0o600);
    // A retry is another process, which reads the excerpt again.
    eventually("it is tried again", || scene.read("tries").lines().count() > 1);
    fs::write(scene.path("go"), "").unwrap();
    eventually("it is done", || up.count(" second ok ") > 0);
    up.send(Signal::SIGTERM);
    assert_eq!(up.wait(), 0);
}

fn field<'a>(line: &'a str, key: &str) -> &'a str {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default()
}

#[test]
fn a_job_that_cannot_be_scheduled_is_a_mistake() {
    let scene = Scene::new("[job.manual]\ncommand = 'true'\n[job.daily]\nschedule = '@daily'\ncommand = 'true'\n");
    let said = scene.say(&["up", "dayly"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["No job dayly is known", "Did you mean daily?"]);
    let said = scene.say(&["up", "manual"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["fencepost.toml:1:", "manual has no schedule"]);
    let said = scene.without_config(&["up"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["nothing to schedule"]);
}

#[test]
fn once_it_runs_what_is_due_and_ends_with_the_first_code_that_is_not_0() {
    let scene = Scene::new(
        "[job.a]\nschedule = '* * * * *'\ncommand = 'echo >> a'\n[job.b]\nschedule = '* * * * *'\ncommand = 'echo >> b; exit 7'\n",
    );
    // In the last quarter of its period a trigger is early for the next slot, and `--once` does not wait for that.
    eventually("the minute is young", || fencepost_guard::clock::wall_now().0 % 60_000 < 35_000);
    assert_eq!(scene.say(&["up", "--once", "a"]).code, 0);
    assert_eq!(scene.say(&["up", "--once"]).code, 7);
    // A slot that has failed for good is not run again, and its code is told again.
    let second = scene.say(&["up", "--once"]);
    assert_eq!(second.code, 7, "{second:?}");
    assert!(scene.read("a").lines().count() <= 2);
    // One attempt for each minute that this took.
    assert!(scene.read("b").lines().count() <= 2);
}

#[test]
fn a_changed_file_is_taken_over_and_one_with_a_mistake_is_not() {
    let scene = Scene::new("[job.a]\nschedule = '* * * * * *'\ncommand = 'echo old >> a'\n");
    let mut up = scene.plain(&[]);
    eventually("it runs", || scene.read("a").contains("old"));
    scene.write("fencepost.toml", "[job.a]\nshedule = '* * * * * *'\ncommand = 'echo broken >> a'\n");
    eventually("the mistake is told", || up.count("reload_refused") == 1);
    contains(&up.stdout(), &["fencepost.toml:2:1", "Did you mean \\\"schedule\\\"?"]);
    let before = scene.read("a").len();
    eventually("it goes on by the old one", || scene.read("a").len() > before + 8);
    assert!(!scene.read("a").contains("broken"));
    scene.write(
        "fencepost.toml",
        "[job.a]\nschedule = '* * * * * *'\ncommand = 'echo new >> a'\n[job.b]\nschedule = '* * * * * *'\ncommand = 'echo >> b'\n",
    );
    up.send(Signal::SIGHUP);
    eventually("the new one counts", || scene.read("a").contains("new") && scene.path("b").exists());
    contains(&up.stdout(), &["reloaded jobs=2"]);
    assert_eq!(up.count("reload_refused"), 1, "a mistake is told once");
    up.send(Signal::SIGINT);
    assert_eq!(up.wait(), 0);
}

#[test]
fn the_first_signal_waits_for_running_jobs_and_the_second_ends_them() {
    let config = "[up]\nstop_within = '30s'\n[job.a]\nschedule = '* * * * * *'\nttl = '6s'\n\
                  command = 'echo begun >> a; sleep 2; echo done >> a'\n";
    let scene = Scene::new(config);
    let mut up = scene.plain(&[]);
    eventually("it runs", || scene.read("a").contains("begun"));
    up.send(Signal::SIGTERM);
    assert_eq!(up.wait(), 0);
    assert_eq!(scene.read("a").matches("begun").count(), scene.read("a").matches("done").count(), "it was waited for");

    let scene = Scene::new(&config.replace("sleep 2", "sleep 60"));
    let mut up = scene.plain(&[]);
    eventually("it runs", || scene.read("a").contains("begun"));
    up.send(Signal::SIGTERM);
    eventually("it is told", || up.count("stopping") == 1);
    up.send(Signal::SIGTERM);
    assert_eq!(up.wait(), 0);
    contains(&up.stdout(), &[" a ending pid="]);
    assert!(!scene.read("a").contains("done"));
    assert_eq!(scene.site.job_at(&scene.store(), "a")["holder"], serde_json::Value::Null, "its lease is released");

    let scene = Scene::new(&config.replace("sleep 2", "sleep 60").replace("'30s'", "'500ms'"));
    let mut up = scene.plain(&[]);
    eventually("it runs", || scene.read("a").contains("begun"));
    up.send(Signal::SIGTERM);
    assert_eq!(up.wait(), 0, "the bound is kept: {}", up.stdout());
}

#[test]
fn a_job_that_does_not_end_when_it_is_asked_to_is_killed_after_its_grace() {
    let scene = Scene::new(
        "[up]\nstop_within = '500ms'\n[job.a]\nschedule = '* * * * * *'\nttl = '6s'\ngrace = '1s'\n\
         command = \"trap '' TERM; echo begun >> a; while :; do sleep 0.2; done\"\n",
    );
    let mut up = scene.plain(&[]);
    eventually("it runs", || scene.read("a").contains("begun"));
    up.send(Signal::SIGTERM);
    assert_eq!(up.wait(), 0, "{}", up.stdout());
    let job = scene.site.job_at(&scene.store(), "a");
    assert_eq!((&job["holder"], &job["last"]["status"]), (&serde_json::Value::Null, &"error".into()), "{job}");
}

#[test]
fn no_more_jobs_run_at_once_than_may() {
    let jobs: String = (0..6)
        .map(|number| {
            format!(
                "[job.j{number}]\nschedule = '*/2 * * * * *'\n\
                 command = 'mkdir going/{number}; ls going | wc -l >> most; sleep 0.2; rmdir going/{number}'\n"
            )
        })
        .collect();
    let scene = Scene::new(&format!("[up]\nmax_parallel = 2\n{jobs}"));
    fs::create_dir(scene.path("going")).unwrap();
    let mut up = scene.plain(&[]);
    eventually("all have run", || (0..6).all(|number| up.count(&format!(" j{number} ok ")) > 0));
    up.send(Signal::SIGTERM);
    assert_eq!(up.wait(), 0);
    assert!(scene.read("most").lines().all(|line| line.trim().parse::<u32>().unwrap() <= 2), "{}", scene.read("most"));
    assert!(up.count(" queued ") > 0);
}

#[test]
fn a_store_that_goes_away_is_told_of_once_and_taken_up_again() {
    let scene = Scene::new("[job.a]\nschedule = '* * * * * *'\nttl = '5s'\ncommand = 'echo >> a'\n");
    let mut up = scene.plain(&[]);
    eventually("it runs", || scene.read("a").lines().count() > 1);
    // A directory in its place cannot be opened as a database.
    let store = scene.path("shared/store.db");
    fs::rename(scene.path("shared"), scene.path("kept")).unwrap();
    fs::create_dir_all(&store).unwrap();
    eventually("it is told", || up.count("store_away") == 1);
    std::thread::sleep(Duration::from_secs(3));
    let before = scene.read("a").lines().count();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(scene.read("a").lines().count(), before, "nothing is started");
    fs::remove_dir_all(scene.path("shared")).unwrap();
    fs::rename(scene.path("kept"), scene.path("shared")).unwrap();
    eventually("it is back", || up.count("store_back") == 1 && scene.read("a").lines().count() > before + 1);
    assert_eq!(up.count("store_away"), 1);
    up.send(Signal::SIGTERM);
    assert_eq!(up.wait(), 0);
}

#[test]
fn another_machine_takes_over_what_one_left_undone() {
    let scene = Scene::new(
        "[job.a]\nschedule = '0 * * * * *'\nttl = '2s'\ncatch_up_within = '5m'\n\
         command = 'echo $FENCEPOST_RUN >> a; test $(wc -l < a) -gt 1 || sleep 60'\n",
    );
    let first = scene.machine("one", &[]);
    eventually("the first is at it", || scene.path("a").exists());
    let mut second = scene.machine("two", &["-v"]);
    std::thread::sleep(Duration::from_millis(500));
    first.kill_with_children();
    eventually("the second takes over", || second.count(" a ok ") == 1);
    assert_eq!(scene.read("a").lines().count(), 2);
    contains(&second.stdout(), &["took_over="]);
    second.send(Signal::SIGTERM);
    assert_eq!(second.wait(), 0);
}

#[test]
fn three_machines_complete_every_slot_once_whatever_happens_to_them() {
    let soak = std::env::var("FENCEPOST_SOAK").ok().map(|seconds| seconds.parse::<u64>().unwrap());
    let (jobs, seconds) = soak.map_or((20, 14), |seconds| (100, seconds));
    checker::three_machines(jobs, Duration::from_secs(seconds));
}
