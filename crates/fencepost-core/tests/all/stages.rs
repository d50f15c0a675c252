//! What is done under the lease besides the job itself: preparing, a look at the upstreams, a look at what was left.

use crate::common::*;
use fencepost_core::artifact::{Artifact, Fingerprint};
use fencepost_core::contract::{Lack, Produced, Recorded, SeenArtifact, Word};
use fencepost_core::ledger::{Barred, Consumed, Status};
use fencepost_core::run::{Event, Exit, Finish, Input, Kept, Output, Passage, Stages, StopCause, Terms};
use fencepost_core::said::Said;

const ALL: Stages = Stages { prepare: true, inspect: true, survey: true };

fn staged(stages: Stages) -> Bench {
    let mut bench = Bench::new(Terms { stages, ..terms(2) }, Memory::with(&free(4)));
    bench.step(Input::Begin);
    bench.settle();
    bench
}

fn barred() -> Vec<Barred> {
    vec![Barred { job: "up".to_string(), halt: true, reason: "up did not run.".to_string() }]
}

fn written() -> Vec<Produced> {
    let artifact =
        Artifact { path: "out".to_string(), size: 3, sha256: Fingerprint([7; 32]), unknown: Default::default() };
    vec![Produced { declared: "out".to_string(), files: vec![SeenArtifact { artifact, touched: true }], lack: None }]
}

fn end_tree(bench: &mut Bench, code: i32) {
    bench.step(Input::ChildEnded(Exit::Code(code)));
    bench.step(Input::TreeEmpty { escaped: Vec::new() });
    bench.settle();
}

#[test]
fn they_come_one_after_the_other_and_the_artifacts_are_recorded() {
    let mut bench = staged(ALL);
    assert!(bench.out.iter().any(|out| matches!(out, Output::Prepare { grant: Some(_) })));
    assert!(!bench.out.iter().any(|out| matches!(out, Output::Spawn { .. } | Output::Inspect { .. })));
    end_tree(&mut bench, 0);
    assert!(bench.out.iter().any(|out| matches!(out, Output::Inspect { grant: Some(_) })));
    let upstreams =
        vec![Consumed { job: "up".to_string(), slot: wall(0), run: id(7), sha256: None, unknown: Default::default() }];
    bench.step(Input::Inspected(Passage::Proceed { upstreams: upstreams.clone() }));
    assert!(bench.out.iter().any(|out| matches!(out, Output::Spawn { grant: Some(_) })));
    end_tree(&mut bench, 0);
    assert!(bench.put_out(&Output::Survey));
    bench.step(Input::Surveyed(written()));
    bench.settle();
    assert!(matches!(bench.finish(), Finish::Ended { exit: Exit::Code(0), .. }));
    let outcome = bench.store.record().ledger.last().unwrap().clone();
    assert_eq!((outcome.status, outcome.artifacts.len(), outcome.upstreams), (Status::Ok, 1, upstreams));
}

#[test]
fn a_command_to_prepare_that_fails_ends_the_run() {
    let mut bench = staged(ALL);
    end_tree(&mut bench, 3);
    assert!(matches!(bench.finish(), Finish::Ended { exit: Exit::Code(3), .. }));
    let outcome = bench.store.record().ledger.last().unwrap().clone();
    assert_eq!((outcome.status, outcome.exit_code), (Status::Error, Some(3)));
    assert!(outcome.note.unwrap().contains("prepare"));
    assert!(bench.store.record().lease.is_none());
}

#[test]
fn a_barrier_that_halts_or_skips_starts_nothing() {
    for halt in [true, false] {
        let mut bench = staged(Stages { inspect: true, ..Stages::default() });
        let passage = if halt { Passage::Halt { barred: barred() } } else { Passage::Skip { barred: barred() } };
        bench.step(Input::Inspected(passage));
        bench.settle();
        assert!(!bench.out.iter().any(|out| matches!(out, Output::Spawn { .. })));
        assert_eq!(bench.finish(), Finish::Barred { halt, barred: barred(), recorded: Kept::Recorded });
        let record = bench.store.record();
        let status = if halt { Status::Halted } else { Status::SkippedBarrier };
        assert_eq!(record.ledger.last().map(|outcome| outcome.status), Some(status));
        assert!(record.lease.is_none() && record.upstreams["up"].reason == "up did not run.");
    }
}

