//! What an uncontended run costs its store: three calls, two of them durable.

use std::os::fd::BorrowedFd;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::common::{Said, Site};
use fencepost_core::barrier::{Asker, Need};
use fencepost_core::lease::Claim;
use fencepost_core::ledger::Trigger;
use fencepost_core::name::{Job, Key, Name};
use fencepost_core::record::Holder;
use fencepost_core::run::{Exit, Finish, Input, Output, Overlap, Run, Stages, Terms};
use fencepost_core::time::Boot;
use fencepost_core::token::RunId;
use fencepost_core::zone::Zone;
use fencepost_guard::artifact::Base;
use fencepost_guard::clock;
use fencepost_guard::drive::{Callee, GuardedWork, Note, drive};
use fencepost_guard::host::Host;
use fencepost_guard::local::Local;
use fencepost_guard::program::{NewsSink, ProgramHandle, ProgramNews, ProgramWork};
use fencepost_guard::signals::Signals;
use fencepost_guard::upstream_check::UpstreamCheck;
use fencepost_store::layer::{Trace, TraceCall, TraceEnd, TraceVerb};
use fencepost_store::{Access, HostMemory, KnownStore, MemoryStore, Secret, SqliteStore, Store, StoreHandle};
use fencepost_testkit::servers::{Postgres, Redis, TOKEN, Worker};

/// A child that ends as soon as it is started, and asks its upstreams before that if it has any.
struct Instantly {
    check: Option<UpstreamCheck>,
}

impl GuardedWork for Instantly {
    fn perform(&mut self, output: Output, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        match output {
            Output::Spawn { .. } => {
                vec![Input::Spawned, Input::ChildEnded(Exit::Code(0)), Input::TreeEmpty { escaped: Vec::new() }]
            }
            Output::Inspect { .. } => {
                let check = self.check.as_ref().unwrap();
                let asker = Asker { slot: clock::now().wall, zone: Zone::utc() };
                vec![Input::Inspected(check.inspect(&asker).passage(&check.needs))]
            }
            _ => Vec::new(),
        }
    }

    fn hear(&mut self, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        Vec::new()
    }

    fn signalled(&mut self, _signal: i32, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        Vec::new()
    }

    fn check(&mut self, _deadline: Option<Boot>, _now: Boot, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        Vec::new()
    }

