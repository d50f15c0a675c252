//! The trace context that a run's command gets.

use crate::common::{BINARY, Said, Site};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// What a command under `arguments` finds: run, trace parent, trace state.
fn told(site: &Site, arguments: &[&str], inherited: &[(&str, &str)]) -> [String; 3] {
    let tell = "echo ${FENCEPOST_RUN-none} $TRACEPARENT ${TRACESTATE-none}";
    let mut command = site.command(&[arguments, &["-c", tell]].concat());
    command.env_remove("TRACEPARENT").env_remove("TRACESTATE").envs(inherited.iter().copied());
    let said = Said::of(command.output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    let words: Vec<String> = said.stdout.split_whitespace().map(str::to_string).collect();
    words.try_into().unwrap_or_else(|words| panic!("{words:?}"))
}

#[test]
fn the_command_gets_a_trace_of_the_runs_own_id() {
    let site = Site::new();
    for verb in [["run", "a"], ["once", "item"]] {
        let [run, parent, state] = told(&site, &verb, &[]);
        let id = run.replace('-', "");
        assert_eq!(parent, format!("00-{id}-{}-01", &id[16..]), "{verb:?}");
        assert_eq!(state, "none");
    }
}

#[test]
fn a_trace_around_the_run_goes_on_and_an_invalid_one_is_replaced() {
    let site = Site::new();
    let around = format!("00-{TRACE}-00f067aa0ba902b7-00");
    let [run, parent, state] = told(&site, &["run", "a"], &[("TRACEPARENT", &around), ("TRACESTATE", "vendor=x")]);
    let id = run.replace('-', "");
    assert_eq!((parent, state.as_str()), (format!("00-{TRACE}-{}-00", &id[16..]), "vendor=x"));
    let invalid = around.to_uppercase();
    let [run, parent, state] = told(&site, &["run", "a"], &[("TRACEPARENT", &invalid), ("TRACESTATE", "vendor=x")]);
    assert!(parent.starts_with(&format!("00-{}-", run.replace('-', ""))), "{parent}");
    assert_eq!(state, "none", "a state without its trace means nothing");
}

#[test]
fn a_run_inside_a_run_is_part_of_the_same_trace() {
    let site = Site::new();
    let inner = format!("echo $TRACEPARENT; {BINARY} run inner -c 'echo $TRACEPARENT'");
    let said = site.say(&["run", "outer", "-c", &inner]);
    let [outer, inner] = said.stdout.lines().collect::<Vec<_>>()[..] else { panic!("{said:?}") };
    assert_eq!(outer[..36], inner[..36]);
    assert_ne!(outer[36..52], inner[36..52], "each run is a span of its own");
}
