//! When jobs are started: told the time and what happened, one step at a time.

use std::time::Duration;

use fencepost_core::agenda::{Agenda, AgendaAction, AgendaInput, End, Limits, Look, StartId, Task, Told};
use fencepost_core::lease::Now;
use fencepost_core::name::Name;
use fencepost_core::schedule::Schedule;
use fencepost_core::time::{Boot, Wall};
use fencepost_core::zone::Zone;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// 06:59:00 of some day.
fn start() -> Wall {
    Zone::utc().parse_time("2026-11-05T06:59:00").unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn task(job: &str, schedule: &str) -> Task {
    Task {
        name: name(job),
        schedule: Schedule::parse(schedule, &Zone::utc()).unwrap(),
        ttl: Duration::from_secs(300),
        slack: Duration::from_secs(60),
        runs_without_store: false,
    }
}

fn limits(max_parallel: usize) -> Limits {
    Limits { max_parallel, spread: Duration::ZERO }
}

/// An agenda, the clocks, and what came out.
struct Bench {
    agenda: Agenda,
    boot: u64,
    wall: i64,
    out: Vec<AgendaAction>,
}

impl Bench {
    fn new(tasks: Vec<Task>, limits: Limits) -> Self {
        let now = Now { boot: Boot(1_000_000), wall: start() };
        let agenda = Agenda::new(tasks, limits, now);
        Self { agenda, boot: now.boot.0, wall: now.wall.0, out: Vec::new() }
    }

    /// Everything was looked at when it began, and nothing was due.
    fn settled(tasks: Vec<Task>, limits: Limits) -> Self {
        let mut bench = Self::new(tasks, limits);
        bench.step(AgendaInput::Tick);
        bench.answer(|_| NOTHING);
        bench.out.clear();
        bench
    }

    fn now(&self) -> Now {
        Now { boot: Boot(self.boot), wall: Wall(self.wall) }
    }

    fn step(&mut self, input: AgendaInput) {
        let now = self.now();
        self.out.extend(self.agenda.step(now, input));
    }

    /// Time passes in steps, as the driver of an agenda promises.
    fn pass(&mut self, length: u64) {
        let mut left = length;
        while left > 0 {
            let part = left.min(SECOND);
            self.jump(part);
            left -= part;
        }
    }

    /// Time passes without a step: a sleep, if it is long.
    fn jump(&mut self, length: u64) {
        self.boot += length;
        self.wall += length as i64;
        self.step(AgendaInput::Tick);
    }

    fn set_clock(&mut self, by: i64) {
        self.wall += by;
        self.step(AgendaInput::Tick);
    }

    /// Every look that is out is answered, and those that follow.
    fn answer(&mut self, mut say: impl FnMut(&Name) -> Look) {
        loop {
            let looks = self.looks();
            if looks.is_empty() {
                return;
            }
            for job in looks {
                let look = say(&job);
                self.step(AgendaInput::Looked { job, look, next_in: None });
            }
        }
    }

    /// The same, by a store that says how long it is to the next slot.
    fn answer_by_clock(&mut self, look: &Look, next_in: u64) -> usize {
        let mut count = 0;
        loop {
            let looks = self.looks();
            if looks.is_empty() {
                return count;
            }
            for job in looks {
                count += 1;
                self.step(AgendaInput::Looked { job, look: look.clone(), next_in: Some(Duration::from_secs(next_in)) });
            }
        }
    }

    fn looks(&mut self) -> Vec<Name> {
        let mut looks = Vec::new();
        self.out.retain(|output| match output {
            AgendaAction::Look(name) => {
                looks.push(name.clone());
                false
            }
            _ => true,
        });
        looks
    }

    fn starts(&mut self) -> Vec<(String, StartId)> {
        let mut starts = Vec::new();
        self.out.retain(|output| match output {
            AgendaAction::Start { job, id } => {
                starts.push((job.to_string(), *id));
                false
            }
            _ => true,
        });
        starts
    }

    fn started(&mut self) -> Vec<String> {
        self.starts().into_iter().map(|(job, _)| job).collect()
    }

    fn told(&mut self) -> Vec<Told> {
        let told = self.out.iter().filter_map(|output| match output {
            AgendaAction::Tell(told) => Some(told.clone()),
            _ => None,
        });
        let told = told.collect();
        self.out.retain(|output| !matches!(output, AgendaAction::Tell(_)));
        told
    }

    fn end(&mut self, id: StartId, end: End) {
        self.step(AgendaInput::Ended { id, end });
    }
}

const NOTHING: Look = Look::Nothing;

#[test]
fn it_looks_before_it_starts_anything_and_then_fires_at_the_slots_time() {
    let mut bench = Bench::new(vec![task("daily", "0 7 * * *"), task("late", "30 6 * * *")], limits(4));
    bench.step(AgendaInput::Tick);
    assert_eq!(bench.looks(), [name("daily"), name("late")]);
    assert!(bench.started().is_empty());
    bench.step(AgendaInput::Looked { job: name("daily"), look: NOTHING, next_in: None });
    bench.step(AgendaInput::Looked { job: name("late"), look: Look::Due(start()), next_in: None });
    assert_eq!(bench.started(), ["late"]);
    bench.pass(MINUTE - 1);
    assert!(bench.started().is_empty());
    assert_eq!(bench.agenda.next().map(|(name, _)| name.as_str()), Some("daily"));
    bench.pass(1);
    assert_eq!(bench.started(), ["daily"]);
    bench.pass(2 * HOUR);
    assert!(bench.started().is_empty() && bench.looks().is_empty(), "{:?}", bench.out);
}

#[test]
fn it_wants_to_be_woken_when_something_is_due() {
    let bench = Bench::settled(vec![task("daily", "0 7 * * *"), task("hourly", "30 * * * *")], limits(4));
    assert_eq!(bench.agenda.wake_at(bench.now()), Some(Boot(bench.boot + MINUTE)));
}

#[test]
fn after_a_sleep_it_looks_once_per_job_however_many_slots_have_passed() {
    let tasks = vec![task("minutely", "* * * * *"), task("yearly", "0 0 1 1 *"), task("hourly", "0 * * * *")];
    let mut bench = Bench::settled(tasks, limits(4));
    bench.jump(9 * HOUR);
    assert_eq!(bench.told(), [Told::Slept(Duration::from_secs(9 * 3600))]);
    assert!(bench.started().is_empty(), "it plans before it fires");
    assert_eq!(bench.looks(), [name("hourly"), name("minutely")]);
    bench.step(AgendaInput::Looked { job: name("minutely"), look: Look::Due(start()), next_in: None });
    bench.step(AgendaInput::Looked { job: name("hourly"), look: NOTHING, next_in: None });
    assert_eq!(bench.started(), ["minutely"]);
    bench.pass(30 * SECOND);
    assert!(bench.started().is_empty());
}

#[test]
fn a_clock_that_steps_back_does_not_fire_twice() {
    let mut bench = Bench::settled(vec![task("daily", "0 7 * * *")], limits(4));
    bench.pass(2 * MINUTE);
    let starts = bench.starts();
    assert_eq!(starts.len(), 1);
    bench.end(starts[0].1, End::Done);
    bench.set_clock(-10 * MINUTE as i64);
    assert_eq!(bench.told(), [Told::Stepped(-10 * MINUTE as i64)]);
    bench.answer(|_| NOTHING);
    bench.pass(HOUR);
    assert!(bench.started().is_empty());
}

#[test]
fn a_clock_that_steps_forward_makes_it_look_and_one_that_was_far_ahead_is_forgotten() {
    let mut bench = Bench::settled(vec![task("hourly", "0 * * * *")], limits(4));
    bench.set_clock(5 * HOUR as i64);
    assert!(bench.started().is_empty());
    bench.answer(|_| NOTHING);
    bench.set_clock(-5 * HOUR as i64);
    bench.answer(|_| NOTHING);
    bench.pass(2 * MINUTE);
    assert_eq!(bench.started(), ["hourly"], "it does not wait for five hours");
}

#[test]
fn a_store_whose_clock_is_ahead_or_behind_is_asked_when_it_is_due_there() {
    let mut bench = Bench::new(vec![task("daily", "0 7 * * *")], limits(4));
    bench.step(AgendaInput::Tick);
    // By the store's clock the slot is due in ten seconds, by ours in a minute.
    bench.answer_by_clock(&NOTHING, 10);
    bench.pass(11 * SECOND);
    bench.answer_by_clock(&Look::Due(start()), 86_399);
    let starts = bench.starts();
    assert_eq!(starts.len(), 1);
    bench.end(starts[0].1, End::Done);
    bench.answer_by_clock(&NOTHING, 86_399);
    // By ours it is due now, and by the store's it is done.
    bench.pass(MINUTE);
    let starts = bench.starts();
    bench.end(starts[0].1, End::NotDue);
    assert_eq!(bench.answer_by_clock(&NOTHING, 86_339), 1, "it is looked once, and not again and again");
    bench.pass(86_338 * SECOND);
    assert_eq!(bench.looks(), [], "not before it is due there");
    bench.pass(2 * SECOND);
    assert_eq!(bench.looks(), [name("daily")]);
}

#[test]
fn a_job_that_another_machine_is_at_is_looked_at_again_until_it_is_done() {
    let mut bench = Bench::settled(vec![task("daily", "0 7 * * *")], limits(4));
    bench.pass(MINUTE);
    let starts = bench.starts();
    bench.end(starts[0].1, End::Elsewhere);
    bench.pass(299 * SECOND);
    assert!(bench.looks().is_empty());
    bench.pass(2 * SECOND);
    bench.answer(|_| Look::Busy { remaining: Duration::from_secs(200) });
    bench.pass(199 * SECOND);
    assert!(bench.looks().is_empty());
    bench.pass(2 * SECOND);
    bench.answer(|_| Look::Due(start()));
    assert_eq!(bench.started(), ["daily"], "the other died");
}

#[test]
fn a_job_is_in_the_queue_once_and_no_more_run_than_may() {
    let jobs: Vec<String> = (0..6).map(|number| format!("job-{number}")).collect();
    let tasks = jobs.iter().map(|job| task(job, "* * * * *")).collect();
    let mut bench = Bench::settled(tasks, limits(2));
    bench.pass(MINUTE);
    let first = bench.starts();
    assert_eq!(first.len(), 2);
    assert_eq!(bench.told().len(), 4, "four are told to wait");
    bench.pass(3 * MINUTE);
    assert!(bench.started().is_empty());
    assert_eq!(bench.agenda.running(), 2);
    let mut order: Vec<String> = first.iter().map(|(job, _)| job.clone()).collect();
    let mut going = first;
    while let Some((_, id)) = going.pop() {
        bench.end(id, End::Done);
        assert!(bench.agenda.running() <= 2);
        let starts = bench.starts();
        order.extend(starts.iter().map(|(job, _)| job.clone()));
        going.extend(starts);
    }
    order.sort();
    // The two that ran came due again meanwhile.
    assert_eq!(order, ["job-0", "job-0", "job-1", "job-1", "job-2", "job-3", "job-4", "job-5"]);
}

#[test]
fn a_store_that_is_away_is_left_alone_longer_and_longer_and_told_of_once() {
    let tasks = vec![task("a", "* * * * *"), task("b", "* * * * *"), {
        Task { runs_without_store: true, ..task("c", "* * * * *") }
    }];
    let mut bench = Bench::settled(tasks, limits(8));
    bench.pass(MINUTE);
    let starts = bench.starts();
    assert_eq!(starts.len(), 3);
    for (job, id) in &starts {
        let end = if job == "c" { End::Done } else { End::Away("gone".to_string()) };
        if job != "c" {
            bench.end(*id, end);
        }
    }
    assert_eq!(bench.told(), [Told::StoreAway { error: "gone".to_string() }]);
    let mut probes = Vec::new();
    for second in 0..200_u64 {
        bench.pass(SECOND);
        for job in bench.looks() {
            probes.push(second);
            bench.step(AgendaInput::Looked { job, look: Look::Away("gone".to_string()), next_in: None });
        }
    }
    let gaps: Vec<u64> = probes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [2, 4, 8, 16, 32, 60, 60], "{probes:?}");
    assert!(bench.started().iter().all(|job| job == "c"), "nothing is started that cannot be claimed");
    assert_eq!(bench.told(), []);
    for (_, id) in starts.iter().filter(|(job, _)| job == "c") {
        bench.end(*id, End::WithoutLease);
    }
    assert_eq!(bench.told(), [], "what ran without a store says nothing of it");
    bench.pass(60 * SECOND);
    bench.answer(|_| Look::Due(start()));
    assert!(matches!(bench.told()[..], [Told::StoreBack { .. }]));
    let mut started = bench.started();
    started.retain(|job| job != "c");
    started.sort();
    assert_eq!(started, ["a", "b"], "one run each, however many slots have passed");
}