/// No keeper ends a look at files, so that the run does it by itself.
#[test]
fn a_look_without_an_end_is_given_up_at_the_deadline() {
    for survey in [false, true] {
        let mut bench = staged(Stages { inspect: !survey, survey, ..Stages::default() });
        if survey {
            end_tree(&mut bench, 0);
        }
        bench.at = TTL_MS - 1;
        bench.call = None;
        bench.step(Input::Tick);
        assert!(bench.put_out(&Output::Tell(Event::Stopping(StopCause::Deadline))), "survey {survey}: {:?}", bench.out);
        assert!(!bench.run.is_running());
    }
}

/// Renewals go on while files are looked at.
#[test]
fn a_lease_is_renewed_while_files_are_looked_at() {
    let mut bench = staged(Stages { inspect: true, ..Stages::default() });
    for turn in 1..10 {
        bench.at = turn * TTL_MS / 3;
        bench.step(Input::Tick);
        bench.settle();
    }
    assert_eq!(lease(&bench.store.record()).renewals, 9);
    bench.step(Input::Inspected(Passage::Proceed { upstreams: Vec::new() }));
    assert!(bench.out.iter().any(|out| matches!(out, Output::Spawn { grant: Some(_) })));
}

#[test]
fn a_look_is_ended_by_a_signal_and_by_a_take_over() {
    let mut bench = staged(Stages { inspect: true, ..Stages::default() });
    bench.step(Input::Interrupted(15));
    bench.settle();
    assert_eq!(bench.finish(), Finish::Interrupted(15));
    assert!(bench.store.record().lease.is_none());

    let mut bench = staged(Stages { inspect: true, ..Stages::default() });
    bench.store.put(&held(9_007_199_254_740_000, 5));
    bench.at = TTL_MS / 3;
    bench.step(Input::Tick);
    bench.settle();
    assert!(matches!(bench.finish(), Finish::Stopped { why: StopCause::Taken { .. }, .. }));
}

#[test]
fn what_the_job_said_counts() {
    let mut bench = staged(Stages::default());
    let recorded =
        |word, note: &str| Said::Recorded(Recorded { word, note: Some(note.to_string()), artifacts: Vec::new() });
    bench.step(Input::ChildEnded(Exit::Code(0)));
    bench.step(said(vec![recorded(Word::Error, "at first"), recorded(Word::Empty, "no news today")]));
    bench.step(Input::TreeEmpty { escaped: Vec::new() });
    bench.settle();
    let outcome = bench.store.record().ledger.last().unwrap().clone();
    assert_eq!((outcome.status, outcome.note.as_deref()), (Status::Empty, Some("no news today")));
}

#[test]
fn the_same_bytes_again_and_again_are_pointed_out() {
    let mut store = Memory::with(&free(4));
    let terms = Terms { stages: Stages { survey: true, ..Stages::default() }, stuck_after: Some(3), ..terms(2) };
    for turn in 1..=4_u64 {
        let mut terms = terms.clone();
        terms.claim.run = id(100 + u128::from(turn));
        let mut bench = Bench::new(terms, store);
        bench.step(Input::Begin);
        bench.settle();
        end_tree(&mut bench, 0);
        bench.step(Input::Surveyed(written()));
        let stuck = bench.put_out(&Output::Tell(Event::Stuck { count: turn }));
        assert_eq!(stuck, turn >= 3, "{turn}: {:?}", bench.out);
        bench.settle();
        store = bench.store;
    }
}

#[test]
fn a_declared_artifact_that_is_not_there_is_an_error() {
    let mut bench = staged(Stages { survey: true, ..Stages::default() });
    end_tree(&mut bench, 0);
    let lacking = vec![Produced { declared: "out".to_string(), files: Vec::new(), lack: Some(Lack::Missing) }];
    bench.step(Input::Surveyed(lacking));
    bench.settle();
    let Finish::Ended { judgement, .. } = bench.finish() else { panic!() };
    assert!(judgement.breach.is_some());
    assert_eq!(bench.store.record().ledger.last().map(|outcome| outcome.status), Some(Status::Error));
}
