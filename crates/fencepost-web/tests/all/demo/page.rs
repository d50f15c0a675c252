//! The page of a job and the page of the store.

use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_view::advise::JobAdvice;
use fencepost_view::answer::{
    AnswerVersion, CheckLine, CheckResult, CheckVerdict, LastStoreCheck, LogAnswer, LogList, RunAnswer,
    StoreStateAnswer, ValidatedJob,
};
use fencepost_view::board::Board;
use fencepost_view::plan::{PlanAnswer, PlanDetails};
use fencepost_view::time::LocalTime;
use fencepost_view::why::{Sentence, WhyAnswer};
use fencepost_web::{Disclosed, JobPage, JobQuery};

use super::{now, zone};

/// The page of a job of a board, with everything that can be on it.
pub fn job_page<'a>(board: &'a Board, job: &'a str, query: &'a JobQuery) -> JobPage<'a> {
    job_page_of(board, job, query, "30 2 * * *")
}

pub fn job_page_of<'a>(board: &'a Board, job: &'a str, query: &'a JobQuery, schedule: &str) -> JobPage<'a> {
    let runs = &board.runs[job];
    let newest = runs.first();
    let slot = newest.map(|run| run.slot.clone());
    let note = newest.and_then(|run| run.note.clone()).unwrap_or_else(|| "it ended well".to_string());
    let sentences = [
        format!("{job} was due at 02:30."),
        "macbook took the lease with token 17949654000 and slept past it.".to_string(),
        "mac-mini took over with token 17949654001 at 02:50 and ended well.".to_string(),
        format!("The late write of macbook was refused: {note}."),
    ];
    let attempts: Vec<_> =
        runs.iter().filter(|run| Some(run.slot.at) == slot.as_ref().map(|slot| slot.at)).cloned().collect();
    let schedule = Schedule::parse(schedule, &zone()).unwrap();
    JobPage {
        board,
        job,
        query,
        why: WhyAnswer {
            v: AnswerVersion,
            job: job.to_string(),
            date: None,
            timezone: None,
            status: newest.map(|run| run.status),
            sentences: sentences.into_iter().map(|text| Sentence { about: "run", text }).collect(),
            last_output: Vec::new(),
            slot,
            attempts,
        },
        plan: Some(plan(schedule)),
        advice: Some(advice(job)),
        logs: Disclosed::Shown(LogList {
            v: AnswerVersion,
            logs: newest.map(log).into_iter().collect(),
            errors: Vec::new(),
        }),
        changed: Vec::new(),
        config: Disclosed::Shown(ValidatedJob {
            job: job.to_string(),
            timezone: Some(zone().name().to_string()),
            working_directory: "/srv/notes".to_string(),
            next_slots: Vec::new(),
            in_words: None,
            clock_change: None,
            broken: false,
            keys: serde_json::from_str(
                r#"{"command":["claude","-p","write the release notes"],"ttl":"15m","needs":["article"]}"#,
            )
            .unwrap(),
        }),
    }
}

fn plan(schedule: Schedule) -> PlanAnswer {
    PlanAnswer {
        v: AnswerVersion,
        run: Vec::new(),
        dropped: None,
        next_slot: schedule.after(now()).map(|at| LocalTime::new(at, &zone())),
        reason: "Nothing is due.".to_string(),
        more: PlanDetails {
            clock_change: Some("2027-03-28: 02:30 does not exist; the slot runs at 03:00.".to_string()),
            schedule,
            due: Vec::new(),
        },
    }
}

fn advice(job: &str) -> JobAdvice {
    JobAdvice {
        job: job.to_string(),
        runs: Some(38),
        median_ms: Some(241_000),
        p95_ms: Some(288_000),
        worst_ms: Some(296_000),
        ttl_ms: Some(60_000),
        renew_ms: Some(20_000),
        ttl_without_renewal_ms: Some(600_000),
        skips_percent: Some(0),
        halts_percent: Some(0),
        sentences: Some(vec!["Runs take 4m01s at the median and 4m48s at most in 95 of 100.".to_string()]),
    }
}

fn log(run: &RunAnswer) -> LogAnswer {
    LogAnswer {
        v: AnswerVersion,
        job: run.job.clone(),
        slot: run.slot.clone(),
        timezone: run.timezone.clone(),
        run: run.run.clone(),
        host: run.host.clone(),
        started: Some(run.started.clone()),
        finished: run.finished.clone(),
        duration_ms: run.duration_ms,
        status: Some(run.status),
        exit_code: run.exit_code,
        bytes: 120,
        running: false,
        path: "/var/lib/fencepost/logs/0190.log".to_string(),
        output: Some("collecting commits since v1.4.1\n23 commits, 4 authors\nwriting notes/v1.5.0.md\n! [remote rejected] main -> main (fenced)\nerror: failed to push some refs".to_string()),
    }
}

/// A store that was checked an hour ago.
pub fn store() -> StoreStateAnswer {
    let declares = vec![CheckLine::new("durability", CheckResult::Declared, "synchronous_commit is on.")];
    let proved = [
        CheckLine::new("read", CheckResult::Proved, "A read returns the last value written."),
        CheckLine::new("swap", CheckResult::Proved, "Of 20 swaps at once one wins."),
        CheckLine::new("clock", CheckResult::Unknown, "The store's clock could not be compared."),
    ];
    let checks = proved.into_iter().chain(declares.clone()).collect();
    let at = |millis: i64| LocalTime::new(Wall(now().0 - millis), &zone());
    StoreStateAnswer {
        v: AnswerVersion,
        url: "postgres://db/jobs".to_string(),
        available: true,
        error: None,
        polled: Some(at(400)),
        latency_ms: Some(3),
        clock_offset_ms: Some(12),
        jobs: 8,
        declares,
        last_check: Some(LastStoreCheck { at: at(3_600_000), exit_code: 1, verdict: CheckVerdict::Refused, checks }),
    }
}
