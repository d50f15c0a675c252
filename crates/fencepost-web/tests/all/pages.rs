//! Each page, on boards of different sizes.

use fencepost_core::ledger::Status;
use fencepost_view::answer::ErrorAnswer;
use fencepost_view::board::Board;
use fencepost_view::vocabulary::ReasonCode;
use fencepost_web::{Disclosed, Frame, JobQuery, MoreRuns, OverviewQuery, TimelineQuery};

use crate::demo;
use crate::html::{Element, parse};

/// All pages of a board that need nothing else.
pub fn pages(board: &Board, frame: &Frame) -> Vec<(&'static str, String)> {
    let filtered = OverviewQuery::parse("show=attention&q=a&sort=next&order=down");
    vec![
        ("overview", fencepost_web::overview(board, frame, &OverviewQuery::default())),
        ("filtered", fencepost_web::overview(board, frame, &filtered)),
        ("timeline", fencepost_web::timeline(board, &MoreRuns::new(), frame, &TimelineQuery::parse(""))),
        ("week", fencepost_web::timeline(board, &MoreRuns::new(), frame, &TimelineQuery::parse("range=week"))),
        ("graph", fencepost_web::graph(board, frame)),
        ("fences", fencepost_web::fences(board, frame)),
        ("stores", fencepost_web::stores(&demo::store(), frame)),
    ]
}

/// Reads a page that must be well-formed.
pub fn read(name: &str, page: &str) -> Vec<Element> {
    parse(page).unwrap_or_else(|mistake| panic!("{name}: {mistake}\n{page}"))
}

fn overview(board: &Board, query: &str) -> String {
    fencepost_web::overview(board, &demo::frame(), &OverviewQuery::parse(query))
}

fn signed_in() -> Frame {
    Frame { signed_in: Some("anna".into()), csrf: Some("c5rf".into()), actions: true, ..demo::frame() }
}

/// The texts of the elements with a class.
fn texts(elements: &[Element], class: &str) -> Vec<String> {
    elements.iter().filter(|element| element.has_class(class)).map(|element| element.text.clone()).collect()
}

/// The jobs of the overview, from top to bottom.
fn rows(page: &str) -> Vec<String> {
    let ids = read("overview", page).into_iter().filter_map(|element| element.attribute("id").map(str::to_string));
    ids.filter_map(|id| id.strip_prefix("job-").map(|job| job.replace("%2F", "/"))).collect()
}

#[test]
fn every_page_is_well_formed_with_any_number_of_jobs() {
    for board in [demo::none(), demo::one(), demo::eight(), demo::many(100)] {
        for (name, page) in pages(&board, &demo::frame()) {
            read(&format!("{name} with {} jobs", board.status.jobs.len()), &page);
        }
        for job in board.status.jobs.iter().take(10) {
            let query = JobQuery::default();
            read(&job.job, &fencepost_web::job(&demo::job_page(&board, &job.job, &query), &demo::frame()));
        }
    }
}

