//! `fencepost store move`: moves everything to another store, job by job.
//!
//! One swap freezes a job's record in the source, and fails if the job is held. Only then is the record written to the
//! target. So at no time, and after no crash, do both stores grant the job. The target is sealed against new jobs until
//! it has everything. Repeating an interrupted move continues it.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::lease::{Honest, Intent, Refusal, Rules, Standing};
use fencepost_core::record::{FORMAT, Identity, Record, Seal, decode, encode};
use fencepost_core::token::{RunId, StoreId, Token};
use fencepost_core::transition::unreadable;
use fencepost_guard::clock;
use fencepost_guard::transact::{TransactError, transact};
use fencepost_store::{Entry, Key, SCAN_KEYS_MAX, Store, StoreError, Swapped, Trouble, bare};
use fencepost_view::ReasonCode;
use fencepost_view::answer::{AnswerVersion, StoreMoveAnswer};

use crate::args::Global;
use crate::args::store::MoveOptions;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::{self, Voice};
use crate::show;

/// How long a claim decided before the store was sealed may still be in flight.
const SETTLING: Duration = Duration::from_secs(2);

/// Maximum number of attempts to change a value that others change at the same time.
const TRIES_MAX: usize = 20;

pub(super) const RECORDS: [&str; 2] = [Key::JOBS, "once/"];
pub(super) const RESOURCES: [&str; 2] = ["resource/", "resource-text/"];
/// Prefixes of keys that are neither copied nor counted.
pub(super) const OURS: [&str; 2] = ["meta/", "probe/"];

#[derive(Debug, Default)]
struct CopyCounts {
    jobs: usize,
    others: usize,
}

impl CopyCounts {
    fn answer(&self, from: &str, to: &str, dry_run: bool) -> StoreMoveAnswer {
        let (from, to) = (from.to_string(), to.to_string());
        StoreMoveAnswer { v: AnswerVersion, from, to, jobs: self.jobs, entries: self.others, dry_run }
    }
}

pub fn run(global: &Global, options: &MoveOptions, from: &Place, to: &Place) -> Result<Code, Failure> {
    let (shown_from, shown_to) = (from.shown_store(), to.shown_store());
    if bare(&from.store) == bare(&to.store) {
        return Err(Failure::Usage(format!("{shown_from} cannot be moved to itself.")));
    }
    if from.is_new()? {
        return Err(Failure::Usage(format!("There is no store at {shown_from}.")));
    }
    match preview(from, to) {
        Err(stopped) => return told(global, stopped),
        Ok(counts) if options.dry_run => {
            tell_preview(global, &shown_from, &shown_to, &counts);
            return Ok(Code::DONE);
        }
        Ok(counts) if !options.yes && !is_confirmed(&shown_from, &shown_to, &counts) => {
            Voice::of(global).warn("Nothing was changed.");
            return Ok(Code::REFUSED);
        }
        Ok(_) => {}
    }
    let (source, target) = (from.open()?, to.open()?);
    let copy = Copy { from, to, source: source.as_ref(), target: target.as_ref(), by: crate::command::mint_run() };
    match copy.run() {
        Ok(counts) => {
            if global.json {
                show::json(&counts.answer(&shown_from, &shown_to, false));
            } else {
                show::line(&format!(
                    "{} jobs and {} other entries are in {shown_to}. {shown_from} is sealed: it grants nothing any more.",
                    counts.jobs, counts.others
                ));
                show::line(&format!("On every machine: fencepost store use {}", bare(&to.store)));
            }
            Ok(Code::DONE)
        }
        Err(stopped) => told(global, stopped),
    }
}

fn told(global: &Global, stopped: Stopped) -> Result<Code, Failure> {
    match stopped {
        Stopped::Failed(failure) => Err(failure),
        Stopped::Held(message) => {
            if global.json {
                report::error_json(Code::HELD, ReasonCode::Held, &message);
            }
            Voice::of(global).warn(&message);
            Ok(Code::HELD)
        }
    }
}

/// Makes every check of a move, and counts what it would move. Neither store is created or changed.
fn preview(from: &Place, to: &Place) -> Result<CopyCounts, Stopped> {
    let open = |place: &Place| place.open_to_read().map_err(Stopped::Failed);
    let (source, target) = (open(from)?, open(to)?);
    let copy = Copy { from, to, source: source.as_ref(), target: target.as_ref(), by: crate::command::mint_run() };
    let id = copy.check_source()?;
    copy.check_target(id)?;
    copy.check_leases()?;
    let keys = keys(source.as_ref())?;
    let jobs = keys.iter().filter(|key| is_in(key, &RECORDS)).count();
    Ok(CopyCounts { jobs, others: keys.len() - jobs })
}

