//! `fencepost init`, through the real binary: from a crontab to a configuration that is right.

use std::fs;

use crate::common::contains;
use crate::triggers::{Home, machine_zone};
use serde_json::json;

const CRONTAB: &str = r#"# edited by hand
MAILTO=ops@example.org
PATH=/usr/local/bin:/usr/bin:/bin
LANG = "C.UTF-8"

# the daily report
0 7 * * * /opt/jobs/report.sh --daily "a \"b\"" > /dev/null 2>&1
*/5 9-17 * * MON-FRI cd /srv/news && ./refresh.py
@reboot /opt/jobs/start
@daily /opt/jobs/report.sh
22-2 * * * * /opt/jobs/backwards
0 8 * * * date +\%F > /tmp/day
0 9 * * * mail you%Hello,%it's 9.
CRON_TZ=Europe/Berlin
SHELL=/bin/bash
30 2 * * * /opt/jobs/night
CRON_TZ=Mars/Phobos
0 0 * * * /opt/jobs/phobos
0 1 * * * /usr/bin/fencepost run x -- ./y
# BEGIN fencepost job z of /x.toml
0 1 * * * /usr/bin/fencepost --config /x.toml run z
# END fencepost job z of /x.toml
not a line
"#;

#[test]
fn a_beginning_is_written_once_and_is_right() {
    let home = Home::new("");
    contains(&home.done(&["init"]).stdout, &["Wrote ", "fencepost.toml", "fencepost validate"]);
    contains(&home.done(&["validate"]).stdout, &["hello\n", "Fine: 1 job, no mistakes, no warnings."]);
    assert_eq!(home.done(&["run", "hello", "--now"]).stdout, "hello\n");
    let before = fs::read_to_string(home.config()).unwrap();
    let said = home.say(&["init"]);
    assert_eq!(said.code, 2, "{said:?}");
    contains(&said.stderr, &["is there already, and is left as it is"]);
    assert_eq!(fs::read_to_string(home.config()).unwrap(), before);
    assert_eq!(home.done(&["init", "--output", "-"]).stdout, before);
}

#[test]
fn a_crontab_becomes_a_configuration_and_stays_as_it_is() {
    let home = Home::new("").with_cronie();
    fs::write(home.spool(), CRONTAB).unwrap();
    let said = home.done(&["init", "--from", "crontab"]);
    assert_eq!(home.crontab(), CRONTAB);
    contains(
        &said.stdout,
        &["with 6 jobs", "Left out line 9: @reboot", "Left out line 11:", "the range goes backwards"],
    );
    contains(
        &said.stdout,
        &["Left out line 18:", "Left out line 19:", "it calls fencepost already", "Left out line 23:"],
    );
    let text = fs::read_to_string(home.config()).unwrap();
    contains(
        &text,
        &[
            "# the daily report\n# 0 7 * * * /opt/jobs/report.sh --daily",
            "[job.report]\nschedule = \"0 7 * * *\"\n",
            r#"command = "/opt/jobs/report.sh --daily \"a \\\"b\\\"\" > /dev/null 2>&1""#,
            "[job.refresh]\nschedule = \"*/5 9-17 * * MON-FRI\"\ncommand = \"cd /srv/news && ./refresh.py\"\n",
            "[job.report-2]\nschedule = \"@daily\"\n",
            "command = \"date +%F > /tmp/day\"\n",
            "# @reboot /opt/jobs/start\n",
            "# 22-2 * * * * /opt/jobs/backwards\n",
            "[job.night]\nschedule = \"30 2 * * *\"\ntimezone = \"Europe/Berlin\"\ncommand = [\"/bin/bash\", \"-c\", \"/opt/jobs/night\"]\n",
            "environment = { LANG = \"C.UTF-8\", PATH = \"/usr/local/bin:/usr/bin:/bin\" }",
            "ops@example.org",
        ],
    );
    assert!(!text.contains("job z"), "{text}");
    let said = home.say(&["validate"]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["Fine: 6 jobs, no mistakes"]);
    // The same jobs, at the same times.
    let object = home.json(&["validate"]);
    let of = |name: &str| object["jobs"].as_array().unwrap().iter().find(|job| job["job"] == name).unwrap().clone();
    assert_eq!(
        (&of("night")["timezone"], &of("report")["timezone"]),
        (&json!("Europe/Berlin"), &json!(machine_zone()))
    );
}

