//! Two versions on one store: this build, and one with the feature `next-version`, whose values have a field that this one does not
//! know. They work side by side, and no field is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use serde_json::Value;

use crate::common::{BINARY, Said, Site, contains};

/// The field that the stand-in for the next version writes.
const FIELD: &str = "next_version";

/// The stand-in: the program that `FENCEPOST_NEXT_VERSION` names (`tools/build-next-version`), or one that is built now, in a directory
/// of its own: cargo would otherwise replace the program that other tests call.
fn next() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(program) = std::env::var_os("FENCEPOST_NEXT_VERSION") {
            return program.into();
        }
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("next-version");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--quiet", "--locked", "--bin", "fencepost", "--features", "next-version"]);
        command.arg("--target-dir").arg(&target).env("CARGO_PROFILE_DEV_DEBUG", "false");
        let built = Said::of(command.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo is there"));
        assert_eq!(built.code, 0, "{built:?}");
        target.join("debug/fencepost")
    })
}

/// The two versions, for what is done alternately.
fn versions() -> [&'static Path; 2] {
    [next(), Path::new(BINARY)]
}

fn say(site: &Site, version: &Path, arguments: &[&str]) -> Said {
    Said::of(site.program(version, arguments).output().unwrap())
}

/// Runs a command that has to succeed.
fn done(site: &Site, version: &Path, arguments: &[&str]) -> String {
    let said = say(site, version, arguments);
    assert_eq!(said.code, 0, "{} {arguments:?}: {said:?}", version.display());
    said.stdout
}

/// Every value of the store, by key.
fn entries(site: &Site) -> Vec<(String, Value)> {
    let database = rusqlite::Connection::open(site.database()).unwrap();
    let mut statement = database.prepare("select key, value from entries order by key").unwrap();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?));
    let rows = statement.query_map([], read).unwrap().map(Result::unwrap);
    rows.filter_map(|(key, bytes)| Some((key, serde_json::from_slice(&bytes).ok()?))).collect()
}

fn entry(site: &Site, key: &str) -> Value {
    entries(site).into_iter().find(|(found, _)| found == key).unwrap_or_else(|| panic!("no {key}")).1
}

/// Collects the outcomes in a value: objects with a slot and a status.
fn outcomes<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("slot") && fields.contains_key("status") {
                found.push(value);
            }
            fields.values().for_each(|value| outcomes(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| outcomes(value, found)),
        _ => {}
    }
}

#[test]
fn leases_are_shared() {
    let site = Site::new();
    let [next, this] = versions();
    let token = done(&site, next, &["lease", "acquire", "shared", "--ttl", "10m"]);
    let token = token.trim();
    let lease = || entry(&site, "job/shared")["lease"].clone();
    assert!(lease()[FIELD].is_object() && lease()["holder"][FIELD].is_object(), "{}", lease());
    assert_eq!(say(&site, this, &["lease", "acquire", "shared"]).code, 11);
    done(&site, this, &["lease", "renew", "shared", "--token", token]);
    assert_eq!(lease()["renewals"], 1);
    assert!(lease()[FIELD].is_object() && lease()["holder"][FIELD].is_object(), "a renewal keeps it: {}", lease());
    done(&site, this, &["pause", "shared", "--note", "by this version"]);
    assert!(lease()[FIELD].is_object(), "a swap that others make keeps it: {}", lease());
    done(&site, next, &["resume", "shared"]);
    done(&site, this, &["lease", "release", "shared", "--token", token]);
    assert!(entry(&site, "job/shared")[FIELD].is_object(), "the record is of the next version");
    // The other way round.
    let token: u64 = done(&site, this, &["lease", "acquire", "shared"]).trim().parse().unwrap();
    assert_eq!(say(&site, next, &["lease", "acquire", "shared"]).code, 11);
    done(&site, next, &["lease", "release", "shared", "--token", &token.to_string()]);
    let later: u64 = done(&site, next, &["lease", "acquire", "shared"]).trim().parse().unwrap();
    assert!(later > token, "tokens go on over versions");
}

