//! What a viewer who has signed in can do with a job. Each action is confirmed: its button is inside a part of the page
//! that opens first, which needs no script.

use fencepost_view::status::JobState;
use maud::{Markup, html};

use super::JobPage;
use crate::layout::{Frame, command};
use crate::path;
use crate::query::JobAction;

pub fn actions(job: &JobPage<'_>, frame: &Frame) -> Markup {
    let Some(csrf) = frame.may_act() else { return html! {} };
    if let Some(host) = job.other_host(frame) {
        return html! { section.actions #actions aria-label="Actions" { p.calm { "This job is run, paused and released on its host, " (host) "." } } };
    }
    html! {
        section.actions #actions aria-label="Actions" {
            @for action in JobAction::ALL.iter().filter(|action| is_offered(job, **action)) {
                details name="action" {
                    summary { (action.label()) "…" }
                    (form(job, *action, csrf))
                }
            }
        }
    }
}

/// Whether the action would change anything now.
fn is_offered(job: &JobPage<'_>, action: JobAction) -> bool {
    let Some(status) = job.status() else { return false };
    match action {
        JobAction::RunNow => status.configured && status.state != JobState::Running,
        JobAction::Pause => status.paused.is_none(),
        JobAction::Resume => status.paused.is_some(),
        JobAction::Release => status.holder.is_some() || status.state == JobState::Lost,
    }
}

fn form(job: &JobPage<'_>, action: JobAction, csrf: &str) -> Markup {
    let name = job.job;
    let consequence = match action {
        JobAction::RunNow => "Starts a run on the server's host, whether or not a slot is due.",
        JobAction::Pause => "No trigger on any machine starts it until it is resumed.",
        JobAction::Resume => "Triggers start it again.",
        JobAction::Release => "Ends the lease. A run that still goes on loses it and is stopped, wherever it runs.",
    };
    html! {
        form.confirm method="post" action=(path::action(name, action)) {
            input type="hidden" name=(path::CSRF_FIELD) value=(csrf);
            p { (consequence) }
            @if action == JobAction::Pause {
                label { "For how long " input name="for" placeholder="2h" size="6" autocomplete="off"; }
                label { "Note " input name="note" maxlength="200" autocomplete="off"; }
            }
            p { (command(&action.command(name))) }
            button.primary { (action.label()) " " (name) }
        }
    }
}
