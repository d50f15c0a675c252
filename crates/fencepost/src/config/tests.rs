//! Every key, and every way to get one wrong.

use std::path::PathBuf;
use std::time::Duration;

use fencepost_core::name::Name;

use super::{CommandLine, Config, Mistake, Reading, Source};
use crate::options::{Given, OptionSet};
use fencepost_core::run::Overlap;

fn reading(text: &str) -> Reading {
    Reading::of_source(Source::new(PathBuf::from("/x/fencepost.toml"), text.to_string()))
}

#[track_caller]
fn config(text: &str) -> Config {
    let reading = reading(text);
    assert_eq!(reading.mistakes, [], "{text}");
    reading.config
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Everything that a file may say.
const EVERYTHING: &str = r#"
timezone = "Asia/Tokyo"
store = "sqlite:state/store.db"
store_password_file = "password"

[defaults]
ttl = "10m"
grace = "20s"
environment = { LANG = "C", TZ = "UTC" }
prepare = ["git", "pull", "--ff-only"]

[up]
max_parallel = 4
stop_within = "1m"
spread = "30s"

[logs]
directory = "logs"
max_bytes = 1_000_000
max_age = "30d"
keep = 20

[notify]
on_error = "mail -s broken me"
on_halt = ["notify", "halt"]

[job.reference]
schedule = "0 7 * * *"
command = "./refresh.sh"
produces = ["data/reference.md", { path = "data/*.json", min_bytes = 100 }]
empty_exit = 3
stuck_after = 5
logs = { keep = 3 }

[job."a/b.c"]
every = "45m"
timezone = "Europe/London"
command = ["./write", ""]
needs = ["reference@same-day", { job = "reference", when = "within=6h", artifact = "data/reference.md", on_empty = "proceed" }]
needs_wait = "10m"
ttl = "1m"
grace = "5s"
timeout = "1h"
wait = "5s"
skip_exit = 75
overlap = "replace"
per_host = true
on_store_error = "run"
leave_children = true
awake = true
output_on_failure = true
observe = true
slack = "2m"
retries = 2
retry_backoff = "30s"
on_lost = "halt"
catch_up = 3
catch_up_within = "2d"
catch_up_mode = "collapse"
catch_up_order = "newest"
catch_up_spacing = "10s"
environment = { TZ = "Asia/Tokyo" }
working_directory = "sub"
logs = false
on_error = "https://hooks.example.com/secret"
on_recovered = "true"
on_skips = { count = 3, notify = "https://hooks.example.com/secret" }
ping = "https://hc-ping.com/uuid"
enabled = false

[job.by-hand]
slot = "day"
logs = true
on_skips = 3
"#;

#[test]
fn everything_that_may_be_said_is_understood() {
    let config = config(EVERYTHING);
    assert_eq!(config.directory, PathBuf::from("/x"));
    assert_eq!(config.top.store.as_ref().unwrap().value, "sqlite:/x/state/store.db");
    assert_eq!(config.top.store_password_file.as_ref().unwrap().value, PathBuf::from("/x/password"));
    let job = &config.jobs[&name("a/b.c")];
    assert_eq!(job.command.as_ref().unwrap().value, CommandLine::Argv(vec!["./write".into(), String::new()]));
    assert_eq!(job.overlap(), Overlap::Replace);
    assert_eq!(
        (job.needed()[1].to_string(), job.needed().len()),
        ("reference@within=6h (data/reference.md)".into(), 2)
    );
    assert_eq!(job.working_directory.value(), Some(PathBuf::from("/x/sub")));
    assert_eq!(job.logs().enabled.value(), Some(false));
    assert!(!job.enabled());
    let every = job.every.as_ref().unwrap();
    assert_eq!((every.line, every.column, every.value), (36, 9, Duration::from_secs(45 * 60)));
}

#[test]
fn what_a_job_does_not_say_is_taken_from_the_defaults() {
    let config = config(EVERYTHING);
    let (reference, other) = (&config.jobs[&name("reference")], &config.jobs[&name("a/b.c")]);
    let seconds = |length: &Option<super::Located<Duration>>| length.as_ref().unwrap().value.as_secs();
    assert_eq!((seconds(&reference.ttl), seconds(&other.ttl)), (600, 60));
    assert_eq!(reference.environment()["TZ"], "UTC");
    assert_eq!((other.environment()["TZ"].as_str(), other.environment()["LANG"].as_str()), ("Asia/Tokyo", "C"));
    assert_eq!((reference.logs().keep(), reference.logs().directory.value()), (3, Some(PathBuf::from("/x/logs"))));
    assert!(reference.on_error.is_some() && other.on_halt.is_some());
    assert_eq!(seconds(&config.job(&name("unheard-of")).ttl), 600);
    assert_eq!(config.timezone(other).unwrap().value, "Europe/London");
    assert_eq!(config.timezone(reference).unwrap().value, "Asia/Tokyo");
}

#[test]
fn secrets_are_not_shown() {
    let config = config(EVERYTHING);
    let shown = config.jobs[&name("a/b.c")].shown().to_string();
    assert!(!shown.contains("secret") && !shown.contains("uuid"), "{shown}");
    for line in [
        "stor = \"postgres://u:s3cret@h/d\"",
        "stor = \"redis://s3cret@h\"",
        "ping = \"https://h/s3cret\"",
        "API_TOKEN = \"s3cret\"",
        "e = { A = \"b\", MY_PASSWORD = \"s3cret\" }",
    ] {
        let reading = reading(line);
        let text = reading.config.render(&reading.mistakes[0]);
        assert!(!text.contains("s3cret") && text.contains("^"), "{text}");
    }
}

/// A line of `[job.j]`, what is said about it, and the way out.
const WRONG: &[(&str, &str, &str)] = &[
    ("shedule = 'x'", "no key \"shedule\" in [job.j]", "Did you mean \"schedule\"?"),
    ("catch-up = 1", "no key \"catch-up\"", "Did you mean \"catch_up\"?"),
    ("qqq = { a = 1 }", "no key \"qqq\"", "[job.\"NAME.qqq\"]"),
    ("notify = 'x'", "no key \"notify\"", "Write on_error = … in the job."),
    ("ttl = 600", "a length of time in quotes", "Write \"600s\""),
    ("ttl = '600'", "has no unit", ""),
    ("ttl = true", "a length of time in quotes", ""),
    ("ttl = '500ms'", "out of bounds", ""),
    ("ttl = '40d'", "out of bounds", ""),
    ("grace = '10m'", "shorter than three times", "at least 30m00s"),
    ("timeout = '0s'", "longer than nothing", ""),
    ("every = '-5m'", "negative", ""),
    ("schedule = 5", "a text in quotes", ""),
    ("schedule = ''", "an empty text", ""),
    ("slot = 'dya'", "\"day\" or \"hour\" or \"minute\"", "Did you mean \"day\"?"),
    ("overlap = 'replac'", "\"skip\" or \"replace\"; this is \"replac\"", "Did you mean \"replace\"?"),
    ("overlap = true", "this is true", ""),
    ("on_store_error = 'ignore'", "\"fail\" or \"run\"", ""),
    ("on_lost = 'haltt'", "\"rerun\" or \"halt\"", "Did you mean \"halt\"?"),
    ("catch_up = -1", "from 0 on; this is -1", ""),
    ("catch_up = 1.5", "this is 1.5", ""),
    ("skip_exit = 256", "from 0 to 255", ""),
    ("empty_exit = 0", "from 1 to 255", ""),
    ("per_host = 'yes'", "true or false", ""),
    ("command = []", "this array is empty", ""),
    ("command = ['']", "no name", ""),
    ("command = ['a', 1]", "texts in its array", "Put it in quotes: \"1\"."),
    ("command = {}", "a command: a text for the shell", ""),
    ("command = \"a\\u0000b\"", "no NUL character", ""),
    ("produces = 'x'", "an array of paths", "[\"x\"]"),
    ("produces = [{ min_bytes = 1 }]", "lacks its \"path\"", ""),
    ("produces = [{ path = 'x', min_byte = 1 }]", "no key \"min_byte\"", "\"min_bytes\""),
    ("needs = 'x'", "an array of jobs", "[\"x\"]"),
    ("needs = ['x@same-dya']", "how fresh", "Did you mean \"same-day\"?"),
    ("needs = ['x@within=soon']", "not a length of time", ""),
    ("needs = ['a b']", "is not a name", ""),
    ("needs = [{ when = 'any' }]", "lacks its \"job\"", ""),
    ("needs = [{ job = 'x', on_empty = 'procede' }]", "\"skip\" or \"proceed\"", "Did you mean \"proceed\"?"),
    ("needs = ['j']", "j needs j", "Remove one"),
    ("environment = { FENCEPOST_TOKEN = '7' }", "fencepost's own", "another name"),
    ("environment = { A = 1 }", "\"A\" is a text", "quotes"),
    ("environment = 'A=1'", "a table of texts", ""),
    ("environment = { 'A=B' = 'c' }", "the name of a variable", ""),
    ("working_directory = '~/x'", "a path", "does not expand ~"),
    ("logs = 'yes'", "true, false, or a table", ""),
    ("logs = { kep = 1 }", "no key \"kep\"", "\"keep\""),
    ("on_skips = 0", "from 1 to", ""),
    ("on_skips = { notify = 'x' }", "lacks its \"count\"", ""),
    ("ping = 'hc-ping.com'", "begins with https://", ""),
    ("on_error = 'https:// x'", "has no spaces", ""),
];

#[test]
fn every_mistake_is_named_with_its_place_and_the_way_out() {
    for (line, message, hint) in WRONG {
        let reading = reading(&format!("[job.j]\n{line}\n"));
        let [mistake] = &reading.mistakes[..] else { panic!("{line}: {:?}", reading.mistakes) };
        assert_eq!(mistake.order().0, 2, "{line}: {mistake:?}");
        assert!(mistake.message.contains(message), "{line}: {mistake:?}");
        assert!(mistake.hint.as_deref().unwrap_or_default().contains(hint), "{line}: {mistake:?}");
        assert!(mistake.message.ends_with('.'), "{mistake:?}");
    }
    // Only a table may be the end of a job's name.
    assert_eq!(reading("[job.j]\nqqq = 1\n").mistakes[0].hint, None);
}

#[test]
fn what_does_not_belong_somewhere_is_told_where_it_does() {
    for (text, message, hint) in [
        ("ttl = '5m'", "no key \"ttl\" in this file", "[defaults]"),
        ("state_dir = 'x'", "no lock", "FENCEPOST_STATE_DIR"),
        ("jobs = {}", "no key \"jobs\"", "\"job\""),
        ("job = 1", "[job.report]", ""),
        ("[[job]]\na = 1", "[job.report]", ""),
        ("up = 1", "write [up]", ""),
        ("[up]\nmax_paralel = 1", "no key", "\"max_parallel\""),
        ("[job]\nj = 1", "is a table", "[job.NAME]"),
        ("[job.'a b']", "is not a name", ""),
        ("[job.a.b]\ncommand = 'x'", "no key \"b\" in [job.a]", "[job.\"NAME.b\"]"),
        ("[defaults]\nschedule = 'x'", "belongs to one job", "[job.NAME]"),
        ("[defaults]\non_error = 'x'", "[notify]", "Move"),
        ("[defaults]\nlogs = true", "[logs]", "Move"),
        ("[defaults]\nttll = '5m'", "in [defaults]", "\"ttl\""),
        ("[notify]\nping = 'https://x/y'", "one job", "[job.NAME]"),
        ("[job.j]\nschedule = '@daily'\nevery = '1h'", "one or the other", "Remove one"),
        ("[job.j]\nschedule = '@daily'\nslot = 'day'", "without a schedule", "Remove it"),
    ] {
        let reading = reading(text);
        let [mistake] = &reading.mistakes[..] else { panic!("{text}: {:?}", reading.mistakes) };
        assert!(mistake.message.contains(message), "{text}: {mistake:?}");
        assert!(mistake.hint.as_deref().unwrap_or_default().contains(hint), "{text}: {mistake:?}");
    }
}

#[test]
fn a_mistake_in_the_defaults_is_reported_once() {
    let reading = reading("[defaults]\nttl = 5\n[job.a]\n[job.b]\nttll = 1\n");
    let lines: Vec<usize> = reading.mistakes.iter().map(|mistake| mistake.order().0).collect();
    assert_eq!(lines, [2, 5]);
}

#[test]
fn jobs_that_wait_for_each_other_are_named_as_a_chain() {
    let mistakes =
        reading("[job.a]\nneeds = ['b']\n[job.b]\nneeds = ['c']\n[job.c]\nneeds = ['b', 'elsewhere']\n").mistakes;
    let [mistake] = &mistakes[..] else { panic!("{mistakes:?}") };
    assert!(mistake.message.contains("b needs c needs b"), "{mistake:?}");
    let diamond = "[job.a]\nneeds = ['b', 'c']\n[job.b]\nneeds = ['d']\n[job.c]\nneeds = ['d']\n[job.d]\n";
    assert_eq!(reading(diamond).mistakes, []);
}

#[test]
fn what_can_hardly_be_meant_is_a_warning() {
    let text = r#"
[job.reference]
command = "true"
produces = ["data/a.md", "out/*.csv"]
[job.other]
command = "true"
produces = ["./data/a.md"]
[job.article]
command = "true"
needs = ["refrence", "elsewhere", { job = "reference", artifact = ["data/a.md", "out/1.csv", "data/b.md"] }]
on_skips = 3
[job.empty]
"#;
    let config = config(text);
    let said: Vec<(usize, &str)> =
        config.warnings.iter().map(|warning| (warning.order().0, warning.message.as_str())).collect();
    let expected = [
        (4, "reference and other both make \"data/a.md\""),
        (8, "\"on_skips\" of article has no effect"),
        (10, "article needs refrence, which is not in this file"),
        (10, "article needs \"data/b.md\" of reference"),
        (12, "The job empty has no command"),
    ];
    assert_eq!(said.len(), expected.len(), "{said:?}");
    for ((line, message), (expected_line, part)) in said.iter().zip(expected) {
        assert!(*line == expected_line && message.contains(part), "{said:?}");
    }
}

#[test]
fn a_place_is_counted_in_characters_and_shown_under_its_line() {
    let reading = reading("# ümläut\n[job.j]\n\tcommand = \"é\" # x\n\tenvironment = { \"Ä\" = \"é\", \"ö\" = 7 }\n");
    let mistake: &Mistake = &reading.mistakes[0];
    assert_eq!(mistake.order(), (4, 35));
    let shown = reading.config.render(mistake);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "/x/fencepost.toml:4:35: The variable \"ö\" is a text. Put it in quotes.");
    assert_eq!(lines[1], "  4 | \tenvironment = { \"Ä\" = \"é\", \"ö\" = 7 }");
    assert_eq!(lines[2], format!("    | \t{}^", " ".repeat(33)));
}