#[test]
fn jobs_of_one_minute_are_spread_always_alike_and_stay_on_time() {
    let tasks = |count: usize| (0..count).map(|number| task(&format!("job-{number}"), "0 * * * *")).collect();
    let spread = Limits { max_parallel: 1000, spread: Duration::from_secs(3600) };
    let run = |limits: Limits| {
        let mut bench = Bench::settled(tasks(50), limits);
        bench.pass(MINUTE - 1);
        let mut started = Vec::new();
        for second in 0..120 {
            bench.pass(if second == 0 { 1 } else { SECOND });
            started.extend(bench.started().into_iter().map(|job| (job, second)));
        }
        started
    };
    let first = run(spread);
    assert_eq!(first, run(spread));
    assert_eq!(first.len(), 50);
    assert!(first.iter().all(|(_, second)| *second <= 31), "half the slack at most: {first:?}");
    let busiest = (0..32).map(|at| first.iter().filter(|(_, second)| *second == at).count()).max();
    assert!(busiest < Some(10), "{first:?}");
    assert!(run(limits(1000)).iter().all(|(_, second)| *second == 0));
}

#[test]
fn a_reload_keeps_what_is_unchanged_and_looks_at_what_is_new() {
    let mut bench = Bench::settled(vec![task("a", "0 7 * * *"), task("b", "0 7 * * *")], limits(4));
    let tasks = vec![task("a", "0 7 * * *"), task("c", "0 7 * * *")];
    bench.step(AgendaInput::Reload { tasks, limits: limits(1) });
    assert_eq!(bench.looks(), [name("c")]);
    bench.step(AgendaInput::Looked { job: name("c"), look: NOTHING, next_in: None });
    bench.pass(MINUTE);
    let starts = bench.starts();
    assert_eq!(starts.len(), 1, "one at a time now: {starts:?}");
    assert_eq!(starts[0].0, "a");
    bench.end(starts[0].1, End::Done);
    assert_eq!(bench.started(), ["c"], "b is gone");
}

