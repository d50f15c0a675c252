//! `fencepost store recover`: raises a job's token above those its targets have seen, after the store lost data.

use std::path::Path;
use std::time::Duration;

use fencepost_core::lease::{Intent, Refusal};
use fencepost_core::name::Job;
use fencepost_core::record::Record;
use fencepost_core::token::{StoreId, Token};
use fencepost_guard::clock;
use fencepost_guard::publish::file::fence_of;
use fencepost_guard::transact::{TransactError, transact};
use fencepost_view::ReasonCode;
use fencepost_view::answer::{AnswerVersion, StoreRecoverAnswer};

use crate::args::Global;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::{self, Voice};
use crate::show;

/// Raises the token above every fence named, and prints the new one.
pub fn run(
    global: &Global,
    place: &Place,
    job: &Job,
    fences: &[String],
    above: Option<Token>,
) -> Result<Code, Failure> {
    let mut highest = above.unwrap_or_default();
    let mut lineages = Vec::new();
    for target in fences {
        let (token, lineage) = fence(job, target)?;
        lineages.extend(lineage.map(|lineage| (target, lineage)));
        highest = highest.max(token);
    }
    if highest == Token::MAX {
        return Err(Failure::Usage(format!("There is no token above {highest}.")));
    }
    let store = place.open()?;
    let intent = Intent::Raise { above: highest };
    let record = match transact(store.as_ref(), &place.local(), job, intent, crate::command::mint_run()) {
        Ok(done) => done.held.map(|known| known.record),
        Err(TransactError::Refused(Refusal::Held { record, remaining })) => {
            return Ok(held(global, job, &record, remaining));
        }
        Err(TransactError::Refused(refusal)) => return Err(Failure::Other(format!("{job}: {refusal}"))),
        Err(TransactError::Store(error)) => return Err(Failure::Store(error)),
    };
    let Some(record) = record else { return Err(Failure::Other(format!("{job} has no record."))) };
    for (target, lineage) in lineages.iter().filter(|(_, lineage)| *lineage != record.store) {
        Voice::of(global).warn(&format!(
            "{target} was written under another store ({lineage}; this one is {}). Its fence refuses every token of this \
             store until one publish … --adopt takes it over.",
            record.store
        ));
    }
    if global.json {
        let (job, token) = (job.to_string(), record.token.number());
        show::json(&StoreRecoverAnswer { v: AnswerVersion, job, token, above: highest.number() });
    } else {
        show::line(&format!("The next token of {job} is above {}.", record.token));
    }
    Ok(Code::DONE)
}

/// Reads the token of one `--fence`: a number, or the fence beside a published file, with the store that issued it.
fn fence(job: &Job, target: &str) -> Result<(Token, Option<StoreId>), Failure> {
    if let Ok(number) = target.parse::<u64>() {
        let token = Token::new(number);
        let token =
            token.ok_or_else(|| Failure::Usage(format!("--fence {target} is not a token: it is 2^53 or more.")))?;
        return Ok((token, None));
    }
    let fence = fence_of(Path::new(target)).map_err(|error| Failure::Usage(error.to_string()))?;
    let fence = fence.ok_or_else(|| {
        Failure::Usage(format!("--fence {target} has no fence: no fencepost publish has written it."))
    })?;
    if fence.job != *job {
        let text = format!("--fence {target}: the job {} writes it, not {job}.", fence.job);
        return Err(Failure::Usage(text));
    }
    Ok((fence.token, Some(fence.store)))
}

/// Reports that a run holds the job: a lease keeps its token until it ends.
fn held(global: &Global, job: &Job, record: &Record, remaining: Option<Duration>) -> Code {
    let holder = record.lease.as_ref().map(|lease| show::holder(lease, remaining, clock::now().wall));
    let message = format!(
        "{job} is held by {}, and a held lease keeps its token. Wait until it ends, or end it with: fencepost lease \
         release {job} --force",
        holder.unwrap_or_default()
    );
    if global.json {
        report::error_json(Code::HELD, ReasonCode::Held, &message);
    }
    Voice::of(global).warn(&message);
    Code::HELD
}
