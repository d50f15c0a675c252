//! What all pages share: the head, the navigation, what is known of the data's age, and the policy of the content.

use std::time::Duration;

use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_view::text;
use maud::{DOCTYPE, Markup, html};

use crate::asset::{ICON, SCRIPT, STYLE};
use crate::path;

/// The policy that all pages obey.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What a page is told besides its answers.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The store's URL without its password.
    pub store: String,
    /// The server's host, as the names of its own jobs have it.
    pub host: String,
    /// The configuration's path, if there is one.
    pub config: Option<String>,
    pub now: Wall,
    /// How old the answers are.
    pub age: Duration,
    /// Why the store does not answer, while it does not. The answers are the last ones that it gave.
    pub unavailable: Option<String>,
    /// How far the store's clock is ahead of this host's.
    pub clock_offset_ms: Option<i64>,
    /// The name of the token that the viewer signed in with.
    pub signed_in: Option<String>,
    /// Signs the forms of this viewer.
    pub csrf: Option<String>,
    /// The server performs actions.
    pub actions: bool,
    /// The server sends events.
    pub live: bool,
}

impl Frame {
    /// The token for forms, if this viewer may act.
    pub(crate) fn may_act(&self) -> Option<&str> {
        self.csrf.as_deref().filter(|_| self.actions && self.signed_in.is_some() && self.unavailable.is_none())
    }
}

/// The pages that the navigation names.
const PAGES: [(&str, &str); 5] = [
    (path::OVERVIEW, "Overview"),
    (path::TIMELINE, "Timeline"),
    (path::GRAPH, "Graph"),
    (path::FENCES, "Fences"),
    (path::STORES, "Stores"),
];

/// A whole page. `current` is the page that the navigation marks, `notes` are mistakes in the parameters.
pub fn page(frame: &Frame, title: &str, current: &str, notes: &[String], content: &Markup) -> String {
    let live = frame.live.then_some(path::EVENTS);
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body data-now=(frame.now.0) data-events=[live] {
                a.skip href="#main" { "Skip to the content" }
                header.top { (navigation(current)) (standing(frame)) }
                main #main tabindex="-1" {
                    (unavailable(frame))
                    @for note in notes { p.note role="status" { (note) } }
                    (content)
                }
                (footer(frame))
            }
        }
    };
    cleaned(document)
}

/// A page outside the navigation: signing in, and errors before it.
pub fn plain_page(title: &str, content: &Markup) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body.alone {
                header.top { a.brand href=(path::OVERVIEW) { "fencepost" } }
                main #main { (content) }
            }
        }
    };
    cleaned(document)
}

/// The document without control characters and without those that reverse the order of text, in any value of it.
fn cleaned(document: Markup) -> String {
    match text::clean(&document.0) {
        std::borrow::Cow::Borrowed(_) => document.into_string(),
        std::borrow::Cow::Owned(cleaned) => cleaned,
    }
}

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="robots" content="noindex";
            // Forms of these pages are sent with their origin, which the server compares. Other sites learn no address.
            meta name="referrer" content="same-origin";
            title { (title) " · fencepost" }
            link rel="stylesheet" href=(STYLE.path);
            link rel="icon" href=(ICON.path) type="image/svg+xml";
            script src=(SCRIPT.path) defer {}
        }
    }
}

fn navigation(current: &str) -> Markup {
    html! {
        a.brand href=(path::OVERVIEW) { "fencepost" }
        nav aria-label="Pages" {
            @for (href, name) in PAGES {
                a href=(href) aria-current=[(href == current).then_some("page")] { (name) }
            }
        }
    }
}

/// The store, its clock, and when the answers were given.
fn standing(frame: &Frame) -> Markup {
    let at = Wall(frame.now.0.saturating_sub(i64::try_from(frame.age.as_millis()).unwrap_or(i64::MAX)));
    html! {
        p.standing #standing {
            span.store { (frame.store) }
            @if let Some(offset) = frame.clock_offset_ms { span { "clock " (offset_text(offset)) } }
            span { time datetime=(Zone::utc().show(at)) { (text::second(at)) } }
            span #live .live hidden { "live" }
        }
    }
}

/// How far a clock is ahead, with its sign.
pub fn offset_text(millis: i64) -> String {
    match millis {
        0 => "±0 ms".to_string(),
        1.. => format!("+{millis} ms"),
        _ => format!("−{} ms", millis.unsigned_abs()),
    }
}

fn unavailable(frame: &Frame) -> Markup {
    html! {
        @if let Some(why) = &frame.unavailable {
            div.banner role="alert" {
                p { strong { "The store is unavailable." } " This page shows what was known " (text::length(frame.age)) " ago." }
                p.why { (text::flat(why)) }
            }
        }
    }
}

fn footer(frame: &Frame) -> Markup {
    html! {
        footer {
            @if let Some(config) = &frame.config { span { "Configuration " code { (config) } } }
            @if let Some(name) = &frame.signed_in {
                span { "Signed in as " (name) }
                @if let Some(csrf) = &frame.csrf {
                    form method="post" action=(path::LOGOUT) {
                        input type="hidden" name=(path::CSRF_FIELD) value=(csrf);
                        button.link { "Sign out" }
                    }
                }
            } @else if frame.actions {
                a href=(path::LOGIN) { "Sign in" }
            }
        }
    }
}

/// A command to copy. The script adds a button.
pub fn command(text: &str) -> Markup {
    html! { code.command { (text) } }
}