fn tell_preview(global: &Global, from: &str, to: &str, counts: &CopyCounts) {
    if global.json {
        return show::json(&counts.answer(from, to, true));
    }
    show::line(&format!(
        "{} jobs and {} other entries would be moved from {from} to {to}, and {from} would be sealed. Nothing was changed.",
        counts.jobs, counts.others
    ));
}

/// Asks for confirmation on a terminal. A script is not asked.
fn is_confirmed(from: &str, to: &str, counts: &CopyCounts) -> bool {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return true;
    }
    let _ = write!(
        std::io::stderr().lock(),
        "{} jobs and {} other entries are moved from {from} to {to}. Afterwards {from} is sealed: it grants nothing any \
         more, and every machine must use {to}. Move? [y/N] ",
        counts.jobs,
        counts.others
    );
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

/// Why a move stopped.
pub(super) enum Stopped {
    /// A run holds a job.
    Held(String),
    Failed(Failure),
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Failed(Failure::Store(error))
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Held(message) => Self::Other(message),
            Stopped::Failed(failure) => failure,
        }
    }
}

fn usage(text: String) -> Stopped {
    Stopped::Failed(Failure::Usage(text))
}

struct Copy<'a> {
    from: &'a Place,
    to: &'a Place,
    source: &'a dyn Store,
    target: &'a dyn Store,
    by: RunId,
}

