//! `fencepost publish …`: fenced writes.

mod exec;
mod git;
mod http;
mod redis;
#[cfg(feature = "s3")]
mod s3;
mod sql;

use std::cell::RefCell;
use std::fs::File;
use std::io::{Cursor, ErrorKind, Read, stdin};
use std::path::{Path, PathBuf};

use fencepost_core::fence::Level;
use fencepost_core::lease::Intent;
use fencepost_core::name::Job;
use fencepost_core::said::{Published, Said};
use fencepost_core::token::{RunId, StoreId, Token};
use fencepost_guard::program::ProgramHandle;
use fencepost_guard::publish::payload::Payload;
use fencepost_guard::publish::{PublishError, Receipt, WriteRequest, Writer, file, tree};
use fencepost_guard::transact::{look, transact};
use fencepost_guard::{clock, report_file};
use fencepost_store::redacted;
use fencepost_view::ReasonCode;
use fencepost_view::answer::{AnswerVersion, ErrorDetail, PublishAnswer};

use crate::args::Global;
use crate::args::publish::{FileOptions, PayloadOptions, PublishOptions, PublishVerb, TreeOptions};
use crate::exit::{Code, Failure};
use crate::inside::{Inside, variable};
use crate::place::Place;
use crate::rehearsal;
use crate::report::Voice;
use crate::show;

pub fn run(global: &Global, verb: &PublishVerb) -> Result<Code, Failure> {
    match verb {
        PublishVerb::Exec(options) => return exec::run(global, options),
        PublishVerb::Git(options) if options.hook => return git::set_hook(global, options),
        PublishVerb::Sql(options) if options.is_about_schema() => return sql::change_schema(global, options),
        #[cfg(not(feature = "s3"))]
        PublishVerb::S3(_) => return Err(without_s3()),
        _ => {}
    }
    let desk = PublishDesk::open(global, verb.common())?;
    let end = write(&desk, verb)?;
    Ok(desk.tell(&end))
}

/// Makes a write, and records its result. A command (`exec`) is run elsewhere: it needs a process of its own.
pub fn write(desk: &PublishDesk<'_>, verb: &PublishVerb) -> Result<PublishEnd, Failure> {
    match verb {
        PublishVerb::File(FileOptions { path, patience, payload, .. }) => {
            let mut payload = open_payload(payload)?;
            if rehearsal::is_on() {
                let (whole, diff) = rehearsal::diff(path, payload)?;
                (payload, *desk.diff.borrow_mut()) = (whole, diff);
            }
            desk.publish("file", absolute(path), |request| file::publish(request, path, &mut payload, patience.wait))
        }
        PublishVerb::Tree(TreeOptions { source, path, keep, patience, .. }) => {
            let options = tree::Options { keep: *keep, patience: patience.wait };
            desk.publish("tree", absolute(path), |request| tree::publish(request, source, path, options))
        }
        PublishVerb::Git(options) => git::write(desk, options),
        PublishVerb::Http(options) => http::write(desk, options),
        PublishVerb::Sql(options) => sql::write(desk, options),
        PublishVerb::Redis(options) => redis::write(desk, options),
        #[cfg(feature = "s3")]
        PublishVerb::S3(options) => s3::write(desk, options),
        #[cfg(not(feature = "s3"))]
        PublishVerb::S3(_) => Err(without_s3()),
        PublishVerb::Exec(_) => Err(Failure::Usage(
            "A command under a fence needs a process of its own: fencepost publish exec --job JOB --token T"
                .to_string(),
        )),
    }
}

#[cfg(not(feature = "s3"))]
fn without_s3() -> Failure {
    let step = fencepost_store::how_to_get("s3");
    Failure::Usage(format!("This fencepost is built without publish s3: {step}. Nothing was changed."))
}

/// Reads the payload, to be sent more than once. More than `limit` bytes are refused.
fn whole_payload(options: &PayloadOptions, limit: u64) -> Result<Payload, PublishError> {
    let (place, payload) = match (&options.data, &options.from) {
        (Some(data), _) => ("the request".to_string(), Payload::of_stream(&mut data.as_slice(), limit)),
        (None, None) => ("standard input".to_string(), Payload::of_stream(&mut stdin(), limit)),
        (None, Some(path)) => {
            (path.display().to_string(), File::open(path).and_then(|file| Payload::of_file(file, limit)))
        }
    };
    payload.map_err(|error| {
        PublishError::Usage(match error.kind() {
            ErrorKind::FileTooLarge => format!(
                "The payload from {place} has more than {} GiB, which is the most that this target takes; nothing was \
                 changed.",
                limit >> 30
            ),
            _ => format!("Cannot read the payload from {place}: {error}"),
        })
    })
}

