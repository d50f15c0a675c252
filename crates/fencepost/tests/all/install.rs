//! `fencepost install`, through the real binary: into a home directory of its own, and under a real cron daemon.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{BINARY, Said, contains};
use crate::triggers::{Home, machine_zone};
use fencepost_testkit::eventually;
use serde_json::json;

const JOBS: &str = "[job.a]\nschedule = '0 7 * * *'\ncommand = 'true'\n[job.\"news/daily\"]\nevery = '45m'\ncommand = 'true'\n\
                   [job.off]\nschedule = '@daily'\nenabled = false\ncommand = 'true'\n[job.free]\ncommand = 'true'\n";

/// Two jobs that have a trigger, in the zone of the machine, and two that have none.
fn two() -> String {
    format!("timezone = '{}'\n{JOBS}", machine_zone())
}

/// Characters that mean something to systemd, cron, a shell or XML.
const ODD: &str = "it's 50% <of> $HOME & \"more\"";

/// Whether a program is there that a test can do without.
pub fn has(program: &str) -> bool {
    Command::new("/bin/sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .is_ok_and(|out| out.status.success())
}

#[test]
fn a_crontab_gets_its_lines_between_markers_and_loses_them_again() {
    let home = Home::new(&two());
    let theirs = "MAILTO=me\n# mine\n5 4 * * * /bin/mine\n";
    fs::write(home.spool(), theirs).unwrap();
    let printed = home.done(&["install", "crontab"]).stdout;
    assert_eq!(home.crontab(), theirs);
    let config = home.config().display().to_string();
    let search = format!("{}:/usr/local/bin:/usr/bin:/bin", home.site.path("bin").display());
    let state = home.site.state().display().to_string();
    let call = |job: &str| {
        format!("/usr/bin/env PATH={search} FENCEPOST_STATE_DIR={state} {BINARY} --config {config} run {job}\n")
    };
    let expected = format!(
        "# BEGIN fencepost job a of {config}\n# at 07:00 every day, {zone} time\n0 7 * * * {}# END fencepost job a of {config}\n\
         # BEGIN fencepost job news/daily of {config}\n# every 45 minutes\n\
         # Started more often, because cron cannot say that; `run` does only what is due.\n*/15 * * * * {}\
         # END fencepost job news/daily of {config}\n",
        call("a"),
        call("news/daily"),
        zone = machine_zone(),
    );
    assert_eq!(printed, expected);
    let diff = home.done(&["install", "crontab", "--dry-run"]).stdout;
    contains(&diff, &["--- your crontab\n+++ your crontab\n@@ -4,0 +4,9 @@\n+# BEGIN fencepost job a"]);
    assert_eq!(home.crontab(), theirs);
    // Written once, however often; the old one is kept.
    home.done(&["install", "crontab", "--write"]);
    assert_eq!(home.crontab(), format!("{theirs}{expected}"));
    let backups = || fs::read_dir(home.site.state().join("crontab")).unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(backups().map(|path| fs::read_to_string(path).unwrap()).collect::<Vec<_>>(), [theirs]);
    home.done(&["install", "crontab", "--write"]);
    assert_eq!(home.crontab(), format!("{theirs}{expected}"));
    assert_eq!(backups().count(), 1);
    assert_eq!(home.json(&["install", "crontab", "--write"])["changes"], json!([]));
    // An edit changes its line where it stands, and a job that is gone loses it.
    fs::write(home.spool(), format!("{expected}{theirs}")).unwrap();
    let zone = machine_zone();
    let edited = format!("timezone = '{zone}'\n[job.a]\nschedule = '30 8 * * MON-FRI'\ncommand = 'true'\n");
    home.write("fencepost.toml", &edited);
    home.done(&["install", "crontab", "--write"]);
    contains(&home.crontab(), &["\n30 8 * * 1-5 /usr/bin/env"]);
    assert!(!home.crontab().contains("news/daily") && home.crontab().ends_with(theirs), "{}", home.crontab());
    home.done(&["install", "crontab", "--remove"]);
    assert_eq!(home.crontab(), theirs);
}

#[test]
fn single_jobs_and_other_configurations_are_left_alone() {
    let home = Home::new(&two());
    home.write("other.toml", "[job.a]\nschedule = '0 9 * * *'\ncommand = 'true'\n");
    home.done(&["install", "crontab", "a", "--write"]);
    home.done(&["install", "crontab", "news/daily", "--write"]);
    home.done(&["install", "crontab", "--write", "--config", "other.toml"]);
    assert_eq!(home.crontab().matches("# BEGIN fencepost job ").count(), 3, "{}", home.crontab());
    home.done(&["install", "crontab", "a", "--remove"]);
    assert_eq!(home.crontab().matches("# BEGIN fencepost job ").count(), 2, "{}", home.crontab());
    contains(&home.crontab(), &["job news/daily of", "other.toml"]);
    let said = home.say(&["install", "crontab", "news/dayly"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["No job news/dayly is known: it is not in ", "Did you mean news/daily?"]);
    assert_eq!(home.say(&["install", "crontab", "free"]).code, 2);
    // Edited markers are not guessed at.
    let damaged = home.crontab().replacen("# END fencepost job", "# END", 1);
    fs::write(home.spool(), &damaged).unwrap();
    let said = home.say(&["install", "crontab", "--write"]);
    assert_eq!(said.code, 2, "{said:?}");
    contains(&said.stderr, &["of your crontab", "nothing was changed"]);
    assert_eq!(home.crontab(), damaged);
}

#[test]
fn odd_paths_survive_cron_and_its_shell() {
    let home = Home::named(ODD, "[job.a]\nschedule = '* * * * *'\ncommand = 'touch done'\n");
    home.done(&["install", "crontab", "--write"]);
    let line = home.crontab().lines().find(|line| line.starts_with("* * * * *")).unwrap().to_string();
    // What cron hands to the shell: percent signs without their backslashes.
    let command = line.strip_prefix("* * * * * ").unwrap().replace(r"\%", "%");
    let said = Said::of(home.site.program("/bin/sh", &["-c", &command]).output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    eventually("the job ran", || home.path("done").exists());
}

#[test]
fn units_are_written_checked_and_taken_away() {
    let home = Home::named(ODD, &two());
    home.done(&["install", "systemd", "--write"]);
    let unit = fs::read_to_string(home.units().join("fencepost.service")).unwrap();
    contains(
        &unit,
        &["Type=exec\n", "KillMode=mixed\n", "WantedBy=default.target\n", "50%% <of> $$HOME & \\\"more\\\"", " up\n"],
    );
    home.done(&["install", "systemd", "--per-job", "--write"]);
    let names = || {
        let mut names: Vec<String> = fs::read_dir(home.units())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        names(),
        [
            "fencepost-job-a.service",
            "fencepost-job-a.timer",
            "fencepost-job-news\\x2fdaily.service",
            "fencepost-job-news\\x2fdaily.timer",
            "fencepost.service",
        ]
    );
    let timer = fs::read_to_string(home.units().join("fencepost-job-a.timer")).unwrap();
    let calendar = format!("OnCalendar=*-*-* 7:0:00 {}\n", machine_zone());
    contains(&timer, &[&calendar, "Persistent=true\n", "AccuracySec=1s\n", "WantedBy=timers.target\n"]);
    if has("systemd-analyze") {
        let mut verify = Command::new("systemd-analyze");
        verify.args(["--user", "verify"]).args(names().iter().map(|name| home.units().join(name)));
        let said = Said::of(verify.env("XDG_RUNTIME_DIR", home.site.path("home")).output().unwrap());
        let ours: Vec<&str> = said.stderr.lines().filter(|line| line.contains("fencepost")).collect();
        assert!(ours.is_empty(), "{said:?}");
    }
    // Idempotent, and with a diff of what would change.
    assert_eq!(home.done(&["install", "systemd", "--per-job", "--dry-run"]).stdout, "");
    home.write("fencepost.toml", "[job.a]\nschedule = '0 8 * * *'\ncommand = 'true'\n");
    let diff = home.done(&["install", "systemd", "--per-job", "--dry-run"]).stdout;
    contains(&diff, &[&format!("-{calendar}+OnCalendar=*-*-* 8:0:00 UTC\n"), "+++ /dev/null\n"]);
    home.done(&["install", "systemd", "--per-job", "--write"]);
    assert_eq!(names(), ["fencepost-job-a.service", "fencepost-job-a.timer", "fencepost.service"]);
    // Neither another program's unit nor another configuration's is overwritten.
    home.write("other.toml", "[job.a]\nschedule = '0 8 * * *'\ncommand = 'true'\n");
    let said = home.say(&["install", "systemd", "--write", "--config", "other.toml"]);
    assert_eq!(said.code, 2, "{said:?}");
    contains(&said.stderr, &["was written for another configuration"]);
    fs::write(home.units().join("mine.service"), "[Unit]\n").unwrap();
    home.done(&["install", "systemd", "--remove"]);
    assert_eq!(names(), ["mine.service"]);
    fs::write(home.units().join("fencepost.service"), "[Unit]\n").unwrap();
    contains(&home.say(&["install", "systemd", "--write"]).stderr, &["was not written by fencepost"]);
}

/// Whether the timer of an interval starts in each hour of a day, the repeated one included.
#[test]
fn the_timer_of_an_interval_starts_in_the_repeated_hour() {
    let home = Home::new("timezone = 'America/New_York'\n[job.a]\nschedule = '30 * * * *'\ncommand = 'true'\n");
    home.done(&["install", "systemd", "--per-job", "--write"]);
    let timer = fs::read_to_string(home.units().join("fencepost-job-a.timer")).unwrap();
    let calendar = timer.lines().find_map(|line| line.strip_prefix("OnCalendar=")).unwrap();
    assert_eq!(calendar, "*-*-* *:30:0 UTC");
    if has("systemd-analyze") {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["calendar", "--base-time=2026-11-01 04:00:00 UTC", "--iterations=4", calendar]).env("TZ", "UTC");
        let said = Said::of(analyze.output().unwrap());
        assert_eq!(said.code, 0, "{said:?}");
        // 00:30, 01:30, 01:30 again and 02:30 by the clocks of New York.
        contains(&said.stdout, &["04:30:00 UTC", "05:30:00 UTC", "06:30:00 UTC", "07:30:00 UTC"]);
    }
}

#[test]
fn agents_are_property_lists() {
    let home = Home::named(ODD, &two());
    home.done(&["install", "launchd", "--write"]);
    home.done(&["install", "launchd", "--per-job", "--write"]);
    let agents = home.site.path("home/Library/LaunchAgents");
    let up = fs::read_to_string(agents.join("fencepost.up.plist")).unwrap();
    contains(
        &up,
        &[
            "<key>KeepAlive</key>\n\t<true/>",
            "it&apos;s 50% &lt;of&gt; $HOME &amp; &quot;more&quot;/fencepost.toml</string>",
        ],
    );
    let a = fs::read_to_string(agents.join("fencepost.job.a.plist")).unwrap();
    contains(&a, &["<key>ProcessType</key>\n\t<string>Interactive</string>"]);
    for stream in ["Out", "Error"] {
        let log = home.site.path("home/Library/Logs/fencepost.job.a.log");
        contains(&a, &[&format!("<key>Standard{stream}Path</key>\n\t<string>{}</string>", log.display())]);
    }
    contains(&a, &["<dict><key>Hour</key><integer>7</integer><key>Minute</key><integer>0</integer></dict>"]);
    contains(&a, &["<string>run</string>\n\t\t<string>a</string>"]);
    if has("python3") {
        let script = "import plistlib, sys\nfor path in sys.argv[1:]:\n  print(plistlib.load(open(path, 'rb'))['ProgramArguments'][2])";
        let mut python = Command::new("python3");
        python.args(["-c", script]).args(fs::read_dir(&agents).unwrap().map(|entry| entry.unwrap().path()));
        let said = Said::of(python.output().unwrap());
        assert_eq!(said.stdout, format!("{}\n", home.config().display()).repeat(3), "{said:?}");
    }
    home.done(&["install", "launchd", "--remove"]);
    assert_eq!(fs::read_dir(&agents).unwrap().count(), 0);
}

/// launchd keeps the old text of a loaded agent until it is unloaded, and has nothing to unload of a new one.
#[test]
fn a_changed_agent_is_unloaded_before_it_is_loaded() {
    let home = Home::new(&two());
    let install = || home.done(&["install", "launchd", "--per-job", "a", "--write"]).stdout;
    let agent = home.site.path("home/Library/LaunchAgents/fencepost.job.a.plist").display().to_string();
    let (unload, load) =
        (format!("launchctl bootout gui/$(id -u) '{agent}'"), format!("launchctl bootstrap gui/$(id -u) '{agent}'"));
    let first = install();
    contains(&first, &[&load, "only while you are logged in"]);
    assert!(!first.contains(&unload), "{first}");
    home.write("fencepost.toml", "[job.a]\nschedule = '*/1 * * * *'\ncommand = 'true'\n");
    let second = install();
    let at = |step: &str| second.find(step).unwrap_or_else(|| panic!("{step} is missing in {second}"));
    assert!(at(&unload) < at(&load), "{second}");
    // Every minute, and once after a sleep: StartInterval would miss it.
    let text = fs::read_to_string(&agent).unwrap();
    contains(&text, &["<key>StartCalendarInterval</key>\n\t<array>\n\t\t<dict></dict>\n\t</array>"]);
    assert!(!text.contains("StartInterval"), "{text}");
}

#[test]
fn secrets_do_not_stand_in_triggers() {
    let home = Home::new(&two());
    let said = home.say(&["install", "crontab", "--store", "postgres://me:s3cret@db/x"]);
    assert_eq!(said.code, 2, "{said:?}");
    contains(&said.stderr, &["has a password in it"]);
    assert!(!said.stderr.contains("s3cret"), "{said:?}");
}

#[test]
fn drift_is_named() {
    let home = Home::new(&two());
    let kinds = || {
        let object = home.json(&["validate", "--installed"]);
        let list = object["installed"].as_array().unwrap_or_else(|| panic!("{object}")).clone();
        list.iter()
            .map(|one| format!("{} {}", one["kind"].as_str().unwrap(), one["job"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(kinds(), ["no_trigger a", "no_trigger news/daily"]);
    let said = home.say(&["validate", "--installed"]);
    assert_eq!(said.code, 1, "{said:?}");
    contains(&said.stderr, &["installed: a has no trigger here"]);
    contains(&said.stdout, &["As installed: 2 differences."]);
    assert_eq!(home.say(&["validate"]).code, 0);
    // Each of them is enough.
    for target in [&["crontab"][..], &["systemd", "--per-job"], &["systemd"], &["launchd", "--per-job"], &["launchd"]] {
        home.done(&[&["install"], target, &["--write"]].concat());
        assert_eq!(kinds(), [""; 0], "{target:?}");
        assert_eq!(home.say(&["validate", "--installed"]).code, 0);
        home.done(&[&["install"], target, &["--remove"]].concat());
    }
    // By hand is as good, if it comes often enough.
    fs::write(home.spool(), "*/5 * * * * cd /x && fencepost run news/daily\n0 7 * * * fencepost run a\n").unwrap();
    assert_eq!(kinds(), [""; 0]);
    fs::write(home.spool(), "0 * * * * fencepost run news/daily\n0 7 * * * fencepost --config /other.toml run a\n")
        .unwrap();
    assert_eq!(kinds(), ["other_config a", "other_schedule news/daily"]);
    // An edit, a job that is gone, and one that does not run.
    fs::remove_file(home.spool()).unwrap();
    home.done(&["install", "crontab", "--write"]);
    home.write("fencepost.toml", "[job.a]\nschedule = '@hourly'\ncommand = 'true'\n");
    assert_eq!(kinds(), ["gone news/daily", "other_schedule a"]);
    home.age(Duration::from_secs(5 * 3600));
    home.done(&["install", "crontab", "--write"]);
    assert_eq!(kinds(), ["idle a"]);
    contains(&home.say(&["validate", "--installed"]).stderr, &["a has a trigger, but ", "it never ran"]);
    home.done(&["run", "a", "--now"]);
    assert_eq!(kinds(), [""; 0]);
}

#[test]
fn a_job_with_a_mistake_does_not_keep_the_others_from_being_compared() {
    let home = Home::new(&two());
    home.done(&["install", "crontab", "--write"]);
    home.write(
        "fencepost.toml",
        "[job.a]\nschedule = '@hourly'\ncommand = 'true'\n[job.'news/daily']\nschedul = '@daily'\ncommand = 'true'\n",
    );
    let object = home.json(&["validate", "--installed"]);
    assert_eq!(object["mistakes"].as_array().map(Vec::len), Some(1), "{object}");
    let kinds: Vec<_> = object["installed"].as_array().unwrap().iter().map(|one| (&one["kind"], &one["job"])).collect();
    assert_eq!(kinds, [(&"other_schedule".into(), &"a".into())], "{object}");
    // A mistake outside any job leaves nothing to compare.
    home.write("fencepost.toml", "nonsense = 1\n[job.a]\nschedule = '@hourly'\ncommand = 'true'\n");
    let object = home.json(&["validate", "--installed"]);
    assert!(object["installed"].is_null(), "{object}");
}

#[test]
fn a_trigger_that_comes_too_seldom_is_drift() {
    let home = Home::new("[job.a]\nschedule = '*/10 * * * * *'\ncommand = 'true'\n");
    home.say(&["install", "crontab", "--write"]);
    let said = home.say(&["validate", "--installed"]);
    assert_eq!(said.code, 1, "{said:?}");
    contains(&said.stderr, &["is due by"]);
    home.write("fencepost.toml", "[job.a]\nschedule = '*/10 * * * * *'\ncommand = 'true'\ncatch_up = 6\n");
    assert!(!home.say(&["validate", "--installed"]).stderr.contains("is due by"), "six are caught up each minute");
}

/// Debian's cron in a mount namespace of its own, so that no user's crontab is touched. It takes up to a minute.
#[test]
fn under_a_real_cron_the_line_fires_and_the_job_runs_once() {
    let namespace = Command::new("unshare").args(["-m", "true"]).output();
    if !namespace.is_ok_and(|output| output.status.success()) || !has("cron") {
        eprintln!("skipped: this needs root, unshare and cron");
        return;
    }
    let home = Home::new(
        "[job.tick]\nschedule = '* * * * *'\ncommand = 'echo \"$FENCEPOST_SLOT $FENCEPOST_TRIGGER\" >> ran'\n",
    );
    fs::remove_file(home.site.path("bin/crontab")).unwrap();
    let script = r#"
        set -e
        mkdir -p "$SCRATCH/spool.d/crontabs" "$SCRATCH/empty" "$SCRATCH/run"
        mount --bind "$SCRATCH/spool.d" /var/spool/cron
        mount --bind "$SCRATCH/empty" /etc/cron.d
        mount --bind /dev/null /etc/crontab
        mount --bind "$SCRATCH/run" "$(readlink -f /var/run)"
        "$BINARY" install crontab --write
        crontab -l
        exec cron -f
    "#;
    let mut command = home.command(&[]);
    let environment: Vec<_> =
        command.get_envs().map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned))).collect();
    command = Command::new("unshare");
    command.args(["-m", "/bin/sh", "-c", script]).current_dir(home.path("")).env("SCRATCH", home.site.path(""));
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let log = fs::File::create(home.site.path("log")).unwrap();
    command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let mut cron = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    let begun = Instant::now();
    let ran = || fs::read_to_string(home.path("ran")).unwrap_or_default();
    while ran().is_empty() && begun.elapsed() < Duration::from_secs(75) && cron.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(200));
    }
    let log = fs::read_to_string(home.site.path("log")).unwrap();
    let (text, runs) = (ran(), || home.json(&["status", "tick"]));
    eventually("it is recorded", || runs()["jobs"][0]["last_ok"].is_object());
    // A second trigger of the same slot, as another machine's cron would be, finds it done.
    let again = home.done(&["run", "tick"]);
    let _ = cron.kill();
    let _ = cron.wait();
    assert_eq!(text.lines().count(), 1, "{text:?} {log}");
    contains(&text, &[":00+00:00 schedule"]);
    contains(&log, &["# BEGIN fencepost job tick of "]);
    assert!(ran().lines().count() <= 2, "{again:?}");
    let mut slots: Vec<String> = ran().lines().map(String::from).collect();
    slots.dedup();
    assert_eq!(slots.len(), ran().lines().count(), "no slot ran twice: {}", ran());
}
