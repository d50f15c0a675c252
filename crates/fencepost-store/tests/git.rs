//! The git store keeps the contract, on real repositories: by path, by something like ssh, and by HTTP that loses answers.

#![cfg(feature = "git")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use fencepost_store::{
    Access, Fate, Key, OpenError, SCAN_KEYS_MAX, Secret, Soundness, Store, Trouble, conformance, properties,
};
use fencepost_testkit::race::race;
use fencepost_testkit::servers::{Fault, GitServer, git};
use fencepost_testkit::store::{declared, open_with, put, refused};
use tempfile::TempDir;

/// The slow checks make thousands of pushes; what they show is shown here by fewer.
#[test]
fn conforms() {
    let place = Place::new();
    for check in conformance::checks().filter(|check| !check.slow) {
        check.run(&|| Ok(place.store())).unwrap();
    }
    let objects = git(&place.cache.join("git"), &["for-each-ref"]);
    assert_eq!(objects, "", "no ref is left in the local repository");
    for made in [place.cache.clone(), place.cache.join("git")] {
        assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn nothing_is_lost_in_a_race() {
    let place = Place::new();
    let tally = race(&|| place.store(), &*place.store(), &key("lines"), 5, 5);
    assert!(tally.won == 25 && tally.unknown == 0 && tally.lost > 0, "{tally:?}");
}

#[test]
fn a_scan_is_no_longer_than_the_most() {
    let place = Place::new();
    let version = put(&*place.store(), &key("a"), None, b"1");
    let commit = String::from_utf8(version.0).unwrap();
    let mut input =
        format!("create refs/fencepost/other {commit}\ncreate refs/fencepost/probe/git/Foreign, {commit}\n");
    for number in 0..=SCAN_KEYS_MAX {
        input.push_str(&format!("create refs/fencepost/{}, {commit}\n", key(&format!("k{number:05}"))));
    }
    let mut child = command(&place.repository);
    let mut child = child.args(["update-ref", "--stdin"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let found = place.store().scan("probe/git/", None, usize::MAX).unwrap().value;
    assert_eq!((found.len(), found.first()), (SCAN_KEYS_MAX, Some(&key("a"))));
    let rest = place.store().scan("probe/git/", found.last(), usize::MAX).unwrap().value;
    assert_eq!(rest, [key("k00999"), key("k01000")]);
}

#[test]
fn a_state_is_a_commit_without_parents_that_names_the_one_before() {
    let place = Place::new();
    let store = place.store();
    let first = put(&*store, &key("a"), None, b"1");
    let second = put(&*store, &key("a"), Some(&first), b"2");
    let second = String::from_utf8(second.0).unwrap();
    let commit = git(&place.repository, &["cat-file", "commit", &second]);
    assert!(
        !commit.contains("parent ") && commit.contains(&format!("previous: {}", String::from_utf8(first.0).unwrap()))
    );
    assert_eq!(git(&place.repository, &["for-each-ref", "--format=%(refname)"]).trim(), "refs/fencepost/probe/git/a,");
    git(&place.repository, &["-c", "gc.reflogExpire=now", "gc", "--quiet", "--prune=now"]);
    assert_eq!(
        git(&place.repository, &["count-objects", "-v"]).lines().find(|line| line.starts_with("in-pack")),
        Some("in-pack: 3")
    );
    assert_eq!(store.read(&key("a")).unwrap().value.unwrap().bytes, b"2");
}

#[test]
fn what_is_not_ours_is_corrupt() {
    let place = Place::new();
    let version = put(&*place.store(), &key("a"), None, b"1");
    let commit = String::from_utf8(version.0).unwrap();
    // The state of one key under the name of another, and a blob.
    git(&place.repository, &["update-ref", "refs/fencepost/probe/git/b,", &commit]);
    let tree = format!("{commit}^{{tree}}");
    git(
        &place.repository,
        &["update-ref", "refs/fencepost/probe/git/c,", git(&place.repository, &["rev-parse", &tree]).trim()],
    );
    for name in ["b", "c"] {
        let error = place.store().read(&key(name)).unwrap_err();
        assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
    }
}

/// A value that is longer than the longest is not read, though git would hand it over.
#[test]
fn a_value_that_is_too_long_is_refused() {
    let place = Place::new();
    put(&*place.store(), &key("a"), None, &[7; 65_536]);
    assert_eq!(place.store().read(&key("a")).unwrap().value.map(|entry| entry.bytes.len()), Some(65_536));
    fs::write(place.directory.path().join("long"), vec![7; 65_537]).unwrap();
    let blob = git(&place.repository, &["hash-object", "-w", "../long"]);
    let listed = place.directory.path().join("tree");
    fs::write(&listed, format!("100644 blob {}\tvalue\n", blob.trim())).unwrap();
    let made = command(&place.repository).arg("mktree").stdin(fs::File::open(&listed).unwrap()).output().unwrap();
    let tree = String::from_utf8(made.stdout).unwrap();
    let who = ["-c", "user.name=x", "-c", "user.email=x@example.org"];
    let message = format!("fencepost store, layout 1\n\nkey: {}\nprevious: none\nnonce: 00\n", key("b"));
    let commit = git(&place.repository, &[&who[..], &["commit-tree", tree.trim(), "-m", &message]].concat());
    git(&place.repository, &["update-ref", "refs/fencepost/probe/git/b,", commit.trim()]);
    let error = place.store().read(&key("b")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
}

#[test]
fn a_host_with_other_rules_is_refused_and_says_why() {
    let place = Place::new();
    // Rules for branches do not count for our own refs, and do for those under refs/heads.
    for rule in ["receive.denyDeletes", "receive.denyNonFastForwards"] {
        git(&place.repository, &["config", rule, "true"]);
    }
    let branches = open_with(&format!("{}?refs=refs/heads/locks", place.url()), &place.access()).unwrap();
    let version = put(&*branches, &key("a"), None, b"1");
    refused(branches.swap(&key("a"), Some(&version), None), "deletion prohibited");
    refused(branches.swap(&key("a"), Some(&version), Some(b"2")), "non-fast-forward");
    let store = place.store();
    let version = put(&*store, &key("a"), None, b"1");
    let version = put(&*store, &key("a"), Some(&version), b"2");
    let hook = place.repository.join("hooks/pre-receive");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\necho only branches here >&2\nexit 1\n").unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    refused(store.swap(&key("a"), Some(&version), Some(b"3")), "only branches here");
    assert_eq!(store.read(&key("a")).unwrap().value.unwrap().version, version);
}

#[test]
fn a_repository_that_is_not_there_is_unavailable() {
    let place = Place::new();
    let url = format!("git+file://{}", place.directory.path().join("none.git").display());
    let store = open_with(&url, &place.access()).unwrap();
    let attempts = [store.read(&key("a")).map(|_| ()), store.swap(&key("a"), None, Some(b"1")).map(|_| ())];
    for error in attempts.map(Result::unwrap_err) {
        assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Unavailable), "{error}");
    }
    let Err(OpenError::Usage(text)) = open_with("git+ssh://u:s3cret@h/r.git", &place.access()) else { panic!() };
    assert!(!text.contains("s3cret"), "{text}");
}

#[test]
fn the_time_to_live_is_long_and_settings_are_declared() {
    let place = Place::new();
    assert_eq!(properties(&place.url()).minimum_ttl, Duration::from_secs(600));
    assert_eq!(properties("git+ssh://git@h/r.git").minimum_ttl, Duration::from_secs(600));
    let found = declared(&place.url(), &place.access()).unwrap();
    assert!(found.iter().any(|one| one.name == "durability" && one.standing == Soundness::Sound), "{found:?}");
}

#[test]
fn refs_may_stand_elsewhere() {
    let place = Place::new();
    let url = format!("{}?refs=refs/heads/locks", place.url());
    put(&*open_with(&url, &place.access()).unwrap(), &key("a"), None, b"1");
    assert_eq!(
        git(&place.repository, &["for-each-ref", "--format=%(refname)"]).trim(),
        "refs/heads/locks/probe/git/a,"
    );
    assert_eq!(place.store().read(&key("a")).unwrap().value, None);
}

/// The hooks and the identity of the user have no part in it. What ssh is comes from the environment, so that the test
/// calls itself in another process.
#[test]
fn by_ssh() {
    if let Ok(url) = std::env::var("FENCEPOST_TEST_GIT_SSH") {
        let access =
            Access { cache: Some(PathBuf::from(std::env::var("FENCEPOST_TEST_CACHE").unwrap())), ..Access::default() };
        let store = open_with(&url, &access).unwrap();
        let version = put(&*store, &key("a"), None, b"1");
        put(&*store, &key("a"), Some(&version), b"2");
        return;
    }
    let place = Place::new();
    let (ssh, log) = (place.directory.path().join("ssh"), place.directory.path().join("log"));
    // The last argument is what the far side is asked to run.
    fs::write(
        &ssh,
        format!("#!/bin/sh\necho \"$@\" >> {}\nfor last; do :; done\nexec sh -c \"$last\"\n", log.display()),
    )
    .unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::join_paths(
        [place.directory.path().to_path_buf()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut myself = Command::new(std::env::current_exe().unwrap());
    myself.args(["--exact", "by_ssh"]).env("PATH", path.unwrap()).env("FENCEPOST_TEST_CACHE", &place.cache);
    myself.env_remove("GIT_SSH_COMMAND").env_remove("GIT_SSH");
    myself.env("FENCEPOST_TEST_GIT_SSH", format!("git+ssh://git@far{}", place.repository.display()));
    let ended = myself.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    assert_eq!(place.store().read(&key("a")).unwrap().value.unwrap().bytes, b"2");
    let said = fs::read_to_string(log).unwrap();
    assert!(said.lines().all(|line| line.contains("BatchMode=yes") && line.contains("git@far")), "{said}");
    assert_eq!(said.lines().count(), 2, "one connection per swap");
}

/// Answers are lost after the effect, requests before it. Where HTTPS leads is configured by the environment, so that the
/// test calls itself in another process.
#[test]
fn nothing_acknowledged_is_lost_over_a_bad_network() {
    if let Ok(cache) = std::env::var("FENCEPOST_TEST_GIT_RACE") {
        let access =
            Access { cache: Some(PathBuf::from(cache)), password: Some(Secret::new("right")), ..Access::default() };
        let open = || open_with("git+https://me:wrong@store.test/r.git", &access).unwrap();
        let tally = race(&open, &*open(), &key("lines"), 3, 6);
        assert!(tally.unknown > 3 && tally.happened > 0 && tally.unknown > tally.happened, "{tally:?}");
        return;
    }
    let place = Place::new();
    git(&place.repository, &["config", "http.receivepack", "true"]);
    let server = GitServer::start(place.directory.path());
    server.ask_for_a_password();
    let faults = |_| [Fault::Unheard, Fault::Unanswered(Box::new(|| {}))];
    server.fail((0..4).flat_map(faults));
    let mut myself = Command::new(std::env::current_exe().unwrap());
    myself.args(["--exact", "nothing_acknowledged_is_lost_over_a_bad_network", "--nocapture"]);
    myself.env("FENCEPOST_TEST_GIT_RACE", &place.cache).env("GIT_CONFIG_COUNT", "1");
    myself.env("GIT_CONFIG_KEY_0", format!("url.{}.insteadOf", server.url("/")));
    myself.env("GIT_CONFIG_VALUE_0", "https://store.test/");
    let watching = thread::spawn(secrets_in_arguments);
    let ended = myself.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{said}");
    assert!(!watching.join().unwrap(), "a password stood among the arguments of a process");
    let wrong = Access { password: Some(Secret::new("wr0ng")), ..place.access() };
    let url = server.url("/r.git").replace("http://", "git+https://me@");
    let error = open_with(&url, &wrong).unwrap().swap(&key("a"), None, Some(b"1")).unwrap_err();
    assert!(!error.detail.contains("wr0ng"), "{error}");
}

/// Looks for a second at what `ps` would show of git and its helpers.
fn secrets_in_arguments() -> bool {
    (0..200).any(|_| {
        thread::sleep(Duration::from_millis(5));
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok()).any(|line| {
            let text = String::from_utf8_lossy(&line);
            text.starts_with("git") && (text.contains("right") || text.contains("wrong"))
        })
    })
}

struct Place {
    directory: TempDir,
    repository: PathBuf,
    cache: PathBuf,
}

impl Place {
    fn new() -> Self {
        // What is flushed need not wait for a disk.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let (repository, cache) = (directory.path().join("r.git"), directory.path().join("cache"));
        fs::create_dir(&repository).unwrap();
        git(&repository, &["init", "--quiet", "--bare", "--template="]);
        Self { directory, repository, cache }
    }

    fn url(&self) -> String {
        format!("git+file://{}", self.repository.display())
    }

    fn access(&self) -> Access {
        Access { cache: Some(self.cache.clone()), ..Access::default() }
    }

    fn store(&self) -> Box<dyn Store> {
        open_with(&self.url(), &self.access()).unwrap()
    }
}

fn command(directory: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(directory).env("LC_ALL", "C");
    command
}

fn key(name: &str) -> Key {
    Key::probe("git", name)
}
