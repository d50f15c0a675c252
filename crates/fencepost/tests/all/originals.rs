//! Lines of a crontab that jobs were made from: commented out by `install`, restored by `--remove`.

use std::fs;

use crate::common::{BINARY, Said, contains};
use crate::triggers::Home;

const CRONTAB: &str = "MAILTO=me\n# the report\n0 7 * * * /opt/report.sh --daily\n  */10 * * * * /opt/poll\n\
                       @reboot /opt/start\n5 4 * * * /opt/poll\n0 7 * * * /opt/report.sh --daily\nSHELL=/bin/bash\n\
                       0 9 * * 1-5 mail you%Hello,%it's 9.";

/// A project made from this crontab.
fn made_from(crontab: &str) -> Home {
    let home = Home::new("");
    fs::write(home.spool(), crontab).unwrap();
    home.done(&["init", "--from", "crontab"]);
    home
}

fn unguarded(home: &Home) -> Vec<String> {
    let object = home.json(&["validate", "--installed"]);
    let all = object["installed"].as_array().unwrap_or_else(|| panic!("{object}"));
    let unguarded = all.iter().filter(|one| one["kind"] == "unguarded");
    unguarded.map(|one| one["job"].as_str().unwrap().to_string()).collect()
}

/// The lines of a crontab that start something, without those of fencepost.
fn started(home: &Home) -> Vec<String> {
    let crontab = home.crontab();
    let lines = crontab.lines().map(str::trim).filter(|line| !line.starts_with('#') && !line.contains("/fencepost "));
    lines.filter(|line| line.starts_with(['0', '5', '*', '@'])).map(String::from).collect()
}

#[test]
fn the_lines_that_jobs_were_made_from_are_commented_out_and_restored() {
    let home = made_from(CRONTAB);
    assert_eq!(unguarded(&home), ["report", "poll", "poll-2", "report-2", "mail"]);
    let printed = home.done(&["install", "crontab"]);
    assert!(!printed.stdout.contains("REPLACED") && home.crontab() == CRONTAB, "{printed:?}");
    let diff = home.done(&["install", "crontab", "--dry-run"]).stdout;
    let config = home.config().display().to_string();
    let line = format!("REPLACED by fencepost job report of {config}: 0 7 * * * /opt/report.sh --daily\n");
    contains(&diff, &["-0 7 * * * /opt/report.sh --daily\n", &format!("+# {line}")]);
    assert_eq!(home.crontab(), CRONTAB);
    home.done(&["install", "crontab", "--write"]);
    assert_eq!(started(&home), ["@reboot /opt/start"], "{}", home.crontab());
    contains(&home.crontab(), &[&format!("\n# {line}"), "poll-2 of ", "0 9 * * 1-5 mail you%Hello,%it's 9.\n"]);
    assert_eq!(unguarded(&home), [""; 0]);
    assert_eq!(home.say(&["validate", "--installed"]).code, 0);
    // Idempotent, and not taken for new jobs.
    let before = home.crontab();
    home.done(&["install", "crontab", "--write"]);
    assert_eq!(home.crontab(), before);
    assert_eq!(home.json(&["init", "--from", "crontab", "--output", "again.toml"])["jobs"], serde_json::json!([]));
    // One job, then all of them.
    home.done(&["install", "crontab", "poll", "--remove"]);
    assert_eq!(started(&home), ["*/10 * * * * /opt/poll", "@reboot /opt/start"]);
    home.done(&["install", "crontab", "--remove"]);
    assert_eq!(home.crontab(), format!("{CRONTAB}\n"));
}

/// An edited job keeps its line, because `init` wrote it above. One job alone replaces its own line alone.
#[test]
fn a_job_that_was_edited_still_replaces_its_line() {
    let home = made_from(CRONTAB);
    let config = fs::read_to_string(home.config()).unwrap().replacen("\"*/10 * * * *\"", "\"*/20 * * * *\"", 1);
    home.write("fencepost.toml", &config.replacen("/opt/report.sh --daily\"", "/opt/report.sh --weekly\"", 1));
    home.done(&["install", "crontab", "poll", "report", "--write"]);
    let left = ["@reboot /opt/start", "5 4 * * * /opt/poll", "0 7 * * * /opt/report.sh --daily"];
    assert_eq!(started(&home)[..3], left, "{}", home.crontab());
    assert_eq!(unguarded(&home), ["poll-2", "report-2", "mail"]);
}

