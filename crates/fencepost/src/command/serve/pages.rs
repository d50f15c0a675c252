//! The pages for browsers. `fencepost-web` renders them; here is what they are told.

use std::sync::Arc;

use fencepost_core::name::Job;
use fencepost_guard::clock;
use fencepost_view::ReasonCode;
use fencepost_view::answer::{AnswerVersion, ErrorAnswer};
use fencepost_view::why::{Sentence, WhyAnswer};
use fencepost_web::{Disclosed, Frame, JobPage, JobQuery, OverviewQuery, TimelineQuery, path};
use hyper::StatusCode;
use hyper::header;

use super::access::Caller;
use super::answer::{ServeRequest, knows};
use super::older_runs::OlderRuns;
use super::poller::{BoardLook, TimedBoard};
use super::reply::{self, ServeReply};
use crate::args::{AdviseOptions, Global, LogsOptions, PlanOptions, WhyOptions};
use crate::command::logs::{self, LogBounds};
use crate::command::plan::Planned;
use crate::command::validate::drift;
use crate::command::{advise, plan, validate, why};
use crate::exit::{Code, Failure};
use crate::place::Place;

const HTML: &str = "text/html; charset=utf-8";

/// What is shown of a log.
const LOG_LINES: usize = 200;
const LOG_BYTES_MAX: u64 = 64 * 1024;

/// The pages, besides signing in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    Overview,
    Timeline,
    Job,
    Graph,
    Fences,
    Stores,
}

/// What a page rests on.
struct Known {
    board: Arc<TimedBoard>,
    frame: Frame,
    older_runs: Arc<OlderRuns>,
}

/// Answers with a page.
pub async fn answer(asked: &ServeRequest<'_>, page: PageKind, query: &str) -> ServeReply {
    let look = asked.server.poller.fresh().await;
    let Some(known) = Known::of(asked, &look) else {
        let why = look.trouble.as_deref().unwrap_or("The store has not answered yet. Load the page again in a moment.");
        return failed(StatusCode::SERVICE_UNAVAILABLE, ReasonCode::StoreFailed, why, None);
    };
    let (query, job) = (query.to_string(), asked.job.map(str::to_string));
    let (global, may_see) = (asked.server.global_of(asked.caller), asked.caller.client().is_some());
    // A page of a thousand jobs takes milliseconds, in which no other answer should wait.
    let rendered =
        tokio::task::spawn_blocking(move || known.render(page, &query, job.as_deref(), &global, may_see, &look)).await;
    rendered.unwrap_or_else(|_| failed(StatusCode::SERVICE_UNAVAILABLE, ReasonCode::Failed, "The page failed.", None))
}

impl Known {
    fn of(asked: &ServeRequest<'_>, look: &BoardLook) -> Option<Self> {
        let board = Arc::clone(look.board.as_ref()?);
        let now = clock::now().wall;
        let session = match asked.caller {
            Caller::Session(session) => Some(session.csrf.clone()),
            Caller::Bearer(_) | Caller::Unknown => None,
        };
        let frame = Frame {
            store: board.board.status.store.clone(),
            host: board.host.clone(),
            config: board.board.status.config.clone(),
            now,
            age: now.since(board.at),
            unavailable: look.trouble.clone(),
            clock_offset_ms: board.clock_offset_ms,
            signed_in: asked.caller.client().map(|client| client.name.clone()),
            csrf: session,
            actions: asked.server.terms.allow_actions,
            live: true,
        };
        Some(Self { board, frame, older_runs: Arc::clone(&asked.server.older_runs) })
    }

    fn render(
        &self,
        page: PageKind,
        query: &str,
        job: Option<&str>,
        global: &Global,
        may_see: bool,
        look: &BoardLook,
    ) -> ServeReply {
        let (board, frame) = (&self.board.board, &self.frame);
        let text = match page {
            PageKind::Overview => fencepost_web::overview(board, frame, &OverviewQuery::parse(query)),
            PageKind::Timeline => {
                let query = TimelineQuery::parse(query);
                let reader = look.trouble.is_none().then_some(global);
                let more = self.older_runs.of(&self.board, &query, frame.now, reader);
                fencepost_web::timeline(board, &more, frame, &query)
            }
            PageKind::Graph => fencepost_web::graph(board, frame),
            PageKind::Fences => fencepost_web::fences(board, frame),
            PageKind::Stores => fencepost_web::stores(&self.board.store_state(look.trouble.as_deref()), frame),
            PageKind::Job => return self.job(job.unwrap_or_default(), &JobQuery::parse(query), global, may_see),
        };
        reply::whole(StatusCode::OK, HTML, text)
    }

    /// The page of one job. It asks the store itself; if that fails, the page has what was known before.
    fn job(&self, name: &str, query: &JobQuery, global: &Global, may_see: bool) -> ServeReply {
        let board = &self.board.board;
        let Some(job) = Job::parse(name).ok().filter(|_| knows(&board.status, name)) else {
            let message = format!("No job {:?} is known here.", name.chars().take(100).collect::<String>());
            return failed(StatusCode::NOT_FOUND, ReasonCode::Usage, &message, Some(&self.frame));
        };
        // A job that each host has its own of is shown by its full name.
        let full = board.status.jobs.iter().find(|known| known.job == name);
        let full = full.or_else(|| {
            board
                .status
                .only(name)
                .jobs
                .first()
                .and_then(|only| board.status.jobs.iter().find(|known| known.job == only.job))
        });
        let full = full.map_or(name, |known| known.job.as_str());
        let job = Job::parse(full).unwrap_or(job);
        let page = match Place::find(global) {
            Ok(place) => self.asked_page(&place, full, &job, query, may_see),
            Err(failure) => self.known_page(full, query, &failure),
        };
        reply::whole(StatusCode::OK, HTML, fencepost_web::job(&page, &self.frame))
    }

