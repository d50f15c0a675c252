//! Which slots run, which are dropped, and that it never costs more than what runs.

use std::cell::Cell;
use std::time::Duration;

use fencepost_core::lease::Honest;
use fencepost_core::ledger::{Status, Trigger};
use fencepost_core::plan::{
    AHEAD_MAX, CatchUpMode, CatchUpOrder, CatchUpTerms, Gap, Occurrences, Plan, PlanReason, PlanRules, PlanState,
    SlotState, Trust, plan,
};
use fencepost_core::schedule::Schedule;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;

const DOCUMENT: &str = include_str!("../../../../docs/SCHEDULES.md");

fn utc(text: &str) -> Wall {
    Zone::utc().parse_time(text).unwrap()
}

fn schedule(text: &str) -> Schedule {
    Schedule::parse(text, &Zone::utc()).unwrap()
}

/// A job that was first seen long ago.
fn state(evaluated: &str, known: &'static [(Wall, SlotState)]) -> PlanState<'static> {
    PlanState { since: utc("2020-01-01"), evaluated: Some(utc(evaluated)), known }
}

fn terms(catch_up: u32) -> CatchUpTerms {
    CatchUpTerms { catch_up, ..CatchUpTerms::default() }
}

fn planned(text: &str, state: &PlanState<'_>, terms: &CatchUpTerms, now: &str) -> Plan {
    plan::<Honest>(&schedule(text), state, terms, utc(now))
}

fn runs(plan: &Plan) -> Vec<String> {
    plan.run.iter().map(|due| Zone::utc().show_time(due.slot)).collect()
}

fn dropped(plan: &Plan) -> Option<(u64, String, String)> {
    plan.dropped.map(|gap| (gap.count, Zone::utc().show_time(gap.from), Zone::utc().show_time(gap.to)))
}

/// The cells of the rows of the table in the documentation that begins with these columns.
fn table(columns: &str) -> Vec<Vec<&'static str>> {
    let rows = DOCUMENT.lines().skip_while(|line| !line.starts_with(columns)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect()).collect()
}

#[test]
fn nine_hours_of_sleep_end_as_the_documentation_says() {
    let rows = table("| schedule | catch_up | mode |");
    assert_eq!(rows.len(), 16);
    let clock = |at: Wall| Zone::utc().show_time(at);
    let range = |gap: &Gap| format!("{}: {} to {}", gap.count, clock(gap.from), clock(gap.to));
    for row in rows {
        let [text, catch_up, mode, run, dropped, next] = row[..] else { panic!("{row:?}") };
        let mode = if mode == "collapse" { CatchUpMode::Collapse } else { CatchUpMode::Each };
        let terms = CatchUpTerms { mode, ..terms(catch_up.parse().unwrap()) };
        let schedule = schedule(text);
        let evaluated = schedule.at_or_before(utc("2026-11-04T23:00:30"));
        let state = PlanState { since: utc("2026-01-01"), evaluated, known: &[] };
        let plan = plan::<Honest>(&schedule, &state, &terms, utc("2026-11-05T08:00:20"));
        let runs: Vec<String> = plan
            .run
            .iter()
            .map(|due| {
                let late = if due.trigger == Trigger::CatchUp { " late" } else { "" };
                let covers = due.covers.map(|gap| format!(" covering {}", range(&gap))).unwrap_or_default();
                format!("{}{late}{covers}", clock(due.slot))
            })
            .collect();
        let or_none = |text: String| if text.is_empty() { "none".to_string() } else { text };
        assert_eq!(or_none(runs.join(", ")), run, "{row:?}");
        assert_eq!(or_none(plan.dropped.as_ref().map(range).unwrap_or_default()), dropped, "{row:?}");
        assert_eq!(clock(plan.next.unwrap()), next, "{row:?}");
    }
}

/// A schedule that counts what it is asked for.
struct Counted {
    schedule: Schedule,
    asked: Cell<u64>,
}

