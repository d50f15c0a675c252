//! What a call of each store costs, on servers of this machine, and how many swaps a second each takes.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fencepost_store::{Access, Key, Secret, Store, StoreHandle, Swapped, Version};
use fencepost_testkit::servers::{Etcd, Postgres, Redis, S3_PASSWORD, S3Server};

use crate::measure::{median, millis};

/// How many calls a median is computed from.
const CALLS: usize = 200;

/// How many clients swap at once, each a key of its own.
const CLIENTS: usize = 16;

const RATE_TIME: Duration = Duration::from_secs(4);

/// A value as long as the record of a job with some outcomes.
const VALUE: [u8; 2048] = [b'x'; 2048];

/// Starts every server and measures it, one after the other.
pub fn report() {
    println!("Stores on this machine, data in memory; {CALLS} calls each, then {CLIENTS} clients for {RATE_TIME:?}");
    println!("  {:25} {:>9} {:>9} {:>9} {:>10}", "", "first", "read", "swap", "swaps/s");
    let directory = tempfile::tempdir().expect("a directory to work in");
    let sqlite = format!("sqlite:{}/store.db", directory.path().display());
    measure("sqlite", &sqlite);
    let shared = directory.path().join("shared");
    fs::create_dir(&shared).expect("a directory to share");
    measure("dir (this machine's disk)", &format!("dir:{}", shared.display()));
    let repository = directory.path().join("locks.git");
    let made = Command::new("git").args(["init", "-q", "--bare"]).arg(&repository).status();
    assert!(made.is_ok_and(|status| status.success()), "git makes a repository");
    measure("git (a local repository)", &format!("git+file://{}", repository.display()));
    let postgres = Postgres::start(&["fsync=on", "max_connections=200"]);
    measure("PostgreSQL", &postgres.url(&postgres.database()));
    drop(postgres);
    let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    measure("Redis", &redis.url());
    drop(redis);
    for members in [1, 3] {
        let etcd = Etcd::with(members, &[]);
        measure(&format!("etcd, members: {members}"), &etcd.url());
    }
    let bucket = S3Server::good();
    measure("s3 (SeaweedFS)", &bucket.url());
}

fn measure(name: &str, url: &str) {
    let begun = Instant::now();
    let store = open(url);
    let key = Key::probe("bench", "latency");
    store.read(&key).expect("a read");
    let first = begun.elapsed();
    let (mut reads, mut swaps, mut version) = (Vec::new(), Vec::new(), None);
    for _ in 0..CALLS {
        let begun = Instant::now();
        store.read(&key).expect("a read");
        reads.push(begun.elapsed());
        let begun = Instant::now();
        version = Some(swap(&*store, &key, version.as_ref(), &VALUE));
        swaps.push(begun.elapsed());
    }
    let (first, read, swap) = (millis(first), millis(median(reads)), millis(median(swaps)));
    println!("  {name:25} {first:6.2} ms {read:6.2} ms {swap:6.2} ms {:10.0}", rate(url));
}

/// Swaps per second of several clients.
fn rate(url: &str) -> f64 {
    let (going, count) = (AtomicBool::new(true), AtomicUsize::new(0));
    let begun = thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (going, count) = (&going, &count);
            scope.spawn(move || {
                let (store, key) = (open(url), Key::probe("bench", &format!("rate-{client}")));
                let mut version = None;
                while going.load(Ordering::Relaxed) {
                    version = Some(swap(&*store, &key, version.as_ref(), &VALUE));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let begun = Instant::now();
        thread::sleep(RATE_TIME);
        going.store(false, Ordering::Relaxed);
        begun
    });
    count.into_inner() as f64 / begun.elapsed().as_secs_f64()
}

pub fn open(url: &str) -> std::sync::Arc<dyn Store> {
    let password = url.starts_with("s3:").then(|| Secret::new(S3_PASSWORD));
    StoreHandle::new(url, Access { password, ..Access::default() }).open().expect("the store opens")
}

pub fn swap(store: &dyn Store, key: &Key, expected: Option<&Version>, value: &[u8]) -> Version {
    match store.swap(key, expected, Some(value)).expect("a swap").value {
        Swapped::Won(Some(version)) => version,
        other => panic!("{other:?}"),
    }
}