#[test]
fn a_long_line_is_shown_around_the_mistake() {
    let line = format!("environment = {{ {} = 'x', B = 7 }}", "A".repeat(500));
    let reading = reading(&format!("[job.j]\n{line}\n"));
    let shown = reading.config.render(&reading.mistakes[0]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].len() < 180 && lines[1].contains("B = 7"), "{shown}");
    assert_eq!(lines[1].find('7'), lines[2].find('^'), "{shown}");
}

#[test]
fn a_text_that_is_not_toml_is_shown_at_its_first_slips() {
    for text in [
        "a = [1\nb = 2\nc = 3\nd = 4\ne = 5\n",
        "= 1",
        "[job.j]\ncommand = \"x\n",
        "[job.j]\n[job.j]\n",
        "\u{7}",
        "a = 1\na = 2",
    ] {
        let reading = reading(text);
        assert!((1..=3).contains(&reading.mistakes.len()), "{text:?}: {:?}", reading.mistakes);
        assert!(reading.mistakes[0].message.starts_with("This is not TOML: "), "{:?}", reading.mistakes);
    }
}

const DOCUMENTATION: &str = include_str!("../../../../docs/CONFIGURATION.md");

#[test]
fn the_example_of_the_documentation_is_a_configuration() {
    let example = DOCUMENTATION.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(config(example).jobs.len(), 2);
}

