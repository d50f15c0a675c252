//! The shared directory keeps the contract, keeps its files to itself, and survives the death of its writers.

#![cfg(feature = "dir")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fencepost_store::{
    Access, Entry, Fate, HostMemory, Key, OpenError, Soundness, Store, StoreError, StoreHandle, Swapped, Trouble,
    conformance, properties,
};
use fencepost_testkit::race::race;
use fencepost_testkit::store::{declared, open, put};
use tempfile::TempDir;

#[test]
fn conforms() {
    let (_directory, path) = place();
    conformance::run(&|| Ok(store(&path))).unwrap();
}

#[test]
fn there_is_no_clock() {
    let (_directory, path) = place();
    assert_eq!(store(&path).read(&key("a")).unwrap().clock, None);
    assert_eq!(
        properties(&format!("dir:{}", path.display())).minimum_ttl,
        Duration::ZERO,
        "a local directory is prompt"
    );
}

#[test]
fn only_the_owner_may_look() {
    let (_directory, path) = place();
    put(&*store(&path), &key("a"), None, b"1");
    for made in everything(&path) {
        let found = fs::metadata(&made).unwrap();
        let mode = if found.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(found.mode() & 0o7777, mode, "{}", made.display());
    }
}

#[test]
fn a_directory_that_was_opened_to_a_group_stays_so() {
    let (_directory, path) = place();
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o2770)).unwrap();
    put(&*store(&path), &key("a"), None, b"1");
    for made in everything(&path) {
        let found = fs::metadata(&made).unwrap();
        let mode = if found.is_dir() { 0o2770 } else { 0o660 };
        assert_eq!(found.mode() & 0o7777, mode, "{}", made.display());
    }
}

#[test]
fn nothing_is_lost_in_a_race() {
    let (_directory, path) = place();
    let tally = race(&|| store(&path), &*store(&path), &key("lines"), 8, 20);
    assert!(tally.won == 160 && tally.unknown + tally.not_done == 0, "{tally:?}");
}

/// The test calls itself: another process swaps as fast as it can and says what was acknowledged, until it is killed.
#[test]
fn nothing_acknowledged_is_lost_when_writers_are_killed() {
    if let Ok(path) = std::env::var("FENCEPOST_TEST_DIR") {
        let store = store(Path::new(&path));
        loop {
            let current = store.read(&key("count")).unwrap().value;
            let next = number(current.as_ref()) + 1;
            let expected = current.as_ref().map(|entry| &entry.version);
            if let Swapped::Won(_) =
                store.swap(&key("count"), expected, Some(next.to_string().as_bytes())).unwrap().value
            {
                println!("acknowledged {next}");
            }
        }
    }
    let (_directory, path) = place();
    let store = store(&path);
    for round in 0..20 {
        let mut myself = Command::new(std::env::current_exe().unwrap());
        myself.args(["--exact", "nothing_acknowledged_is_lost_when_writers_are_killed", "--nocapture"]);
        let mut writers: Vec<_> =
            (0..2).map(|_| myself.env("FENCEPOST_TEST_DIR", &path).stdout(Stdio::piped()).spawn().unwrap()).collect();
        let standing = || number(store.read(&key("count")).unwrap().value.as_ref());
        let (begun, before) = (Instant::now(), standing());
        while standing() < before + 5 + round && begun.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_micros(300));
        }
        let mut acknowledged = Vec::new();
        for writer in &mut writers {
            writer.kill().unwrap();
            let said = BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok);
            acknowledged.extend(said.filter_map(|line| line.split_once("acknowledged ")?.1.parse::<u64>().ok()));
            writer.wait().unwrap();
        }
        acknowledged.sort_unstable();
        assert!(acknowledged.windows(2).all(|pair| pair[0] < pair[1]), "given twice: {acknowledged:?}");
        let stands = number(store.read(&key("count")).unwrap().value.as_ref());
        assert!(stands >= acknowledged.last().copied().unwrap_or(0), "{stands} after {acknowledged:?}");
    }
    assert!(number(store.read(&key("count")).unwrap().value.as_ref()) > 100);
}

#[test]
fn what_is_not_ours_is_refused_and_left_alone() {
    let (_directory, path) = place();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("diary"), "dear").unwrap();
    let error = failure(&path);
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
    assert_eq!(everything(&path).len(), 2, "nothing was added");
    fs::remove_file(path.join("diary")).unwrap();
    put(&*store(&path), &key("a"), None, b"1");
    for (mark, part) in [("fencepost store, layout 2\nx\n", "newer fencepost"), ("", "damaged")] {
        fs::write(path.join("FENCEPOST"), mark).unwrap();
        let error = failure(&path);
        assert_eq!(error.trouble, Trouble::Corrupt, "{error}");
        assert!(error.detail.contains(part), "{error}");
    }
}

