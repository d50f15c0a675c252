//! Texts of attackers in every field.

use std::sync::Arc;

use fencepost_view::answer::{CheckLine, CheckResult, LastStoreCheck, RecordedArtifact, StoreStateAnswer};
use fencepost_view::attention::{Attention, AttentionReason};
use fencepost_view::board::Board;
use fencepost_view::graph::GraphEdge;
use fencepost_view::status::{FenceStatus, PausedJob, UpstreamGauge};
use fencepost_view::time::LocalTime;
use fencepost_view::why::Sentence;
use fencepost_web::{Disclosed, Frame, JobPage, JobQuery};

use super::page::{job_page_of, store};
use super::{DemoJob, board, demo_job, edge, fence, frame, now, zone};

/// What an attacker would write into any text that reaches a page.
pub const HOSTILE: [&str; 8] = [
    "\"><script>alert(1)</script>",
    "'><img src=x onerror=alert(1)>",
    "</title></svg><svg onload=alert(1)>",
    "javascript:alert(1)",
    "&lt;b&gt; &amp; &#60;i&#62;",
    "a/b?c=d&e=f#g \\ %3Cscript%3E",
    "\u{202e}gnp.exe\u{2066} \u{7}\u{1b}[31mred\u{0}\u{85}\u{2028}",
    "  --><!-- ]]> {{7*7}} ${7*7} `x`",
];

/// A board whose every text is hostile.
pub fn hostile(text: &str) -> Board {
    let job = DemoJob {
        note: Some(text.to_string()),
        hosts: vec![text.to_string(), format!("second {text}")],
        ..demo_job(text, "*/30 * * * *", "+?+x|#o~", "h", 30.0)
    };
    let mut board = board(&[job], &[(AttentionReason::Error, text, text), (AttentionReason::Sealed, text, "another")]);
    let status = &mut board.status;
    status.store = text.to_string();
    status.attention.push(Attention {
        reason: AttentionReason::Unreadable,
        job: None,
        sentence: text.into(),
        command: Some(text.into()),
    });
    status.resources = vec![FenceStatus { run: text.into(), ..fence(text, text, text, 3) }];
    for job in &mut status.jobs {
        let at = LocalTime::new(now(), &zone());
        job.schedule = Some(text.to_string());
        job.paused = Some(PausedJob { since: at.clone(), until: Some(at), by: text.into(), note: Some(text.into()) });
        job.more.holder = Some(text.to_string());
    }
    for run in board.runs.values_mut().flat_map(|runs| Arc::make_mut(runs).iter_mut()) {
        run.run = text.to_string();
        run.artifacts = vec![RecordedArtifact { path: text.into(), size: 1, sha256: text.into() }];
    }
    let hostile = GraphEdge { when: Some(text.into()), artifacts: vec![text.into()], ..edge(text, "other", 1) };
    let gauge = hostile.gauge.clone().map(|gauge| UpstreamGauge { reason: text.into(), ..gauge });
    board.graph.edges = vec![GraphEdge { gauge, ..hostile }, edge("other", text, 1)];
    board
}

pub fn hostile_frame(text: &str) -> Frame {
    let text = || text.to_string();
    Frame {
        store: text(),
        config: Some(text()),
        unavailable: Some(text()),
        signed_in: Some(text()),
        csrf: Some(text()),
        actions: true,
        ..frame()
    }
}

pub fn hostile_store(text: &str) -> StoreStateAnswer {
    let (demo, lines) = (store(), vec![CheckLine::new(text, CheckResult::Failed, text)]);
    let last_check = demo.last_check.clone().map(|check| LastStoreCheck { checks: lines.clone(), ..check });
    StoreStateAnswer { url: text.into(), error: Some(text.into()), declares: lines, last_check, ..demo }
}

/// A job's page whose every text is hostile.
pub fn hostile_job_page<'a>(board: &'a Board, text: &'a str, query: &'a JobQuery) -> JobPage<'a> {
    let mut page = job_page_of(board, text, query, "*/30 * * * *");
    page.why.sentences = vec![Sentence { about: "run", text: text.to_string() }];
    if let Some(plan) = &mut page.plan {
        plan.reason = text.to_string();
        plan.more.clock_change = Some(text.to_string());
    }
    if let Some(advice) = &mut page.advice {
        advice.sentences = Some(vec![text.to_string()]);
    }
    if let Disclosed::Shown(list) = &mut page.logs {
        for log in &mut list.logs {
            (log.path, log.output) = (text.to_string(), Some(text.repeat(3)));
        }
    }
    if let Disclosed::Shown(config) = &mut page.config {
        config.working_directory = text.to_string();
        config.keys.insert(text.to_string(), serde_json::json!([text]));
    }
    page
}
