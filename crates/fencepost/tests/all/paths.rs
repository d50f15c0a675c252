//! Artifacts are named from the job's working directory: machines with different roots agree, and errors say where a file lies.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{Said, Site, contains};

const CONFIG: &str = "[job.up]\nworking_directory = 'jobs/a'\n\
    command = 'mkdir -p ../../data && echo x > ../../data/x.md && echo y > y.md'\n\
    produces = ['../../data/x.md', 'y.md']\n\
    [job.down]\nworking_directory = 'jobs/b'\ncommand = 'cat \"$FENCEPOST_IN_UP\"'\n\
    needs = [{ job = 'up', when = 'any', artifact = '../../data/x.md' }]\n\
    [job.both]\ncommand = 'find \"$FENCEPOST_IN_UP\" -type f | wc -l'\n\
    needs = [{ job = 'up', when = 'any', artifact = ['data/x.md', 'jobs/a/y.md'] }]\n\
    [job.lazy]\nworking_directory = 'jobs/b'\ncommand = 'true'\nproduces = ['none.md']\n";

/// Two machines with one store and different roots.
struct Machines {
    site: Site,
}

impl Machines {
    fn new() -> Self {
        let machines = Self { site: Site::new() };
        for root in ["one", "two/deeper"] {
            fs::create_dir_all(machines.root(root).join("jobs/a")).unwrap();
            fs::create_dir_all(machines.root(root).join("jobs/b")).unwrap();
            fs::create_dir_all(machines.root(root).join("data")).unwrap();
            fs::write(machines.root(root).join("fencepost.toml"), CONFIG).unwrap();
        }
        machines
    }

    fn root(&self, name: &str) -> PathBuf {
        self.site.path("").canonicalize().unwrap().join(name)
    }

    fn say(&self, root: &str, arguments: &[&str]) -> Said {
        let mut command = self.site.command(arguments);
        command.env("FENCEPOST_CONFIG", self.root(root).join("fencepost.toml")).current_dir("/");
        Said::of(command.output().unwrap())
    }

    fn recorded(&self, job: &str) -> Vec<String> {
        let last: Value = self.site.job(job)["last_ok"].clone();
        last["artifacts"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_string()).collect()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn machines_with_different_roots_agree_on_the_names_of_artifacts() {
    let machines = Machines::new();
    let said = machines.say("one", &["run", "up"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(machines.recorded("up"), ["../../data/x.md", "y.md"]);
    for name in ["data/x.md", "jobs/a/y.md"] {
        fs::copy(machines.root("one").join(name), machines.root("two/deeper").join(name)).unwrap();
    }
    for root in ["one", "two/deeper"] {
        assert_eq!(machines.say(root, &["run", "down"]).stdout, "x\n", "{root}");
        assert_eq!(machines.say(root, &["run", "both"]).stdout.trim(), "2", "{root}");
        let file = machines.root(root).join("data/x.md");
        let said = machines.say(root, &["gate", "up@any", "--artifact", text(&file)[1..].trim_start_matches('/')]);
        assert_eq!(said.code, 0, "typed where we are, which is /: {said:?}");
    }
    // By hand too: typed where we are, recorded from the job's working directory.
    let file = machines.root("two/deeper").join("jobs/a/y.md");
    let said = machines.say("two/deeper", &["record", "up", "ok", "--artifact", &text(&file)[1..]]);
    assert_eq!((said.code, machines.recorded("up")), (0, vec!["y.md".to_string()]), "{said:?}");
}

#[test]
fn errors_show_the_absolute_path() {
    let machines = Machines::new();
    let root = machines.root("one");
    let said = machines.say("one", &["run", "lazy"]);
    assert_eq!(said.code, 118, "{said:?}");
    contains(&said.stderr, &[text(&root.join("jobs/b/none.md"))]);
    assert_eq!(machines.say("one", &["run", "up"]).code, 0);
    fs::write(root.join("data/x.md"), "other").unwrap();
    let said = machines.say("one", &["run", "down"]);
    assert_eq!(said.code, 115, "{said:?}");
    contains(&said.stderr, &[&format!("{} is not what up left", root.join("data/x.md").display())]);
    fs::remove_file(root.join("data/x.md")).unwrap();
    contains(
        &machines.say("one", &["run", "down"]).stderr,
        &[&format!("left {}, but", root.join("data/x.md").display())],
    );
}

#[test]
fn files_of_the_same_name_in_other_directories_are_not_mistaken_for_each_other() {
    let site = Site::new();
    let config = site.path("fencepost.toml");
    let job =
        |name: &str| format!("[job.{name}]\nworking_directory = '{name}'\ncommand = 'true'\nproduces = ['out.md']\n");
    let reader = "[job.reader]\ncommand = 'true'\nneeds = [{ job = 'a', artifact = 'a/out.md' }]\n";
    fs::write(&config, format!("{}{}{reader}", job("a"), job("b"))).unwrap();
    let said = site.say(&["validate", "--config", text(&config)]);
    assert!(!said.stderr.contains("both make") && !said.stderr.contains("does not say"), "{said:?}");
}