impl Counted {
    fn tick(&self) -> &Schedule {
        self.asked.set(self.asked.get() + 1);
        &self.schedule
    }
}

impl Occurrences for Counted {
    fn after(&self, at: Wall) -> Option<Wall> {
        self.tick().after(at)
    }
    fn at_or_before(&self, at: Wall) -> Option<Wall> {
        self.tick().at_or_before(at)
    }
    fn count(&self, after: Wall, to: Wall) -> u64 {
        self.tick().count(after, to)
    }
}

#[test]
fn ten_years_cost_what_an_hour_does() {
    for (catch_up, mode) in
        [(0, CatchUpMode::Each), (1, CatchUpMode::Each), (3, CatchUpMode::Each), (1, CatchUpMode::Collapse)]
    {
        let terms = CatchUpTerms { mode, ..terms(catch_up) };
        let costs = ["2026-11-05T07:00:00", "2016-11-05T08:00:00"].map(|evaluated| {
            let counted = Counted { schedule: schedule("* * * * *"), asked: Cell::new(0) };
            let state = PlanState { since: utc("2010-01-01"), evaluated: Some(utc(evaluated)), known: &[] };
            let plan = plan::<Honest>(&counted, &state, &terms, utc("2026-11-05T08:00:20"));
            let skipped = plan.dropped.map_or(0, |gap| gap.count);
            let covered = plan.run[0].covers.map_or(plan.run.len() as u64, |gap| gap.count);
            (counted.asked.get(), skipped + covered)
        });
        let [(hour, sixty), (years, all)] = costs;
        assert_eq!((sixty, all), (60, 5_258_880), "{mode:?} {catch_up}");
        assert_eq!(hour, years, "{mode:?} {catch_up}");
        assert!(years <= 20, "{years} questions for {mode:?} {catch_up}");
    }
}

#[test]
fn a_late_slot_never_runs_with_no_catch_up() {
    let state = state("2026-11-05T06:00", &[]);
    for late in [61, 62, 600, 3500, 3600 * 5 + 100] {
        let now = utc("2026-11-05T07:00") + Duration::from_secs(late);
        let plan = plan::<Honest>(&schedule("0 * * * *"), &state, &terms(0), now);
        assert_eq!(plan.run, [], "{late}");
        assert!(matches!(plan.why, PlanReason::TooLate(_)), "{late}");
        let words = plan.reason(&terms(0), &Zone::utc());
        assert!(words.contains("catch_up is 0"), "{words}");
    }
    let plan = planned("0 * * * *", &state, &terms(0), "2026-11-05T07:01:00");
    assert_eq!(runs(&plan), ["07:00"]);
    assert_eq!(plan.run[0].trigger, Trigger::Schedule);
}

/// A bug that was seen: the last zero slots of a list are all of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ZeroIsAll;

impl PlanRules for ZeroIsAll {
    fn most(terms: &CatchUpTerms) -> usize {
        if terms.catch_up == 0 { usize::MAX } else { terms.catch_up as usize }
    }
}

#[test]
fn zero_taken_for_all_is_told_apart() {
    let state = state("2026-11-05T00:00", &[]);
    let plan = plan::<ZeroIsAll>(&schedule("0 * * * *"), &state, &terms(0), utc("2026-11-05T07:30"));
    assert_eq!(plan.run.len(), 7);
}

