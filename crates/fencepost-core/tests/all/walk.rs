//! Runs that meet every input, in any order: what must hold on every way through the machine.

use crate::common::*;
use fencepost_core::lease::{Facts, Intent};
use fencepost_core::ledger::Status;
use fencepost_core::run::{Exit, Finish, Input, Kept, NotSpawned, Output, Overlap, StopCause, Terms};
use fencepost_core::transition::Call;

const WALKS: u64 = 20_000;
const STEPS: u32 = 40;

/// A small generator, so that a walk is known by its number.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn toss(&mut self) -> bool {
        self.below(2) == 0
    }
}

#[derive(Default)]
struct Seen {
    spawned: bool,
    tree_gone: bool,
    finish: Option<Finish>,
}

struct Walk {
    bench: Bench,
    dice: Dice,
    seen: Seen,
    /// Swaps whose answers were lost and which may yet land.
    late: Vec<Call>,
    others: u128,
}

#[test]
fn no_way_through_the_machine_spins_speaks_after_the_end_or_tells_a_lie() {
    let mut finished = 0;
    for number in 0..WALKS {
        let mut walk = Walk::new(number);
        for _ in 0..STEPS {
            walk.stumble();
        }
        walk.go_home();
        walk.judge(number);
        finished += u64::from(matches!(walk.seen.finish, Some(Finish::Ended { .. })));
    }
    assert!(finished > WALKS / 20, "too few walks reached a good end: {finished}");
}

impl Walk {
    fn new(number: u64) -> Self {
        let mut dice = Dice(number);
        let terms = Terms {
            overlap: if dice.toss() { Overlap::Skip } else { Overlap::Replace },
            wait: dice.toss().then_some(ms(3 * TTL_MS)),
            timeout: dice.toss().then_some(ms(TTL_MS)),
            run_without_store: dice.below(4) == 0,
            ..terms(2)
        };
        let store = match dice.below(4) {
            0 => Memory::default(),
            1 => Memory::with(&held(5, 1)),
            _ => Memory::with(&free(5)),
        };
        let mut walk =
            Self { bench: Bench::begun(terms, store), dice, seen: Seen::default(), late: Vec::new(), others: 100 };
        walk.look();
        walk
    }

    fn stumble(&mut self) {
        match self.dice.below(100) {
            0..=49 => self.answer(),
            50..=55 => self.lose_answer(),
            56..=59 => self.fail(),
            60..=62 => self.bench.wait(self.dice.below(2 * TTL_MS)),
            63..=79 => self.wake(),
            80..=83 => self.others_write(),
            84..=86 => self.land_late(),
            87 => self.bench.step(Input::Interrupted(15)),
            88 => self.bench.step(Input::Woke),
            _ => self.keeper_speaks(),
        }
        self.look();
    }

    fn answer(&mut self) {
        if self.bench.call.is_some() {
            self.bench.answer();
        }
    }

    /// A call that is out is rarely given up, or few walks would get past their claim.
    fn wake(&mut self) {
        let is_idle = self.bench.call.is_none() || self.dice.below(16) == 0;
        if is_idle && self.bench.run.wake_at().is_some() {
            self.bench.wake();
        }
    }

    fn fail(&mut self) {
        let may_fail = self.seen.spawned || self.dice.below(4) == 0;
        if may_fail && self.bench.call.is_some() {
            self.bench.fail(unavailable());
        }
    }

    fn lose_answer(&mut self) {
        let Some(call) = self.bench.call.clone() else { return };
        if self.dice.toss() {
            return self.bench.lose_answer();
        }
        self.late.push(call);
        self.bench.fail(timed_out());
    }

    fn land_late(&mut self) {
        if let Some(call) = self.late.pop() {
            self.bench.store.answer(call, self.bench.at);
        }
    }

    /// Another client asks to stop, releases by force, takes over or releases a lease that is not its own.
    fn others_write(&mut self) {
        if !self.bench.store.has_record() {
            return;
        }
        let (record, at) = (self.bench.store.record(), self.bench.at);
        let is_ours = record.lease.as_ref().is_some_and(|lease| lease.run == id(2));
        self.others += 1;
        let facts = Facts { holder_is_dead: self.dice.toss(), ..Facts::default() };
        let intent = match self.dice.below(4) {
            0 => ask_to_stop(self.others),
            1 => Intent::ForceRelease,
            2 if !is_ours => Intent::ForceRelease,
            _ => Intent::Claim(claim(self.others)),
        };
        if let Ok(decision) = decide_with(&intent, Some(&record), at, Some(&reference(at)), &facts)
            && decision != fencepost_core::lease::Ruling::AlreadyDone
        {
            self.bench.store.put(&written(Ok(decision)));
        }
    }

