//! The claim of a command on a fenced resource: the fence is judged in the same decision that grants the lease.

use alloc::boxed::Box;

use thiserror::Error;

use super::{Cause, Refusal, Rules, Standing};
use crate::fence::{Fence, FenceVerdict, Refused, Write};
use crate::ledger::Trigger;
use crate::record::Record;
use crate::slot::Chosen;

/// Why a command does not get its turn at a fenced resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Error)]
pub enum NoTurn {
    /// The fence refuses it.
    #[error("{0}")]
    Refused(Refused),
    /// This very command was run before.
    #[error("this very command was run before, and ended with exit code {code}")]
    Applied { fence: Box<Fence>, code: i32 },
    /// This very command was started before, and its end is not recorded.
    #[error("this very command was started before, and its end is not recorded")]
    Unknown {
        /// Why the lease under which it ran is over, if it still stands in the record.
        cause: Option<Cause>,
    },
}

/// Decides whether the command may run now.
pub(super) fn choose<R: Rules>(write: &Write, record: Option<&Record>, standing: &Standing) -> Result<Chosen, Refusal> {
    let seen = record.and_then(|record| record.fence.as_ref());
    // The fence comes first: a stale token is refused at once, also while another command runs.
    let verdict = R::judge(seen, write).map_err(|refused| Refusal::NoTurn(NoTurn::Refused(refused)))?;
    let cause = match (standing, record) {
        (Standing::Held { remaining }, Some(record)) => {
            return Err(Refusal::Held { record: Box::new(record.clone()), remaining: *remaining });
        }
        (Standing::Over(cause), _) => Some(*cause),
        _ => None,
    };
    let take = |fence| Chosen { fence: Some(fence), ..Chosen::at(write.at, Trigger::Manual) };
    let fence = match verdict {
        FenceVerdict::Accept(fence) => return Ok(take(fence)),
        FenceVerdict::AlreadyApplied(fence) => fence,
    };
    let last = record.filter(|_| cause.is_none()).and_then(|record| record.ledger.ring.last());
    if last.is_some_and(|last| last.unstarted) {
        // It was let at the resource and could not be started: nothing happened, and the right is not used up.
        return Ok(take(fence));
    }
    Err(Refusal::NoTurn(match R::recorded_code(last) {
        Some(code) => NoTurn::Applied { fence: Box::new(fence), code },
        None => NoTurn::Unknown { cause },
    }))
}
