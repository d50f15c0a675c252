//! The library as a program uses it, on the embedded store and on servers.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencepost_core::lease::Intent;
use fencepost_core::name::Job;
use fencepost_core::token::RunId;
use fencepost_guard::host::Host;
use fencepost_guard::local::Local;
use fencepost_guard::transact::transact;
use fencepost_sdk::{Error, Guard, Lease, Level, Outcome};
use fencepost_testkit::servers::{Postgres, Redis};

struct Scene {
    directory: tempfile::TempDir,
    guard: Guard,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let guard = Guard::open_in(directory.path().join("state")).unwrap();
        Self { directory, guard }
    }

    fn claim(&self, job: &str) -> Lease {
        self.guard.job(job).unwrap().ttl(Duration::from_secs(60)).claim().unwrap()
    }
}

fn reason(result: Result<Lease, Error>) -> &'static str {
    match result {
        Err(Error::Skipped { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_is_held_by_one_and_its_outcome_is_recorded() {
    let Scene { guard, directory } = &Scene::new();
    let lease = guard.job("nightly").unwrap().ttl(Duration::from_secs(60)).claim().unwrap();
    assert!(lease.token() > 0 && !lease.lost() && !lease.stop_requested() && !lease.slot().is_empty());
    assert!(matches!(guard.job("nightly").unwrap().claim(), Err(Error::Skipped { reason: "held", in_a_row: 1, .. })));
    let path = directory.path().join("report");
    let published = lease.publish_file(&path, b"one").unwrap();
    assert_eq!((published.level, published.already_applied), (Level::Atomic, false));
    assert!(lease.publish_file(&path, b"one").unwrap().already_applied);
    lease.note("no news");
    let token = lease.token();
    lease.done(Outcome::Empty).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"one");
    let next = guard.job("nightly").unwrap().claim().unwrap();
    assert!(next.token() > token);
    next.done(Outcome::Ok).unwrap();
}

#[test]
fn a_lease_is_renewed_while_the_program_computes() {
    let scene = Scene::new();
    let lease = scene.guard.job("busy").unwrap().ttl(Duration::from_secs(6)).claim().unwrap();
    assert!(!lease.wait_lost(Duration::from_secs(7)), "{:?}", lease.loss());
    assert_eq!(reason(scene.guard.job("busy").unwrap().claim()), "held");
    lease.done(Outcome::Ok).unwrap();
}

#[test]
fn a_timeout_asks_the_work_to_stop_and_then_the_lease_is_lost() {
    let scene = Scene::new();
    let claim = scene.guard.job("slow").unwrap().ttl(Duration::from_secs(1)).timeout(Duration::from_millis(100));
    let lease = claim.claim().unwrap();
    assert!(lease.wait_lost(Duration::from_secs(60)) && lease.stop_requested());
    assert!(matches!(lease.publish_file(scene.directory.path().join("x"), b"x"), Err(Error::Lost(_))));
    assert!(matches!(lease.done(Outcome::Ok), Err(Error::Lost(_))));
}

#[test]
fn a_stale_program_is_refused_by_the_fence_of_the_file() {
    let scene = Scene::new();
    let path = scene.directory.path().join("page");
    let stale = scene.claim("j");
    let other = Guard::open_in(scene.directory.path().join("state")).unwrap();
    let newer = other.job("j").unwrap().replace().wait(Duration::from_secs(60)).ttl(Duration::from_secs(60));
    std::thread::scope(|scope| {
        let newer = scope.spawn(|| newer.claim().unwrap());
        // It is noticed at the next renewal, twenty seconds later. So the program gives up by itself.
        let token = stale.token();
        stale.done(Outcome::Ok).unwrap();
        let newer = newer.join().unwrap();
        assert!(newer.token() > token);
        newer.publish_file(&path, b"new").unwrap();
        newer.done(Outcome::Ok).unwrap();
    });
    let foreign = scene.claim("another-job");
    assert!(matches!(foreign.publish_file(&path, b"old"), Err(Error::Stale(_))));
    assert!(matches!(foreign.done(Outcome::Ok), Err(Error::Stale(_))), "the run ends as fenced");
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
}

#[test]
fn upstreams_halt_a_claim_until_they_are_good() {
    let scene = Scene::new();
    let claim = || scene.guard.job("report").unwrap().needs("source@any").claim();
    assert!(matches!(claim(), Err(Error::Halted(_))));
    assert!(matches!(scene.guard.gate(&["source@any"]), Err(Error::Halted(_))));
    scene.claim("source").done(Outcome::Empty).unwrap();
    assert_eq!(reason(claim()), "barred");
    scene.claim("source").done(Outcome::Ok).unwrap();
    scene.guard.gate(&["source@any"]).unwrap();
    claim().unwrap().done(Outcome::Ok).unwrap();
    assert!(matches!(scene.guard.gate(&["a b"]), Err(Error::Usage(_))));
}

#[test]
fn a_slot_is_done_once() {
    let scene = Scene::new();
    let claim = || scene.guard.job("daily").unwrap().slot("2026-11-17T07:00:00Z").claim();
    let lease = claim().unwrap();
    assert_eq!(lease.slot(), "2026-11-17T07:00:00+00:00");
    assert_eq!(reason(claim()), "running");
    lease.done(Outcome::Ok).unwrap();
    assert_eq!(reason(claim()), "done");
    let due = || scene.guard.job("hourly").unwrap().schedule("every 1h").timezone("Asia/Tokyo");
    due().now().claim().unwrap().done(Outcome::Ok).unwrap();
    assert!(matches!(due().claim(), Err(Error::Skipped { .. })));
    assert!(matches!(due().timezone("Nowhere").claim(), Err(Error::Usage(_))));
}

#[test]
fn an_item_is_done_once_and_one_that_was_dropped_is_unknown() {
    let scene = Scene::new();
    let item = || scene.guard.once("invoice/7").unwrap().params(b"42");
    item().claim().unwrap().done(Outcome::Error).unwrap();
    drop(item().claim().unwrap());
    let Err(Error::Unknown { token }) = item().claim() else { panic!("it is not known") };
    item().retry_after(token).claim().unwrap().done(Outcome::Ok).unwrap();
    assert_eq!(reason(item().claim()), "done");
    assert!(matches!(scene.guard.once("invoice/7").unwrap().params(b"43").claim(), Err(Error::Failed(_))));
}

#[test]
fn a_dropped_lease_is_an_error_and_is_released() {
    let scene = Scene::new();
    drop(scene.claim("source"));
    let Err(Error::Halted(why)) = scene.guard.gate(&["source@any"]) else { panic!("it ended in an error") };
    assert!(why.contains("exit code 1 (the lease was dropped without an outcome)"), "{why}");
    scene.claim("source").done(Outcome::Ok).unwrap();
}

#[test]
fn of_many_threads_one_gets_the_lease() {
    let scene = Scene::new();
    let granted = AtomicUsize::new(0);
    let barrier = std::sync::Barrier::new(16);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                barrier.wait();
                let lease = scene.guard.job("race").unwrap().claim();
                granted.fetch_add(usize::from(lease.is_ok()), Ordering::Relaxed);
                barrier.wait();
                lease.map(|lease| lease.done(Outcome::Ok).unwrap()).ok();
            });
        }
    });
    assert_eq!(granted.into_inner(), 1);
}

