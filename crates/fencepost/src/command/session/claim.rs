//! One lease of a session, from its claim to its end: a run whose work the program does.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use fencepost_core::lease::Claim;
use fencepost_core::ledger::Trigger;
use fencepost_core::name::Job;
use fencepost_core::record::Holder;
use fencepost_core::run::{Event, Grant, Run, Stages, Terms};
use fencepost_core::slot::{OnUnknown, late};
use fencepost_core::time::{Boot, millis};
use fencepost_core::token::{RunId, Token};
use fencepost_guard::drive::Note;
use fencepost_guard::pin::Pins;
use fencepost_guard::program::{LossCause, NewsSink, ProgramHandle, ProgramNews, ProgramWork};
use fencepost_guard::publish::{Writer, digest};
use fencepost_guard::transact::{Unsettled, look, settle};
use fencepost_guard::upstream_check::Pinned;
use fencepost_guard::{clock, nudge, retention};
use fencepost_store::Store;
use fencepost_view::ReasonCode;
use fencepost_view::answer::AnswerVersion;
use fencepost_view::event::StopReason;
use fencepost_view::run_end::RunContext;
use fencepost_view::session::{
    ClaimRequest, GrantedReply, OnUnknownWord, OnceRequest, SessionAnswer, SessionEvent, SessionEventLine,
};
use fencepost_view::summary::Summary;
use fencepost_view::time::{LocalTime, UtcTime};

use super::desk::SessionDesk;
use super::lease::{Granted, ProgramLease};
use super::outlet::Importance;
use super::{reply, request};
use crate::calendar::SlotRule;
use crate::command::{self, run};
use crate::events;
use crate::exit::Failure;
use crate::inside;
use crate::notify::Teller;
use crate::place::Place;
use crate::report::Voice;
use crate::settings::Settings;

/// What a program wants a lease for.
#[derive(Debug)]
pub enum LeaseWanted {
    Job(Box<ClaimRequest>),
    /// An item of work that is done once.
    Item(Box<OnceRequest>),
}

/// Claims a lease, and stays with it until it has ended.
pub fn claim(desk: &Arc<SessionDesk>, lease: &Arc<ProgramLease>, wanted: &LeaseWanted) {
    match Attempt::prepare(desk, lease, wanted) {
        Ok(attempt) => attempt.drive(),
        Err(failure) => {
            desk.forget(&lease.id);
            desk.answer(Some(lease.id.clone()), reply::failed(&failure));
            if let Some(release) = lease.ended().release {
                desk.answer(Some(release), reply::failed(&failure));
            }
        }
    }
}

/// A claim with everything that it needs.
struct Attempt {
    desk: Arc<SessionDesk>,
    lease: Arc<ProgramLease>,
    place: Arc<Place>,
    settings: Settings,
    job: Job,
    run: RunId,
    store: Arc<dyn Store>,
    program: ProgramWork,
    /// Keeps the copies of the inputs until the run has ended.
    _pins: Option<Pins>,
}

impl Attempt {
    fn prepare(desk: &Arc<SessionDesk>, lease: &Arc<ProgramLease>, wanted: &LeaseWanted) -> Result<Self, Failure> {
        let place = Place::find(&desk.global)?;
        let (job, settings) = match wanted {
            LeaseWanted::Job(request) => {
                let options = request::claim(request)?;
                let settings = Settings::of_program(&options, place.config.as_ref(), &place.store)?;
                (command::job(&options.job, settings.options.per_host(), &place)?, settings)
            }
            LeaseWanted::Item(request) => {
                let options = request::once(request)?;
                let slot = item_slot(request)?;
                (Job::once(options.key), Settings::of_once_program(options.typed.0, slot, &place.store)?)
            }
        };
        let place = Arc::new(place);
        let run = command::mint_run();
        let store = desk.store(&place)?;
        let failed = |error: std::io::Error| Failure::Other(format!("Cannot claim {job}: {error}"));
        let pins = (!settings.needs.is_empty()).then(|| Pins::new(&place.state, run)).transpose().map_err(failed)?;
        let check = run::check(&settings, &place, &store, pins.as_ref(), None)?;
        let news = Messenger {
            desk: Arc::clone(desk),
            lease: Arc::clone(lease),
            place: Arc::clone(&place),
            zone: settings.zone.clone(),
        };
        let (program, handle) = ProgramWork::new(check, settings.grace, news.sink()).map_err(failed)?;
        lease.begin(handle);
        let (desk, lease) = (Arc::clone(desk), Arc::clone(lease));
        Ok(Self { desk, lease, place, settings, job, run, store, program, _pins: pins })
    }