#[test]
fn a_trigger_a_little_early_or_late_finds_its_slot() {
    for (text, now, slot) in [
        ("0 7 * * *", "2026-11-05T07:00:00", "07:00"),
        ("0 7 * * *", "2026-11-05T07:00:59", "07:00"),
        ("0 7 * * *", "2026-11-05T06:59:10", "07:00"),
        // A frequent job is early only in the last quarter of its period.
        ("* * * * *", "2026-11-05T07:00:05", "07:00"),
        ("* * * * *", "2026-11-05T06:59:50", "06:59"),
    ] {
        let schedule = schedule(text);
        let evaluated = schedule.before(schedule.before(utc(now)).unwrap());
        let state = PlanState { since: utc("2020-01-01"), evaluated, known: &[] };
        let plan = plan::<Honest>(&schedule, &state, &terms(1), utc(now));
        assert_eq!(runs(&plan), [slot], "{text} {now}");
    }
    // The last slot is done: the trigger is early for the next.
    let plan = planned("* * * * *", &state("2026-11-05T06:59", &[]), &terms(1), "2026-11-05T06:59:50");
    assert_eq!(runs(&plan), ["07:00"]);
    assert_eq!(plan.run[0].late, Duration::ZERO);
    assert_eq!(plan.next, Some(utc("2026-11-05T07:01")));
    let plan = planned("* * * * *", &state("2026-11-05T06:59", &[]), &terms(1), "2026-11-05T06:59:40");
    assert_eq!((runs(&plan), plan.next), (vec![], Some(utc("2026-11-05T07:00"))));
    // What ran early is not run again.
    let plan = planned("0 7 * * *", &state("2026-11-05T07:00", &[]), &terms(1), "2026-11-05T06:59:20");
    assert_eq!((runs(&plan), plan.next), (vec![], Some(utc("2026-11-06T07:00"))));
}

#[test]
fn a_job_seen_for_the_first_time_runs_what_is_on_time_and_nothing_from_before() {
    let first = |now: &str| PlanState { since: utc(now), evaluated: None, known: &[] };
    for (now, expected) in [("2026-11-05T07:00:20", vec!["07:00"]), ("2026-11-05T09:00:00", vec![])] {
        for catch_up in [0, 1, 3] {
            let plan = planned("0 7 * * *", &first(now), &terms(catch_up), now);
            assert_eq!(runs(&plan), expected, "{now} {catch_up}");
            assert_eq!(plan.dropped, None);
        }
    }
    // The slot that was on time then is no longer so, and no run claimed it. Had it been claimed, it would be tried again.
    let seen = PlanState { since: utc("2026-11-05T07:00:20"), evaluated: None, known: &[] };
    assert_eq!(runs(&planned("0 7 * * *", &seen, &terms(1), "2026-11-05T07:10")), [""; 0]);
    for known in [SlotState::Open, SlotState::Lost].map(|state| [(utc("2026-11-05T07:00"), state)]) {
        let seen = PlanState { known: &known, ..seen };
        assert_eq!(runs(&planned("0 7 * * *", &seen, &terms(1), "2026-11-05T07:10")), ["07:00"]);
    }
    // What is missed after it was first seen is caught up.
    let state = PlanState { since: utc("2026-11-04T09:00"), evaluated: None, known: &[] };
    assert_eq!(runs(&planned("0 7 * * *", &state, &terms(3), "2026-11-05T09:00")), ["07:00"]);
}

#[test]
fn nothing_from_before_a_resume_or_an_edit_runs() {
    // Paused or under another schedule until 09:30.
    let lost = [(utc("2026-11-05T08:00"), SlotState::Lost)];
    let state = PlanState { since: utc("2026-11-05T09:30"), evaluated: Some(utc("2026-11-05T05:00")), known: &lost };
    let plan = planned("0 * * * *", &state, &terms(5), "2026-11-05T09:40");
    assert_eq!((runs(&plan), &plan.dropped), (vec![], &None));
    let plan = planned("0 * * * *", &state, &terms(5), "2026-11-05T11:30");
    assert_eq!((runs(&plan), &plan.dropped), (vec!["10:00".to_string(), "11:00".to_string()], &None));
}

