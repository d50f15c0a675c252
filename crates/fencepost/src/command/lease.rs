//! `fencepost lease …`: manages a lease by hand, for scripts and other languages.

mod hold;

use std::sync::Arc;
use std::time::Duration;

use fencepost_core::lease::{Claim, Intent, Me, Refusal};
use fencepost_core::ledger::Trigger;
use fencepost_core::name::Job;
use fencepost_core::record::Record;
use fencepost_core::slot::{Choice, NotNow};
use fencepost_core::token::{RunId, Token};
use fencepost_core::transition::Done;
use fencepost_core::zone::Zone;
use fencepost_guard::transact::{Held, TakeError, TransactError, look, take, transact};
use fencepost_guard::{clock, nudge};
use fencepost_store::Store;
use fencepost_view::answer::LeaseAnswer;
use fencepost_view::{ReasonCode, remaining};

use super::record;
use crate::args::{Global, JobArgument, LeaseVerb, RecordOptions};
use crate::calendar;
use crate::exit::{Code, Failure};
use crate::options::Given;
use crate::place::Place;
use crate::rehearsal;
use crate::report::{self, Voice};
use crate::show;

/// Pause between two attempts of a waiting `acquire`.
const PAUSE: Duration = Duration::from_millis(250);

pub fn run(global: &Global, verb: &LeaseVerb) -> Result<Code, Failure> {
    if !matches!(verb, LeaseVerb::Show { .. }) {
        rehearsal::refuse("lease")?;
    }
    let place = Place::find(global)?;
    match verb {
        LeaseVerb::Acquire { job, typed } => {
            let ttl = super::ttl(typed.0.ttl.value(), &place.store)?;
            LeaseDesk::open(global, place, job)?.acquire(ttl, typed.0.wait.value())
        }
        LeaseVerb::Renew { job, token } => LeaseDesk::open(global, place, job)?.renew(*token),
        LeaseVerb::Release { job, token, outcome: Some(outcome), artifact, note, .. } => {
            let ended = RecordOptions {
                words: vec![job.job.to_string(), outcome.clone()],
                note: note.clone(),
                artifact: artifact.clone(),
                slot: None,
                date: None,
                tz: None,
                token: *token,
                per_host: job.per_host,
            };
            LeaseDesk::open(global, place, job)?.conclude(&ended, token.unwrap_or_default())
        }
        LeaseVerb::Release { job, token, force, .. } => {
            let desk = LeaseDesk::open(global, place, job)?;
            if *force { desk.force_release() } else { desk.release(token.unwrap_or_default()) }
        }
        LeaseVerb::Show { job } => {
            let store = place.open_to_read()?;
            LeaseDesk::with(global, place, job, store)?.show()
        }
        LeaseVerb::Hold { job, typed } => {
            let ttl = super::ttl(typed.0.ttl.value(), &place.store)?;
            LeaseDesk::open(global, place, job)?.hold(ttl, typed.0.wait.value())
        }
    }
}

/// The lease of one job, and the store it is changed in.
struct LeaseDesk<'a> {
    global: &'a Global,
    place: Place,
    job: Job,
    /// The zone in which people are shown the lease.
    zone: Zone,
    store: Arc<dyn Store>,
    me: RunId,
}

impl<'a> LeaseDesk<'a> {
    fn open(global: &'a Global, place: Place, job: &JobArgument) -> Result<Self, Failure> {
        let store = place.open()?;
        Self::with(global, place, job, store)
    }

    fn with(global: &'a Global, place: Place, job: &JobArgument, store: Arc<dyn Store>) -> Result<Self, Failure> {
        let job = super::job(&job.job, job.per_host, &place)?;
        let zone = calendar::zone(None, place.config.as_ref(), &job.name)?;
        Ok(Self { global, place, job, zone, store, me: super::mint_run() })
    }

    fn transact(&self, intent: Intent) -> Result<Box<Done>, TransactError> {
        transact(self.store.as_ref(), &self.place.local(), &self.job, intent, self.me)
    }

    /// Claims or renews. The lease is confirmed valid on return.
    fn take(&self, intent: Intent) -> Result<Held, TakeError> {
        take(self.store.as_ref(), &self.place.local(), &self.job, intent, self.me)
    }