    fn terms(&self) -> Terms {
        let holder = Holder { inside: inside::runs(), ..self.place.host.holder_of_program() };
        let claim = Claim {
            run: self.run,
            ttl: self.settings.ttl,
            holder,
            slot: self.settings.slot.choice(&self.settings.zone, clock::now().wall),
            zone: self.settings.zone.name().to_string(),
            trigger: Trigger::Manual,
        };
        let terms = run::terms(&self.settings, self.job.clone(), claim);
        // A program prepares by itself, says how it ended, and does not begin without a lease.
        let stages = Stages { prepare: false, ..terms.stages };
        Terms { stages, run_without_store: false, observe: false, empty_exit: None, ..terms }
    }

    fn drive(self) {
        let run = Run::new(self.terms());
        let Self { desk, lease, place, settings, job, run: id, store, program, .. } = self;
        let mut teller = Teller::of(&desk.global, &settings, &place, &job, id);
        let mut grants = None;
        let mut tell = |note: Note| {
            teller.iter_mut().for_each(|teller| teller.note(&events::described(&note)));
            match note {
                Note::Event(Event::Claimed { grants: number, .. }) => grants = Some(number),
                Note::Event(Event::AskedToStop { record }) => nudge(&place.host, &record),
                _ => {}
            }
        };
        let finish = program.drive(run, place.callee(&store), &place.local(), &mut tell);
        let context = RunContext { job: &job, skip_exit: 0, now: clock::now().wall, zone: &settings.zone };
        let summary = context.summary(finish);
        let ended = Ended { desk: &desk, lease: &lease, store: store.as_ref(), job: &job };
        ended.answer(&summary, &settings);
        let left = Unsettled { refused: summary.unrecorded_refusal(), skip: summary.skip };
        let in_a_row = settle(ended.store, &place.local(), &job, id, &place.host.name, left).ok().flatten();
        teller.iter_mut().for_each(|teller| teller.end(&summary, 0, in_a_row));
        if grants.is_some_and(retention::is_due) {
            run::look_after(ended.store, &job, Voice::Nothing);
        }
    }
}

/// A run that has ended, and what is told of it.
struct Ended<'a> {
    desk: &'a SessionDesk,
    lease: &'a ProgramLease,
    store: &'a dyn Store,
    job: &'a Job,
}

impl Ended<'_> {
    /// Answers the claim if it was not granted, or the request that released it.
    fn answer(&self, summary: &Summary, settings: &Settings) {
        let passed = self.lease.ended();
        let id = &self.lease.id;
        if passed.was_cancelled {
            self.desk.forget(id);
            self.desk.answer(Some(id.clone()), reply::cancelled(self.job));
            return self.desk.answer(passed.release, reply::given_up(self.job, summary));
        }
        if !passed.was_granted {
            self.desk.forget(id);
            let answer = self.with_token(reply::not_granted(summary, &settings.zone));
            return self.desk.answer(Some(id.clone()), answer);
        }
        // A lease that was lost is known until the program asks about it.
        let Some(release) = passed.release else { return };
        self.desk.forget(id);
        let answer = match passed.loss {
            Some(why) => reply::lost(&why),
            None => reply::released(summary),
        };
        self.desk.answer(Some(release), answer);
    }

    /// Adds the token of the attempt whose effect is unknown.
    fn with_token(&self, mut answer: SessionAnswer) -> SessionAnswer {
        if let SessionAnswer::Error(error) = &mut answer
            && error.reason == ReasonCode::Unknown
        {
            let record = look(self.store, self.job).ok().and_then(|(record, _)| record);
            error.token = record.map(|record| record.token.number());
        }
        answer
    }
}

/// Tells the program what becomes of its lease.
struct Messenger {
    desk: Arc<SessionDesk>,
    lease: Arc<ProgramLease>,
    place: Arc<Place>,
    zone: fencepost_core::zone::Zone,
}

impl Messenger {
    fn sink(self) -> NewsSink {
        Arc::new(move |news| self.tell(news))
    }

