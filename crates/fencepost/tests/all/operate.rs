//! What a person does with many jobs at once: pauses with an end, all jobs of a verb.

use crate::common::contains;
use crate::triggers::Home;
use fencepost_testkit::eventually;
use serde_json::json;

const TWO: &str = "timezone = 'Asia/Tokyo'\n[job.a]\nschedule = '@hourly'\ncommand = 'echo of a'\n\
                   [job.b]\nschedule = '0 7 * * *'\ncommand = 'echo of b'\n[logs]\n";

#[test]
fn a_pause_ends_by_itself_and_every_answer_says_when() {
    let home = Home::new(TWO);
    home.done(&["run", "a", "--now"]);
    let paused = home.json(&["pause", "a", "--for", "2h", "--note", "moving"]);
    let until = paused["until"].as_str().unwrap().to_string();
    assert!(until.ends_with("+09:00"), "{until}");
    assert_eq!((&paused["job"], &paused["paused"]), (&json!("a"), &json!(true)));
    let shown = until[..19].replace('T', " ");
    contains(&home.done(&["status", "a"]).stdout, &["paused    since ", &format!(" until {shown}"), "moving"]);
    contains(&home.done(&["why", "a"]).stdout, &["It is paused since ", &format!(" until {shown}")]);
    let plan = home.json(&["plan", "a"]);
    contains(plan["reason"].as_str().unwrap(), &[&format!("The job is paused until {shown}")]);
    assert!(plan["next_slot"].as_str().unwrap() > until.as_str(), "{plan}");
    let status = home.json(&["status", "a"]);
    assert_eq!(status["jobs"][0]["paused"]["until"], json!(until));
    assert_eq!(status["jobs"][0]["next_slot"], plan["next_slot"]);
    let said = home.done(&["-v", "run", "a", "--now"]);
    contains(&said.stderr, &["the job is paused", "It resumes by itself at "]);
    // A shorter pause does not cut a longer one short; one without an end outlasts both.
    assert_eq!(home.json(&["pause", "a", "--for", "1s"])["until"], json!(until));
    assert_eq!(home.json(&["pause", "a"])["until"], json!(null));
    home.done(&["resume", "a"]);
    home.done(&["pause", "a", "--for", "1s"]);
    eventually("it runs again", || home.json(&["status", "a"])["jobs"][0]["paused"].is_null());
    contains(&home.done(&["-v", "run", "a", "--again"]).stdout, &["of a"]);
    assert!(home.say(&["resume", "a", "-v"]).stderr.contains("was not paused"));
}

#[test]
fn all_jobs_of_the_configuration_and_of_the_store_are_paused_and_resumed() {
    let home = Home::new(TWO);
    home.done(&["run", "elsewhere", "--", "true"]);
    let paused = home.json(&["pause", "--all", "--for", "1h"]);
    let names: Vec<&str> = paused["jobs"].as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "elsewhere"]);
    for job in ["a", "b"] {
        assert_eq!(home.say(&["run", job, "--now", "-E", "11"]).code, 11);
    }
    assert_eq!(home.say(&["run", "elsewhere", "-E", "11", "--", "true"]).code, 11);
    home.done(&["resume", "b"]);
    let resumed = home.json(&["resume", "--all"]);
    assert_eq!(resumed["jobs"].as_array().unwrap().len(), 2, "{resumed}");
    home.done(&["run", "a", "--now", "-E", "11"]);
    assert_eq!(home.say(&["pause"]).code, 2);
    assert_eq!(home.say(&["pause", "a", "--all"]).code, 2);
}

#[test]
fn plan_advise_and_logs_without_a_job_cover_all() {
    let home = Home::new(&format!("{TWO}[job.bad]\nschedule = '7'\ncommand = 'x'\n[job.free]\ncommand = 'true'\n"));
    home.done(&["run", "a", "--now"]);
    home.done(&["run", "b", "--now"]);
    let plan = home.json(&["plan"]);
    let jobs = plan["jobs"].as_array().unwrap();
    assert_eq!(jobs.iter().map(|job| job["job"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
    let one = home.json(&["plan", "b"]);
    for field in ["run", "dropped", "next_slot", "reason"] {
        assert_eq!(jobs[1][field], one[field], "{field}");
    }
    assert_eq!(plan["broken"][0]["job"], json!("bad"));
    contains(
        &home.done(&["plan"]).stdout,
        &["a\nschedule  @hourly", "\nb\nschedule  0 7 * * *", "bad does not run because"],
    );
    assert_eq!(home.say(&["plan", "--schedule", "@daily"]).code, 2);
    let advice = home.json(&["advise"]);
    let advised: Vec<&str> =
        advice["jobs"].as_array().unwrap().iter().map(|job| job["job"].as_str().unwrap()).collect();
    assert_eq!(advised, ["a", "b"]);
    let logs = home.done(&["logs"]).stdout;
    contains(&logs, &["==> a, slot ", "of a\n", "\n==> b, slot ", "of b\n"]);
    let list = home.done(&["logs", "--list", "--json"]).stdout;
    let listed: Vec<serde_json::Value> = list.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(listed.iter().map(|log| log["job"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(home.say(&["logs", "-f"]).code, 2);
}
