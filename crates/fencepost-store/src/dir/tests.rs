//! Tests that need the inside: a writer that is delayed between its listing and its link.

use std::sync::Mutex;

use super::*;

fn store(root: &Path, keeping: VersionRetention) -> DirStore {
    let mut store = DirStore::open(root.to_str().unwrap(), &Access::default()).unwrap();
    store.keeping = keeping;
    store
}

const AT_ONCE: VersionRetention = VersionRetention { versions: 4, age: Duration::ZERO };

fn put(store: &DirStore, key: &Key, bytes: &[u8]) {
    let found = store.read(key).unwrap().value.map(|entry| entry.version);
    assert!(matches!(store.swap(key, found.as_ref(), Some(bytes)).unwrap().value, Swapped::Won(Some(_))));
}

#[test]
fn a_number_that_was_removed_is_not_given_again() {
    let directory = tempfile::tempdir().unwrap();
    let (store, key) = (store(&directory.path().join("s"), AT_ONCE), Key::probe("dir", "a"));
    put(&store, &key, b"1");
    let slow = store.look(&store.directory(&key)).unwrap();
    for round in 0..200_u8 {
        put(&store, &key, &[round]);
    }
    let listed = versions::list(&store.directory(&key)).unwrap();
    assert!(!listed.has(slow.newest + 1), "its number is free again, or this shows nothing");
    let ended = store.make(&key, &slow, Some(b"late"));
    // Predecessor and successor are gone as well, so the fate is unknown.
    assert!(ended.is_err_and(|error| error.fate == Fate::Unknown));
    assert_eq!(store.read(&key).unwrap().value.unwrap().bytes, [199]);
    put(&store, &key, b"goes on");
}

/// Another process creates the store, and writes to it, between the look for the mark and the look at the directory.
#[test]
fn one_that_comes_late_to_the_making_finds_it_made() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("s");
    let store = store(&root, KEEPING);
    put(&store, &Key::probe("dir", "a"), b"1");
    let late = place::make_mark(&root, &store.modes).unwrap();
    assert_eq!(late, fs::read_to_string(root.join("FENCEPOST")).unwrap());
}

#[test]
fn one_whose_successor_is_still_there_is_certainly_lost() {
    let directory = tempfile::tempdir().unwrap();
    let (store, key) = (store(&directory.path().join("s"), KEEPING), Key::probe("dir", "a"));
    put(&store, &key, b"1");
    let slow = store.look(&store.directory(&key)).unwrap();
    for round in 0..5_u8 {
        put(&store, &key, &[round]);
    }
    let next = versions::path(&store.directory(&key), slow.newest + 1);
    fs::remove_file(&next).unwrap();
    let current = store.read(&key).unwrap().value;
    assert_eq!(store.make(&key, &slow, Some(b"late")).unwrap(), Swapped::Lost(current));
    assert!(!next.exists(), "it takes back what it made");
}

#[test]
fn one_that_was_already_followed_has_won() {
    let directory = tempfile::tempdir().unwrap();
    let (store, key) = (store(&directory.path().join("s"), KEEPING), Key::probe("dir", "a"));
    put(&store, &key, b"1");
    let before = store.look(&store.directory(&key)).unwrap();
    put(&store, &key, b"2");
    let mine = store.look(&store.directory(&key)).unwrap();
    put(&store, &key, b"3");
    let nonce = mine.stored.unwrap().nonce;
    assert!(matches!(store.judge(&store.directory(&key), mine.newest, &nonce, &before), Ok(Placement::Stands(_))));
}

/// Old versions are removed as fast as possible, which makes writers fall behind all the time.
#[test]
fn no_line_is_lost_or_doubled_while_versions_are_removed_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (root, key) = (directory.path().join("s"), Key::probe("dir", "lines"));
    let (won, lost) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (root, key, won, lost) = (&root, &key, &won, &lost);
            scope.spawn(move || {
                let store = store(root, AT_ONCE);
                for round in 0..60 {
                    let line = format!("{thread}.{round}\n");
                    let Ok(answer) = store.read(key) else { continue };
                    let found = answer.value;
                    let mut text = found.as_ref().map_or(Vec::new(), |entry| entry.bytes.clone());
                    text.extend_from_slice(line.as_bytes());
                    match store.swap(key, found.as_ref().map(|entry| &entry.version), Some(&text)) {
                        Ok(Answer { value: Swapped::Won(_), .. }) => won.lock().unwrap().push(line),
                        Ok(_) => lost.lock().unwrap().push(line),
                        Err(error) if error.fate == Fate::NotDone => lost.lock().unwrap().push(line),
                        Err(_) => {}
                    }
                }
            });
        }
    });
    let text = String::from_utf8(store(&root, AT_ONCE).read(&key).unwrap().value.unwrap().bytes).unwrap();
    let times = |line: &String| text.split_inclusive('\n').filter(|found| found == line).count();
    let (won, lost) = (won.into_inner().unwrap(), lost.into_inner().unwrap());
    assert!(won.len() > 20, "{} of 360", won.len());
    assert!(won.iter().all(|line| times(line) == 1), "{text}");
    assert!(lost.iter().all(|line| times(line) == 0), "{text}");
}

#[test]
fn old_versions_go_and_young_ones_stay() {
    let directory = tempfile::tempdir().unwrap();
    let (root, key) = (directory.path().join("s"), Key::probe("dir", "a"));
    let (brisk, slow) = (store(&root, AT_ONCE), store(&root, KEEPING));
    let count = || fs::read_dir(brisk.directory(&key)).unwrap().count();
    for round in 0..150_u8 {
        put(&slow, &key, &[round]);
    }
    assert_eq!(count(), 151, "all are younger than ten minutes");
    for round in 0..10_u8 {
        put(&brisk, &key, &[round]);
    }
    assert!(count() <= 10, "{}", count());
}

#[test]
fn what_a_crash_left_is_cleared_away_when_it_is_old() {
    let directory = tempfile::tempdir().unwrap();
    let (store, key) = (store(&directory.path().join("s"), KEEPING), Key::probe("dir", "a"));
    put(&store, &key, b"1");
    let (old, young) = (store.directory(&key).join("t-old"), store.directory(&key).join("t-young"));
    fs::write(&young, "half").unwrap();
    let file = File::create(&old).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(7200)).unwrap();
    put(&store, &key, b"2");
    assert!(!old.exists() && young.exists());
}

#[test]
fn a_key_that_has_had_versions_is_never_fresh() {
    let directory = tempfile::tempdir().unwrap();
    let (store, key) = (store(&directory.path().join("s"), KEEPING), Key::probe("dir", "a"));
    put(&store, &key, b"1");
    fs::remove_file(versions::path(&store.directory(&key), 1)).unwrap();
    let error = store.swap(&key, None, Some(b"2")).unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Unavailable), "{error}");
}

#[test]
fn a_torn_version_is_corrupt_and_not_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let (store, key) = (store(&directory.path().join("s"), KEEPING), Key::probe("dir", "a"));
    put(&store, &key, b"1");
    put(&store, &key, b"22");
    let path = versions::path(&store.directory(&key), 2);
    let whole = fs::read(&path).unwrap();
    for length in [0, 5, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let error = store.read(&key).unwrap_err();
        assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Corrupt), "{error}");
    }
}
