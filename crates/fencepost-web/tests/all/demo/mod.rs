//! Boards for the tests and for the example: eight jobs of a night, one job, none, very many, hostile ones.

mod hostile;
mod page;

use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::ledger::{EndedBy, Status, Trigger};
use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_view::answer::{AnswerVersion, ConsumedUpstream, RunAnswer};
use fencepost_view::attention::{Attention, AttentionReason};
use fencepost_view::board::{Board, JobTerms};
use fencepost_view::graph::{GraphAnswer, GraphEdge};
use fencepost_view::overdue::OverdueAnswer;
use fencepost_view::status::{
    FenceStatus, JobDetails, JobState, JobStatus, LeaseHolder, RecentOutcome, SkippedTriggers, StatusAnswer,
    UpstreamGauge,
};
use fencepost_view::time::LocalTime;
use fencepost_view::vocabulary::STATUS_SYMBOLS;
use fencepost_web::Frame;

pub use hostile::{HOSTILE, hostile, hostile_frame, hostile_job_page, hostile_store};
pub use page::{job_page, store};

/// A Wednesday before dawn.
pub fn now() -> Wall {
    zone().parse_time("2026-11-18T03:48:12").unwrap()
}

pub fn zone() -> Zone {
    Zone::parse("Europe/Berlin").unwrap()
}

pub fn frame() -> Frame {
    Frame {
        store: "postgres://db/jobs".to_string(),
        host: "mac-mini".to_string(),
        config: Some("/etc/fencepost.toml".to_string()),
        now: now(),
        age: Duration::from_millis(400),
        unavailable: None,
        clock_offset_ms: Some(12),
        signed_in: None,
        csrf: None,
        actions: false,
        live: true,
    }
}

/// A job of a board. Its newest slots are the symbols of `status` in ASCII, the newest last.
#[derive(Clone, Debug)]
pub struct DemoJob {
    pub name: String,
    pub schedule: String,
    pub slots: String,
    pub hosts: Vec<String>,
    pub took: Duration,
    pub ttl: Option<Duration>,
    pub note: Option<String>,
    pub overlaps: u64,
}

pub fn demo_job(name: &str, schedule: &str, slots: &str, host: &str, took_seconds: f64) -> DemoJob {
    DemoJob {
        name: name.to_string(),
        schedule: schedule.to_string(),
        slots: slots.to_string(),
        hosts: vec![host.to_string()],
        took: Duration::from_secs_f64(took_seconds),
        ttl: Some(Duration::from_secs(900)),
        note: None,
        overlaps: 0,
    }
}

impl DemoJob {
    fn scheduled(&self) -> Schedule {
        Schedule::parse(&self.schedule, &zone()).unwrap()
    }

    /// How long a run took: the same for the same slot, and a little different for each.
    fn length(&self, slot: Wall) -> Duration {
        let noise = (slot.0 / 60_000).wrapping_mul(2_654_435_761).rem_euclid(100);
        self.took.mul_f64(0.8 + f64::from(i32::try_from(noise).unwrap()) / 250.0)
    }

    fn run(&self, slot: Wall, status: Status, place: usize) -> RunAnswer {
        let local = |at| LocalTime::new(at, &zone());
        let started = Wall(slot.0 + 900);
        let length = if status.is_of_a_run() && status != Status::Halted { self.length(slot) } else { Duration::ZERO };
        let is_going = status == Status::Running;
        let exit_code = match status {
            Status::Ok | Status::Empty => Some(0),
            Status::Error => Some(1),
            _ => None,
        };
        RunAnswer {
            v: AnswerVersion,
            job: self.name.clone(),
            slot: local(slot),
            date: zone().date(slot).to_string(),
            timezone: zone().name().to_string(),
            status,
            token: u64::try_from(slot.0).unwrap() / 1000 * 10,
            run: format!("0190-{:012x}", slot.0),
            host: self.hosts[place % self.hosts.len()].clone(),
            trigger: Trigger::Schedule,
            started: local(started),
            finished: (!is_going).then(|| local(started + length)),
            duration_ms: (!is_going).then(|| u64::try_from(length.as_millis()).unwrap()),
            exit_code,
            ended_by: (!is_going).then_some(EndedBy::Child),
            artifacts: Vec::new(),
            upstreams: Vec::new(),
            note: self.note.clone().filter(|_| status.is_failure() || status == Status::Halted),
            slot_from: None,
            slot_to: None,
            count: None,
        }
    }