impl Copy<'_> {
    fn run(&self) -> Result<CopyCounts, Stopped> {
        let id = self.check_source()?;
        self.check_target(id)?;
        self.check_leases()?;
        self.take_target(id)?;
        self.seal_source()?;
        let (mut seen, mut counts) = (BTreeSet::new(), CopyCounts::default());
        loop {
            let before = seen.len();
            for key in keys(self.source)? {
                if seen.insert(key.clone()) {
                    self.copy(&key, &mut counts)?;
                }
            }
            // A claim that found the store unsealed may still land, and a listing may lag.
            if seen.len() == before && before > 0 {
                break;
            }
            std::thread::sleep(SETTLING);
        }
        self.open_target(id)?;
        Ok(counts)
    }

    /// Returns the identity of the source, and refuses one that has moved elsewhere.
    fn check_source(&self) -> Result<StoreId, Stopped> {
        let Some((identity, _)) = identity(self.source)? else {
            return Err(usage(format!("{} has no jobs: there is nothing to move.", self.from.shown_store())));
        };
        match identity.sealed {
            Some(Seal::MovedTo(to)) if to != self.named() => {
                Err(usage(format!("{} was moved to {to} already.", self.from.shown_store())))
            }
            Some(Seal::FilledFrom(from)) => Err(usage(format!(
                "{} is being filled from {from} itself. End that first, by repeating its store move.",
                self.from.shown_store()
            ))),
            _ => Ok(identity.store),
        }
    }

    /// The target must be empty, or left by an earlier attempt of the same move.
    fn check_target(&self, id: StoreId) -> Result<(), Stopped> {
        let shown = self.to.shown_store();
        match identity(self.target)? {
            Some((Identity { store, .. }, _)) if store == id => Ok(()),
            Some((Identity { sealed: Some(seal), .. }, _)) => {
                Err(usage(format!("{shown} cannot be moved to: {seal}.")))
            }
            _ => match keys(self.target)?.len() {
                0 => Ok(()),
                count => Err(usage(format!(
                    "{shown} has jobs of its own ({count} entries), whose tokens cannot be compared with these. Move to an empty \
                     store."
                ))),
            },
        }
    }

    /// Looks for held jobs before anything is changed.
    fn check_leases(&self) -> Result<(), Stopped> {
        for key in keys(self.source)? {
            let answer = self.source.read(&key)?;
            let Some(entry) = answer.value else { continue };
            if is_in(&key, &RECORDS) {
                let record: Record = value(&entry, &key)?;
                let now = clock::boot_now();
                let facts = self.from.local().facts(Some(&record), now);
                if let Standing::Held { remaining } = Honest::standing(&record, answer.clock.as_ref(), &facts, now) {
                    return Err(self.held(&record, remaining));
                }
            } else if is_in(&key, &RESOURCES) {
                self.at_rest(&resource(&entry, &key)?, answer.clock.as_ref())?;
            }
        }
        Ok(())
    }

    fn held(&self, record: &Record, remaining: Option<Duration>) -> Stopped {
        let holder = record.lease.as_ref().map(|lease| show::holder(lease, remaining, clock::now().wall));
        Stopped::Held(format!(
            "{} is held by {}. A store is moved while no lease is held: try again when it has ended.",
            record.job,
            holder.unwrap_or_default()
        ))
    }

    /// Refuses a resource while a command runs on it.
    fn at_rest(&self, record: &Record, clock: Option<&fencepost_store::StoreClock>) -> Result<(), Stopped> {
        let now = clock::boot_now();
        let facts = self.from.local().facts(Some(record), now);
        match (Honest::standing(record, clock, &facts, now), &record.fence) {
            (Standing::Held { .. }, Some(fence)) => Err(Stopped::Held(format!(
                "{} is busy with a command of {}. A store is moved while no command runs: try again when it has ended.",
                record.job.resource().unwrap_or_default(),
                fence.job
            ))),
            _ => Ok(()),
        }
    }

    /// Gives the target the source's identity, sealed against new jobs until it has them all.
    fn take_target(&self, id: StoreId) -> Result<(), Stopped> {
        let known = identity(self.target)?;
        if known.as_ref().is_some_and(|(identity, _)| identity.store == id) {
            return Ok(());
        }
        let sealed = Some(Seal::FilledFrom(bare(&self.from.store)));
        let version = known.map(|(_, entry)| entry.version);
        self.put_identity(
            self.target,
            version.as_ref(),
            &Identity { v: FORMAT, store: id, sealed, unknown: Default::default() },
        )
    }

    fn seal_source(&self) -> Result<(), Stopped> {
        let Some((identity, entry)) = identity(self.source)? else { return Ok(()) };
        if identity.sealed.is_some() {
            return Ok(());
        }
        let sealed = Identity { sealed: Some(Seal::MovedTo(self.named())), ..identity };
        self.put_identity(self.source, Some(&entry.version), &sealed)
    }

    fn open_target(&self, id: StoreId) -> Result<(), Stopped> {
        match identity(self.target)? {
            Some((identity, entry)) if identity.store == id && identity.sealed.is_some() => {
                let open = Identity { sealed: None, ..identity };
                self.put_identity(self.target, Some(&entry.version), &open)
            }
            _ => Ok(()),
        }
    }

    fn put_identity(
        &self,
        store: &dyn Store,
        expected: Option<&fencepost_store::Version>,
        identity: &Identity,
    ) -> Result<(), Stopped> {
        match store.swap(&Key::identity(), expected, Some(&encode(identity)))?.value {
            Swapped::Won(_) => Ok(()),
            Swapped::Lost(_) => Err(in_the_way("the identity of the store")),
        }
    }

    /// The target's URL as the source records it.
    fn named(&self) -> String {
        bare(&self.to.store)
    }

    fn copy(&self, key: &Key, counts: &mut CopyCounts) -> Result<(), Stopped> {
        if is_in(key, &RECORDS) {
            self.copy_record(key)?;
            counts.jobs += 1;
        } else if is_in(key, &RESOURCES) {
            self.copy_resource(key)?;
            counts.others += 1;
        } else if let Some(entry) = self.source.read(key)?.value {
            // Histories and counters do not change once their job is frozen. The target's own may already be newer, so
            // they are not overwritten.
            self.create(key, &entry.bytes)?;
            counts.others += 1;
        }
        Ok(())
    }

    /// Freezes the record, then writes it to the target. A record already there was copied by an earlier attempt, from
    /// the same frozen value.
    fn copy_record(&self, key: &Key) -> Result<(), Stopped> {
        let Some(entry) = self.source.read(key)?.value else { return Ok(()) };
        let mut record: Record = value(&entry, key)?;
        if record.moved_to.is_none() {
            let intent = Intent::Freeze { to: self.named() };
            record = match transact(self.source, &self.from.local(), &record.job, intent, self.by) {
                Ok(done) => done.held.map_or(record, |known| Arc::unwrap_or_clone(known.record)),
                Err(TransactError::Refused(Refusal::Held { record, remaining })) => {
                    return Err(self.held(&record, remaining));
                }
                Err(TransactError::Refused(refusal)) => {
                    return Err(Stopped::Failed(Failure::Other(format!("{}: {refusal}", record.job))));
                }
                Err(TransactError::Store(error)) => return Err(error.into()),
            };
        }
        let frozen = record.token;
        record.moved_to = None;
        let stands = self.create(key, &record.encode())?;
        let there: Record = decode(&stands).map_err(|why| unreadable(&format!("the record under {key}"), &why))?;
        if there.store != record.store || there.token < frozen {
            return Err(usage(format!(
                "{} has another {} already, of store {} and with token {}. Nothing of it was changed.",
                self.to.shown_store(),
                record.job,
                there.store,
                there.token
            )));
        }
        Ok(())
    }

    /// Copies a resource's fence first and closes it in the source: no token passes the closed one.
    fn copy_resource(&self, key: &Key) -> Result<(), Stopped> {
        for _ in 0..TRIES_MAX {
            let answer = self.source.read(key)?;
            let Some(entry) = answer.value else { return Ok(()) };
            let mut record = resource(&entry, key)?;
            let token = fence_token(&record);
            if token == Some(Token::MAX) {
                return Ok(());
            }
            self.at_rest(&record, answer.clock.as_ref())?;
            self.put_resource(key, &entry.bytes, token)?;
            if let Some(fence) = &mut record.fence {
                fence.token = Token::MAX;
            }
            if let Swapped::Won(_) = self.source.swap(key, Some(&entry.version), Some(&record.encode()))?.value {
                return Ok(());
            }
        }
        Err(in_the_way(key.as_str()))
    }

    fn put_resource(&self, key: &Key, bytes: &[u8], token: Option<Token>) -> Result<(), Stopped> {
        for _ in 0..TRIES_MAX {
            let stands = self.target.read(key)?.value;
            if let Some(stands) = &stands
                && (stands.bytes == bytes || fence_token(&resource(stands, key)?) > token)
            {
                return Ok(());
            }
            let expected = stands.as_ref().map(|entry| &entry.version);
            if let Swapped::Won(_) = self.target.swap(key, expected, Some(bytes))?.value {
                return Ok(());
            }
        }
        Err(in_the_way(key.as_str()))
    }

    /// Creates a value if there is none, and returns the stored one.
    fn create(&self, key: &Key, bytes: &[u8]) -> Result<Vec<u8>, Stopped> {
        match self.target.swap(key, None, Some(bytes))?.value {
            Swapped::Won(_) => Ok(bytes.to_vec()),
            Swapped::Lost(Some(entry)) => Ok(entry.bytes),
            Swapped::Lost(None) => Err(in_the_way(key.as_str())),
        }
    }
}