#[test]
fn the_overview_says_first_what_is_wrong_then_why_then_what_runs_next() {
    let page = overview(&demo::eight(), "");
    let elements = read("overview", &page);
    assert_eq!(texts(&elements, "command"), ["fencepost why agent/release-notes", "fencepost why article"]);
    let order = ["need attention", "next: ", "had a stale write refused", "id=\"jobs\"", "Last 24 hours"];
    let places: Vec<_> = order.iter().map(|text| page.find(text)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
    assert_eq!(rows(&page)[..3], ["agent/release-notes", "article", "admob-report"]);
    assert!(page.contains("41 slots: 36 ok, 1 missed, 3 skipped, 1 running"), "{page}");
}

#[test]
fn a_state_is_a_colour_a_symbol_and_a_word() {
    let elements = read("overview", &overview(&demo::eight(), "sort=name"));
    let mut dots = elements.iter().filter(|element| element.has_class("dot"));
    let mut words = elements.iter().filter(|element| element.has_class("word"));
    let (_, _) = (dots.by_ref().take(2).count(), words.by_ref().take(2).count());
    let faces: Vec<_> = dots.zip(words).map(|(dot, word)| (dot.text.clone(), word.text.clone())).collect();
    let expected = [
        ("✓", "ok"),
        ("⊘", "fenced"),
        ("…", "running"),
        ("‖", "halted"),
        ("✓", "ok"),
        ("✓", "ok"),
        ("✓", "ok"),
        ("∅", "empty"),
    ];
    assert_eq!(faces, expected.map(|(symbol, word)| (symbol.to_string(), word.to_string())));
}

#[test]
fn jobs_are_filtered_searched_and_sorted_by_the_address() {
    let board = demo::eight();
    let asked = |query: &str| rows(&overview(&board, query));
    assert_eq!(asked("show=attention"), ["agent/release-notes", "article"]);
    assert_eq!(asked("show=running"), ["agent/triage"]);
    assert_eq!(asked("q=AGENT%2F&sort=name"), ["agent/release-notes", "agent/triage"]);
    assert_eq!(asked("sort=name&order=down")[0], "ticker");
    assert_eq!(asked("sort=duration")[0], "agent/triage");
    assert_eq!(asked("sort=next").last().map(String::as_str), Some("agent/release-notes"));
    assert_eq!(asked("q=nothing"), [""; 0]);
    let page = overview(&board, "sort=size");
    assert!(page.contains("sort=size is unknown. It may be: attention, name"), "{page}");
    assert_eq!(rows(&page).len(), 8);
}

#[test]
fn an_unavailable_store_is_announced_and_its_last_state_is_shown_without_actions() {
    let why = Some("connection refused".to_string());
    let frame = Frame { unavailable: why, age: std::time::Duration::from_secs(192), ..signed_in() };
    let board = demo::eight();
    let page = fencepost_web::overview(&board, &frame, &OverviewQuery::default());
    assert!(page.contains("This page shows what was known 3m12s ago."), "{page}");
    assert_eq!(rows(&page).len(), 8);
    let query = JobQuery::default();
    assert!(
        !fencepost_web::job(&demo::job_page(&board, "article", &query), &frame)
            .contains("method=\"post\" action=\"/api")
    );
}

#[test]
fn actions_are_offered_only_to_those_who_may_act_and_carry_the_token() {
    let (board, query) = (demo::eight(), JobQuery::default());
    let forms = |frame: &Frame, job: &str| -> Vec<String> {
        let page = fencepost_web::job(&demo::job_page(&board, job, &query), frame);
        let elements = read("job", &page);
        let forms: Vec<_> = elements
            .iter()
            .filter_map(|element| element.attribute("action"))
            .filter(|to| to.starts_with("/api"))
            .map(str::to_string)
            .collect();
        let tokens = elements
            .iter()
            .filter(|element| element.attribute("name") == Some("csrf") && element.attribute("value") == Some("c5rf"))
            .count();
        // One more signs the viewer out.
        assert_eq!(tokens, forms.len() + usize::from(frame.csrf.is_some()), "{page}");
        forms
    };
    assert_eq!(
        forms(&signed_in(), "agent/triage"),
        ["/api/v1/jobs/agent%2Ftriage/pause", "/api/v1/jobs/agent%2Ftriage/release"]
    );
    assert_eq!(forms(&signed_in(), "article"), ["/api/v1/jobs/article/run_now", "/api/v1/jobs/article/pause"]);
    assert_eq!(forms(&Frame { actions: false, ..signed_in() }, "article"), [""; 0]);
    assert_eq!(forms(&demo::frame(), "article"), [""; 0]);
}

#[test]
fn what_needs_a_token_is_withheld_without_one() {
    let (board, query) = (demo::eight(), JobQuery::default());
    let mut page = demo::job_page(&board, "article", &query);
    let shown = fencepost_web::job(&page, &demo::frame());
    assert!(shown.contains("23 commits, 4 authors") && shown.contains("/srv/notes"));
    (page.logs, page.config) = (Disclosed::Withheld, Disclosed::Withheld);
    let withheld = fencepost_web::job(&page, &demo::frame());
    assert!(
        !withheld.contains("23 commits") && !withheld.contains("/srv/notes") && withheld.contains("href=\"/login\"")
    );
}

#[test]
fn the_timeline_shows_a_lease_that_passed_on_and_what_the_records_do_not_hold() {
    let page = fencepost_web::timeline(&demo::eight(), &MoreRuns::new(), &demo::frame(), &TimelineQuery::parse(""));
    let elements = read("timeline", &page);
    // One in the legend.
    assert_eq!(elements.iter().filter(|element| element.has_class("pass")).count(), 2);
    assert_eq!(elements.iter().filter(|element| element.has_class("unlisted")).count(), 2);
    let of_host = |colour: &str| elements.iter().filter(|element| element.has_class(colour)).count();
    assert!(of_host("host-0") > 30 && of_host("host-1") > 20);
    assert_eq!(elements.iter().filter(|element| element.has_class("gap")).count(), 2);
    let missed = demo::eight().runs["ticker"].iter().filter(|run| run.status == Status::Missed).count();
    assert_eq!(missed, 1);
}

#[test]
fn a_graph_names_what_a_halt_stops_and_survives_a_circle() {
    let mut board = demo::eight();
    let page = fencepost_web::graph(&board, &demo::frame());
    assert!(page.contains("agent/release-notes, article") && page.contains("edge halted"), "{page}");
    let back = fencepost_view::graph::GraphEdge {
        upstream: "agent/release-notes".into(),
        job: "reference".into(),
        ..board.graph.edges[1].clone()
    };
    board.graph.edges.push(back);
    read("graph", &fencepost_web::graph(&board, &demo::frame()));
}

#[test]
fn an_error_says_what_failed_and_tells_nothing_of_the_store_before_signing_in() {
    let answer = ErrorAnswer::new(
        2,
        ReasonCode::Usage,
        "No job artcle is known on postgres://db/jobs. Did you mean \"article\"?",
    );
    let page = fencepost_web::error(404, &answer, Some(&demo::frame()));
    assert!(read("error", &page).iter().any(|element| element.text.contains("Did you mean \"article\"?")));
    let answer = ErrorAnswer::new(2, ReasonCode::Refused, "A token is needed.");
    let page = fencepost_web::error(401, &answer, None);
    assert!(!page.contains("postgres") && page.contains("Sign in first"), "{page}");
}

#[test]
fn signing_in_goes_on_to_a_page_of_this_server_only() {
    for (next, is_kept) in [
        ("/timeline?range=week", true),
        ("//evil.example/", false),
        ("https://evil.example/", false),
        ("/\\evil.example", false),
    ] {
        let page = fencepost_web::login(Some("That token is not known."), Some(next));
        read("login", &page);
        assert_eq!(page.contains("name=\"next\""), is_kept, "{next}");
    }
}

/// The server compresses pages to about a fifteenth; a limit on the plain bytes keeps that under 200 KB.
#[test]
fn a_thousand_jobs_fit_into_a_small_page() {
    let board = demo::many(1000);
    let page = overview(&board, "");
    assert_eq!(rows(&page).len(), 1000);
    assert!(page.len() < 1_800_000, "{}", page.len());
    let timeline =
        fencepost_web::timeline(&board, &MoreRuns::new(), &demo::frame(), &TimelineQuery::parse("range=week&page=17"));
    assert!(timeline.len() < 200_000, "{}", timeline.len());
}