/// Enough slots that both versions move outcomes to the history.
#[test]
fn the_ledger_is_shared() {
    let site = Site::new();
    let first: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    const SLOTS: usize = 64;
    for number in 0..SLOTS {
        let slot = (first + jiff::SignedDuration::from_hours(number as i64)).to_string();
        let version = versions()[number % 2];
        assert_eq!(done(&site, version, &["run", "-q", "report", "--slot", &slot, "--", "echo", "RAN"]), "RAN\n");
        let other = versions()[(number + 1) % 2];
        assert_eq!(done(&site, other, &["run", "-q", "report", "--slot", &slot, "--", "echo", "AGAIN"]), "");
    }
    let all = entries(&site);
    let mut found = Vec::new();
    all.iter().filter(|(_, value)| value.is_object()).for_each(|(_, value)| outcomes(value, &mut found));
    let mut is_next = std::collections::BTreeMap::new();
    for outcome in found {
        is_next.insert(outcome["slot"].to_string(), outcome[FIELD].is_object());
    }
    assert_eq!(is_next.len(), SLOTS, "each slot is in the ring or in the history");
    let kept: Vec<bool> = is_next.into_values().collect();
    let expected: Vec<bool> = (0..SLOTS).map(|number| number % 2 == 0).collect();
    assert_eq!(kept, expected, "what the next version wrote has its field, and nothing else has");
    let [next, this] = versions().map(|version| done(&site, version, &["runs", "report", "-n", "100", "--json"]));
    assert_eq!(this.lines().count(), SLOTS);
    assert_eq!(this, next, "both tell the same");
}

#[test]
fn a_slot_runs_once_while_both_race_for_it() {
    let site = Site::new();
    let log = site.path("ran");
    thread::scope(|scope| {
        for version in versions() {
            let (site, log) = (&site, &log);
            scope.spawn(move || {
                for number in 0..20 {
                    let slot = format!("2026-02-01T{number:02}:00:00Z");
                    let script = format!("echo $FENCEPOST_SLOT >>{}", log.display());
                    let said = say(site, version, &["run", "-q", "race", "--slot", &slot, "-c", &script]);
                    assert_eq!(said.code, 0, "{said:?}");
                }
            });
        }
    });
    let ran = fs::read_to_string(&log).unwrap();
    let mut slots: Vec<&str> = ran.lines().collect();
    let count = slots.len();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), count, "no slot ran twice: {ran}");
    // A trigger that meets the other's run is skipped, and that slot is then done by the other.
    let runs = site.runs(&["race", "--status", "ok", "-n", "100"]);
    assert_eq!(runs.len(), count);
}

#[test]
fn fences_are_shared() {
    let site = Site::new();
    let [next, this] = versions();
    let target = site.path("article");
    let place = target.to_str().unwrap();
    let publish = |version: &Path, token: &str| {
        let script =
            format!("echo text of {token} | {} publish file {place} --job writer --token {token}", version.display());
        Said::of(site.program("sh", &["-c", &script]).output().unwrap())
    };
    let grant = |version: &Path| {
        let token = done(&site, version, &["lease", "acquire", "writer"]).trim().to_string();
        done(&site, version, &["lease", "release", "writer", "--token", &token]);
        token
    };
    let (old, new) = (grant(this), grant(next));
    assert_eq!(publish(next, &new).code, 0);
    let fence = || {
        let beside = fs::read_dir(site.directory()).unwrap().map(|entry| entry.unwrap().path());
        let texts = beside.filter(|path| path.is_file()).filter_map(|path| fs::read_to_string(path).ok());
        texts.filter(|text| text.contains("\"digest\"")).collect::<String>()
    };
    let written = fence();
    contains(&written, &[FIELD]);
    let stale = publish(this, &old);
    assert_eq!(stale.code, 13, "this version goes by the fence of the next: {stale:?}");
    assert_eq!(publish(this, &new).code, 0, "the same write again is no change");
    assert_eq!(fence(), written);
    let newer = grant(this);
    assert_eq!(publish(this, &newer).code, 0);
    contains(&fence(), &[FIELD, &format!("\"token\":{newer}")]);
    let stale = publish(next, &new);
    assert_eq!(stale.code, 13, "and the other way round: {stale:?}");
}

#[test]
fn the_stand_in_says_what_it_is() {
    let site = Site::new();
    contains(&done(&site, next(), &["--version", "--verbose"]), &["features: default next-version"]);
    let plain = done(&site, Path::new(BINARY), &["--version", "--verbose"]);
    assert!(!plain.contains("next-version"), "{plain}");
}