pub(super) fn in_the_way(what: &str) -> Stopped {
    let detail = format!("Another process is changing {what}. Repeat the command: it goes on where it stopped.");
    Stopped::Failed(Failure::Store(StoreError::not_done(Trouble::Unavailable, detail)))
}

pub(super) fn is_in(key: &Key, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| key.as_str().starts_with(prefix))
}

fn value<T: for<'de> serde::Deserialize<'de>>(entry: &Entry, key: &Key) -> Result<T, Stopped> {
    decode(&entry.bytes).map_err(|why| unreadable(&format!("what is under {key}"), &why).into())
}

fn resource(entry: &Entry, key: &Key) -> Result<Record, Stopped> {
    Record::decode_resource(&entry.bytes).map_err(|why| unreadable(&format!("what is under {key}"), &why).into())
}

fn fence_token(record: &Record) -> Option<Token> {
    record.fence.as_ref().map(|fence| fence.token)
}

pub(super) fn identity(store: &dyn Store) -> Result<Option<(Identity, Entry)>, Stopped> {
    let Some(entry) = store.read(&Key::identity())?.value else { return Ok(None) };
    let identity = decode(&entry.bytes).map_err(|why| unreadable("the store's identity", &why))?;
    Ok(Some((identity, entry)))
}

/// Lists every key to copy, in order.
pub(super) fn keys(store: &dyn Store) -> Result<Vec<Key>, Stopped> {
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let found = store.scan("", after.as_ref(), SCAN_KEYS_MAX)?.value;
        let Some(last) = found.last().cloned() else { return Ok(keys) };
        keys.extend(found.into_iter().filter(|key| !is_in(key, &OURS)));
        after = Some(last);
    }
}
