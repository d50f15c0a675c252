//! One run on the bench: the test says what happens and looks at what comes out.

use fencepost_core::lease::Facts;
use fencepost_core::register::StoreError;
use fencepost_core::run::{
    Event, Exit, Finish, Grant, Input, NotSpawned, Output, Overlap, Run, Stages, StopCause, Terms,
};
use fencepost_core::transition::Call;

use super::*;

pub fn terms(run: u128) -> Terms {
    Terms {
        job: job(),
        claim: claim(run),
        grace: ms(GRACE_MS),
        overlap: Overlap::Skip,
        wait: None,
        timeout: None,
        run_without_store: false,
        inside: Vec::new(),
        stages: Stages::default(),
        empty_exit: None,
        must_record: false,
        observe: false,
        stuck_after: None,
    }
}

/// A lease that is only held, for another.
pub fn holding(run: u128) -> Terms {
    let terms = terms(run);
    let holder = Holder { by_hand: true, ..holder() };
    Terms { claim: Claim { holder, ..terms.claim }, ..terms }
}

/// The child ended by itself and left no artifacts.
pub fn ended(exit: Exit) -> Finish {
    ended_leaving(exit, Vec::new())
}

/// The same, with processes left that could not be ended.
pub fn ended_leaving(exit: Exit, escaped: Vec<String>) -> Finish {
    let judgement = Box::new(fencepost_core::contract::judge(exit.code(), None, None, &[], &[]));
    Finish::Ended { exit, judgement, escaped }
}

#[derive(Debug)]
pub struct Bench {
    pub run: Run,
    pub store: Memory,
    pub facts: Facts,
    /// Milliseconds since the start.
    pub at: u64,
    /// The call that is out.
    pub call: Option<Call>,
    /// Everything that came out since it was last taken, but calls and consultations.
    pub out: Vec<Output>,
}

impl Bench {
    pub fn new(terms: Terms, store: Memory) -> Self {
        Self { run: Run::new(terms), store, facts: Facts::default(), at: 0, call: None, out: Vec::new() }
    }

    /// A run that was begun, with its first read out.
    pub fn begun(terms: Terms, store: Memory) -> Self {
        let mut bench = Self::new(terms, store);
        bench.step(Input::Begin);
        bench
    }

    /// A run whose child has started, 0 ms after the start.
    pub fn running(terms: Terms) -> Self {
        let mut bench = Self::begun(terms, Memory::with(&free(1)));
        bench.settle();
        bench.grant().expect("a grant");
        bench.step(Input::Spawned);
        bench
    }

    pub fn step(&mut self, input: Input) {
        for output in self.run.step(now(self.at), input) {
            match output {
                Output::Call(call) => {
                    assert_eq!(self.call.replace(call), None, "two calls are out at once");
                }
                Output::Consult(_) => self.step(Input::Consulted(self.facts.clone())),
                other => self.out.push(other),
            }
        }
    }

    /// The store answers the call that is out.
    pub fn answer(&mut self) {
        let call = self.call.take().expect("a call is out");
        let answer = self.store.answer(call, self.at);
        self.step(Input::Answered(Ok(answer)));
    }

    /// The store answers until it is asked nothing more.
    pub fn settle(&mut self) {
        for _ in 0..100 {
            if self.call.is_none() {
                return;
            }
            self.answer();
        }
        panic!("the run asks for ever: {:?}", self.call);
    }

    /// The call that is out fails, and was not done.
    pub fn fail(&mut self, error: StoreError) {
        self.call.take().expect("a call is out");
        self.step(Input::Answered(Err(error)));
    }

    /// The call that is out is done, and its answer is lost.
    pub fn lose_answer(&mut self) {
        let call = self.call.take().expect("a call is out");
        self.store.answer(call, self.at);
        self.step(Input::Answered(Err(timed_out())));
    }

    pub fn wait(&mut self, length_ms: u64) {
        self.at += length_ms;
    }

    /// Goes on to the moment the run wants to be woken, which must bring it further.
    pub fn wake(&mut self) {
        let before = self.run.wake_at().expect("a moment to wake at");
        self.at = self.at.max(before.0.saturating_sub(BOOT_MS));
        self.step(Input::Tick);
        // Several things may be due at one moment, each with a tick of its own.
        for _ in 0..2 {
            if self.is_due() {
                self.step(Input::Tick);
            }
        }
        assert!(!self.is_due(), "woken at {before:?}, and again at {:?}", self.run.wake_at());
    }

    /// Whether the run wants to be woken at once and waits for nothing.
    fn is_due(&self) -> bool {
        self.call.is_none() && self.run.wake_at().is_some_and(|at| at <= boot(self.at))
    }

    pub fn end_child(&mut self, exit: Exit) {
        self.step(Input::ChildEnded(exit));
        self.step(Input::TreeEmpty { escaped: Vec::new() });
    }

    pub fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// Takes everything that came out, and gives the grant of the child that was started, if one was.
    pub fn grant(&mut self) -> Option<Grant> {
        self.take().into_iter().find_map(|output| match output {
            Output::Spawn { grant } => grant,
            _ => None,
        })
    }

    pub fn finish(&mut self) -> Finish {
        assert!(self.run.is_finished(), "not finished: {:?}", self.out);
        assert_eq!(self.run.wake_at(), None);
        let finishes = self.take().into_iter().filter_map(|output| match output {
            Output::Finish(finish) => Some(finish),
            _ => None,
        });
        let [finish] = finishes.collect::<Vec<_>>().try_into().expect("one finish");
        finish
    }

    pub fn events(&self) -> Vec<&Event> {
        self.out.iter().filter_map(|output| if let Output::Tell(event) = output { Some(event) } else { None }).collect()
    }

    pub fn put_out(&self, output: &Output) -> bool {
        self.out.contains(output)
    }
}

pub fn said(said: Vec<fencepost_core::said::Said>) -> Input {
    Input::Said { said, unreadable: None, definition: None }
}

pub fn not_found() -> NotSpawned {
    NotSpawned { not_found: true, text: "no such file: report.sh".to_string() }
}

pub fn is_read(bench: &Bench) -> bool {
    bench.call == Some(Call::Read(Key::job(&job())))
}

pub fn is_swap(bench: &Bench) -> bool {
    matches!(&bench.call, Some(Call::Swap { key, .. }) if *key == Key::job(&job()))
}

pub fn last_status(bench: &Bench) -> Status {
    bench.store.record().ledger.last().expect("an outcome").status
}

pub fn stopped(finish: Finish) -> (StopCause, bool) {
    match finish {
        Finish::Stopped { why, recorded, .. } => (why, recorded.is_recorded()),
        other => panic!("not stopped: {other:?}"),
    }
}