#[test]
fn what_is_done_or_running_does_not_run_and_does_not_count() {
    let known = [
        (utc("2026-11-05T08:00"), SlotState::Running),
        (utc("2026-11-05T06:00"), SlotState::Done),
        (utc("2026-11-05T03:00"), SlotState::Done),
        (utc("2026-11-05T03:17"), SlotState::Done),
    ];
    let state = PlanState { since: utc("2026-01-01"), evaluated: Some(utc("2026-11-05T00:00")), known: &known };
    let terms = CatchUpTerms { within: Some(Duration::from_secs(86_400)), ..terms(2) };
    let plan = planned("0 * * * *", &state, &terms, "2026-11-05T08:10");
    assert_eq!(runs(&plan), ["05:00", "07:00"]);
    assert_eq!(dropped(&plan), Some((3, "01:00".to_string(), "04:00".to_string())));
    // Nothing before the oldest of them is open any more.
    assert_eq!(plan.evaluated, Some(utc("2026-11-05T04:00")));
    // By default only the last two slots count, whether they were run or missed.
    let plan = planned("0 * * * *", &state, &CatchUpTerms { within: None, ..terms }, "2026-11-05T08:10");
    assert_eq!(runs(&plan), ["07:00"]);
    assert_eq!(dropped(&plan), Some((4, "01:00".to_string(), "05:00".to_string())));
}

#[test]
fn a_slot_with_attempts_left_is_tried_again_within_the_bounds_of_catch_up() {
    let known: &[_] = &[(utc("2026-11-05T07:00"), SlotState::Open)];
    for evaluated in ["2026-11-05T06:00", "2026-11-05T07:00"] {
        let state = PlanState { since: utc("2026-01-01"), evaluated: Some(utc(evaluated)), known };
        let plan = planned("0 * * * *", &state, &terms(1), "2026-11-05T07:10");
        assert_eq!(runs(&plan), ["07:00"], "{evaluated}");
        assert_eq!(plan.why, PlanReason::Again(utc("2026-11-05T07:00")));
        // Late, and so never without catch-up.
        assert_eq!(runs(&planned("0 * * * *", &state, &terms(0), "2026-11-05T07:10")), [""; 0]);
        let plan = planned("0 * * * *", &state, &terms(1), "2026-11-05T08:00:10");
        assert_eq!((runs(&plan), plan.dropped), (vec!["08:00".to_string()], None), "{evaluated}");
        let plan = planned("0 * * * *", &state, &terms(3), "2026-11-05T08:00:10");
        assert_eq!(runs(&plan), ["07:00", "08:00"], "{evaluated}");
    }
}

#[test]
fn a_slot_whose_attempts_are_used_up_is_never_tried_again() {
    let known: &[_] = &[(utc("2026-11-05T07:00"), SlotState::Failed)];
    for evaluated in ["2026-11-05T06:00", "2026-11-05T07:00"] {
        let state = PlanState { since: utc("2026-01-01"), evaluated: Some(utc(evaluated)), known };
        for now in ["2026-11-05T07:00:10", "2026-11-05T07:10"] {
            let plan = planned("0 * * * *", &state, &terms(3), now);
            assert_eq!((runs(&plan), plan.dropped), (vec![], None), "{evaluated} {now}");
            assert_eq!(plan.why, PlanReason::Failed(utc("2026-11-05T07:00")));
            assert!(plan.reason(&terms(3), &Zone::utc()).contains("attempts are used up"));
        }
        let plan = planned("0 * * * *", &state, &terms(3), "2026-11-05T08:00:10");
        assert_eq!((runs(&plan), plan.dropped), (vec!["08:00".to_string()], None), "{evaluated}");
    }
}

#[test]
fn a_run_that_died_is_tried_again_within_the_bounds() {
    let known: &[_] = &[(utc("2026-11-05T07:00"), SlotState::Lost), (utc("2026-11-05T07:07"), SlotState::Lost)];
    let state = PlanState { since: utc("2026-01-01"), evaluated: Some(utc("2026-11-05T07:00")), known };
    for (catch_up, now, expected) in [
        (1, "2026-11-05T07:30", vec!["07:00"]),
        (0, "2026-11-05T07:30", vec![]),
        (1, "2026-11-05T08:00:05", vec!["08:00"]),
        (2, "2026-11-05T08:00:05", vec!["07:00", "08:00"]),
        (2, "2026-11-05T09:00:05", vec!["08:00", "09:00"]),
    ] {
        let plan = planned("0 * * * *", &state, &terms(catch_up), now);
        assert_eq!(runs(&plan), expected, "{catch_up} {now}");
        // It is in the ledger as lost, and not a second time as missed.
        assert_eq!(plan.dropped, None, "{catch_up} {now}");
    }
}

