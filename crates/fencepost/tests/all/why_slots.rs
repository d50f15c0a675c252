//! What `why` says about slots: the schedule, what was caught up or missed, which run was in the way, and whom it waved off.

use crate::common::{Site, contains};
use fencepost_core::name::{Job, Key};
use fencepost_core::record::Record;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_store::{Access, StoreHandle, Swapped};

fn change(site: &Site, job: &str, change: impl FnOnce(&mut Record)) {
    let store = StoreHandle::new(&format!("sqlite:{}", site.database().display()), Access::default()).open().unwrap();
    let job = Job::parse(job).unwrap();
    let entry = store.read(&Key::job(&job)).unwrap().value.unwrap();
    let mut record = Record::decode(&entry.bytes, &job).unwrap();
    change(&mut record);
    let swapped = store.swap(&Key::job(&job), Some(&entry.version), Some(&record.encode())).unwrap().value;
    assert!(matches!(swapped, Swapped::Won(_)));
}

fn utc(at: Wall) -> String {
    Zone::utc().show(at)
}

/// Every hour, the last slot half an hour ago.
fn hourly() -> (String, Wall) {
    let last = Wall(clock::now().wall.0 / 1000 * 1000 - 1_800_000);
    (format!("every 1h from {}", utc(Wall(last.0 - 9 * 3_600_000))), last)
}

fn why(site: &Site, arguments: &[&str]) -> (String, Vec<String>) {
    let told = site.json(&[&["why"], arguments].concat());
    let sentences = told["sentences"].as_array().unwrap();
    let about = sentences.iter().map(|sentence| sentence["about"].as_str().unwrap().to_string()).collect();
    (site.say(&[&["why"], arguments].concat()).stdout, about)
}

#[test]
fn why_begins_with_the_schedule() {
    let site = Site::new();
    let (schedule, _) = hourly();
    site.say(&["run", "a", "--schedule", &schedule, "--", "true"]);
    let (text, about) = why(&site, &["a"]);
    assert_eq!(about[..2], ["schedule", "catch_up"], "{text}");
    contains(&text, &["By its schedule, every 1 hour", "the newest slot was ", "and the next is "]);
    contains(&text, &["is from before the job was first seen, resumed or edited: it is not caught up."]);
}

#[test]
fn why_says_what_was_caught_up_and_what_was_missed() {
    let site = Site::new();
    let (schedule, last) = hourly();
    site.say(&["run", "a", "--schedule", &schedule, "--", "true"]);
    change(&site, "a", |record| {
        let timing = record.timing.as_mut().unwrap();
        (timing.since, timing.evaluated) = (Wall(0), Some(Wall(last.0 - 5 * 3_600_000)));
    });
    let (text, _) = why(&site, &["a"]);
    contains(&text, &["is open: no trigger has come for it", "fencepost plan a"]);
    site.say(&["run", "a", "--schedule", &schedule, "--", "true"]);
    let (text, about) = why(&site, &["a"]);
    contains(&text, &["triggered by the catch-up of a slot that was missed", "30m", "after its slot"]);
    contains(&text, &["Its trigger found 4 slots missed, from ", "too late to be caught up."]);
    assert!(about.contains(&"catch_up".to_string()), "{about:?}");
    // The missed ones by themselves.
    let (text, _) = why(&site, &["a", "--at", &utc(Wall(last.0 - 2 * 3_600_000))]);
    contains(&text, &["missed"]);
}

#[test]
fn why_says_which_run_was_in_the_way() {
    let site = Site::new();
    let (schedule, last) = hourly();
    site.say(&["run", "a", "--schedule", &schedule, "--", "true"]);
    site.say(&["run", "a", "--slot", &utc(Wall(last.0 - 3_600_000)), "--", "true"]);
    change(&site, "a", |record| {
        let timing = record.timing.as_mut().unwrap();
        (timing.since, timing.evaluated) = (Wall(0), Some(Wall(last.0 - 3_600_000)));
        let run = record.ledger.ring.last_mut().unwrap();
        (run.started, run.finished) = (Wall(last.0 - 3_600_000), Wall(last.0 + 60_000));
        run.took = Some(std::time::Duration::from_secs(3_660));
    });
    let (text, about) = why(&site, &["a"]);
    contains(&text, &[" passed while run ", " was going, for ", "and that is final."]);
    assert_eq!(about[..2], ["schedule", "overlap"]);
}

#[test]
fn why_says_whether_a_failed_slot_is_tried_again() {
    let site = Site::new();
    let (schedule, _) = hourly();
    assert_eq!(site.say(&["run", "a", "--schedule", &schedule, "--again", "--", "false"]).code, 1);
    contains(&why(&site, &["a"]).0, &["It has used 1 attempt. To repeat it: fencepost run a --again"]);
    assert_eq!(site.say(&["run", "b", "--schedule", &schedule, "--again", "--", "/no/such/program"]).code, 127);
    contains(&why(&site, &["b"]).0, &["used none of its attempts", "the next trigger tries it again"]);
}

#[test]
fn why_counts_the_triggers_that_were_waved_off() {
    let site = Site::new();
    let slot = ["run", "a", "--slot", "2026-11-05T07:00Z", "--", "true"];
    (0..3).for_each(|_| assert_eq!(site.say(&slot).code, 0));
    let holder = site.holder("a", &[]);
    assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
    let (text, about) = why(&site, &["a"]);
    contains(&text, &["So far 2 of its triggers found the slot done already, or a run at it"]);
    contains(&text, &["So far 1 of its triggers came while a run for another slot was going"]);
    assert!(about.ends_with(&["duplicate".to_string(), "overlap".to_string()]), "{about:?}");
    holder.finish();
}

#[test]
fn the_newest_slot_by_the_schedule_is_told_truly_when_a_later_one_ran_before_its_time() {
    let site = Site::new();
    let (schedule, last) = hourly();
    assert_eq!(site.say(&["record", "a", "ok", "--slot", &utc(last)]).code, 0);
    assert_eq!(site.say(&["run", "a", "--schedule", &schedule, "--now", "--", "true"]).code, 0);
    assert_eq!(site.say(&["run", "a", "--schedule", &schedule, "--now", "--", "true"]).code, 0);
    let (text, _) = why(&site, &["a"]);
    contains(&text, &["ended as ok."]);
    assert!(!text.contains("is not caught up"), "{text}");
}