    fn due(&self, _deadline: Boot) -> Option<Boot> {
        None
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

fn terms(job: &Job, holder: Holder, needs: &[&str]) -> Terms {
    let claim = Claim {
        run: RunId(uuid::Uuid::now_v7()),
        ttl: Duration::from_secs(300),
        holder,
        slot: fencepost_core::slot::Choice::At(clock::now().wall),
        zone: "UTC".to_string(),
        trigger: Trigger::Manual,
    };
    Terms {
        job: job.clone(),
        claim,
        grace: Duration::from_secs(10),
        overlap: Overlap::Skip,
        wait: None,
        timeout: None,
        run_without_store: false,
        stages: Stages { inspect: !needs.is_empty(), ..Stages::default() },
        empty_exit: None,
        must_record: false,
        observe: false,
        stuck_after: None,
        inside: Vec::new(),
    }
}

fn run_once(store: Arc<dyn Store>, site: &Site, job: &Job, needs: &[&str]) {
    let host = Host::this();
    let terms = terms(job, host.holder(std::process::id() as i32, None), needs);
    let local = Local::new(&site.state(), host);
    let check = (!needs.is_empty()).then(|| UpstreamCheck {
        store: Arc::clone(&store),
        local: local.clone(),
        base: Base::new(&site.path("")),
        bases: Vec::new(),
        needs: needs.iter().map(|need| Need::parse(need, |_| Err(String::new())).unwrap()).collect(),
        wait: Duration::ZERO,
        due: Arc::new(|_, _, _| None),
        pins: None,
        produces: Vec::new(),
        waiting: None,
    });
    let mut signals = Signals::listen().unwrap();
    let callee = Callee { store, is_prompt: true };
    let finish = drive(Run::new(terms), callee, &local, Some(&mut signals), &mut Instantly { check }, &mut |_| {});
    assert!(matches!(finish, Finish::Ended { exit: Exit::Code(0), .. }), "{finish:?}");
}

fn calls_of_a_later_run(store: impl Store + 'static) -> Vec<TraceCall> {
    let site = Site::new();
    let job = Job::shared(Name::new("counted").unwrap());
    let store = Arc::new(Trace::new(store));
    // The first run of all also mints the store's identity.
    run_once(known(&store, &site), &site, &job, &[]);
    store.clear();
    run_once(known(&store, &site), &site, &job, &[]);
    store.calls()
}

/// The store as a new process opens it: only what the host remembers is known of it.
fn known<S: Store + 'static>(store: &Arc<Trace<S>>, site: &Site) -> Arc<dyn Store> {
    let memory = HostMemory::new(&site.state());
    Arc::new(KnownStore::remembering(Arc::clone(store), &memory, "https://store.example.org"))
}

/// The check that the store is the known one costs a call only where no record names the store.
#[test]
fn a_jobs_first_run_also_reads_the_store_id() {
    let site = Site::new();
    let named = |name: &str| Job::shared(Name::new(name).unwrap());
    let store = Arc::new(Trace::new(MemoryStore::new()));
    run_once(known(&store, &site), &site, &named("other"), &[]);
    store.clear();
    run_once(known(&store, &site), &site, &named("counted"), &[]);
    let on = Key::job(&named("counted")).as_str().to_string();
    let call = |verb, on: &str, ended| TraceCall { verb, on: on.to_string(), ended };
    let expected = [
        call(TraceVerb::Read, &on, TraceEnd::Answered),
        call(TraceVerb::Read, Key::identity().as_str(), TraceEnd::Answered),
        call(TraceVerb::Swap, &on, TraceEnd::Won),
        call(TraceVerb::Swap, &on, TraceEnd::Won),
    ];
    assert_eq!(store.calls(), expected);
}

#[test]
fn an_uncontended_run_makes_three_calls_of_which_two_are_won_swaps() {
    let on = Key::job(&Job::shared(Name::new("counted").unwrap())).as_str().to_string();
    let call = |verb, ended| TraceCall { verb, on: on.clone(), ended };
    let expected = [
        call(TraceVerb::Read, TraceEnd::Answered),
        call(TraceVerb::Swap, TraceEnd::Won),
        call(TraceVerb::Swap, TraceEnd::Won),
    ];
    assert_eq!(calls_of_a_later_run(MemoryStore::new()), expected);
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(calls_of_a_later_run(SqliteStore::open(&directory.path().join("store.db")).unwrap()), expected);
    let repository = directory.path().join("store.git");
    assert!(Command::new("git").args(["init", "-q", "--bare"]).arg(&repository).status().unwrap().success());
    let (postgres, redis) = (Postgres::start(&["fsync=on"]), Redis::start(&[]));
    let worker = Worker::start();
    let urls = [
        format!("dir:{}", directory.path().join("shared").display()),
        format!("git+file://{}", repository.display()),
        postgres.url(&postgres.database()),
        redis.url(),
        worker.url(),
    ];
    for url in urls {
        let password = url.starts_with("http").then(|| Secret::new(TOKEN));
        let access = Access { password, cache: Some(directory.path().join("cache")), must_exist: false };
        assert_eq!(calls_of_a_later_run(StoreHandle::new(&url, access).open().unwrap()), expected, "{url}");
    }
}

/// A program that claims a lease and releases it at once.
fn program_once(store: Arc<dyn Store>, site: &Site, job: &Job, holder: Holder) {
    let own: Arc<OnceLock<ProgramHandle>> = Arc::default();
    let sink: NewsSink = {
        let own = Arc::clone(&own);
        Arc::new(move |news| {
            if matches!(news, ProgramNews::Granted { .. }) {
                own.wait().end(Exit::Code(0));
            }
        })
    };
    let (work, handle) = ProgramWork::new(None, Duration::from_secs(10), sink).unwrap();
    own.set(handle).unwrap();
    let local = Local::new(&site.state(), Host::this());
    let callee = Callee { store, is_prompt: false };
    let finish = work.drive(Run::new(terms(job, holder, &[])), callee, &local, &mut |_| {});
    assert!(matches!(finish, Finish::Ended { exit: Exit::Code(0), .. }), "{finish:?}");
}

/// With an outcome or without one, a program costs its store what a run costs it.
#[test]
fn a_program_claims_by_a_read_and_a_swap_and_releases_by_one_swap() {
    let (host, job) = (Host::this(), Job::shared(Name::new("counted").unwrap()));
    let on = Key::job(&job).as_str().to_string();
    let call = |verb, ended| TraceCall { verb, on: on.clone(), ended };
    let expected = [
        call(TraceVerb::Read, TraceEnd::Answered),
        call(TraceVerb::Swap, TraceEnd::Won),
        call(TraceVerb::Swap, TraceEnd::Won),
    ];
    for holder in [host.holder_of_program(), host.holder_by_hand()] {
        let (site, store) = (Site::new(), Arc::new(Trace::new(MemoryStore::new())));
        program_once(known(&store, &site), &site, &job, holder.clone());
        store.clear();
        program_once(known(&store, &site), &site, &job, holder);
        assert_eq!(store.calls(), expected);
    }
}

/// Each outcome that leaves the ring is written into the history first, so a job that runs often costs one more swap a run. A
/// lease without an outcome does not.
#[test]
fn a_job_that_runs_often_also_writes_its_history() {
    const RUNS: usize = 80;
    let (host, job) = (Host::this(), Job::shared(Name::new("counted").unwrap()));
    let swaps = |holder: Holder| {
        let (site, store) = (Site::new(), Arc::new(Trace::new(MemoryStore::new())));
        (0..RUNS).for_each(|_| program_once(known(&store, &site), &site, &job, holder.clone()));
        store.clear();
        (0..RUNS).for_each(|_| program_once(known(&store, &site), &site, &job, holder.clone()));
        store.calls().iter().filter(|call| call.ended == TraceEnd::Won).count()
    };
    // The ring gives up to eight outcomes away at once, when there is time.
    let recorded = swaps(host.holder_of_program());
    assert!(recorded.abs_diff(3 * RUNS) <= 8, "{recorded}");
    assert_eq!(swaps(host.holder_by_hand()), 2 * RUNS);
}

/// And one more for each upstream, however often it is named.
#[test]
fn a_run_reads_every_upstream_once() {
    let site = Site::new();
    let named = |name: &str| Job::shared(Name::new(name).unwrap());
    let store = Arc::new(Trace::new(MemoryStore::new()));
    for name in ["one", "two", "counted"] {
        run_once(Arc::clone(&store) as Arc<dyn Store>, &site, &named(name), &[]);
    }
    store.clear();
    let needs = ["one@any", "two@any", "one@same-day,on-empty=proceed"];
    run_once(Arc::clone(&store) as Arc<dyn Store>, &site, &named("counted"), &needs);
    let call = |verb, name: &str, ended| TraceCall { verb, on: Key::job(&named(name)).as_str().to_string(), ended };
    let expected = [
        call(TraceVerb::Read, "counted", TraceEnd::Answered),
        call(TraceVerb::Swap, "counted", TraceEnd::Won),
        call(TraceVerb::Read, "one", TraceEnd::Answered),
        call(TraceVerb::Read, "two", TraceEnd::Answered),
        call(TraceVerb::Swap, "counted", TraceEnd::Won),
    ];
    assert_eq!(store.calls(), expected);
}

#[test]
fn an_uncontended_run_makes_two_durable_commits() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "counted", "--", "true"]).code, 0);
    let trace = site.path("trace");
    let arguments =
        ["-f", "-y", "-e", "trace=fsync,fdatasync,sync_file_range,syncfs,sync", "-o", trace.to_str().unwrap()];
    let mut command = site.program("strace", &arguments);
    command.args([crate::common::BINARY, "run", "counted", "--", "true"]);
    let said = Said::of(command.output().unwrap_or_else(|error| {
        panic!(
            "strace, which counts the commits, cannot be run: {error}. Install it, for example: apt-get install strace"
        )
    }));
    assert_eq!(said.code, 0, "{said:?}");
    let text = std::fs::read_to_string(&trace).unwrap();
    let flushes = |name: &str| text.lines().filter(|line| line.contains("sync(") && line.contains(name)).count();
    assert_eq!(flushes("store.db-wal>"), 2, "{text}");
    // SQLite also flushes the directory with the first commit of each connection, in case it made the log.
    assert_eq!(flushes("<"), 3, "{text}");
}
