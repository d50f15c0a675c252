//! `fencepost publish git`: pushes commits and the fence in one atomic push.

use fencepost_guard::publish::git::{Outgoing, Wish, hook, publish};
use fencepost_view::answer::{AnswerVersion, GitHookAnswer};

use super::{PublishDesk, PublishEnd};
use crate::args::Global;
use crate::args::publish::GitOptions;
use crate::exit::{Code, Failure};
use crate::report::Voice;
use crate::show;

pub fn write(desk: &PublishDesk<'_>, options: &GitOptions) -> Result<PublishEnd, Failure> {
    let wish = Wish {
        remote: &options.remote,
        branches: &options.branch,
        fence_ref: options.fence_ref.as_deref(),
        rebase: options.rebase,
        limit: options.timeout,
    };
    let commits = Outgoing::find(&options.repo, &wish, &desk.writer.job)?;
    desk.publish("git", commits.resource(), |request| publish(request, &commits))
}

/// Installs or removes the hook that refuses a bare push.
pub fn set_hook(global: &Global, options: &GitOptions) -> Result<Code, Failure> {
    let change = if options.remove { hook::remove } else { hook::install };
    let done = change(&options.repo)?;
    let voice = Voice::of(global);
    let path = done.path.display();
    voice.tell(&match (options.remove, done.changed) {
        (false, true) => format!("{path} refuses a bare git push from inside a run from now on."),
        (false, false) => format!("{path} refuses a bare git push from inside a run already."),
        (true, true) => format!("{path} is as it was before fencepost."),
        (true, false) => format!("{path} has nothing of fencepost in it."),
    });
    if done.shared && done.changed {
        voice.warn(&format!("{path} is where core.hooksPath points: other repositories may use it, too."));
    }
    if global.json {
        let (hook, installed) = (path.to_string(), !options.remove);
        show::json(&GitHookAnswer { v: AnswerVersion, hook, installed, changed: done.changed });
    }
    Ok(Code::DONE)
}
