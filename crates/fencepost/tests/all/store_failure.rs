//! A store that breaks under a running job, and one that is broken from the start.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::{Site, contains};
use crate::process::{Place, Running, SHORT, TTL, is_root};
use fencepost_testkit::process::all_dead;
use fencepost_testkit::{Stopwatch, eventually};
use rusqlite::{Connection, Transaction, TransactionBehavior};

#[test]
fn a_database_removed_under_a_running_job() {
    let (place, mut run, tree) = running();
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        fs::remove_file(place.state().join(name)).unwrap();
    }
    let broken = Stopwatch::start();
    // No run starts beside it, and no verb takes a missing store for a new one.
    for arguments in
        [&["run", "a", "--", "true"][..], &["status"], &["lease", "acquire", "a"], &["overdue"], &["store", "check"]]
    {
        let said = place.fencepost(arguments).output().unwrap();
        assert_eq!(said.status.code(), Some(125), "{said:?}");
        let words = String::from_utf8(said.stderr).unwrap();
        assert!(words.contains("is missing") && words.contains("fencepost store accept sqlite:"), "{words}");
    }
    stopped_in_time(&place, &mut run, &tree, broken);
    let url = format!("sqlite:{}", place.database().display());
    assert!(place.output(&["store", "accept", &url]).status.success());
    let said = place.output(&["runs", "a"]);
    assert_eq!(said.status.code(), Some(2), "the new store knows no job: {said:?}");
    place.next_token("a");
}

/// A file server that is not mounted is an empty directory, or none, also for those that have not made the store.
#[test]
fn a_shared_directory_that_is_not_mounted_is_not_made_anew() {
    let place = Place::new();
    let shared = place.path("shared");
    let run = |state: &str| {
        let store = format!("dir:{}", shared.display());
        let mut command = place.fencepost(&["run", "a", "--store", &store, "-E", "99", "--", "true"]);
        command.env("FENCEPOST_STATE_DIR", place.path(state)).output().unwrap().status.code()
    };
    assert_eq!((run("one"), run("other")), (Some(0), Some(0)));
    fs::rename(&shared, place.path("away")).unwrap();
    assert_eq!((run("one"), run("other"), shared.exists()), (Some(125), Some(125), false));
    fs::create_dir(&shared).unwrap();
    assert_eq!((run("one"), run("other")), (Some(125), Some(125)));
    fs::remove_dir(&shared).unwrap();
    fs::rename(place.path("away"), &shared).unwrap();
    assert_eq!((run("one"), run("other")), (Some(0), Some(0)));
}

#[test]
fn a_database_emptied_is_not_made_anew() {
    let place = Place::new();
    place.next_token("a");
    for name in ["store.db-wal", "store.db-shm"] {
        fs::remove_file(place.state().join(name)).unwrap();
    }
    fs::write(place.database(), "").unwrap();
    let said = place.fencepost(&["run", "a", "--", "true"]).output().unwrap();
    assert_eq!((said.status.code(), fs::metadata(place.database()).unwrap().len()), (Some(125), 0), "{said:?}");
}

#[test]
fn a_database_moved_away_and_back_after_the_job_was_stopped() {
    let (place, mut run, tree) = running();
    fs::rename(place.database(), place.path("aside")).unwrap();
    let broken = Stopwatch::start();
    stopped_in_time(&place, &mut run, &tree, broken);
    fs::rename(place.path("aside"), place.database()).unwrap();
    known_as_lost(&place);
}

#[test]
fn a_state_directory_removed_under_a_running_job() {
    let (place, mut run, tree) = running();
    fs::remove_dir_all(place.state()).unwrap();
    let broken = Stopwatch::start();
    stopped_in_time(&place, &mut run, &tree, broken);
    place.next_token("a");
}

#[test]
fn a_database_replaced_by_another_under_a_running_job() {
    let (place, mut run, tree) = running();
    fs::rename(place.state(), place.path("aside")).unwrap();
    let broken = Stopwatch::start();
    // The other one knows nothing of the job, and grants it.
    let token = place.next_token("a");
    stopped_in_time(&place, &mut run, &tree, broken);
    // What it says at last names the replacement: the store answered all the time.
    let said = run.stderr();
    let last = said.lines().find(|line| line.contains("a: lease lost: ")).unwrap_or_default();
    let database = place.database().display().to_string();
    contains(last, &["That could not be recorded: ", &database, "was removed or replaced since it was opened"]);
    assert!(!said.contains("did not answer"), "{said}");
    assert_eq!(place.statuses("a"), ["ok"]);
    fs::remove_dir_all(place.state()).unwrap();
    fs::rename(place.path("aside"), place.state()).unwrap();
    assert!(place.next_token("a") > token);
    assert_eq!(place.statuses("a"), ["ok", "lost"]);
}