    /// Its runs, newest first. A lost run was taken over by the next host, for the same slot.
    pub fn runs(&self) -> Vec<RunAnswer> {
        let status = |symbol: char| STATUS_SYMBOLS.iter().find(|known| known.ascii == symbol).unwrap().status;
        let slots = self.scheduled();
        let slots = slots.backward(Wall(now().0 + 1));
        let mut runs = Vec::new();
        for (place, (slot, symbol)) in slots.zip(self.slots.chars().rev()).enumerate() {
            let mut run = self.run(slot, status(symbol), place);
            if self.hosts.len() > 1 && matches!(symbol, '?' | '#') {
                let mut late = self.run(slot, Status::Ok, place + 1);
                late.started = LocalTime::new(Wall(slot.0 + 20 * 60_000), &zone());
                late.finished = Some(LocalTime::new(Wall(slot.0 + 32 * 60_000), &zone()));
                late.token += 1;
                if symbol == '#' {
                    // The stale run ended last.
                    run.finished = Some(LocalTime::new(Wall(slot.0 + 36 * 60_000), &zone()));
                    runs.extend([run.clone(), late]);
                    continue;
                }
                runs.push(late);
                run.finished = Some(LocalTime::new(Wall(slot.0 + 16 * 60_000), &zone()));
            }
            runs.push(run);
        }
        runs
    }

    fn status(&self, needs_attention: bool) -> JobStatus {
        let runs = self.runs();
        let ended: Vec<_> = runs.iter().filter(|run| run.status != Status::Running).collect();
        let going = runs.first().filter(|run| run.status == Status::Running);
        let local = |at| LocalTime::new(at, &zone());
        let recent = runs.iter().take(20).rev().map(|run| RecentOutcome {
            slot: run.slot.clone(),
            status: run.status,
            duration_ms: run.duration_ms,
            host: run.host.clone(),
            count: 1,
        });
        let mut counts = BTreeMap::new();
        runs.iter().for_each(|run| *counts.entry(run.status.as_str()).or_insert(0) += 1);
        let grants = u64::try_from(runs.len()).unwrap();
        let rate = self.overlaps as f64 / (self.overlaps + grants).max(1) as f64;
        JobStatus {
            job: self.name.clone(),
            state: match going {
                Some(_) => JobState::Running,
                None if runs.is_empty() => JobState::NeverRan,
                None => JobState::Free,
            },
            needs_attention,
            configured: true,
            enabled: true,
            schedule: Some(self.schedule.clone()),
            timezone: zone().name().to_string(),
            token: runs.first().map_or(0, |run| run.token),
            grants,
            holder: going.map(|run| LeaseHolder {
                run: run.run.clone(),
                host: run.host.clone(),
                pid: Some(4711),
                since: run.started.clone(),
                until: Some(local(Wall(now().0 + 600_000))),
                inside: Vec::new(),
                around: Vec::new(),
            }),
            lost_run: None,
            paused: None,
            last: ended.first().map(|run| (*run).clone()),
            last_ok: ended.iter().find(|run| run.status == Status::Ok).map(|run| (*run).clone()),
            next_slot: self.scheduled().after(now()).map(local),
            streak: None,
            recent: recent.collect(),
            counts,
            skips: SkippedTriggers { overlap: self.overlaps, rate, ..SkippedTriggers::default() },
            upstreams: Vec::new(),
            more: JobDetails {
                zone: zone(),
                holder: going.map(|run| format!("{} (pid 4711), since 03:30, until 04:01 unless renewed", run.host)),
                schedule: None,
                process: None,
                last_took: ended.iter().find_map(|run| run.duration_ms).map(Duration::from_millis),
            },
        }
    }
}

