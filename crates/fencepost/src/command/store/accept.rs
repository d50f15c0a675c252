//! `fencepost store accept`: accepts another store in place of one that this host has used.

use fencepost_view::answer::{AnswerVersion, StoreAcceptAnswer};

use crate::args::Global;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::show;

pub fn run(global: &Global, place: &Place) -> Result<Code, Failure> {
    let handle = place.handle()?;
    let acceptance = handle.acceptance()?;
    let is_known = acceptance.known.is_some() && acceptance.known == acceptance.found;
    let shown = place.shown_store();
    if !global.json && is_known {
        show::line(&format!("{shown} is the store that this host knows. There is nothing to accept."));
    } else if !global.json {
        let id = |id: Option<fencepost_core::token::StoreId>| id.map_or("none".to_string(), |id| id.to_string());
        show::line(&format!("store          {shown}"));
        show::line(&format!("id known here  {}", id(acceptance.known)));
        show::line(&format!("id found       {}", id(acceptance.found)));
        show::line(MEANING);
    }
    if !is_known {
        handle.accept(acceptance.found)?;
    }
    if global.json {
        show::json(&StoreAcceptAnswer {
            v: AnswerVersion,
            url: shown,
            known: acceptance.known.map(|id| id.to_string()),
            found: acceptance.found.map(|id| id.to_string()),
        });
    } else if !is_known {
        show::line(&match acceptance.found {
            Some(id) => format!("This host accepts store {id} from now on."),
            None => "This host has forgotten the old id. The first run creates a new store.".to_string(),
        });
    }
    Ok(Code::DONE)
}

/// The consequences of another store.
const MEANING: &str = "
What this means:
- Leases, finished slots and the history of the old store are unknown in this one. A slot that is done may run again, and
  a run that began under the old store may still be going.
- Targets that were written under the old store refuse every token of this one until they are adopted once:
  fencepost publish … --adopt
- If the new store is a restored backup, its tokens may be lower than what a target has seen:
  fencepost store recover JOB --fence PATH
- Every other host that has used the old store has to accept the new one too.
";