#[test]
fn what_a_line_gives_its_command_to_read_arrives() {
    let home = Home::new("");
    home.write("tab", "0 9 * * * cat; echo end%Hello, 'you'%$HOME and \\\\ \\% %bye\n");
    home.done(&["init", "--from", "crontab=tab"]);
    assert_eq!(home.done(&["run", "cat", "--now"]).stdout, "Hello, 'you'\n$HOME and \\\\ % \nbye\nend\n");
}

#[test]
fn what_a_command_reads_is_never_taken_for_the_end_of_it() {
    let home = Home::new("");
    home.write("tab", "0 9 * * * cat%END_OF_INPUT%touch wrong%END_OF_INPUT_\n");
    home.done(&["init", "--from", "crontab=tab"]);
    assert_eq!(home.done(&["run", "cat", "--now"]).stdout, "END_OF_INPUT\ntouch wrong\nEND_OF_INPUT_\n");
}

#[test]
fn variables_about_fencepost_itself_are_named_and_left_out() {
    let home = Home::new("");
    home.write("tab", "FENCEPOST_STORE=sqlite:/tmp/x\n0 1 * * * /opt/job.sh\n");
    let object = home.json(&["init", "--from", "crontab=tab"]);
    assert_eq!(object["left_out"][0]["line"], json!(1));
    contains(&fs::read_to_string(home.config()).unwrap(), &["# Left out, because", "# FENCEPOST_STORE=sqlite:/tmp/x"]);
}

#[test]
fn a_system_crontab_has_users() {
    let home = Home::new("");
    let me = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    home.write("tab", &format!("17 * * * * {me} /bin/true\n25 6 * * * another-user run-parts /etc/cron.daily\n"));
    let object = home.json(&["init", "--from", "crontab=tab", "--with-user", "--output", "other.toml"]);
    assert_eq!(object["jobs"], json!(["true"]));
    assert_eq!(object["left_out"][0]["line"], json!(2));
    contains(object["left_out"][0]["reason"].as_str().unwrap(), &["it runs as another-user"]);
    contains(&fs::read_to_string(home.path("other.toml")).unwrap(), &["command = \"/bin/true\""]);
    home.done(&["validate", "--config", "other.toml"]);
}

#[test]
fn what_is_not_there_is_said() {
    let home = Home::new("");
    for (arguments, part) in [
        (&["init", "--from", "crontab"][..], "You have no crontab"),
        (&["init", "--from", "crontab=nowhere"], "Cannot read the crontab nowhere"),
        (&["init", "--from", "at"], "is crontab, or crontab=FILE"),
    ] {
        let said = home.say(arguments);
        assert_eq!(said.code, 2, "{said:?}");
        contains(&said.stderr, &[part]);
    }
    assert!(!home.config().exists());
}

/// No cron goes by TZ, and Debian's does not go by CRON_TZ either: both are variables of the jobs.
#[test]
fn only_what_cron_obeys_is_a_zone() {
    let crontab = "TZ=Asia/Tokyo\n0 7 * * * /opt/a\nCRON_TZ=Europe/Berlin\n0 8 * * * /opt/b\n";
    let zones = |home: &Home| {
        let jobs = home.json(&["validate"])["jobs"].as_array().unwrap().clone();
        jobs.iter().map(|job| job["timezone"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let debian = Home::new("");
    fs::write(debian.spool(), crontab).unwrap();
    let said = debian.done(&["init", "--from", "crontab"]);
    contains(&said.stdout, &["Line 3: the cron that is installed here does not obey CRON_TZ=Europe/Berlin."]);
    assert_eq!(zones(&debian), [machine_zone(), machine_zone()]);
    let text = fs::read_to_string(debian.config()).unwrap();
    contains(&text, &["TZ = \"Asia/Tokyo\"", "CRON_TZ = \"Europe/Berlin\"", "# Line 3: the cron"]);
    let cronie = Home::new("").with_cronie();
    fs::write(cronie.spool(), crontab).unwrap();
    let said = cronie.done(&["init", "--from", "crontab"]);
    assert!(!said.stdout.contains("obey"), "{said:?}");
    assert_eq!(zones(&cronie), [machine_zone(), "Europe/Berlin".to_string()]);
    // Beside CRON_TZ a line of ours fires by the machine's clock there, and by an unknown one here.
    debian.done(&["install", "crontab", "--write"]);
    contains(&debian.crontab(), &["\n0 7 * * * /usr/bin/env", "\n0 8 * * * /usr/bin/env"]);
    cronie.done(&["install", "crontab", "--write"]);
    contains(&cronie.crontab(), &["because this crontab sets CRON_TZ", "\n0 * * * * /usr/bin/env"]);
}