/// A board of these jobs. The sentences are given with the job and the reason.
pub fn board(jobs: &[DemoJob], attention: &[(AttentionReason, &str, &str)]) -> Board {
    let urgent = |name: &str| attention.iter().any(|(_, job, _)| *job == name);
    let attention = attention.iter().map(|(reason, job, sentence)| Attention {
        reason: *reason,
        job: Some((*job).to_string()),
        sentence: (*sentence).to_string(),
        command: Some(format!("fencepost why {job}")),
    });
    let mut statuses: Vec<_> = jobs.iter().map(|job| job.status(urgent(&job.name))).collect();
    statuses.sort_by(|a, b| a.job.cmp(&b.job));
    let store = "postgres://db/jobs".to_string();
    let terms = |job: &DemoJob| JobTerms { ttl: job.ttl, interval: job.scheduled().period_hint(now()) };
    Board {
        status: StatusAnswer {
            v: AnswerVersion,
            store: store.clone(),
            config: None,
            sealed: None,
            broken: Vec::new(),
            attention: attention.collect(),
            waiting: Vec::new(),
            digest: None,
            jobs: statuses,
            resources: Vec::new(),
            unreadable: Vec::new(),
            errors: Vec::new(),
        },
        overdue: OverdueAnswer {
            v: AnswerVersion,
            store,
            config: None,
            overdue: Vec::new(),
            paused: Vec::new(),
            broken: Vec::new(),
            unreadable: Vec::new(),
            errors: Vec::new(),
        },
        graph: GraphAnswer {
            v: AnswerVersion,
            jobs: jobs.iter().map(|job| job.name.clone()).collect(),
            edges: Vec::new(),
            errors: Vec::new(),
        },
        runs: jobs.iter().map(|job| (job.name.clone(), job.runs().into())).collect(),
        terms: jobs.iter().map(|job| (job.name.clone(), terms(job))).collect(),
    }
}

/// Eight jobs on two machines. One was halted, one had a stale write refused.
pub fn eight() -> Board {
    let two = |job: DemoJob| DemoJob { hosts: vec!["macbook".to_string(), "mac-mini".to_string()], ..job };
    let jobs = [
        demo_job("reference", "0 7 * * *", "++++.++++o+++++++++++++++++++++++++o++++", "mac-mini", 8.9),
        DemoJob {
            note: Some("reference has no record for today's 07:00 slot: it did not run".into()),
            ..demo_job("article", "0 12 * * *", "+++++++++++x+++++++++++++++++++++.++x+++|", "macbook", 95.0)
        },
        DemoJob {
            overlaps: 3,
            ttl: Some(Duration::from_secs(2400)),
            ..demo_job("agent/triage", "every 45m", "++++++++o++++++.++++++++++++++++++.++++.~", "macbook", 724.0)
        },
        DemoJob {
            note: Some("git refused the push to origin/main: token …7436 has written since".into()),
            ..two(demo_job(
                "agent/release-notes",
                "30 2 * * *",
                "++++++++o++++++x+++++++++++++++++++++++#",
                "macbook",
                250.0,
            ))
        },
        demo_job("admob-report", "15 6 * * *", "++++++++o+++++++++++++++++++x++++++x++++", "mac-mini", 100.0),
        demo_job("backup", "0 */6 * * *", "++++++o++++++++++++++o+x++++++++++++++++", "mac-mini", 391.0),
        DemoJob {
            overlaps: 1,
            ..demo_job("ticker", "*/15 * * * *", "+00000+00+000+0000000+0+++0+00+0000o0+00", "mac-mini", 2.2)
        },
        demo_job("invoices", "0 1 * * *", "++++++++++++.++.++++++++++.+++++++++++++", "mac-mini", 58.0),
    ];
    let mut board = board(
        &jobs,
        &[
            (
                AttentionReason::Fenced,
                "agent/release-notes",
                "agent/release-notes had a stale write refused at 03:06: git refused the push to origin/main: token …7436 has written since.",
            ),
            (
                AttentionReason::Halted,
                "article",
                "article was halted at Tue 12:00: reference has no record for today's 07:00 slot: it did not run.",
            ),
        ],
    );
    // A job that runs every quarter of an hour has more runs than its record holds.
    for job in board.status.jobs.iter_mut().filter(|job| job.job == "ticker") {
        job.counts.insert("empty", 4_000);
    }
    board.status.resources = vec![
        fence("origin/main", "git", "agent/release-notes", 1),
        fence("/srv/www/article.html", "file", "article", 0),
        fence("s3://backups/nightly", "s3", "backup", 0),
    ];
    board.graph.edges = vec![
        edge("reference", "article", 2),
        edge("article", "agent/release-notes", 0),
        edge("admob-report", "invoices", 0),
    ];
    board
}