#[test]
fn age_bounds_too() {
    let terms = CatchUpTerms { within: Some(Duration::from_secs(2 * 3600)), ..terms(10) };
    let plan = planned("0 * * * *", &state("2026-11-05T00:00", &[]), &terms, "2026-11-05T08:30");
    assert_eq!(runs(&plan), ["07:00", "08:00"]);
    assert_eq!(dropped(&plan), Some((6, "01:00".to_string(), "06:00".to_string())));
    let collapse = CatchUpTerms { mode: CatchUpMode::Collapse, ..terms };
    let plan = planned("0 * * * *", &state("2026-11-05T00:00", &[]), &collapse, "2026-11-05T08:30");
    assert_eq!(runs(&plan), ["08:00"]);
    assert_eq!(plan.run[0].covers.map(|gap| gap.count), Some(2));
    assert_eq!(dropped(&plan), Some((6, "01:00".to_string(), "06:00".to_string())));
}

#[test]
fn order_and_spacing_are_kept() {
    let spacing = Duration::from_secs(30);
    let oldest = CatchUpTerms { spacing, ..terms(3) };
    let newest = CatchUpTerms { order: CatchUpOrder::NewestFirst, ..oldest.clone() };
    let state = state("2026-11-05T00:00", &[]);
    let plan = planned("0 * * * *", &state, &oldest, "2026-11-05T08:30");
    assert_eq!(runs(&plan), ["06:00", "07:00", "08:00"]);
    assert_eq!(plan.run.iter().map(|due| due.wait).collect::<Vec<_>>(), [Duration::ZERO, spacing, spacing]);
    let plan = planned("0 * * * *", &state, &newest, "2026-11-05T08:30");
    assert_eq!(runs(&plan), ["08:00", "07:00", "06:00"]);
    assert_eq!(plan.evaluated, Some(utc("2026-11-05T05:00")));
    assert!(CatchUpTerms { catch_up: 25, ..newest }.check().unwrap_err().to_string().contains("more than 24"));
    assert!(CatchUpTerms { catch_up: 1001, ..oldest.clone() }.check().unwrap_err().to_string().contains("collapse"));
    assert_eq!(CatchUpTerms { catch_up: 1000, ..oldest }.check(), Ok(()));
}

#[test]
fn a_clock_that_was_wrong_does_not_stop_a_job_for_ever() {
    let now = "2026-11-05T08:00:10";
    for (since, evaluated) in
        [("2026-01-01", Some("2030-01-01")), ("2030-01-01", None), ("2030-01-01", Some("2030-02-01"))]
    {
        let state = PlanState { since: utc(since), evaluated: evaluated.map(utc), known: &[] };
        let plan = planned("0 * * * *", &state, &terms(3), now);
        assert_eq!(runs(&plan), ["08:00"]);
        assert!(matches!(plan.ahead, Some((_, Trust::Wrong))));
        assert!(plan.reason(&terms(3), &Zone::utc()).contains("in the future"));
        // What it says to write down makes the next plan an ordinary one.
        let known = [(utc("2026-11-05T08:00"), SlotState::Done)];
        let state = PlanState { since: plan.since, evaluated: plan.evaluated, known: &known };
        let next = planned("0 * * * *", &state, &terms(3), "2026-11-05T10:00:10");
        assert_eq!((runs(&next), next.ahead), (vec!["09:00".to_string(), "10:00".to_string()], None));
    }
    // Two clocks that differ by minutes are no reason to run anything twice.
    let near = utc(now) + AHEAD_MAX / 2;
    let state = PlanState { since: utc("2026-01-01"), evaluated: Some(near), known: &[] };
    let plan = planned("* * * * *", &state, &terms(3), now);
    assert_eq!((runs(&plan), plan.evaluated, plan.ahead), (vec![], Some(near), Some((near, Trust::Ahead))));
    assert!(plan.next.unwrap() > near);
    assert!(plan.reason(&terms(3), &Zone::utc()).contains("clock is ahead"));
}

