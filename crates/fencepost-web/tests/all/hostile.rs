//! Texts of attackers in every field of every page.

use fencepost_view::answer::ErrorAnswer;
use fencepost_view::text::is_unsafe;
use fencepost_view::vocabulary::ReasonCode;
use fencepost_web::{JobQuery, MoreRuns, OverviewQuery, TimelineQuery};

use crate::demo;
use crate::pages::{pages, read};

/// Every page on which a text can be, with that text in every field.
fn hostile_pages(text: &str) -> Vec<(&'static str, String)> {
    let (board, frame) = (demo::hostile(text), demo::hostile_frame(text));
    let asked = format!("q={0}&show={0}&slot={0}&range={0}&done={0}", fencepost_web::path::segment(text));
    let query = JobQuery::parse(&asked);
    let error = ErrorAnswer::new(2, ReasonCode::Usage, text);
    let acting = fencepost_web::Frame { unavailable: None, ..frame.clone() };
    let mut all = pages(&board, &frame);
    all.extend([
        ("searched", fencepost_web::overview(&board, &frame, &OverviewQuery::parse(&asked))),
        ("searched timeline", fencepost_web::timeline(&board, &MoreRuns::new(), &frame, &TimelineQuery::parse(&asked))),
        ("job", fencepost_web::job(&demo::hostile_job_page(&board, text, &query), &acting)),
        ("stores", fencepost_web::stores(&demo::hostile_store(text), &frame)),
        ("error", fencepost_web::error(400, &error, Some(&frame))),
        ("login", fencepost_web::login(Some(text), Some(text))),
    ]);
    all
}

#[test]
fn no_text_becomes_markup_or_an_address_elsewhere() {
    for text in demo::HOSTILE {
        for (name, page) in hostile_pages(text) {
            // The reader refuses inline script and style, event attributes, and addresses that are not of this server.
            let elements = read(&format!("{name} with {text:?}"), &page);
            let scripts = elements.iter().filter(|element| element.name == "script").count();
            let images =
                elements.iter().filter(|element| ["img", "iframe", "object"].contains(&element.name.as_str())).count();
            assert_eq!((scripts, images), (1, 0), "{name} with {text:?}");
        }
    }
}

#[test]
fn nothing_that_reverses_or_controls_text_is_left() {
    for (name, page) in hostile_pages(demo::HOSTILE[6]) {
        assert!(!page.contains(is_unsafe), "{name}");
        assert!(page.contains("gnp.exe"), "{name}");
    }
}
