//! Writes pages of invented jobs into a directory, to be looked at: `cargo run -p fencepost-web --example pages -- DIR`.

#[path = "../tests/all/demo/mod.rs"]
mod demo;

use std::fs;
use std::path::Path;

use fencepost_view::board::Board;
use fencepost_web::{Frame, JobQuery, MoreRuns, OverviewQuery, TimelineQuery};

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).expect("the directory to write to");
    let directory = Path::new(&directory);
    let frame = demo::frame();
    let away = Frame {
        unavailable: Some("connection refused (db:5432)".to_string()),
        age: std::time::Duration::from_secs(192),
        ..demo::frame()
    };
    fs::create_dir_all(directory.join("assets"))?;
    for (name, board, frame) in [
        ("eight", demo::eight(), &frame),
        ("one", demo::one(), &frame),
        ("none", demo::none(), &frame),
        ("many", demo::many(300), &frame),
        ("thousand", demo::many(1000), &frame),
        ("away", demo::eight(), &away),
    ] {
        pages(directory, name, &board, frame)?;
    }
    hostile(directory)?;
    assets(directory)
}

fn pages(directory: &Path, name: &str, board: &Board, frame: &Frame) -> std::io::Result<()> {
    let write = |page: &str, text: String| fs::write(directory.join(format!("{name}-{page}.html")), text);
    write("overview", fencepost_web::overview(board, frame, &OverviewQuery::default()))?;
    write("timeline", fencepost_web::timeline(board, &MoreRuns::new(), frame, &TimelineQuery::parse("")))?;
    write("week", fencepost_web::timeline(board, &MoreRuns::new(), frame, &TimelineQuery::parse("range=week")))?;
    write("graph", fencepost_web::graph(board, frame))?;
    if let Some(job) = board.status.by_urgency().first() {
        let acting = Frame {
            signed_in: Some("anna".to_string()),
            csrf: Some("c5rf".to_string()),
            actions: true,
            ..frame.clone()
        };
        write("job", fencepost_web::job(&demo::job_page(board, &job.job, &JobQuery::default()), &acting))?;
    }
    write("stores", fencepost_web::stores(&demo::store(), frame))?;
    write("fences", fencepost_web::fences(board, frame))?;
    write("login", fencepost_web::login(None, None))
}

/// Pages full of texts that attackers would write.
fn hostile(directory: &Path) -> std::io::Result<()> {
    for (number, text) in demo::HOSTILE.into_iter().enumerate() {
        let (board, frame, query) = (demo::hostile(text), demo::hostile_frame(text), JobQuery::default());
        let name = format!("hostile-{number}");
        pages(directory, &name, &board, &frame)?;
        let job = fencepost_web::job(&demo::hostile_job_page(&board, text, &query), &frame);
        fs::write(directory.join(format!("{name}-job.html")), job)?;
        fs::write(
            directory.join(format!("{name}-stores.html")),
            fencepost_web::stores(&demo::hostile_store(text), &frame),
        )?;
    }
    Ok(())
}

/// The style sheet, the script and the icon, whose paths are in the pages.
fn assets(directory: &Path) -> std::io::Result<()> {
    let page = fencepost_web::login(None, None);
    for path in page.split('"').filter(|path| path.starts_with("/assets/")) {
        let asset = fencepost_web::asset(path).expect("an asset of the page");
        fs::write(directory.join(&path[1..]), asset.bytes)?;
    }
    Ok(())
}