/// Carries plans out one run at a time, as the shell does, and counts how often each slot ran.
fn carry_out(terms: &CatchUpTerms, mut plan_of: impl FnMut(&PlanState<'_>) -> Plan) -> (Vec<Wall>, u64) {
    let (mut since, mut evaluated) = (utc("2026-01-01"), Some(utc("2026-11-05T00:00")));
    let mut known: Vec<(Wall, SlotState)> = Vec::new();
    let (mut ran, mut missed) = (Vec::new(), 0);
    for _ in 0..40 {
        let plan = plan_of(&PlanState { since, evaluated, known: &known });
        missed += plan.dropped.map_or(0, |gap| gap.count);
        (since, evaluated) = (plan.since, plan.evaluated);
        let Some(due) = plan.run.first() else { break };
        ran.push(due.slot);
        // Every second run dies, and is taken over.
        let died = terms.catch_up > 1 && ran.len() % 2 == 1;
        known.retain(|(slot, _)| *slot != due.slot);
        known.push((due.slot, if died { SlotState::Lost } else { SlotState::Done }));
        if !died && due.covers.is_some() {
            evaluated = Some(due.slot);
        }
    }
    (ran, missed)
}

#[test]
fn carried_out_one_by_one_every_slot_runs_or_is_missed_once() {
    for order in [CatchUpOrder::OldestFirst, CatchUpOrder::NewestFirst] {
        for (catch_up, mode) in [
            (0, CatchUpMode::Each),
            (1, CatchUpMode::Each),
            (3, CatchUpMode::Each),
            (5, CatchUpMode::Each),
            (1, CatchUpMode::Collapse),
        ] {
            let terms = CatchUpTerms { mode, order, ..terms(catch_up) };
            let schedule = schedule("0 * * * *");
            let (ran, missed) =
                carry_out(&terms, |state| plan::<Honest>(&schedule, state, &terms, utc("2026-11-05T08:30")));
            let mut distinct = ran.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let covered = if mode == CatchUpMode::Collapse { 8 } else { distinct.len() as u64 };
            assert_eq!(covered + missed, 8, "{terms:?} ran {ran:?}");
            assert_eq!(distinct.len(), (catch_up as usize).min(8), "{terms:?} ran {ran:?}");
        }
    }
}

#[test]
fn every_status_says_whether_its_slot_may_run_again() {
    for status in Status::ALL {
        let (open, spent) = match status {
            Status::Error | Status::Timeout | Status::Fenced | Status::Halted => (SlotState::Open, SlotState::Failed),
            Status::Lost => (SlotState::Lost, SlotState::Failed),
            Status::Running => (SlotState::Running, SlotState::Running),
            _ => (SlotState::Done, SlotState::Done),
        };
        assert_eq!((SlotState::of(status, false), SlotState::of(status, true)), (open, spent), "{status}");
    }
}

#[test]
fn the_reason_is_said_in_sentences() {
    let plan = planned("* * * * *", &state("2016-11-05T08:00", &[]), &terms(3), "2026-11-05T08:00:20");
    assert_eq!(
        plan.reason(&terms(3), &Zone::utc()),
        "The slot 2026-11-05 08:00 (UTC) is on time, and 2 late slots are caught up. 3600478 slots from \
         2020-01-01 00:00 (UTC) to 2026-11-05 07:57 (UTC) are dropped, for catch_up is 3."
    );
}