#[test]
fn a_file_server_that_is_not_mounted_is_not_a_fresh_store() {
    let (directory, path) = place();
    let above = directory.path().join("not/there");
    assert!(failure(&above).detail.contains("mounted"), "the directory above must exist");
    let url = format!("dir:{}", path.display());
    let handle =
        StoreHandle::new(&url, Access::default()).remembering(HostMemory::new(&directory.path().join("state")));
    let known = handle.open().unwrap();
    give_id(&*known, 1);
    put(&*known, &key("a"), None, b"1");
    let aside = directory.path().join("aside");
    fs::rename(&path, &aside).unwrap();
    let lost = |ended: Result<(), OpenError>| {
        let Err(OpenError::Store(error)) = ended else { panic!("{ended:?}") };
        assert_eq!(error.fate, Fate::NotDone, "{error}");
        assert!(error.detail.contains("mounted") || error.detail.contains("store accept"), "{error}");
    };
    let opened = || lost(handle.open().and_then(|store| Ok(store.read(&Key::identity())?)).map(|_| ()));
    opened();
    lost(known.read(&key("a")).map(|_| ()).map_err(OpenError::from));
    fs::create_dir(&path).unwrap();
    opened();
    lost(known.swap(&key("b"), None, Some(b"1")).map(|_| ()).map_err(OpenError::from));
    assert_eq!(everything(&path).len(), 1, "nothing was made there");
    // A host that has never used it creates another store, and the one that knows the old store refuses it.
    give_id(&*store(&path), 2);
    opened();
    fs::remove_dir_all(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    assert!(handle.open().unwrap().read(&key("a")).unwrap().value.is_some());
}

fn give_id(store: &dyn Store, number: u8) {
    let identity = format!(r#"{{"v":1,"store":"00000000-0000-0000-0000-{number:012}"}}"#);
    put(store, &Key::identity(), None, identity.as_bytes());
}

#[test]
fn links_pipes_devices_and_long_files_are_refused_and_never_waited_for() {
    let (directory, path) = place();
    let aside = directory.path().join("aside");
    let version_path = path.join("keys/probe/dir/a,/v00000000000000000001");
    type Plant = fn(&Path, &Path);
    let plants: [(&str, Plant); 5] = [
        ("a symbolic link", |planted, aside| std::os::unix::fs::symlink(aside, planted).unwrap()),
        ("a FIFO", |planted, _| nix::unistd::mkfifo(planted, nix::sys::stat::Mode::S_IRWXU).unwrap()),
        ("a socket", |planted, _| drop(std::os::unix::net::UnixListener::bind(planted).unwrap())),
        ("longer than any value", |planted, _| fs::File::create(planted).unwrap().set_len(1 << 40).unwrap()),
        ("a symbolic link", |planted, _| std::os::unix::fs::symlink("/dev/zero", planted).unwrap()),
    ];
    put(&*store(&path), &key("b"), None, b"2");
    for (word, plant) in plants {
        put(&*store(&path), &key("a"), None, b"1");
        fs::rename(&version_path, &aside).unwrap();
        plant(&version_path, &aside);
        let corrupt = |error: StoreError| {
            assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
            assert!(error.detail.contains(word) && error.detail.contains("a,/v"), "{error}");
        };
        corrupt(store(&path).read(&key("a")).unwrap_err());
        corrupt(store(&path).swap(&key("a"), None, Some(b"3")).unwrap_err());
        let keys = store(&path).scan("probe/dir/", None, 10).unwrap().value;
        assert_eq!(keys, [key("a"), key("b")], "the key is named, and the others are shown");
        fs::remove_dir_all(path.join("keys/probe/dir/a,")).unwrap();
    }
    // The same for the directories on the way, and for the mark.
    fs::rename(path.join("keys/probe"), aside.with_extension("d")).unwrap();
    std::os::unix::fs::symlink(aside.with_extension("d"), path.join("keys/probe")).unwrap();
    let error = store(&path).read(&key("b")).unwrap_err();
    assert!(error.trouble == Trouble::Corrupt && error.detail.contains("keys/probe is not what"), "{error}");
    assert_eq!(store(&path).scan("probe/", None, 10).unwrap().value, []);
    fs::remove_file(path.join("FENCEPOST")).unwrap();
    nix::unistd::mkfifo(&path.join("FENCEPOST"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(failure(&path).trouble, Trouble::Corrupt);
}

#[test]
fn folders_that_are_carried_away_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["Dropbox", "OneDrive - Contoso", "Mobile Documents", "Google Drive", "CloudStorage"] {
        let path = directory.path().join(name).join("fencepost");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let error = failure(&path);
        assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Refused), "{error}");
        assert!(error.detail.contains("git+ssh://"), "what to use instead: {error}");
        assert!(!path.exists());
    }
    fs::create_dir_all(directory.path().join("sync/.stfolder")).unwrap();
    assert!(failure(&directory.path().join("sync/store")).detail.contains("Syncthing"));
    // A link does not hide where it leads.
    std::os::unix::fs::symlink(directory.path().join("sync"), directory.path().join("plain")).unwrap();
    assert!(failure(&directory.path().join("plain/store")).detail.contains("Syncthing"));
}

#[test]
fn settings_are_declared() {
    let (_directory, path) = place();
    drop(store(&path));
    let found = declared(&format!("dir:{}", path.display()), &Access::default()).unwrap();
    assert!(found.iter().any(|one| one.name == "reach" && one.standing == Soundness::Weak), "{found:?}");
}

/// The test calls itself: another process makes one swap and is killed at the nth call of a kind, in a store that is to be
/// made and in one that is there.
#[test]
fn crashes_at_every_system_call_leave_a_sound_store() {
    if let Ok(path) = std::env::var("FENCEPOST_TEST_CRASH") {
        println!("acknowledged {}", count_up(&*store(Path::new(&path))));
        return;
    }
    let killed_at = |path: &Path, call: &str, at: usize| {
        let mut traced = Command::new("strace");
        traced.args(["-f", "-qq", "-o", "/dev/null", "-e"]).arg(format!("trace={call}"));
        traced.arg("-e").arg(format!("inject={call}:signal=KILL:when={at}")).arg(std::env::current_exe().unwrap());
        traced.args(["--exact", "crashes_at_every_system_call_leave_a_sound_store", "--nocapture", "--test-threads=1"]);
        let ended =
            traced.env("FENCEPOST_TEST_CRASH", path).output().expect("strace is missing: apt-get install strace");
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        let acknowledged =
            said.split_once("acknowledged ").and_then(|(_, rest)| rest.lines().next()?.parse::<u64>().ok());
        (!ended.status.success(), acknowledged.unwrap_or(0))
    };
    let mut kills = 0;
    let calls =
        [("openat", 24), ("write", 13), ("fsync", 9), ("linkat", 2), ("unlink", 2), ("mkdir", 5), ("getdents64", 4)];
    for (call, times) in calls {
        for at in 1..=times {
            let (_directory, path) = place();
            for before in [0, 1] {
                let (killed, acknowledged) = killed_at(&path, call, at);
                kills += u32::from(killed);
                let next = count_up(&*store(&path));
                assert!(next > acknowledged.max(before), "{call} {at}: {next} after {acknowledged}");
            }
        }
    }
    assert!(kills > 80, "{kills} of 118");
}

fn count_up(store: &dyn Store) -> u64 {
    let current = store.read(&key("count")).unwrap().value;
    let next = number(current.as_ref()) + 1;
    put(store, &key("count"), current.as_ref().map(|entry| &entry.version), next.to_string().as_bytes());
    next
}

fn place() -> (TempDir, PathBuf) {
    // What is flushed need not wait for a disk.
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let path = directory.path().canonicalize().unwrap().join("store");
    (directory, path)
}

fn store(path: &Path) -> Box<dyn Store> {
    open(&format!("dir:{}", path.display())).unwrap_or_else(|error| panic!("{error}"))
}

fn failure(path: &Path) -> StoreError {
    match open(&format!("dir:{}", path.display())) {
        Err(OpenError::Store(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{} was opened", path.display()),
    }
}

fn key(name: &str) -> Key {
    Key::probe("dir", name)
}

fn number(entry: Option<&Entry>) -> u64 {
    entry.map_or(0, |entry| std::str::from_utf8(&entry.bytes).unwrap().parse().unwrap())
}

/// A directory and all that is below it.
fn everything(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_path_buf()];
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap().flatten() {
            found.extend(everything(&entry.path()));
        }
    }
    found
}