/// The result of a fenced write, accepted or refused.
#[derive(Debug)]
pub struct PublishEnd {
    pub code: Code,
    pub answer: PublishAnswer,
    /// Warnings about the target.
    pub remarks: Vec<String>,
    /// What a person is told.
    message: String,
}

/// Where the result of a publish is recorded.
#[derive(Debug)]
enum NoteTo {
    /// The run's private file, which the wrapper commits with its last swap.
    RunFile(PathBuf),
    /// The lease of a session, whose last swap commits it.
    Lease(ProgramHandle),
    /// The store, at once: the publish is by hand.
    Store,
}

/// The writer of a publish, and where its result is recorded.
pub struct PublishDesk<'a> {
    global: &'a Global,
    common: &'a PublishOptions,
    place: Place,
    writer: Writer,
    note_to: NoteTo,
    /// The slot of the run.
    slot: Option<String>,
    /// How a rehearsed write would change its target, if that is text.
    diff: RefCell<Option<String>>,
}

impl<'a> PublishDesk<'a> {
    pub fn open(global: &'a Global, common: &'a PublishOptions) -> Result<Self, Failure> {
        if let (Some(name), Some(token)) = (&common.job, common.token) {
            // Arguments name the run, but whether it is a rehearsal only its variables say.
            rehearsal::find();
            let place = Place::find(global)?;
            let job = super::job(name, common.per_host, &place)?;
            let writer = writer_by_hand(&place, job, token)?;
            return Ok(Self::with(global, common, place, writer, NoteTo::Store, None));
        }
        // Restores the variables that name the store, if they were stripped.
        let inside = Inside::find()?;
        let place = Place::find(global)?;
        let (writer, said) = writer_of_run(&place, inside)?;
        Ok(Self::with(global, common, place, writer, NoteTo::RunFile(said), variable("FENCEPOST_SLOT")))
    }

    /// For a write under a lease that a session holds.
    pub fn of_lease(
        global: &'a Global,
        common: &'a PublishOptions,
        place: Place,
        writer: Writer,
        slot: String,
        lease: ProgramHandle,
    ) -> Self {
        Self::with(global, common, place, writer, NoteTo::Lease(lease), Some(slot))
    }

    fn with(
        global: &'a Global,
        common: &'a PublishOptions,
        place: Place,
        writer: Writer,
        note_to: NoteTo,
        slot: Option<String>,
    ) -> Self {
        Self { global, common, place, writer, note_to, slot, diff: RefCell::default() }
    }

