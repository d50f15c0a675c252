//! Commands inside a run find it without variables that look like secrets, or without any variable.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

use crate::common::{BINARY, Said, Site, contains};
use crate::fenced::fence;

/// A shell of an agent that passes no variable but PATH.
const STRIPPED: &str = "env -i PATH=\"$PATH\" ";

/// The job and the token of the last write to a file.
fn writer(site: &Site, name: &str) -> (String, u64) {
    let fence = fence(&site.path(&format!(".{name}.fencepost-fence")));
    (fence.job.to_string(), fence.token.number())
}

fn registry() -> PathBuf {
    let user = nix::unistd::geteuid();
    let places = [format!("/run/user/{user}/fencepost"), format!("/tmp/fencepost-{user}")];
    places.into_iter().map(PathBuf::from).find(|place| place.is_dir()).expect("a private directory of the runs")
}

/// Runs a script as a job that knows the binary and a directory.
fn run(site: &Site, job: &str, script: &str) -> Said {
    let script = format!("B='{BINARY}'; D='{}'; {script}", site.directory().display());
    Said::of(site.command(&["run", job, "-c", &script]).output().unwrap())
}

#[test]
fn a_stripped_environment_publishes_records_and_gates_under_its_run() {
    let site = Site::new();
    site.say(&["record", "up", "ok"]);
    let script = format!(
        "echo x > $D/payload; echo $FENCEPOST_TOKEN > $D/token; {STRIPPED} $B publish file $D/page --from $D/payload && \
         {STRIPPED} $B gate up@any && {STRIPPED} $B record empty --note 'no news'"
    );
    let said = run(&site, "agent", &script);
    assert_eq!(said.code, 0, "{said:?}");
    let token = fs::read_to_string(site.path("token")).unwrap();
    assert_eq!(writer(&site, "page"), ("agent".to_string(), token.trim().parse().unwrap()));
    let newest = &site.runs(&["agent"])[0];
    assert_eq!((newest["status"].as_str(), newest["note"].as_str()), (Some("empty"), Some("no news")), "{newest}");
    assert_eq!(newest["upstreams"][0]["job"], "up", "{newest}");
}

#[test]
fn variables_that_look_like_secrets_are_not_needed() {
    let site = Site::new();
    let script =
        "echo x > $D/payload; env -u FENCEPOST_TOKEN -u FENCEPOST_KEY $B publish file $D/page --from $D/payload";
    assert_eq!(run(&site, "agent", script).code, 0);
    assert_eq!(writer(&site, "page").0, "agent");
    // The private file of the run is enough for a process that is no descendant.
    let script = "echo $FENCEPOST_OUTCOME > $D/leads; while [ ! -e $D/done ]; do sleep 0.05; done";
    let mut going =
        site.command(&["run", "far", "-c", &format!("D='{}'; {script}", site.directory().display())]).spawn().unwrap();
    fencepost_testkit::eventually("the run has begun", || {
        fs::read_to_string(site.path("leads")).is_ok_and(|text| text.ends_with('\n'))
    });
    let leads = fs::read_to_string(site.path("leads")).unwrap();
    let mut command = site.command(&["record", "empty", "--note", "from afar"]);
    let said =
        Said::of(command.env_remove("FENCEPOST_STATE_DIR").env("FENCEPOST_OUTCOME", leads.trim()).output().unwrap());
    fs::write(site.path("done"), "").unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(going.wait().unwrap().success());
    assert_eq!(site.runs(&["far"])[0]["note"], "from afar");
}

#[test]
fn in_nested_runs_the_nearest_wrapper_counts() {
    let site = Site::new();
    let script = format!(
        "echo x > $D/payload; $B run inner -c \"{} $B publish file $D/inside --from $D/payload\" && \
         {STRIPPED} $B publish file $D/outside --from $D/payload",
        STRIPPED.replace('"', "\\\"")
    );
    let said = run(&site, "outer", &script);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(writer(&site, "inside").0, "inner");
    assert_eq!(writer(&site, "outside").0, "outer");
}

#[test]
fn two_sources_that_name_different_runs_are_refused_and_nothing_is_written() {
    let site = Site::new();
    let other = site.holder("other", &[]);
    let their = site.job("other")["holder"]["run"].as_str().unwrap().to_string();
    let script = format!(
        "echo x > $D/payload; {STRIPPED} FENCEPOST_RUN={their} $B publish file $D/page --from $D/payload; echo exit $?; \
         FENCEPOST_TOKEN=7 $B record empty; echo exit $?"
    );
    let said = run(&site, "mine", &script);
    drop(other);
    assert_eq!(said.stdout, "exit 2\nexit 2\n", "{said:?}");
    let mine = site.runs(&["mine"])[0].clone();
    assert!(
        said.stderr.contains(&their) && said.stderr.contains(mine["run"].as_str().unwrap()),
        "both are named: {said:?}"
    );
    assert!(!site.path("page").exists());
    assert_eq!(mine["status"], "ok", "nothing was recorded: {mine}");
}

