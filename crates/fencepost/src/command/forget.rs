//! `fencepost forget`: removes what is recorded of a job, and hides it.

use std::io::{IsTerminal, Write};

use fencepost_core::lease::Refusal;
use fencepost_core::name::Job;
use fencepost_guard::clock;
use fencepost_guard::forget::forget;
use fencepost_guard::transact::{TransactError, look};
use fencepost_view::ReasonCode;
use fencepost_view::answer::{AnswerVersion, ForgetAnswer};

use crate::args::Global;
use crate::args::operate::ForgetOptions;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::rehearsal;
use crate::report::{self, Voice};
use crate::show;

pub fn run(global: &Global, options: &ForgetOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let job = super::job(&options.job, options.per_host, &place)?;
    let store = place.open_to_read()?;
    if look(store.as_ref(), &job)?.0.is_none() {
        super::must_be_known(&place, store.as_ref(), &job.name)?;
        return Err(Failure::Usage(format!(
            "Nothing is recorded of {job} on {}, so there is nothing to forget.",
            place.shown_store()
        )));
    }
    let question = format!(
        "Forget {job}? Its outcomes and its history on {} are deleted for all machines, and jobs that need it halt until it \
         has run again. No slot runs again by this.",
        place.shown_store()
    );
    let known = Forgettable { global, place: &place, job: &job, name: job.to_string() };
    let Some((code, history)) = known.forget(options.yes, &question)? else { return Ok(Code::DONE) };
    if code != Code::DONE {
        return Ok(code);
    }
    if global.json {
        let (job, key) = (Some(job.to_string()), None);
        show::json(&ForgetAnswer { v: AnswerVersion, job, key, forgotten: true, history });
    }
    let configured = place.config.as_ref().filter(|config| config.names(&job.name));
    let still =
        configured.map(|config| format!(" It is still in {}, and is shown again when it runs.", config.path.display()));
    Voice::of(global).tell(&format!("{job} is forgotten.{}", still.unwrap_or_default()));
    Ok(Code::DONE)
}

/// A job or an item of work, and what people call it.
pub(super) struct Forgettable<'a> {
    pub global: &'a Global,
    pub place: &'a Place,
    pub job: &'a Job,
    pub name: String,
}

impl Forgettable<'_> {
    /// Asks, and forgets it. Returns the exit code and the number of deleted entries; `None` if the answer was no.
    pub fn forget(&self, is_certain: bool, question: &str) -> Result<Option<(Code, usize)>, Failure> {
        rehearsal::refuse("forget")?;
        let store = self.place.open()?;
        let (record, clock) = look(store.as_ref(), self.job)?;
        let is_over = |record| self.place.ask(store.as_ref(), |view| view.is_over(record, clock.as_ref()));
        if let Some(record) = record.as_ref().filter(|record| record.lease.is_some() && !is_over(record)) {
            return Ok(Some((self.held(record, None), 0)));
        }
        if !is_certain && !self.is_confirmed(question)? {
            Voice::of(self.global).warn("Nothing was changed.");
            return Ok(None);
        }
        match forget(store.as_ref(), &self.place.local(), self.job, super::mint_run()) {
            Ok(history) => Ok(Some((Code::DONE, history))),
            Err(TransactError::Refused(Refusal::Held { record, remaining })) => {
                Ok(Some((self.held(&record, remaining), 0)))
            }
            Err(TransactError::Refused(refusal)) => Err(Failure::Other(format!("{}: {refusal}", self.name))),
            Err(TransactError::Store(error)) => Err(Failure::Store(error)),
        }
    }

    /// Asks on a terminal. Anywhere else no person can answer, and `--yes` is required.
    fn is_confirmed(&self, question: &str) -> Result<bool, Failure> {
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(Failure::Usage(format!(
                "Nothing was changed: this cannot be undone, and there is no terminal to ask on. Pass --yes to forget {}.",
                self.name
            )));
        }
        let mut out = std::io::stderr().lock();
        let _ = write!(out, "{} [y/N] ", show::flat(question)).and_then(|()| out.flush());
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        read.map_err(|error| Failure::Other(format!("Cannot read the answer: {error}. Nothing was changed.")))?;
        Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }

    fn held(&self, record: &fencepost_core::record::Record, remaining: Option<std::time::Duration>) -> Code {
        let now = clock::now().wall;
        let holder = record.lease.as_ref().map(|lease| show::holder(lease, remaining, now)).unwrap_or_default();
        let text =
            format!("{} was not forgotten: it is held by {holder}. Repeat this when that run has ended.", self.name);
        if self.global.json {
            report::error_json(Code::HELD, ReasonCode::Held, &text);
        }
        Voice::of(self.global).warn(&text);
        Code::HELD
    }
}
