//! Everything about one job, one line each.

use fencepost_core::time::Wall;
use fencepost_view::answer::RunAnswer;
use fencepost_view::status::{JobStatus, StatusAnswer};
use fencepost_view::text::{artifacts, flat, second_in, time_for_people};
use fencepost_view::time::LocalTime;

use super::overview::{attention_line, state_in_words, took};
use super::style::Style;
use crate::report::percent;

pub fn lines(job: &JobStatus, status: &StatusAnswer, style: &Style, now: Wall) -> Vec<String> {
    let mut lines = vec![job.job.clone()];
    let mut say = |what: &str, text: &str| lines.push(format!("  {what:9} {}", flat(text)));
    for attention in status.attention.iter().filter(|attention| attention.job.as_ref() == Some(&job.job)) {
        say("attention", &attention_line(attention));
    }
    say("state", &state(job));
    let holder = job.holder.as_ref();
    if let Some(holder) = holder.filter(|holder| !holder.inside.is_empty()) {
        say("inside", &format!("the run of {}", holder.inside.join(", then of ")));
    }
    if let Some(holder) = holder.filter(|holder| !holder.around.is_empty()) {
        say("runs", &holder.around.join(", "));
    }
    for wait in status.waiting.iter().filter(|wait| wait.job == job.job || wait.waits_for == job.job) {
        say("waiting", &wait.sentence());
    }
    if let Some(paused) = &job.paused {
        let note = paused.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
        let until = paused.until.as_ref().map_or_else(String::new, |until| format!(", until {}", moment(until)));
        say("paused", &format!("since {}{until}, from {}{note}", ago(&paused.since, now), paused.by));
    }
    if let Some(schedule) = &job.more.schedule {
        let enabled = if job.enabled { "" } else { ", disabled" };
        say("schedule", &format!("{schedule} ({}){enabled}", job.timezone));
    }
    if let Some(next) = &job.next_slot {
        say("next", &moment(next));
    }
    if job.grants > 0 {
        say("token", &format!("{} (grant {})", job.token, job.grants));
    }
    if !job.recent.is_empty() {
        say("recent", &style.strip(&job.recent).0);
    }
    if let Some(last) = &job.last {
        say("last", &sentence(last, now));
    }
    if let Some(ok) = &job.last_ok {
        say("last ok", &sentence(ok, now));
        artifacts(&ok.artifacts).iter().for_each(|artifact| say("left", artifact));
    }
    if let Some(streak) = job.streak.filter(|streak| streak.count > 1) {
        say("streak", &format!("{} × {}", streak.status, streak.count));
    }
    if job.skips.overlap > 0 {
        let last = job.skips.last.as_ref().map_or_else(String::new, |last| format!(", last {}", ago(last, now)));
        say("skipped", &format!("{} ({}){last}", job.skips.overlap, percent(job.skips.rate)));
    }
    for gauge in &job.upstreams {
        let often = format!("halted it {} ×, skipped it {} ×", gauge.halts, gauge.skips);
        say("upstream", &format!("{} {often}, last {}: {}", gauge.job, ago(&gauge.at, now), gauge.reason));
    }
    let counts: Vec<_> = job.counts.iter().map(|(status, count)| format!("{status} {count}")).collect();
    if !counts.is_empty() {
        say("counts", &counts.join(", "));
    }
    lines
}

fn moment(time: &LocalTime) -> String {
    second_in(time.at, &time.zone)
}

fn ago(time: &LocalTime, now: Wall) -> String {
    time_for_people(time.at, now, &time.zone)
}

fn state(job: &JobStatus) -> String {
    match (&job.more.holder, &job.lost_run) {
        (Some(holder), _) => format!("{}: {holder}", state_in_words(job.state)),
        (None, Some(run)) => format!("lost: run {run} did not end properly; the next run takes over"),
        (None, None) => state_in_words(job.state),
    }
}

fn sentence(run: &RunAnswer, now: Wall) -> String {
    let exit = run.exit_code.map_or_else(String::new, |code| format!(", exit code {code}"));
    let note = run.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
    let ended = run.finished.as_ref().map(|ended| ago(ended, now));
    format!("{} {}, took {}{exit}{note}", run.status, ended.unwrap_or_default(), took(run.duration_ms))
}