#[test]
fn a_webhook_with_an_unknown_scheme_is_a_mistake_and_not_a_command() {
    for (url, hint) in [
        ("htps://hooks.example.com/x", Some("Did you mean \"https\"?")),
        ("HTTPS://hooks.example.com/x", Some("Did you mean \"https\"?")),
        ("https:/hooks.example.com/x", None),
        ("https:///x", None),
        ("ftp://example.com/x", None),
        ("slack://example.com/x", None),
    ] {
        for text in [
            format!("[notify]\non_error = \"{url}\"\n"),
            format!("[job.j]\nping = \"{url}\"\n"),
            format!("[job.j]\non_skips = {{ count = 3, notify = \"{url}\" }}\n"),
        ] {
            let mistakes = reading(&text).mistakes;
            assert_eq!(mistakes.len(), 1, "{text}: {mistakes:?}");
            assert!(mistakes[0].message.contains("is a URL"), "{mistakes:?}");
            if hint.is_some() {
                assert_eq!(mistakes[0].hint.as_deref(), hint, "{text}");
            }
        }
    }
    for command in ["curl https://example.com", "./notify", "mail -s x://y me", "/usr/bin/env x", "C=a:/b x"] {
        config(&format!("[notify]\non_error = \"{command}\"\n"));
    }
}