#[test]
fn a_store_made_read_only_under_a_running_job() {
    read_only(&["store.db", "store.db-wal"]);
}

/// What SQLite shares by its index is mapped into memory, where a write that fails is no error but SIGBUS.
#[test]
fn a_store_made_read_only_with_its_index_under_a_running_job() {
    read_only(&["store.db", "store.db-wal", "store.db-shm"]);
}

/// Root can write without permission, and an open file is not checked again; an immutable file cannot be written.
fn read_only(files: &[&str]) {
    let (place, mut run, tree) = running();
    let Some(immutable) = Immutable::make(&place, files) else {
        return println!("skipped: chattr +i does not work here");
    };
    let broken = Stopwatch::start();
    stopped_in_time(&place, &mut run, &tree, broken);
    let other = place.output(&["run", "a", "-E", "99", "--", "touch", "ran"]);
    let said = String::from_utf8_lossy(&other.stderr);
    assert_eq!(other.status.code(), Some(125), "{said}");
    assert!(said.contains("store.db") && !place.path("ran").exists(), "{said}");
    drop(immutable);
    known_as_lost(&place);
}

#[test]
fn a_store_that_hangs_under_a_running_job() {
    let (place, mut run, tree) = running();
    let mut connection = Connection::open(place.database()).unwrap();
    let lock = Transaction::new(&mut connection, TransactionBehavior::Immediate).unwrap();
    let broken = Stopwatch::start();
    stopped_in_time(&place, &mut run, &tree, broken);
    drop(lock);
    known_as_lost(&place);
}

#[test]
fn a_disk_that_is_full_under_a_running_job() {
    let place = Place::new();
    let Some(mount) = Mount::small(&place.state()) else { return };
    let (mut run, tree) = start(&place);
    mount.fill();
    let broken = Stopwatch::start();
    stopped_in_time(&place, &mut run, &tree, broken);
    assert!(run.stderr().contains("Make room on the disk"), "{}", run.stderr());
    let other = place.output(&["run", "b", "-E", "99", "--", "touch", "ran"]);
    assert_eq!(other.status.code(), Some(125), "{}", String::from_utf8_lossy(&other.stderr));
    assert!(!place.path("ran").exists());
    mount.make_room();
    known_as_lost(&place);
}

#[test]
fn a_database_that_comes_back_in_time_is_noticed() {
    let (place, mut run, _) = running();
    fs::rename(place.state(), place.path("aside")).unwrap();
    eventually("it is noticed", || run.stderr().contains("could not be renewed"));
    fs::rename(place.path("aside"), place.state()).unwrap();
    goes_on(&place, &mut run);
}

#[test]
fn a_store_that_hangs_for_a_moment_is_waited_for() {
    let (place, mut run, _) = running();
    let mut connection = Connection::open(place.database()).unwrap();
    let lock = Transaction::new(&mut connection, TransactionBehavior::Immediate).unwrap();
    // A renewal is due every second, and the job is stopped no sooner than a second after the first that fails.
    thread::sleep(Duration::from_millis(1500));
    drop(lock);
    goes_on(&place, &mut run);
}

#[test]
fn a_job_that_ends_while_the_store_is_away_is_not_reported_done() {
    let (place, mut run, _) = running();
    fs::rename(place.state(), place.path("aside")).unwrap();
    place.let_go();
    run.ends_with(125);
    assert!(run.stderr().contains("could not be recorded"), "{}", run.stderr());
    fs::rename(place.path("aside"), place.state()).unwrap();
    known_as_lost(&place);
}

#[test]
fn a_store_that_cannot_be_opened_runs_nothing() {
    let place = out_of_reach();
    for options in [&["a"][..], &["a", "--on-store-error", "fail"]] {
        let mut run = place.run(options, &["touch", "ran"]);
        run.ends_with(125);
        assert!(run.stderr().contains("store.db"), "{}", run.stderr());
        assert!(!place.path("ran").exists());
    }
}

#[test]
fn a_store_that_cannot_be_opened_runs_without_a_token_if_asked() {
    let place = out_of_reach();
    let script = "echo ${FENCEPOST_TOKEN-none} ${FENCEPOST_RUN-none}; exit 3";
    let mut run = place.run(&["a", "--on-store-error", "run"], &["sh", "-c", script]);
    run.ends_with(3);
    assert_eq!(run.stdout(), "none none\n");
    assert!(run.stderr().contains("WITHOUT a lease"), "{}", run.stderr());
}

#[test]
fn a_database_that_is_something_else_runs_nothing_whatever_was_asked() {
    let place = Place::new();
    fs::create_dir(place.state()).unwrap();
    fs::write(place.database(), "a diary\n".repeat(1000)).unwrap();
    let mut run = place.run(&["a", "--on-store-error", "run"], &["touch", "ran"]);
    run.ends_with(125);
    assert!(run.stderr().contains("store.db"), "{}", run.stderr());
    assert!(!place.path("ran").exists());
    assert!(fs::read_to_string(place.database()).unwrap().starts_with("a diary"));
}

