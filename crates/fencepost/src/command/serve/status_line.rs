//! One line for uptime monitors, and the metrics.

use fencepost_view::prometheus::{self, MetricsFormat, ServerMetrics};
use fencepost_view::text::flat;
use hyper::StatusCode;
use hyper::header;

use super::answer::ServeRequest;
use super::poller::BoardLook;
use super::reply::{self, ServeReply};

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// 200 if a job is fine or paused, 503 if it needs attention.
pub async fn answer(asked: &ServeRequest<'_>) -> ServeReply {
    if let Err(why) = asked.parameters.only(&[]) {
        return reply::text(StatusCode::BAD_REQUEST, format!("{}\n", flat(&why)));
    }
    let board = match asked.board_with_job().await {
        Ok(board) => board,
        Err(reply) if reply.status() == StatusCode::NOT_FOUND => {
            return reply::text(StatusCode::NOT_FOUND, "unknown job\n");
        }
        Err(_) => return reply::text(StatusCode::SERVICE_UNAVAILABLE, "unknown: the store cannot be read now\n"),
    };
    let status = board.board.status.only(asked.job.unwrap_or_default());
    if let Some(attention) = status.attention.first() {
        let line = format!("{}: {}\n", attention.reason, flat(&attention.sentence));
        return reply::text(StatusCode::SERVICE_UNAVAILABLE, line);
    }
    let states: Vec<&str> = status.jobs.iter().map(|job| job.state.as_str()).collect();
    reply::text(StatusCode::OK, format!("ok: {} is {}\n", flat(asked.job.unwrap_or_default()), states.join(", ")))
}

/// The jobs as metrics, in the format that the scraper asks for.
pub async fn metrics(asked: &ServeRequest<'_>) -> ServeReply {
    if let Err(why) = asked.parameters.only(&[]) {
        return reply::bad_request(&why);
    }
    let BoardLook { board, trouble, count, .. } = asked.server.poller.fresh().await;
    let Some(board) = board else {
        return reply::unavailable(trouble.as_deref().unwrap_or("The store has not answered yet."));
    };
    let accepted = asked.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (format, kind) = match { accepted }.any(|accepted| accepted.contains("application/openmetrics-text")) {
        true => (MetricsFormat::OpenMetrics, OPEN_METRICS),
        false => (MetricsFormat::Text, PROMETHEUS),
    };
    let metrics = ServerMetrics {
        board: &board.board,
        durations: &board.durations,
        version: env!("CARGO_PKG_VERSION"),
        is_store_up: trouble.is_none(),
        store_polls: count,
    };
    let reply = reply::whole(StatusCode::OK, kind, prometheus::server_exposition(&metrics, format));
    reply::with_header(reply, header::VARY, "Accept")
}