fn fence(resource: &str, kind: &str, job: &str, refused: u64) -> FenceStatus {
    FenceStatus {
        resource: resource.to_string(),
        kind: kind.to_string(),
        token: 17_634_307_436,
        job: job.to_string(),
        run: "0190".to_string(),
        at: LocalTime::new(Wall(now().0 - 2_400_000), &zone()),
        refused,
    }
}

fn edge(upstream: &str, job: &str, halts: u64) -> GraphEdge {
    let at = |millis: i64| LocalTime::new(Wall(now().0 - millis), &zone());
    GraphEdge {
        upstream: upstream.to_string(),
        job: job.to_string(),
        when: Some("same-day".to_string()),
        artifacts: Vec::new(),
        last: Some(ConsumedUpstream {
            job: upstream.to_string(),
            slot: at(86_400_000),
            run: "0190".to_string(),
            sha256: None,
        }),
        gauge: (halts > 0).then(|| UpstreamGauge {
            job: upstream.to_string(),
            halts,
            skips: 0,
            at: at(50_000_000),
            reason: "it has no record for the slot 07:00".to_string(),
        }),
    }
}

/// One job that runs well.
pub fn one() -> Board {
    board(&[demo_job("hello", "*/5 * * * *", "+++", "laptop", 0.04)], &[])
}

/// A board without jobs.
pub fn none() -> Board {
    board(&[], &[])
}

/// Very many jobs with 40 outcomes each. Every seventh failed.
pub fn many(count: usize) -> Board {
    let jobs: Vec<_> = (0..count)
        .map(|number| {
            let slots: String = (0..40)
                .map(|slot| match (number * 31 + slot * 17) % 23 {
                    0 => 'x',
                    1 => '0',
                    2 => 'o',
                    _ => '+',
                })
                .collect();
            let slots = if number % 7 == 0 { format!("{}x", &slots[1..]) } else { format!("{}+", &slots[1..]) };
            let schedule = format!("{} {} * * *", number % 60, number % 24);
            let host = format!("host-{:02}", number % 12);
            demo_job(
                &format!("team-{:02}/job-{number:04}", number % 25),
                &schedule,
                &slots,
                &host,
                3.0 + (number % 90) as f64,
            )
        })
        .collect();
    let failed: Vec<_> = jobs
        .iter()
        .step_by(7)
        .map(|job| (job.name.clone(), format!("{} failed (exit 1) at 03:12: it could not reach its server.", job.name)))
        .collect();
    let attention: Vec<_> =
        failed.iter().map(|(name, sentence)| (AttentionReason::Error, name.as_str(), sentence.as_str())).collect();
    board(&jobs, &attention)
}