#[test]
fn wrong_terms_are_refused_before_anything_is_claimed() {
    let scene = Scene::new();
    let job = || scene.guard.job("j").unwrap();
    for claim in [
        job().ttl(Duration::from_millis(1)),
        job().ttl(Duration::from_secs(6)).grace(Duration::from_secs(3)),
        job().schedule("nonsense"),
        job().slot("yesterday evening"),
    ] {
        let refused = claim.claim();
        assert!(matches!(refused, Err(Error::Usage(_))), "{refused:?}");
    }
    assert!(matches!(scene.guard.job("a b"), Err(Error::Usage(_))));
}

#[test]
fn two_machines_share_a_store_on_a_server() {
    let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let postgres = Postgres::start(&["fsync=on"]);
    for url in [redis.url(), postgres.url(&postgres.database())] {
        let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, two] = places.each_ref().map(|place| Guard::open_at(&url, place.path()).unwrap());
        let page = places[0].path().join("page");
        let lease = one.job("nightly").unwrap().ttl(Duration::from_secs(6)).claim().unwrap();
        assert!(!lease.wait_lost(Duration::from_secs(7)), "it is renewed: {:?}", lease.loss());
        for turned_away in [1, 2] {
            let Err(Error::Skipped { reason: "held", in_a_row, .. }) = two.job("nightly").unwrap().claim() else {
                panic!("{url}: it is held")
            };
            assert_eq!(in_a_row, turned_away);
        }
        lease.publish_file(&page, b"one").unwrap();
        let token = lease.token();
        lease.done(Outcome::Ok).unwrap();
        let next = two.job("nightly").unwrap().claim().unwrap();
        assert!(next.token() > token);
        next.done(Outcome::Empty).unwrap();
        two.once("invoice/7").unwrap().claim().unwrap().release().unwrap();
        assert_eq!(reason(one.once("invoice/7").unwrap().claim()), "done");
        assert!(matches!(one.gate(&["nightly@any"]), Err(Error::Skipped { reason: "barred", .. })));
    }
}