#[test]
fn explicit_arguments_win_and_without_a_source_nothing_is_guessed() {
    let site = Site::new();
    let token = site.say(&["lease", "acquire", "by-hand", "--ttl", "1m"]).stdout;
    let script = format!(
        "echo x > $D/payload; FENCEPOST_STATE_DIR=$D/state $B publish file $D/page --from $D/payload --job by-hand --token {}",
        token.trim()
    );
    assert_eq!(run(&site, "agent", &script).code, 0);
    assert_eq!(writer(&site, "page").0, "by-hand");
    let said = site.shell(&format!("{STRIPPED} \"$BINARY\" record ok; echo $?"));
    assert_eq!(said.stdout, "2\n", "{said:?}");
}

#[test]
fn entries_are_private_and_go_with_their_run() {
    let site = Site::new();
    let holder = site.holder("j", &[]);
    let run = site.job("j")["holder"]["run"].as_str().unwrap().to_string();
    let (directory, entry) = (registry(), registry().join(&run));
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    let found = fs::metadata(&entry).unwrap();
    assert_eq!((found.permissions().mode() & 0o777, found.nlink()), (0o600, 3), "wrapper, keeper and run");
    let text = fs::read_to_string(&entry).unwrap();
    assert!(text.contains(site.state().to_str().unwrap()), "{text}");
    assert_eq!(holder.finish().code, 0);
    fencepost_testkit::eventually("the entry is gone", || !entry.exists());
    let left = fs::read_dir(&directory)
        .unwrap()
        .filter(|left| fs::read_to_string(left.as_ref().unwrap().path()).is_ok_and(|text| text.contains(&run)));
    assert_eq!(left.count(), 0);
}

#[test]
fn once_in_a_stripped_environment_uses_the_store_of_its_run() {
    let site = Site::new();
    let script =
        format!("{STRIPPED} $B once charge/7 -- touch $D/first; {STRIPPED} $B once charge/7 -- touch $D/second");
    assert_eq!(run(&site, "agent", &script).code, 0);
    assert!(site.path("first").exists() && !site.path("second").exists());
    assert_eq!(site.json(&["once", "show", "charge/7"])["state"], "done");
}

/// A user of its own, whose registry no other test uses. Only root may be another user.
struct OtherUser {
    site: Site,
    id: u32,
    registry: PathBuf,
}

impl OtherUser {
    fn new() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: only root can be another user");
            return None;
        }
        let (site, id) = (Site::new(), 200_000 + std::process::id());
        let registry = PathBuf::from(format!("/tmp/fencepost-{id}"));
        fs::create_dir(&registry).unwrap();
        for path in [site.directory(), &registry] {
            std::os::unix::fs::chown(path, Some(id), Some(id)).unwrap();
        }
        Some(Self { site, id, registry })
    }

    fn run(&self, script: &str) -> Said {
        let script =
            format!("B='{BINARY}'; D='{}'; R='{}'; {script}", self.site.directory().display(), self.registry.display());
        Said::of(self.site.command(&["run", "outer", "-c", &script]).uid(self.id).gid(self.id).output().unwrap())
    }
}

impl Drop for OtherUser {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.registry);
    }
}

#[test]
fn a_run_without_an_entry_says_so_and_does_not_start_inside_another() {
    let Some(user) = OtherUser::new() else { return };
    fs::set_permissions(&user.registry, fs::Permissions::from_mode(0o755)).unwrap();
    let said = user.run("echo ran");
    assert_eq!((said.code, said.stdout.as_str()), (0, "ran\n"), "{said:?}");
    contains(
        &said.stderr,
        &[
            "outer: the entry by which its commands find this run cannot be written",
            "others than its owner could use it",
            "ls -ld",
        ],
    );

    // The outer run has an entry, the inner one gets none: its commands must not be taken for the outer run's.
    fs::set_permissions(&user.registry, fs::Permissions::from_mode(0o700)).unwrap();
    let inner = "chmod 500 $R; $B run inner OPTIONS -c \"touch $D/started; $B publish file $D/page --from $D/payload\"; echo $?; chmod 700 $R";
    let said = user.run(&format!("echo x > $D/payload; {}", inner.replace("OPTIONS", "")));
    assert_eq!((said.code, said.stdout.as_str()), (0, "126\n"), "{said:?}");
    contains(&said.stderr, &["It is inside another run, which its commands would find instead. Nothing was run."]);
    assert!(!user.site.path("page").exists() && !user.site.path("started").exists());
    let said = user.run(&inner.replace("OPTIONS", "--rehearse"));
    assert_eq!(said.stdout, "125\n", "{said:?}");
    // A run that is only observed is not stopped; its command is not taken for the outer run's.
    let said = user.run(&inner.replace("OPTIONS", "--observe"));
    assert_eq!(said.stdout, "2\n", "{said:?}");
    contains(
        &said.stderr,
        &["Commands whose variables an agent strips do not find it", "It is unclear which run this command belongs to"],
    );
    assert!(user.site.path("started").exists() && !user.site.path("page").exists());
}