    fn asked_page<'a>(
        &'a self,
        place: &Place,
        name: &'a str,
        job: &Job,
        query: &'a JobQuery,
        may_see: bool,
    ) -> JobPage<'a> {
        let at = Some(query.slot.clone()).filter(|slot| !slot.is_empty());
        let why = match why::answer(place, &WhyOptions { job: job.clone(), at, tz: None }) {
            Ok(mut why) => {
                if !may_see {
                    why.withhold_output();
                }
                why
            }
            Err(failure) => return self.known_page(name, query, &failure),
        };
        let plan = plan::answer(place, &PlanOptions { job: Some(job.clone()), at: None, typed: Default::default() });
        let advice = advise::answer(place, &AdviseOptions { job: Some(job.clone()) });
        let config = place.config.as_ref().and_then(|config| validate::job(config, job.name.as_str(), self.frame.now));
        JobPage {
            board: &self.board.board,
            job: name,
            query,
            plan: plan.ok().and_then(|plan| match plan {
                Planned::One(plan) => Some(*plan),
                Planned::All(_) => None,
            }),
            advice: advice.ok().and_then(|advice| advice.jobs.into_iter().find(|advice| advice.job == name)),
            logs: match may_see {
                true => logs_of(place, job, &why),
                false => Disclosed::Withheld,
            },
            config: match (may_see, config) {
                (false, _) => Disclosed::Withheld,
                (true, Some(config)) => Disclosed::Shown(config),
                (true, None) => Disclosed::Absent("The job is not in the server's configuration.".to_string()),
            },
            changed: match may_see {
                true => drift::redefinitions(place, job, self.frame.now).unwrap_or_default(),
                false => Vec::new(),
            },
            why,
        }
    }

    /// The page of a job while the store cannot be asked.
    fn known_page<'a>(&'a self, name: &'a str, query: &'a JobQuery, failure: &Failure) -> JobPage<'a> {
        let runs = self.board.board.runs_of(name);
        let newest = runs.first();
        let text = format!("This slot cannot be explained now: {}", failure.message());
        JobPage {
            board: &self.board.board,
            job: name,
            query,
            why: WhyAnswer {
                v: AnswerVersion,
                job: name.to_string(),
                slot: newest.map(|run| run.slot.clone()),
                date: newest.map(|run| run.date.clone()),
                timezone: newest.map(|run| run.timezone.clone()),
                status: newest.map(|run| run.status),
                sentences: vec![Sentence { about: "store", text }],
                attempts: newest.into_iter().cloned().collect(),
                last_output: Vec::new(),
            },
            plan: None,
            advice: None,
            changed: Vec::new(),
            logs: Disclosed::Absent("The store cannot be asked now.".to_string()),
            config: Disclosed::Absent("The store cannot be asked now.".to_string()),
        }
    }
}

/// What the attempts of a slot printed on this host.
fn logs_of(place: &Place, job: &Job, why: &WhyAnswer) -> Disclosed<fencepost_view::answer::LogList> {
    let slot = why.slot.as_ref().map(|slot| slot.zone.show(slot.at));
    let options =
        LogsOptions { job: Some(job.clone()), run: None, slot, follow: false, lines: None, raw: false, list: false };
    match logs::answer(place, &options, Some(LogBounds { lines: LOG_LINES, bytes: LOG_BYTES_MAX })) {
        Ok(logs) => Disclosed::Shown(logs),
        Err(failure) => Disclosed::Absent(failure.message().to_string()),
    }
}

/// The form that takes a token.
pub fn sign_in(query: &str) -> ServeReply {
    let next = fencepost_web::query::fields(query).remove(path::NEXT_FIELD);
    reply::whole(StatusCode::OK, HTML, fencepost_web::login(None, next.as_deref()))
}

/// The same form after a wrong token.
pub fn sign_in_again(why: &str, next: Option<&str>) -> ServeReply {
    reply::whole(StatusCode::UNAUTHORIZED, HTML, fencepost_web::login(Some(why), next))
}

/// A style sheet, script or icon.
pub fn asset(path: &str) -> ServeReply {
    let Some(asset) = fencepost_web::asset(path) else {
        return failed(StatusCode::NOT_FOUND, ReasonCode::Usage, "There is nothing at this path.", None);
    };
    let reply = reply::whole(StatusCode::OK, asset.content_type, asset.bytes);
    reply::with_header(reply, header::CACHE_CONTROL, "public, max-age=31536000, immutable")
}

/// A failure as a page.
pub fn failed(status: StatusCode, reason: ReasonCode, message: &str, frame: Option<&Frame>) -> ServeReply {
    let code = if reason == ReasonCode::Usage { Code::USAGE } else { Code::FAILED };
    let answer = ErrorAnswer::new(code.0, reason, message);
    reply::whole(status, HTML, fencepost_web::error(status.as_u16(), &answer, frame))
}