/// Takes the lease away, as `fencepost lease release --force` does.
fn release_by_force(url: &str, state: &Path, job: &str) {
    let store = fencepost_testkit::store::open(url).unwrap();
    let (local, job) = (Local::new(state, Host::this()), Job::parse(job).unwrap());
    transact(store.as_ref(), &local, &job, Intent::ForceRelease, RunId(uuid::Uuid::now_v7())).unwrap();
}

#[test]
fn a_stale_lease_that_has_not_learned_of_its_loss_is_refused_by_the_fence() {
    let redis = Redis::start(&[]);
    let place = tempfile::tempdir().unwrap();
    let guard = Guard::open_at(&redis.url(), place.path()).unwrap();
    let page = place.path().join("page");
    let stale = guard.job("j").unwrap().ttl(Duration::from_secs(60)).claim().unwrap();
    stale.publish_file(&page, b"old").unwrap();
    // Its next renewal is twenty seconds away.
    release_by_force(&redis.url(), place.path(), "j");
    let newer = guard.job("j").unwrap().claim().unwrap();
    newer.publish_file(&page, b"new").unwrap();
    newer.release().unwrap();
    assert!(!stale.lost());
    assert!(matches!(stale.publish_file(&page, b"old"), Err(Error::Stale(_))));
    assert_eq!(std::fs::read(&page).unwrap(), b"new");
    assert!(matches!(stale.done(Outcome::Ok), Err(Error::Stale(_))));
}

#[test]
fn a_lock_records_nothing() {
    let scene = Scene::new();
    let lock = || scene.guard.job("shared").unwrap().unrecorded();
    let held = lock().claim().unwrap();
    assert_eq!(reason(lock().claim()), "held");
    let token = held.token();
    held.release().unwrap();
    let next = lock().claim().unwrap();
    assert!(next.token() > token);
    drop(next);
    lock().claim().unwrap().release().unwrap();
    // There is no outcome that a downstream job could go by.
    assert!(matches!(scene.guard.gate(&["shared@any"]), Err(Error::Halted(_))));
    assert!(matches!(lock().slot("2026-11-17T07:00:00Z").claim(), Err(Error::Usage(_))));
}

