//! Each page, on boards of different sizes.

use fencepost_view::board::Board;
use fencepost_web::{Frame, OverviewQuery, TimelineQuery};

use crate::demo;
use crate::html::{Element, parse};

/// All pages of a board that need nothing else.
pub fn pages(board: &Board, frame: &Frame) -> Vec<(&'static str, String)> {
    vec![
        ("overview", fencepost_web::overview(board, frame, &OverviewQuery::default())),
        (
            "filtered",
            fencepost_web::overview(board, frame, &OverviewQuery::parse("show=attention&q=a&sort=next&order=down")),
        ),
        ("timeline", fencepost_web::timeline(board, frame, &TimelineQuery::parse(""))),
        ("week", fencepost_web::timeline(board, frame, &TimelineQuery::parse("range=week"))),
        ("graph", fencepost_web::graph(board, frame)),
        ("fences", fencepost_web::fences(board, frame)),
        ("login", fencepost_web::login(Some("That token is not known."), Some("/timeline"))),
    ]
}

fn texts(elements: &[Element], class: &str) -> Vec<String> {
    let of_class = |element: &&Element| {
        element.attribute("class").is_some_and(|classes| classes.split(' ').any(|known| known == class))
    };
    elements.iter().filter(of_class).map(|element| element.text.clone()).collect()
}

#[test]
fn every_page_is_well_formed_with_any_number_of_jobs() {
    for board in [demo::none(), demo::one(), demo::eight(), demo::many(100)] {
        for (name, page) in pages(&board, &demo::frame()) {
            if let Err(mistake) = parse(&page) {
                panic!("{name} with {} jobs: {mistake}", board.status.jobs.len());
            }
        }
    }
}

#[test]
fn the_overview_says_first_what_is_wrong_then_why() {
    let page = fencepost_web::overview(&demo::eight(), &demo::frame(), &OverviewQuery::default());
    let elements = parse(&page).unwrap();
    assert_eq!(texts(&elements, "command"), ["fencepost why agent/release-notes", "fencepost why article"]);
    let places: Vec<_> = ["need attention", "had a stale write refused", "id=\"jobs\"", "Last 24 hours"]
        .map(|text| page.find(text))
        .to_vec();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
    // A state is a colour, a symbol and a word: as many of the latter as jobs.
    assert!(texts(&elements, "word").iter().any(|word| word == "running"), "{page}");
}
