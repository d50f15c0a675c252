//! `fencepost.toml`, through the real binary: where it is found, what it says, and what is said about it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Said, Site, contains, keys, sorted};
use nix::unistd::{Uid, chown, geteuid};
use serde_json::{Value, json};

/// A directory with a configuration in it, and one below.
struct Project {
    site: Site,
}

impl Project {
    fn new(text: &str) -> Self {
        let project = Self { site: Site::new() };
        fs::create_dir_all(project.path("below/deeper")).unwrap();
        project.write("fencepost.toml", text);
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.path("project").join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        mode(&path, 0o644);
        path
    }

    /// A command that looks for its configuration from a directory of the project.
    fn command(&self, directory: &str, arguments: &[&str]) -> Command {
        let mut command = self.site.command(arguments);
        command.env_remove("FENCEPOST_CONFIG").current_dir(self.path(directory));
        command
    }

    fn say(&self, arguments: &[&str]) -> Said {
        self.say_in("", arguments)
    }

    fn say_in(&self, directory: &str, arguments: &[&str]) -> Said {
        Said::of(self.command(directory, arguments).output().unwrap())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let said = self.say(&[arguments, &["--json"]].concat());
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_configuration_is_the_named_one_or_the_nearest_above() {
    let project = Project::new("[job.j]\ncommand = 'echo above'\n");
    let near = project.write("below/fencepost.toml", "[job.j]\ncommand = 'echo near'\n");
    let named = project.write("named.toml", "[job.j]\ncommand = 'echo named'\n");
    let flagged = project.write("flagged.toml", "[job.j]\ncommand = 'echo flagged'\n");
    assert_eq!(project.say(&["run", "j"]).stdout, "above\n");
    assert_eq!(project.say_in("below/deeper", &["run", "j"]).stdout, "near\n");
    let mut command = project.command("below", &["run", "j"]);
    assert_eq!(Said::of(command.env("FENCEPOST_CONFIG", &named).output().unwrap()).stdout, "named\n");
    let mut command = project.command("", &["--config", "flagged.toml", "run", "j"]);
    assert_eq!(Said::of(command.env("FENCEPOST_CONFIG", &named).output().unwrap()).stdout, "flagged\n");
    assert_eq!(project.say(&["run", "j", "--config", text(&flagged)]).stdout, "flagged\n");
    // Set to nothing, there is none.
    let mut command = project.command("", &["run", "j"]);
    let said = Said::of(command.env("FENCEPOST_CONFIG", "").output().unwrap());
    assert_eq!(said.code, 125);
    contains(&said.stderr, &["no command"]);
    // What the job itself calls goes by the same file.
    project.write("flagged.toml", "[job.j]\ncommand = 'cd /; \"$BINARY\" status | sed -n 2p'\n");
    let said = project.say_in("below", &["run", "j", "--config", "../flagged.toml"]);
    contains(&said.stdout, &["config  /", "flagged.toml"]);
    assert!(near.exists());
}

#[test]
fn status_names_the_configuration() {
    let project = Project::new("");
    let path = project.path("fencepost.toml");
    assert_eq!(project.json(&["status"])["config"], json!(path));
    contains(&project.say(&["status"]).stdout, &[&format!("config  {}\n", path.display())]);
    let said = project.site.say(&["status"]);
    contains(&said.stdout, &["config  none\n"]);
    assert_eq!(project.site.json(&["status"])["config"], json!(null));
}

#[test]
fn a_named_file_that_is_missing_is_an_error() {
    let project = Project::new("");
    for (arguments, code) in [
        (&["--config", "no.toml", "run", "j", "--", "true"][..], 125),
        (&["run", "j", "--config", "no.toml", "--", "true"], 125),
        (&["status", "--config", "no.toml"], 2),
        (&["runs", "--config", "no.toml"], 2),
        (&["lease", "show", "j", "--config", "no.toml"], 2),
        (&["validate", "--config", "no.toml"], 2),
    ] {
        let said = project.say(arguments);
        assert_eq!(said.code, code, "{arguments:?}: {said:?}");
        contains(&said.stderr, &["configuration"]);
    }
    let mut command = project.command("", &["status"]);
    let said = Said::of(command.env("FENCEPOST_CONFIG", "no.toml").output().unwrap());
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["no.toml", "No such file", "FENCEPOST_CONFIG"]);
    let said = project.say(&["status", "--config", "below"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["is a directory", "below/fencepost.toml"]);
    let said = project.say(&["status", "--config", "/dev/null"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["not a regular file"]);
}

#[test]
fn a_file_that_others_could_have_written_is_refused() {
    let project = Project::new("[job.j]\ncommand = 'echo ran'\n");
    let path = project.path("fencepost.toml");
    for (bits, refused) in [(0o664, true), (0o646, true), (0o666, true), (0o644, false), (0o600, false)] {
        mode(&path, bits);
        let said = project.say(&["run", "j"]);
        assert_eq!((said.code, said.stdout.is_empty()), (if refused { 125 } else { 0 }, refused), "{bits:o}: {said:?}");
        if refused {
            contains(&said.stderr, &[text(&path), "refused", "others than its owner", "chmod go-w"]);
            assert_eq!(project.say(&["status"]).code, 2);
            assert_eq!(project.say(&["validate"]).code, 1);
            assert_eq!(project.json(&["validate"])["mistakes"][0]["line"], json!(null));
        }
    }
    for (bits, refused) in [(0o777, true), (0o1777, false), (0o755, false)] {
        mode(&project.path(""), bits);
        let said = project.say(&["status"]);
        assert_eq!(said.code, if refused { 2 } else { 0 }, "{bits:o}: {said:?}");
        assert!(!refused || said.stderr.contains("other users can replace it"), "{said:?}");
    }
    // A link is followed, and judged by where it leads.
    let target = project.write("below/target.toml", "");
    fs::remove_file(&path).unwrap();
    symlink(&target, &path).unwrap();
    assert_eq!(project.say(&["status"]).code, 0);
    mode(&project.path("below"), 0o777);
    assert_eq!(project.say(&["status"]).code, 2);
}

#[test]
fn a_file_of_another_user_is_refused() {
    if !geteuid().is_root() {
        return; // Only root can give a file away.
    }
    let project = Project::new("[job.j]\ncommand = 'echo ran'\n");
    chown(&project.path("fencepost.toml"), Some(Uid::from_raw(12345)), None).unwrap();
    let said = project.say(&["run", "j"]);
    assert_eq!((said.code, said.stdout.as_str()), (125, ""));
    contains(&said.stderr, &["belongs to uid 12345", "neither root nor you"]);
}

const BROKEN: &str = r#"timezone = "Asia/Tokyo"

[job.reference]
shedule = "0 7 * * *"
command = "touch ran"
overlap = "replac"

[job.article]
needs = ["reference"]
ttl = 600
"#;

#[test]
fn all_mistakes_of_a_job_are_shown_at_once_and_it_does_not_run() {
    let project = Project::new(BROKEN);
    let path = project.path("fencepost.toml");
    let said = project.say(&["run", "reference"]);
    assert_eq!((said.code, said.stdout.as_str()), (125, ""));
    let shown = path.display();
    let expected = format!(
        r#"fencepost: {shown} has 2 mistakes.

{shown}:4:1: There is no key "shedule" in [job.reference]. Did you mean "schedule"?
  4 | shedule = "0 7 * * *"
    | ^^^^^^^

{shown}:6:11: "overlap" is "skip" or "replace"; this is "replac". Did you mean "replace"?
  6 | overlap = "replac"
    |           ^^^^^^^^
The job reference does not run until this is corrected. Other jobs do.
"#
    );
    assert_eq!(said.stderr, expected);
    assert!(!project.path("ran").exists());
    // A job that is not in the file runs.
    assert_eq!(project.say(&["run", "other", "--", "true"]).code, 0);
    // A mistake outside any job is told by every verb, also about jobs that are not in the file.
    project.write("fencepost.toml", &format!("colour = 'blue'\n{BROKEN}"));
    for (arguments, code) in [
        (&["run", "other", "--", "touch", "ran"][..], 125),
        (&["status"], 2),
        (&["runs"], 2),
        (&["lease", "acquire", "reference"], 2),
    ] {
        let said = project.say(arguments);
        assert_eq!(said.code, code, "{arguments:?}");
        contains(&said.stderr, &["4 mistakes", ":1:1:", ":11:7:"]);
    }
    assert!(!project.path("ran").exists());
    let failure = project.json(&["status"]);
    assert_eq!((&failure["error"]["code"], &failure["error"]["reason"]), (&json!(2), &json!("usage")));
}

#[test]
fn a_text_that_is_no_toml_or_no_text_is_named_by_its_line() {
    let project = Project::new("[job.j]\ncommand = \"unfinished\nttl = 1\n");
    let said = project.say(&["status"]);
    assert_eq!(said.code, 2);
    contains(&said.stderr, &["fencepost.toml:2:", "This is not TOML"]);
    assert!(!said.stderr.contains("unfinished"), "what is not TOML may be any file: {said:?}");
    fs::write(project.path("fencepost.toml"), b"[job.j]\n# \xff\n").unwrap();
    contains(&project.say(&["status"]).stderr, &["fencepost.toml:2:", "not UTF-8"]);
}

#[test]
fn a_job_runs_beside_its_configuration() {
    let project = Project::new(
        "[job.string]\ncommand = 'pwd; echo \"$HOME\" | wc -l'\n\
         [job.array]\ncommand = ['echo', '$HOME', 'a  b', '']\n\
         [job.script]\ncommand = ['./script']\n\
         [job.elsewhere]\ncommand = ['pwd']\nworking_directory = 'below'\n\
         [job.nowhere]\ncommand = ['pwd']\nworking_directory = 'no'\n",
    );
    let here = fs::canonicalize(project.path("")).unwrap();
    assert_eq!(project.say_in("below/deeper", &["run", "string"]).stdout, format!("{}\n1\n", here.display()));
    assert_eq!(project.say(&["run", "array"]).stdout, "$HOME a  b \n");
    mode(&project.write("script", "#!/bin/sh\necho script\n"), 0o755);
    assert_eq!(project.say_in("below", &["run", "script"]).stdout, "script\n");
    assert_eq!(project.say(&["run", "elsewhere"]).stdout, format!("{}/below\n", here.display()));
    let said = project.say(&["run", "nowhere"]);
    assert_eq!(said.code, 126, "{said:?}");
    contains(&said.stderr, &["directory"]);
    // A command after -- wins, and runs where the job runs.
    let said = project.say_in("below", &["run", "array", "--", "pwd"]);
    assert_eq!(said.stdout, format!("{}\n", here.display()));
    // A job that is not in the file runs where it was started.
    let said = project.say_in("below", &["run", "other", "-c", "pwd"]);
    assert_eq!(said.stdout, format!("{}/below\n", here.display()));
}

#[test]
fn the_environment_is_added_to_the_jobs_own() {
    let project = Project::new(
        "[defaults]\nenvironment = { A = 'a', B = 'b' }\n\
         [job.j]\ncommand = 'echo $A-$B-$C-$D-$FENCEPOST_JOB'\nenvironment = { B = 'bb', C = 'c d' }\n",
    );
    let mut command = project.command("", &["run", "j"]);
    assert_eq!(Said::of(command.env("D", "d").env("A", "x").output().unwrap()).stdout, "a-bb-c d-d-j\n");
}

#[test]
fn a_flag_beats_the_jobs_key_which_beats_the_defaults() {
    let holder = |project: &Project, arguments: &[&str]| {
        let lease = "\"$BINARY\" lease show \"$FENCEPOST_JOB\" --json";
        let said = project.say(&[&["run"], arguments, &["-c", lease]].concat());
        let lease: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        lease["remaining_ms"].as_u64().unwrap() / 1000
    };
    // A configuration that was found gives its defaults to its own jobs only.
    const NAMED: &[&str] = &["unlisted", "--config", "fencepost.toml"];
    let project = Project::new("[defaults]\nttl = '20m'\n[job.own]\nttl = '40m'\n[job.plain]\n");
    for (arguments, about) in
        [(&["own"][..], 40), (&["plain"], 20), (&["own", "--ttl", "10m"], 10), (&["unlisted"], 5), (NAMED, 20)]
    {
        let seconds = holder(&project, arguments);
        assert!((about * 54..=about * 60).contains(&seconds), "{arguments:?}: {seconds}");
    }
    fs::remove_file(project.path("fencepost.toml")).unwrap();
    assert!((270..=300).contains(&holder(&project, &["own"])));
}

#[test]
fn every_key_of_a_run_is_heeded() {
    let project = Project::new(
        "[job.timeout]\ncommand = ['sleep', '60']\ntimeout = '200ms'\ngrace = '1s'\n\
         [job.quiet]\ncommand = 'echo out; exit $CODE'\noutput_on_failure = true\n\
         [job.skip]\ncommand = 'true'\nskip_exit = 75\n\
         [job.mine]\ncommand = 'true'\nper_host = true\n\
         [job.storeless]\ncommand = 'echo ran'\non_store_error = 'run'\n",
    );
    assert_eq!(project.say(&["run", "timeout"]).code, 124);
    let quiet = |code: &str| Said::of(project.command("", &["run", "quiet"]).env("CODE", code).output().unwrap());
    assert_eq!((quiet("0").stdout.as_str(), quiet("3").stdout.as_str()), ("", "out\n"));
    let lease = project.say(&["lease", "acquire", "skip"]);
    assert_eq!(project.say(&["run", "skip"]).code, 75);
    assert_eq!(project.say(&["run", "skip", "-E", "7"]).code, 7);
    assert_eq!(project.say(&["run", "skip", "--dry-run"]).code, 75);
    assert_eq!(lease.code, 0);
    assert_eq!(project.say(&["run", "mine"]).code, 0);
    let names: Vec<Value> =
        project.json(&["status"])["jobs"].as_array().unwrap().iter().map(|job| job["job"].clone()).collect();
    assert!(names.iter().any(|name| name.as_str().unwrap().starts_with("mine@")), "{names:?}");
    assert_eq!(project.json(&["lease", "show", "mine"])["grants"], json!(1));
    let said = project.say(&["run", "storeless", "--store", "sqlite:fencepost.toml/store.db"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "ran\n"), "{said:?}");
}

#[test]
fn what_does_not_fit_together_is_refused_wherever_it_was_said() {
    let project = Project::new("[job.j]\ncommand = 'touch ran'\ngrace = '1m'\n");
    let said = project.say(&["run", "j", "--ttl", "2m"]);
    assert_eq!(said.code, 125);
    contains(&said.stderr, &["three times", "3m00s"]);
    assert!(!project.path("ran").exists());
    assert_eq!(project.say(&["run", "j", "--ttl", "3m"]).code, 0);
}

#[test]
fn a_job_that_is_not_in_the_file_is_met_with_the_near_name() {
    let project = Project::new("[job.reference]\ncommand = 'true'\n[job.bare]\n");
    let said = project.say(&["run", "refrence"]);
    assert_eq!(said.code, 125);
    contains(&said.stderr, &["no job refrence", "Did you mean \"reference\"?", "-- ./job.sh"]);
    contains(&project.say(&["run", "bare"]).stderr, &["command = … to [job.bare]"]);
    assert!(!project.say(&["run", "zzz"]).stderr.contains("Did you mean"));
    // With a command it runs, and the similar name is mentioned on a terminal or with `-v`.
    let said = project.say(&["run", "refrence", "--", "echo", "ran"]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "ran\n", ""));
    let said = project.say(&["run", "refrence", "-v", "--", "echo", "ran"]);
    assert_eq!(said.stdout, "ran\n");
    assert_eq!(said.stderr.matches("but reference is").count(), 1, "{said:?}");
}

#[test]
fn the_store_is_the_flags_the_environments_or_the_configurations() {
    let project = Project::new("store = 'sqlite:own.db'\n[job.j]\ncommand = 'echo $FENCEPOST_STORE'\n");
    let here = project.path("");
    let shown = |name: &str| format!("sqlite:{}\n", here.join(name).display());
    assert_eq!(project.say_in("below", &["run", "j"]).stdout, shown("own.db"));
    let mut command = project.command("below", &["run", "j"]);
    let said = Said::of(command.env("FENCEPOST_STORE", "sqlite:env.db").output().unwrap());
    assert_eq!(said.stdout, shown("below/env.db"));
    let mut command = project.command("", &["run", "j", "--store", "sqlite:flag.db"]);
    let said = Said::of(command.env("FENCEPOST_STORE", "sqlite:env.db").output().unwrap());
    assert_eq!(said.stdout, shown("flag.db"));
    project.write("fencepost.toml", "store = 'mysql://u:s3cret@h/d'\n");
    let said = project.say(&["status"]);
    assert_eq!(said.code, 2);
    assert!(!said.stderr.contains("s3cret"), "{said:?}");
    contains(&said.stderr, &["fencepost.toml:1:9: \"store\": ", "names no kind of store"]);
    project.write("fencepost.toml", "store = 'sqlit:/x'\n");
    let said = project.say(&["validate"]);
    assert_eq!(said.code, 1);
    contains(&said.stderr, &["fencepost.toml:1:9: ", "did you mean sqlite"]);
}

#[test]
fn validate_shows_what_would_run_and_warns() {
    let project = Project::new(
        "timezone = 'Asia/Tokyo'\n\
         [job.reference]\nschedule = '0 7 * * *'\nprepare = ['true', 'x y']\ncommand = './refresh.sh'\nproduces = ['data/a.md']\n\
         [job.article]\nevery = '45m'\ncommand = ['no-such-program']\nneeds = [{ job = 'reference', artifact = 'data/b.md' }]\n\
         environment = { SECRET = 's3cret' }\nping = 'https://hc-ping.com/s3cret'\n",
    );
    let script = project.write("refresh.sh", "#!/bin/sh\n");
    mode(&script, 0o755);
    let said = project.say(&["validate"]);
    assert_eq!(said.code, 0, "{said:?}");
    contains(&said.stdout, &["reference\n", "0 7 * * *, Asia/Tokyo", "true \"x y\"", "./refresh.sh", "data/a.md"]);
    contains(&said.stdout, &["article\n", "every 45m00s", "no-such-program", "Fine: 2 jobs, no mistakes, 2 warnings."]);
    contains(
        &said.stderr,
        &["warning:", ":9:11: \"no-such-program\" is not found in PATH.", "\"data/b.md\" of reference", "^"],
    );
    let object = project.json(&["validate"]);
    assert_eq!(keys(&object), sorted("v config ok mistakes warnings jobs"));
    assert_eq!((&object["v"], &object["ok"], &object["mistakes"]), (&json!(1), &json!(true), &json!([])));
    assert_eq!(keys(&object["warnings"][0]), sorted("line column message hint"));
    assert_eq!((&object["warnings"][0]["line"], &object["warnings"][0]["column"]), (&json!(9), &json!(11)));
    let article = &object["jobs"][0];
    assert_eq!((&article["job"], &article["command"]), (&json!("article"), &json!(["no-such-program"])));
    assert_eq!((&article["every"], &article["timezone"]), (&json!("45m"), &json!("Asia/Tokyo")));
    assert_eq!(object["jobs"][1]["command"], json!(["/bin/sh", "-c", "./refresh.sh"]));
    assert!(!object.to_string().contains("s3cret"), "{object}");
    // A script that cannot be executed, and one that is called otherwise.
    mode(&script, 0o644);
    contains(&project.say(&["validate"]).stderr, &["cannot be executed", "chmod +x"]);
    fs::rename(&script, project.path("refesh.sh")).unwrap();
    contains(&project.say(&["validate"]).stderr, &["There is no", "Did you mean \"refesh.sh\"?"]);
    let said = project.say(&["validate", "-q"]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "", ""));
}

#[test]
fn validate_refuses_what_is_wrong_with_1() {
    let project = Project::new(BROKEN);
    let said = project.say(&["validate"]);
    assert_eq!(said.code, 1);
    contains(&said.stderr, &[":4:1:", ":6:11:", ":10:7:", "  4 | shedule", "^^^^^^^"]);
    contains(&said.stdout, &["Refused: 2 jobs, 3 mistakes"]);
    let object = project.json(&["validate"]);
    assert_eq!(object["ok"], json!(false));
    let first = json!({
        "line": 4, "column": 1,
        "message": "There is no key \"shedule\" in [job.reference].",
        "hint": "Did you mean \"schedule\"?",
        "jobs": ["reference"],
    });
    assert_eq!((object["mistakes"].as_array().unwrap().len(), &object["mistakes"][0]), (3, &first));
    project.write("fencepost.toml", "[job.a]\nneeds = ['b']\n[job.b]\nneeds = ['a']\n");
    let said = project.say(&["validate"]);
    assert_eq!(said.code, 1);
    contains(&said.stderr, &["a needs b needs a"]);
}

#[test]
fn validate_without_a_configuration_is_a_usage_error() {
    let said = Site::new().say(&["validate"]);
    assert_eq!((said.code, said.stdout.as_str()), (2, ""));
    contains(&said.stderr, &["no configuration", "FENCEPOST_CONFIG is set to nothing"]);
}