    /// Makes the write and records its result.
    pub fn publish(
        &self,
        kind: &str,
        resource: String,
        act: impl FnOnce(&WriteRequest) -> Result<Receipt, PublishError>,
    ) -> Result<PublishEnd, Failure> {
        let resource = self.common.resource.clone().unwrap_or(resource);
        let request = self.request();
        if let Some(newer) = self.newer_token() {
            let why = format!("token {} is stale: the job was granted again, under token {newer}", self.writer.token);
            return Ok(self.refused(kind, &resource, Level::Gated, newer, ReasonCode::Stale, &why));
        }
        match act(&request) {
            Ok(receipt) => Ok(self.accepted(kind, &resource, &receipt)),
            Err(PublishError::Refused { refused, level }) => {
                let seen = refused.seen.token;
                Ok(self.refused(kind, &resource, level, seen, refused.reason.into(), &refused.to_string()))
            }
            Err(error @ PublishError::OtherContent { .. }) => {
                Ok(self.other_content(kind, &resource, &error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Prints the result of a write, and returns the exit code.
    pub fn tell(&self, end: &PublishEnd) -> Code {
        let voice = Voice::of(self.global);
        for remark in &end.remarks {
            voice.warn(remark);
        }
        match end.code {
            Code::DONE => voice.tell(&end.message),
            _ => voice.warn(&end.message),
        }
        if self.global.json {
            show::json(&end.answer);
        }
        end.code
    }

    /// The content is not what was rehearsed. Inside a run that fails the run.
    fn other_content(&self, kind: &str, resource: &str, why: &str) -> PublishEnd {
        let (code, reason) = (Code::NO_OUTPUT, ReasonCode::DigestMismatch);
        let why = format!("{resource}: {why}");
        if !self.is_dry() && !self.is_by_hand() {
            let _ = self.say(Said::OtherContent(why.clone()));
        }
        let message = format!("{why}. Nothing was changed. Rehearse the job again: fencepost run JOB --rehearse");
        let error = ErrorDetail { code: code.0, reason, message: why, key: None };
        let answer = PublishAnswer { error: Some(error), ..self.json(kind, resource) };
        PublishEnd { code, answer, remarks: Vec::new(), message }
    }

    fn is_by_hand(&self) -> bool {
        matches!(self.note_to, NoteTo::Store)
    }

    /// Whether the command line names the target: every user of this machine can read it.
    fn is_typed(&self) -> bool {
        !matches!(self.note_to, NoteTo::Lease(_))
    }

    /// Whether nothing is written: as asked for, or in a rehearsal.
    fn is_dry(&self) -> bool {
        self.common.dry_run || rehearsal::is_on()
    }

    fn request(&self) -> WriteRequest {
        WriteRequest {
            writer: self.writer.clone(),
            mode: self.common.mode,
            op: self.common.op.clone(),
            adopt: self.common.adopt,
            dry_run: self.is_dry(),
            if_digest: self.common.if_digest.clone(),
        }
    }

    /// Looks for a newer token of the job where that is cheap. This is an early warning and only the fence decides, so
    /// a failure here is ignored.
    fn newer_token(&self) -> Option<Token> {
        if !self.place.properties().is_embedded {
            return None;
        }
        let (record, _) = look(self.place.open_to_read().ok()?.as_ref(), &self.writer.job).ok()?;
        let record = record.filter(|record| record.store == self.writer.store)?;
        (record.token > self.writer.token).then_some(record.token)
    }

    fn accepted(&self, kind: &str, resource: &str, receipt: &Receipt) -> PublishEnd {
        self.note(kind, resource, receipt.level, receipt.fence.token, None);
        if rehearsal::is_on() {
            let digest = &receipt.fence.digest;
            let what = format!("publish {kind} {resource} under token {}", self.writer.token);
            rehearsal::tell(self.global, &what, Some(digest), self.diff.borrow_mut().take());
        }
        let dry = if self.is_dry() { "would be " } else { "" };
        let what = if receipt.already_applied { "already applied" } else { "accepted" };
        let (token, level) = (self.writer.token, receipt.level.as_str());
        let answer = PublishAnswer {
            accepted: true,
            level: receipt.level,
            seen: receipt.fence.token.number(),
            already_applied: receipt.already_applied,
            digest: Some(receipt.fence.digest.clone()),
            ..self.json(kind, resource)
        };
        let message = format!("{resource}: {dry}{what} under token {token} ({level}).");
        PublishEnd { code: Code::DONE, answer, remarks: receipt.remarks.clone(), message }
    }

    fn refused(
        &self,
        kind: &str,
        resource: &str,
        level: Level,
        seen: Token,
        reason: ReasonCode,
        why: &str,
    ) -> PublishEnd {
        self.note(kind, resource, level, seen, Some(why.to_string()));
        let job = &self.writer.job;
        let message = format!(
            "{resource}: refused: {why}. Nothing was changed. Who has the job: fencepost status {job}. What each reason means: \
             docs/reference/reasons.md#{reason}"
        );
        let json = PublishAnswer { level, seen: seen.number(), ..self.json(kind, resource) };
        let error = ErrorDetail { code: Code::FENCED.0, reason, message: why.to_string(), key: None };
        let answer = PublishAnswer { error: Some(error), ..json };
        PublishEnd { code: Code::FENCED, answer, remarks: Vec::new(), message }
    }

    fn json(&self, kind: &str, resource: &str) -> PublishAnswer {
        PublishAnswer {
            v: AnswerVersion,
            resource: resource.to_string(),
            kind: kind.to_string(),
            accepted: false,
            level: Level::Gated,
            token: self.writer.token.number(),
            seen: 0,
            mode: self.request().mode,
            already_applied: false,
            digest: None,
            error: None,
        }
    }

    /// Records the result: inside a run the wrapper commits it with its last swap, by hand it goes to the store at
    /// once.
    fn note(&self, kind: &str, resource: &str, level: Level, seen: Token, refused: Option<String>) {
        if self.is_dry() {
            return;
        }
        let published = Published {
            resource: resource.to_string(),
            kind: kind.to_string(),
            level,
            token: self.writer.token,
            run: self.writer.run,
            at: clock::wall_now(),
            seen,
            refused,
        };
        let noted = match &self.note_to {
            NoteTo::Store => self.note_in_store(published),
            _ => self.say(Said::Published(published)),
        };
        if let Err(why) = noted {
            Voice::of(self.global).warn(&format!("{resource}: what became of it could not be noted down: {why}"));
        }
    }

    /// Reports something that the last swap of the run commits.
    fn say(&self, said: Said) -> Result<(), String> {
        match &self.note_to {
            NoteTo::RunFile(path) => {
                report_file::append(path, self.writer.run, said).map_err(|error| error.to_string())
            }
            NoteTo::Lease(lease) => {
                lease.say(said);
                Ok(())
            }
            NoteTo::Store => Ok(()),
        }
    }

    fn note_in_store(&self, published: Published) -> Result<(), String> {
        let store = self.place.open().map_err(|failure| failure.message().to_string())?;
        let intent = Intent::NotePublish(published);
        let noted = transact(store.as_ref(), &self.place.local(), &self.writer.job, intent, super::mint_run());
        noted.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Usage(message) => Self::Usage(message),
            other => Self::Other(other.to_string()),
        }
    }
}

/// Reads the writer from the surrounding run's environment, without asking the store.
fn writer_of_run(place: &Place, inside: Option<Inside>) -> Result<(Writer, PathBuf), Failure> {
    let token = variable("FENCEPOST_TOKEN").and_then(|token| token.parse().ok()).and_then(Token::new);
    let store = variable("FENCEPOST_STORE_ID").and_then(|id| id.parse().ok()).map(|RunId(id)| StoreId(id));
    match (inside, token, store) {
        (Some(Inside { run, job, said }), Some(token), Some(store)) => {
            Ok((Writer { store, job, token, run, host: place.host.name.clone() }, said))
        }
        _ => Err(Failure::Usage(
            "There is no token to write under. Call it inside fencepost run, or take a lease by hand and give \
             --job JOB --token T. (A run that was started without a lease has no token either.)"
                .to_string(),
        )),
    }
}

/// Returns the writer for a token acquired by hand, with the run and the store id of the record.
fn writer_by_hand(place: &Place, job: Job, token: u64) -> Result<Writer, Failure> {
    let token =
        Token::new(token).ok_or_else(|| Failure::Usage(format!("{token} is not a token: it is 2^53 or more.")))?;
    let (record, _) = look(place.open_to_read()?.as_ref(), &job)?;
    let Some(record) = record else {
        return Err(Failure::Usage(format!("{job} was never granted a token on {}.", place.shown_store())));
    };
    if token > record.token {
        return Err(Failure::Usage(format!("{job} was never granted token {token}; the newest is {}.", record.token)));
    }
    // A run that has ended is among the outcomes. The record no longer names the holder of any other older or released
    // token. A run id derived from the token replaces it, so every publish with that token is judged alike.
    let lease = record.lease.as_ref().filter(|_| record.token == token).map(|lease| lease.run);
    let ended = || record.ledger.ring.iter().find(|outcome| outcome.token == token).map(|outcome| outcome.run);
    let run = lease.or_else(ended).unwrap_or(RunId(uuid::Uuid::from_u128(token.number().into())));
    Ok(Writer { store: record.store, job, token, run, host: place.host.name.clone() })
}

fn open_payload(options: &PayloadOptions) -> Result<Box<dyn Read>, Failure> {
    if let Some(data) = &options.data {
        return Ok(Box::new(Cursor::new(data.clone())));
    }
    match &options.from {
        None => Ok(Box::new(stdin())),
        Some(path) => File::open(path)
            .map(|file| Box::new(file) as Box<dyn Read>)
            .map_err(|error| Failure::Usage(format!("Cannot read the payload from {}: {error}", path.display()))),
    }
}

/// The URL of a target, from the command line or from a variable, which `ps` does not show.
struct TargetUrl {
    url: String,
    /// The warning about a password that every user of this machine can read while the command runs.
    exposed: Option<String>,
}

impl TargetUrl {
    fn find(given: Option<&String>, name: &str, example: &str, is_typed: bool) -> Result<Self, Failure> {
        let url = given.cloned().or_else(|| variable(name)).filter(|url| !url.is_empty());
        let missing = || format!("Where to? Give --url or set {name}, for example {example}.");
        let url = url.ok_or_else(|| Failure::Usage(missing()))?;
        let shows_password =
            is_typed && given.is_some() && redacted(&url.replacen("postgresql:", "postgres:", 1)).contains("***");
        let exposed = shows_password.then(|| {
            format!("The password in --url can be seen by everyone on this machine (ps): put the URL into {name}.")
        });
        Ok(Self { url, exposed })
    }

    /// Adds the warning to the receipt of an accepted write.
    fn warn(self, mut receipt: Receipt) -> Result<Receipt, PublishError> {
        receipt.remarks.extend(self.exposed);
        Ok(receipt)
    }
}

/// Reads the whole payload, because its target needs it in one piece. Reads one byte more than the limit: the target
/// then refuses it.
fn read_payload(options: &PayloadOptions, bytes_max: usize) -> Result<Vec<u8>, PublishError> {
    let mut bytes = Vec::new();
    let payload = open_payload(options).map_err(|failure| PublishError::Usage(failure.message().to_string()))?;
    let read = payload.take(bytes_max as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| PublishError::Failed(format!("Cannot read the payload ({error}); nothing was changed.")))?;
    Ok(bytes)
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}