    fn tell(&self, news: ProgramNews) {
        match news {
            ProgramNews::Granted { grant, inputs } => self.grant(&grant, &inputs),
            ProgramNews::Renewed { renewals, deadline } => {
                self.lease.extend(deadline);
                let (until, remaining_ms) = left(deadline);
                self.event(SessionEvent::Renewed { renewals, until, remaining_ms }, Importance::Passing);
            }
            ProgramNews::RenewalFailed { message } => {
                self.event(SessionEvent::RenewalFailed { message }, Importance::Passing);
            }
            ProgramNews::Stop { why, until } => {
                let (until, remaining_ms) = left(until);
                let (reason, message) = (StopReason::of(&why), LossCause::Decided(why).note());
                self.event(SessionEvent::Stop { reason, message, until, remaining_ms }, Importance::Needed);
            }
            ProgramNews::Lost { why } => {
                let message = why.note();
                // A claim that was not granted yet is answered when its run has ended.
                if !self.lease.lose(message.clone()) {
                    return;
                }
                let reason = match why {
                    LossCause::Decided(why) => StopReason::of(&why),
                    LossCause::NotStopped => StopReason::NotStopped,
                };
                self.event(SessionEvent::Lost { reason, message }, Importance::Needed);
            }
        }
    }

    fn event(&self, event: SessionEvent, importance: Importance) {
        let (claim, at) = (self.lease.id.clone(), UtcTime(clock::wall_now()));
        self.desk.outlet.put(&SessionEventLine { v: AnswerVersion, claim, at, event }, importance);
    }

    fn grant(&self, grant: &Grant, inputs: &[Pinned]) {
        let Grant { record, deadline } = grant;
        let Some(lease) = &record.lease else { return };
        let zone = &self.zone;
        let local = |at| LocalTime::new(at, zone);
        let (until, remaining_ms) = left(*deadline);
        let reply = GrantedReply {
            job: record.job.to_string(),
            run: lease.run.to_string(),
            token: record.token.number(),
            grants: record.grants,
            slot: local(lease.slot),
            date: zone.date(lease.slot).to_string(),
            timezone: zone.name().to_string(),
            trigger: lease.trigger,
            late_seconds: late(lease.slot, lease.since).as_secs(),
            slot_from: lease.covers.map(|covers| local(covers.from)),
            slot_to: lease.covers.map(|covers| local(covers.to)),
            slot_count: lease.covers.map(|covers| covers.count),
            key: record.key_of(lease),
            store: record.store.to_string(),
            host: self.place.host.name.clone(),
            inputs: inputs
                .iter()
                .map(|input| (input.upstream.to_string(), input.path.display().to_string()))
                .collect::<BTreeMap<_, _>>(),
            ttl_ms: millis(lease.ttl),
            until,
            remaining_ms,
        };
        let writer = Writer {
            store: record.store,
            job: record.job.clone(),
            token: record.token,
            run: lease.run,
            host: self.place.host.name.clone(),
        };
        let is_awaited = self.lease.grant(
            |handle: ProgramHandle| Granted {
                handle,
                place: Arc::clone(&self.place),
                writer,
                zone: zone.clone(),
                slot: zone.show(lease.slot),
            },
            *deadline,
        );
        if is_awaited {
            self.desk.answer(Some(self.lease.id.clone()), SessionAnswer::Granted(Box::new(reply)));
        }
    }
}

/// The instant of a deadline, and how far it is.
fn left(deadline: Boot) -> (UtcTime, u64) {
    let now = clock::now();
    let left = deadline.since(now.boot);
    (UtcTime(now.wall + left), millis(left))
}

/// How the single slot of an item is claimed.
fn item_slot(request: &OnceRequest) -> Result<SlotRule, Failure> {
    let params = match &request.params {
        None => None,
        Some(text) => {
            let hashed = digest::fingerprint(&mut Cursor::new(text.as_bytes()));
            let (fingerprint, _) = hashed.map_err(|error| Failure::Other(format!("Cannot hash params: {error}")))?;
            Some(fingerprint)
        }
    };
    let on_unknown = match (request.on_unknown.unwrap_or_default(), request.retry_after) {
        (OnUnknownWord::Retry, None) => OnUnknown::Retry,
        (OnUnknownWord::Halt, None) => OnUnknown::Halt,
        (_, Some(token)) => {
            let token = Token::new(token).ok_or_else(|| Failure::Usage(format!("{token} is not a token.")))?;
            OnUnknown::RetryAfter(token)
        }
    };
    Ok(SlotRule::Once { params, on_unknown })
}