#[test]
fn a_store_that_hangs_from_the_start() {
    let place = Place::new();
    place.next_token("a");
    let mut connection = Connection::open(place.database()).unwrap();
    let _lock = Transaction::new(&mut connection, TransactionBehavior::Immediate).unwrap();
    let mut refused = place.run(&["a", "-E", "99"], &["touch", "ran"]);
    let mut asked = place.run(&["a", "--on-store-error", "run"], &["sh", "-c", "echo ${FENCEPOST_TOKEN-none}"]);
    refused.ends_with(125);
    assert!(!place.path("ran").exists());
    asked.ends_with(0);
    assert_eq!(asked.stdout(), "none\n");
}

/// A run with its tree, in a place whose store works.
fn running() -> (Place, Running, Vec<i32>) {
    let place = Place::new();
    let (run, tree) = start(&place);
    (place, run, tree)
}

fn start(place: &Place) -> (Running, Vec<i32>) {
    let run = place.run(&[&["a"], &SHORT[..]].concat(), &["sh", "stubborn.sh"]);
    (run, place.tree())
}

/// The job is dead before its lease can pass on, and no message says that it is held or done. `broken` starts when the
/// store is broken: a renewal may still succeed while it is being broken.
fn stopped_in_time(place: &Place, run: &mut Running, tree: &[i32], broken: Stopwatch) {
    eventually("the tree is dead", || all_dead(tree));
    assert!(broken.elapsed() <= TTL, "dead after {:?}", broken.elapsed());
    let code = run.wait();
    assert!(code == 112 || code == 125, "{code} {}", run.stderr());
    assert!(run.stderr().contains("a: lease lost: "), "{}", run.stderr());
    assert!(place.is_deserted());
}

/// With the store back, the next run is let in at once and the one before shown as lost.
fn known_as_lost(place: &Place) {
    assert!(!place.statuses("a").iter().any(|status| status == "ok"), "{:?}", place.statuses("a"));
    place.next_token("a");
    assert_eq!(place.statuses("a"), ["ok", "lost"]);
}

/// The job outlives the lease it had when the store was away, and ends well.
fn goes_on(place: &Place, run: &mut Running) {
    thread::sleep(TTL);
    place.beats_again();
    place.let_go();
    run.ends_with(0);
    assert_eq!(place.statuses("a"), ["ok"]);
}

/// A place whose store cannot be had: there is a file where its directory should be.
fn out_of_reach() -> Place {
    let place = Place::new();
    fs::write(place.state(), "").unwrap();
    place
}

/// Files that cannot be written while this lives.
struct Immutable {
    paths: Vec<PathBuf>,
}

impl Immutable {
    fn make(place: &Place, files: &[&str]) -> Option<Self> {
        let files = files.iter().map(|name| place.state().join(name));
        let this = Self { paths: files.chain([place.state()]).collect() };
        this.change("+i").then_some(this)
    }

    fn change(&self, flag: &str) -> bool {
        is_root() && Command::new("chattr").arg(flag).args(&self.paths).status().is_ok_and(|status| status.success())
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        self.change("-i");
    }
}

/// A file system with little room.
struct Mount {
    directory: PathBuf,
}

impl Mount {
    fn small(directory: &Path) -> Option<Self> {
        fs::create_dir(directory).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k,mode=0700", "none"]).arg(directory);
        if !is_root() || !mount.status().is_ok_and(|status| status.success()) {
            println!("skipped: only root can mount a small file system");
            return None;
        }
        Some(Self { directory: directory.to_path_buf() })
    }

    fn path(&self) -> &Path {
        &self.directory
    }

    fn fill(&self) {
        let _ = fs::write(self.path().join("ballast"), vec![1; 1 << 20]);
    }

    fn make_room(&self) {
        fs::remove_file(self.path().join("ballast")).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

/// SIGXFSZ would kill the wrapper between its effect and its record.
#[test]
fn a_limit_on_file_sizes_is_an_error_and_not_a_death() {
    let site = Site::new();
    let said = site.shell("ulimit -f 0; \"$BINARY\" run a -- touch ran");
    assert_eq!(said.code, 125, "{said:?}");
    contains(&said.stderr, &["ulimit -f", "EFBIG"]);
    let said = site.shell("\"$BINARY\" run a -- grep SigIgn /proc/self/status");
    let mask = said.stdout.trim().rsplit('\t').next().and_then(|mask| u64::from_str_radix(mask, 16).ok());
    let xfsz = 1 << (nix::libc::SIGXFSZ - 1);
    assert!(mask.is_some_and(|mask| mask & xfsz == 0), "the job has the default action: {said:?}");
}