#[test]
fn a_loss_is_told_to_a_callback() {
    let scene = Scene::new();
    let claim = scene.guard.job("slow").unwrap().ttl(Duration::from_secs(6)).timeout(Duration::from_millis(100));
    let lease = claim.claim().unwrap();
    let (sender, heard) = std::sync::mpsc::channel();
    let told = sender.clone();
    lease.on_lost(move |why| told.send(why.to_string()).unwrap());
    let first = heard.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(first.contains("did not end within its grace"), "{first}");
    lease.on_lost(move |why| sender.send(why.to_string()).unwrap());
    assert_eq!(heard.recv_timeout(Duration::from_secs(60)).unwrap(), first, "also after the loss");
    let Err(Error::Lost(message)) = lease.done(Outcome::Ok) else { panic!("it is lost") };
    assert!(message.ends_with("The outcome was not recorded."), "{message}");
}

#[test]
fn work_that_stops_by_its_timeout_is_told_so() {
    let scene = Scene::new();
    let claim = scene.guard.job("slow").unwrap().ttl(Duration::from_secs(180)).grace(Duration::from_secs(60));
    let lease = claim.timeout(Duration::from_millis(100)).claim().unwrap();
    fencepost_testkit::eventually("it is asked to stop", || lease.stop_requested());
    let stopped = lease.done(Outcome::Ok).unwrap_err();
    assert!(matches!(stopped, Error::TimedOut(_)) && stopped.code() == 124, "{stopped:?}");
    scene.claim("slow").done(Outcome::Ok).unwrap();
}

#[test]
fn notes_and_files_are_recorded_with_the_outcome() {
    let Scene { guard, directory } = &Scene::new();
    let lease = guard.job("source").unwrap().slot("2026-11-17T07:00:00Z").claim().unwrap();
    assert_eq!((lease.job(), lease.date()), ("source".to_string(), "2026-11-17".to_string()));
    assert_eq!(lease.key(), "source/2026-11-17T07:00:00+00:00");
    let path = directory.path().join("made");
    assert!(matches!(lease.artifact(&path), Err(Error::Usage(_))), "there is no such file");
    std::fs::write(&path, "bytes").unwrap();
    lease.artifact(&path).unwrap();
    lease.note("two numbers");
    lease.done(Outcome::Ok).unwrap();
    let need = format!("source@any,artifact={}", path.display());
    let report = guard.job("report").unwrap().needs(&need).claim().unwrap();
    std::fs::write(&path, "other").unwrap();
    assert_eq!(std::fs::read(&report.inputs()["source"]).unwrap(), b"bytes", "the pinned copy");
    report.release().unwrap();
}

#[test]
fn each_target_is_written_behind_its_fence() {
    let scene = Scene::new();
    let at = |name: &str| scene.directory.path().join(name);
    std::fs::create_dir(at("source")).unwrap();
    std::fs::write(at("source/index.html"), "page").unwrap();
    let redis = Redis::start(&[]);
    let lease = scene.claim("publisher");
    lease.publish_tree(at("source"), at("site")).unwrap();
    assert_eq!(std::fs::read(at("site/index.html")).unwrap(), b"page");
    let url = format!("sqlite:{}", at("shop.db").display());
    std::fs::write(at("shop.db"), "").unwrap();
    lease.publish_sql(&url, "CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
    lease.publish_redis(&redis.url(), "total", b"30").unwrap();
    let other = scene.claim("another");
    for refused in [
        other.publish_tree(at("source"), at("site")),
        other.publish_sql(&url, "DELETE FROM t"),
        other.publish_redis(&redis.url(), "total", b"31"),
    ] {
        assert!(matches!(refused, Err(Error::Stale(_))), "{refused:?}");
    }
    for wrong in [
        other.publish_http("ftp://x", None, "text/plain", b""),
        other.publish_s3("s3://bucket", "text/plain", b""),
        other.publish_git(at("source"), "origin", &[]),
        other.publish_sql("mysql://x", ""),
    ] {
        assert!(matches!(wrong, Err(Error::Usage(_) | Error::Failed(_))), "{wrong:?}");
    }
    lease.release().unwrap();
    assert!(matches!(other.release(), Err(Error::Stale(_))));
}