    fn acquire(&self, ttl: Duration, wait: Option<Duration>) -> Result<Code, Failure> {
        let give_up = wait.map(|wait| clock::boot_now() + wait);
        loop {
            match self.take(Intent::Claim(self.claim(ttl))) {
                Ok(held) => {
                    self.place.local().remember_grant(&held.record);
                    self.granted(&held, |record| record.token.to_string());
                    if show::failure().is_some() {
                        // The token was not printed, so no command could release the lease.
                        let _ = self.transact(Intent::Release(held.me()));
                    }
                    return Ok(Code::DONE);
                }
                Err(TakeError::Late(me)) => {
                    let _ = self.transact(Intent::Release(me));
                    return Ok(self.late());
                }
                Err(TakeError::Transact(TransactError::Refused(Refusal::Held { .. })))
                    if give_up.is_some_and(|at| clock::boot_now() < at) =>
                {
                    std::thread::sleep(PAUSE);
                }
                Err(TakeError::Transact(error)) => return self.refused(error),
            }
        }
    }

    fn renew(&self, token: Token) -> Result<Code, Failure> {
        match self.take(Intent::Renew(me(token))) {
            Ok(held) => {
                if self.global.json {
                    self.granted(&held, |_| String::new());
                } else {
                    Voice::of(self.global).tell(&format!("{} renewed.", self.job));
                }
                Ok(Code::DONE)
            }
            Err(TakeError::Late(_)) => Ok(self.late()),
            Err(TakeError::Transact(error)) => self.refused(error),
        }
    }

    fn release(&self, token: Token) -> Result<Code, Failure> {
        let result = self.take_away(Intent::Release(me(token)))?;
        self.released(result, "released")
    }

    /// Records an outcome and releases the lease, in one swap.
    fn conclude(&self, ended: &RecordOptions, token: Token) -> Result<Code, Failure> {
        let (_, word) = record::what(ended)?;
        let (intent, _) = record::conclusion(ended, &self.place, self.store.as_ref(), &self.job, word, token)?;
        match self.take_away(intent)? {
            Err(TransactError::Refused(Refusal::NotHolder { record })) => {
                let message = format!("{} Nothing was recorded.", lost(&self.job, record.as_deref()));
                Ok(self.failed(Code::LOST, ReasonCode::Lost, &message))
            }
            result => self.released(result, &format!("recorded as {} and released", word.as_str())),
        }
    }

    fn force_release(&self) -> Result<Code, Failure> {
        match self.take_away(Intent::ForceRelease)? {
            Err(TransactError::Refused(Refusal::NotHeld)) => {
                Voice::of(self.global).tell(&format!("{} is not held.", self.job));
                self.show()
            }
            result => self.released(result, "released by force"),
        }
    }

    /// Ends a lease and notifies a holder on this host at once, so another run does not start beside it.
    fn take_away(&self, intent: Intent) -> Result<Result<Box<Done>, TransactError>, Failure> {
        let (before, _) = look(self.store.as_ref(), &self.job)?;
        let result = self.transact(intent);
        if let (Ok(_), Some(record)) = (&result, &before) {
            nudge(&self.place.host, record);
        }
        Ok(result)
    }

    fn released(&self, result: Result<Box<Done>, TransactError>, how: &str) -> Result<Code, Failure> {
        match result {
            Ok(done) => {
                if let (true, Some(known)) = (self.global.json, &done.held) {
                    show::json(&LeaseAnswer::new(&known.record, None, clock::now().wall));
                }
                Voice::of(self.global).tell(&format!("{} {how}.", self.job));
                Ok(Code::DONE)
            }
            Err(error) => self.refused(error),
        }
    }

    fn show(&self) -> Result<Code, Failure> {
        let (record, clock) = look(self.store.as_ref(), &self.job)?;
        let now = clock::now().wall;
        let Some(record) = record else {
            if self.global.json {
                show::json(&LeaseAnswer::never_held(&self.job));
            } else {
                show::line(&format!("{} was never held.", self.job));
            }
            return Ok(Code::DONE);
        };
        let remaining = remaining(&record, clock.as_ref());
        if self.global.json {
            let is_dead = record.lease.as_ref().is_some_and(|lease| self.place.host.knows_dead(&lease.holder));
            let remaining = if is_dead { Some(Duration::ZERO) } else { remaining };
            show::json(&LeaseAnswer::new(&record, remaining, now));
        } else {
            show::line(&self.sentence(&record, remaining));
        }
        Ok(Code::DONE)
    }