#[test]
fn a_line_that_is_not_certain_changes_nothing() {
    for (crontab, config, lines) in [
        // Other times than the job's.
        (
            "0 7 * * * /opt/a\n0 8 * * * /opt/b\n",
            "[job.a]\nschedule = '30 7 * * *'\ncommand = '/opt/a'\n[job.b]\nschedule = '0 8 * * *'\ncommand = '/opt/b'\n",
            &["line 1 (perhaps a): 0 7 * * * /opt/a"][..],
        ),
        // More lines than jobs.
        (
            "0 7 * * * /opt/a\n0 7 * * * /opt/a\n",
            "[job.a]\nschedule = '0 7 * * *'\ncommand = '/opt/a'\n",
            &["line 2 (perhaps a): 0 7 * * * /opt/a"],
        ),
    ] {
        let zone = crate::triggers::machine_zone();
        let home = Home::new(&format!("timezone = '{zone}'\n{config}"));
        fs::write(home.spool(), crontab).unwrap();
        for option in ["--write", "--dry-run"] {
            let said = home.say(&["install", "crontab", option]);
            assert_eq!(said.code, 2, "{said:?}");
            contains(&said.stderr, lines);
            contains(&said.stderr, &["Nothing was changed", "crontab -e"]);
            assert_eq!(home.crontab(), crontab);
        }
        assert!(!unguarded(&home).is_empty());
    }
}

#[test]
fn other_schedulers_name_the_lines_that_remain() {
    let home = made_from("0 7 * * * /opt/report.sh\n");
    let said = home.done(&["install", "systemd", "--write"]);
    contains(&said.stderr, &["report is also started without fencepost by line 1 of your crontab"]);
    contains(&home.crontab(), &["0 7 * * * /opt/report.sh\n"]);
}

/// Off a terminal as well: the steps that remain are what was asked for.
#[test]
fn units_are_enabled_by_the_printed_steps_and_disabled_before_they_go() {
    let home = Home::new("[job.a]\nschedule = '0 7 * * *'\ncommand = 'true'\n");
    let log = home.site.path("systemctl.log");
    let listing = home.units().display().to_string();
    let script = format!("#!/bin/sh\necho \"$*: $(ls '{listing}' | tr '\\n' ' ')\" >> '{}'\n", log.display());
    home.program("systemctl", &script);
    let said = home.done(&["install", "systemd", "--write"]);
    let steps = "Now: systemctl --user daemon-reload\nNow: systemctl --user enable --now 'fencepost.service'\n\
                 For jobs while you are not logged in: loginctl enable-linger\n";
    assert_eq!(said.stdout, steps);
    let said = home.done(&["install", "systemd", "--per-job", "--write"]);
    contains(&said.stdout, &["enable --now 'fencepost-job-a.timer'\n"]);
    assert!(!said.stdout.contains("a.service"), "{said:?}");
    assert!(!log.exists());
    let said = home.done(&["install", "systemd", "--remove"]);
    assert_eq!(said.stdout, "Now: systemctl --user daemon-reload\n");
    // Each was still there when it was disabled.
    assert_eq!(
        fs::read_to_string(&log).unwrap(),
        "--user disable --now fencepost-job-a.timer: fencepost-job-a.timer fencepost.service \n\
         --user disable --now fencepost.service: fencepost.service \n"
    );
    assert_eq!(fs::read_dir(home.units()).unwrap().count(), 0);
    // Without a manager the links go that would start it at the next login.
    home.done(&["install", "systemd", "--write"]);
    let wants = home.units().join("default.target.wants");
    fs::create_dir(&wants).unwrap();
    std::os::unix::fs::symlink(home.units().join("fencepost.service"), wants.join("fencepost.service")).unwrap();
    home.program("systemctl", "#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n");
    let said = home.done(&["install", "systemd", "--remove"]);
    contains(
        &said.stderr,
        &["could not be stopped", "Failed to connect to bus", "systemctl --user stop 'fencepost.service'"],
    );
    assert_eq!((fs::read_dir(&wants).unwrap().count(), fs::read_dir(home.units()).unwrap().count()), (0, 1));
}

/// A link outlives the version that it leads to.
#[test]
fn the_path_that_is_written_is_the_one_that_was_called() {
    let home = Home::new("[job.a]\nschedule = '0 7 * * *'\ncommand = 'true'\n");
    let link = home.site.path("bin/fencepost");
    std::os::unix::fs::symlink(BINARY, &link).unwrap();
    for (program, place) in
        [(link.to_str().unwrap(), home.path("")), ("fencepost", home.path("")), ("./fencepost", home.site.path("bin"))]
    {
        // A shell hands the program what was typed as its name.
        let script = format!("exec {program} --config '{}' install crontab", home.config().display());
        let typed = home.command(&[]);
        let mut command = home.site.program("/bin/sh", &["-c", &script]);
        command.envs(typed.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(place);
        let said = Said::of(command.output().unwrap());
        contains(&said.stdout, &[&format!(" {} --config ", link.display())]);
    }
}