    fn keeper_speaks(&mut self) {
        if !self.seen.spawned {
            return;
        }
        let escaped = if self.dice.below(4) == 0 { vec!["sudo (7)".to_string()] } else { Vec::new() };
        let input = match self.dice.below(9) {
            0 => Input::Spawned,
            1 if !self.seen.tree_gone => Input::NotSpawned(NotSpawned { not_found: true, text: "no".to_string() }),
            2 | 3 if !self.seen.tree_gone => Input::ChildEnded(Exit::Code(0)),
            4 => Input::TreeEmpty { escaped },
            5 => Input::DeadlineReached,
            6 | 7 => Input::Frozen,
            8 => Input::KeeperDied { escaped },
            _ => return,
        };
        let gone = matches!(input, Input::NotSpawned(_) | Input::TreeEmpty { .. } | Input::KeeperDied { .. });
        self.seen.tree_gone |= gone;
        self.bench.step(input);
    }

    /// Takes what came out and holds it against what must always hold.
    fn look(&mut self) {
        for output in self.bench.take() {
            assert_eq!(self.seen.finish, None, "{output:?} after the end");
            match output {
                Output::Spawn { grant } => {
                    assert!(!self.seen.spawned, "started twice");
                    self.seen.spawned = true;
                    let deadline = grant.map(|grant| grant.deadline);
                    assert!(deadline.is_none_or(|at| at > boot(self.bench.at) + ms(GRACE_MS)), "{deadline:?}");
                }
                Output::Thaw(deadline) => assert!(deadline > boot(self.bench.at) + ms(GRACE_MS), "{deadline:?}"),
                Output::Finish(finish) => self.seen.finish = Some(finish),
                _ => {}
            }
        }
        if self.seen.finish.is_some() {
            assert_eq!(self.bench.run.wake_at(), None);
        }
    }

    /// From now on the store answers and the tree ends.
    fn go_home(&mut self) {
        for _ in 0..1_000 {
            self.bench.settle();
            self.look();
            if self.seen.finish.is_some() {
                return;
            }
            if self.bench.run.is_running() {
                self.bench.end_child(Exit::Code(0));
            } else if self.bench.call.is_none() {
                self.bench.wake();
            }
            self.look();
        }
        panic!("it never ends: {:?}", self.bench.run);
    }

    fn judge(&self, number: u64) {
        let record = self.bench.store.has_record().then(|| self.bench.store.record());
        let is_ours =
            record.as_ref().is_some_and(|record| record.lease.as_ref().is_some_and(|lease| lease.run == id(2)));
        let ended = record.as_ref().and_then(|record| record.ledger.of_run(id(2))).map(|outcome| outcome.status);
        match self.seen.finish.as_ref().unwrap() {
            Finish::Ended { exit, escaped, .. } => {
                let expected = if *exit == Exit::Code(0) { Status::Ok } else { Status::Error };
                assert_eq!(ended, Some(expected), "walk {number}");
                assert!(!is_ours || !escaped.is_empty(), "walk {number}: not released");
            }
            Finish::Stopped { why, recorded: Kept::Recorded, escaped, .. } => {
                assert!(ended.is_some(), "walk {number}: {why:?}");
                assert!(!is_ours || !escaped.is_empty(), "walk {number}: not released");
                assert!(!matches!(why, StopCause::Taken { .. }) || !is_ours, "walk {number}: not taken");
            }
            Finish::NotSpawned(_) | Finish::Held { .. } | Finish::Interrupted(_) | Finish::GivenUp { .. } => {}
            Finish::Stopped { .. } | Finish::Unrecorded { .. } | Finish::WithoutLease { .. } => {}
            Finish::StoreFailed(_) | Finish::Refused(_) => {}
            Finish::Fenced { .. } => panic!("walk {number}: it published nothing"),
            Finish::NotNow(_) => panic!("walk {number}: it has no schedule"),
            Finish::Barred { .. } => panic!("walk {number}: it needs nothing"),
            Finish::Nested => panic!("walk {number}: it is inside nothing"),
        }
    }
}