    fn sentence(&self, record: &Record, remaining: Option<Duration>) -> String {
        let numbers = format!("token {}, grant {}", record.token, record.grants);
        match &record.lease {
            Some(lease) if self.place.host.knows_dead(&lease.holder) => {
                format!("{} is free: the process that held it is dead ({numbers}).", self.job)
            }
            Some(_) if remaining == Some(Duration::ZERO) => {
                format!("{} is free: its lease expired ({numbers}).", self.job)
            }
            Some(lease) => {
                let holder = show::holder(lease, remaining, clock::now().wall);
                format!("{} is held by {holder} ({numbers}).", self.job)
            }
            None => format!("{} is free ({numbers}).", self.job),
        }
    }

    /// Prints the granted lease with the time that its holder may rely on, slightly less than the store's.
    fn granted(&self, held: &Held, text: impl Fn(&Record) -> String) {
        if self.global.json {
            show::json(&LeaseAnswer::new(&held.record, Some(held.remaining()), clock::now().wall));
        } else {
            show::line(&text(&held.record));
        }
    }

    /// Maps a refusal to an exit code: held is 11, lost is 12, everything else is a failure.
    fn refused(&self, error: TransactError) -> Result<Code, Failure> {
        let (code, reason, message) = match error {
            TransactError::Store(error) => return Err(Failure::Store(error)),
            TransactError::Refused(Refusal::Held { record, remaining }) => {
                let holder = record.lease.as_ref().map(|lease| show::holder(lease, remaining, clock::now().wall));
                let holder = holder.unwrap_or_default();
                (Code::HELD, ReasonCode::Held, format!("{} is held by {holder}. To wait for it: --wait 5m", self.job))
            }
            TransactError::Refused(Refusal::NotNow { why: why @ NotNow::Paused { .. }, .. }) => (
                Code::HELD,
                ReasonCode::Paused,
                format!("{}: {} Let it go on: fencepost resume {}", self.job, why.words(), self.job.name),
            ),
            TransactError::Refused(Refusal::NotHolder { record }) => {
                (Code::LOST, ReasonCode::Lost, lost(&self.job, record.as_deref()))
            }
            TransactError::Refused(refusal) => return Err(Failure::Other(format!("{}: {refusal}", self.job))),
        };
        Ok(self.failed(code, reason, &message))
    }

    fn failed(&self, code: Code, reason: ReasonCode, message: &str) -> Code {
        if self.global.json {
            report::error_json(code, reason, message);
        }
        Voice::of(self.global).warn(message);
        code
    }

    /// The lease is not confirmed. No token is printed, because scripts write `acquire && work`.
    fn late(&self) -> Code {
        let message = format!(
            "{}: the lease is not confirmed: the store answered twice, each time after the deadline, when another holder \
             may have the lease. Do nothing under it. Acquire it with a longer time-to-live than the store takes to answer: \
             fencepost lease acquire {} --ttl 5m",
            self.job, self.job.name
        );
        self.failed(Code::LOST, ReasonCode::Lost, &message)
    }

    fn claim(&self, ttl: Duration) -> Claim {
        Claim {
            run: self.me,
            ttl,
            holder: self.place.host.holder_by_hand(),
            slot: Choice::At(clock::now().wall),
            zone: self.zone.name().to_string(),
            trigger: Trigger::Manual,
        }
    }
}

/// Explains that a token no longer holds the lease, and the lease's current state.
pub(super) fn lost(job: &Job, record: Option<&Record>) -> String {
    let now = match record {
        None => "it was never held".to_string(),
        Some(record) => match &record.lease {
            Some(lease) => format!("it is held by {} under token {}", lease.holder.host, record.token),
            None => format!("it is free; the last token was {}", record.token),
        },
    };
    format!("{job}: the lease under this token is lost: {now}. Stop what you do under it, and acquire anew.")
}

pub(super) fn me(token: Token) -> Me {
    Me { token, run: None }
}
