//! `fencepost store recover`: raises a job's token above what targets have seen, after the store lost some of it.

use std::path::Path;

use fencepost_core::lease::{Intent, Refusal};
use fencepost_core::name::Job;
use fencepost_core::token::Token;
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

pub fn run(
    global: &Global,
    place: &Place,
    job: &Job,
    fences: &[String],
    above: Option<Token>,
) -> Result<Code, Failure> {
    let voice = Voice::of(global);
    let mut highest = above.unwrap_or_default();
    let mut lineages = Vec::new();
    for target in fences {
        let token = match target.parse::<u64>() {
            Ok(number) => Token::new(number)
                .ok_or_else(|| Failure::Usage(format!("--fence {target} is not a token: it is 2^53 or more.")))?,
            Err(_) => {
                let fence = fence_of(Path::new(target)).map_err(|error| Failure::Usage(error.to_string()))?;
                let fence = fence.ok_or_else(|| {
                    let text = format!("--fence {target}: nothing was ever published there, so that it has no fence.");
                    Failure::Usage(text)
                })?;
                if fence.job != *job {
                    return Err(Failure::Usage(format!(
                        "--fence {target}: it is written by the job {}, not by {job}.",
                        fence.job
                    )));
                }
                lineages.push((target, fence.store));
                fence.token
            }
        };
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
            let holder = record.lease.as_ref().map(|lease| show::holder(lease, remaining, clock::now().wall));
            let message = format!(
                "{job} is held by {}, and the token under a lease stays what it is. Wait for its end, or end it by: fencepost \
                 lease release {job} --force",
                holder.unwrap_or_default()
            );
            if global.json {
                report::error_json(Code::HELD, ReasonCode::Held, &message);
            }
            voice.warn(&message);
            return Ok(Code::HELD);
        }
        Err(TransactError::Refused(refusal)) => return Err(Failure::Other(format!("{job}: {refusal}"))),
        Err(TransactError::Store(error)) => return Err(Failure::Store(error)),
    };
    let Some(record) = record else { return Err(Failure::Other(format!("{job} has no record."))) };
    for (target, lineage) in lineages.iter().filter(|(_, lineage)| *lineage != record.store) {
        voice.warn(&format!(
            "{target} was written under another store ({lineage}; this one is {}): its fence refuses every token of this \
             one until it is taken over once, by publish … --adopt.",
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