#[test]
fn once_it_is_asked_to_stop_nothing_is_started_any_more() {
    let mut bench = Bench::settled(vec![task("a", "* * * * *"), task("b", "* * * * *")], limits(1));
    bench.pass(MINUTE);
    let starts = bench.starts();
    bench.step(AgendaInput::Stop);
    assert!(!bench.agenda.is_idle());
    bench.end(starts[0].1, End::Done);
    bench.pass(10 * MINUTE);
    assert!(bench.started().is_empty() && bench.looks().is_empty());
    assert!(bench.agenda.is_idle());
    assert_eq!(bench.agenda.wake_at(bench.now()), None);
}

#[test]
fn only_what_is_due_now_runs_when_it_runs_once() {
    let now = Now { boot: Boot(5), wall: start() };
    let mut agenda = Agenda::once(vec![task("a", "* * * * *"), task("b", "* * * * *")], limits(4), now);
    assert_eq!(agenda.step(now, AgendaInput::Tick), [AgendaAction::Look(name("a")), AgendaAction::Look(name("b"))]);
    assert_eq!(agenda.step(now, AgendaInput::Looked { job: name("a"), look: NOTHING, next_in: None }), []);
    let look = Look::Due(start());
    let out = agenda.step(now, AgendaInput::Looked { job: name("b"), look, next_in: None });
    let [AgendaAction::Start { id, .. }] = out[..] else { panic!("{out:?}") };
    assert!(!agenda.is_idle());
    assert_eq!(agenda.step(now, AgendaInput::Ended { id, end: End::Elsewhere }), []);
    assert!(agenda.is_idle());
    assert_eq!(agenda.wake_at(now), None);
}
