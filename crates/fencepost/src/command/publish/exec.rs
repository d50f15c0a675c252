//! `fencepost publish exec --resource R -- CMD…`: runs a command under a fence of its resource.

use fencepost_guard::keeper::Keeper;
use fencepost_guard::publish::PublishError;
use fencepost_guard::publish::exec::{self, FencedCommand, Ran};

use super::PublishDesk;
use crate::args::Global;
use crate::args::publish::exec::ExecOptions;
use crate::exit::{Code, Failure};
use crate::inside;
use crate::rehearsal;
use crate::report::Voice;

/// The default grace period, and the largest fraction of the ttl that it may take.
const GRACE: std::time::Duration = std::time::Duration::from_secs(10);
const GRACES_PER_TTL: u32 = 3;

pub fn run(global: &Global, options: &ExecOptions) -> Result<Code, Failure> {
    let Some(resource) = options.common.resource.clone() else {
        return Err(Failure::Usage(
            "publish exec needs --resource R: the name of what the command changes. Every job that changes it must use the same name."
                .to_string(),
        ));
    };
    crate::command::check_ttl(options.ttl)?;
    // The keeper is forked before the store is opened: no database handle crosses a fork, and no thread exists yet.
    rehearsal::find();
    let mut keeper = match options.common.dry_run || rehearsal::is_on() {
        true => None,
        false => Some(Keeper::start().map_err(|error| Failure::Other(format!("Cannot start the keeper: {error}")))?),
    };
    let desk = PublishDesk::open(global, &options.common)?;
    let by_hand = desk.is_by_hand();
    let task = FencedCommand {
        resource: resource.clone(),
        argv: options.command.clone(),
        ttl: options.ttl,
        grace: GRACE.min(options.ttl / GRACES_PER_TTL),
        wait: options.wait,
        // In a publish by hand, a surrounding run is not the writer: its variables are removed.
        env: by_hand
            .then(|| [("FENCEPOST_OUTCOME".into(), None), inside::around()])
            .into_iter()
            .flatten()
            .chain(crate::password::kept_from_children())
            .collect(),
        is_by_hand: by_hand,
    };
    let mut code = Code::DONE;
    let end = desk.publish("exec", resource, |request| {
        let opened = if keeper.is_some() { desk.place.open() } else { desk.place.open_to_read() };
        let store = opened.map_err(from_failure)?;
        let local = desk.place.local();
        let place = exec::FencedHost { store: desk.place.callee(&store), host: &desk.place.host, local: &local };
        let Some(keeper) = keeper.take() else { return exec::dry_run(request, &place, &task) };
        let mut tell = |text: &str| Voice::of(global).tell(text);
        let Ran { receipt, code: ended } = exec::publish(request, place, &task, keeper, &mut tell)?;
        code = Code(u8::try_from(ended).unwrap_or(Code::FAILED.0));
        Ok(receipt)
    })?;
    let published = desk.tell(&end);
    Ok(if published == Code::DONE { code } else { published })
}

fn from_failure(failure: Failure) -> PublishError {
    match failure {
        Failure::Usage(message) => PublishError::Usage(message),
        other => PublishError::Failed(format!("{} Nothing was run.", other.message())),
    }
}
