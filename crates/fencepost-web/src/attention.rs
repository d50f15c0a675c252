//! What needs attention: the sentence that says why, and the command that tells more.

use fencepost_view::attention::Attention;
use fencepost_view::text::flat;
use maud::{Markup, html};

use crate::face::Face;
use crate::{layout, path};

/// One job that needs attention, or the store itself. A job that cannot be read from the configuration has no page.
pub fn card(job: Option<&str>, has_page: bool, all: &[&Attention]) -> Markup {
    let Some(first) = all.first() else { return html! {} };
    let face = Face::of_reason(first.reason);
    html! {
        li.card .(face.class) {
            (face.dot())
            div.what {
                @for attention in all {
                    p.why { (sentence(job.filter(|_| has_page), &attention.sentence)) " " (Face::of_reason(attention.reason).text()) }
                }
            }
            div.then { @for command in commands(all) { p { (layout::command(&command)) } } }
        }
    }
}

fn commands(all: &[&Attention]) -> Vec<String> {
    let mut commands: Vec<String> = all.iter().filter_map(|attention| attention.command.as_deref().map(flat)).collect();
    commands.dedup();
    commands
}

/// The sentence as `status` prints it, in which the name of the job is a link to its page.
fn sentence(job: Option<&str>, sentence: &str) -> Markup {
    let sentence = flat(sentence);
    let Some(job) = job else { return html! { (sentence) } };
    let link = html! { a.job href=(path::job(job)) { (job) } };
    match sentence.split_once(job) {
        Some((before, after)) => html! { (before) (link) (after) },
        None => html! { (link) ": " (sentence) },
    }
}
