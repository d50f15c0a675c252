//! The page of an error: what failed, why, and where to go on.

use fencepost_view::answer::ErrorAnswer;
use fencepost_view::text;
use maud::html;

use crate::layout::{Frame, page, plain_page};
use crate::path;

/// An error. Without a frame the viewer has not signed in, and the page says nothing of the store.
pub fn error(status: u16, answer: &ErrorAnswer, frame: Option<&Frame>) -> String {
    let title = title(status);
    let content = html! {
        h1 { (title) }
        p.lead { (text::flat(&answer.error.message)) }
        p { a href=(path::OVERVIEW) { "All jobs" } }
    };
    match frame {
        Some(frame) => page(frame, title, "", &[], &content),
        None => plain_page(title, &content),
    }
}

fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad request",
        401 => "Sign in first",
        403 => "Not allowed",
        404 => "Not found",
        409 => "Held by another",
        413 => "Too large",
        429 => "Too many requests",
        503 => "Store unavailable",
        _ => "Error",
    }
}
