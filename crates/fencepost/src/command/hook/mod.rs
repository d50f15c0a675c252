//! `fencepost hook`: answers the hooks of agents. Under a run it refuses tools that write once the run must not write any
//! more; for sessions that no `run` wraps it claims the job's slot (see [`session`]).

mod agent;
mod lease;
pub mod session;
mod shell;

pub use shell::quoted;

use std::io::Read;

use fencepost_core::said::{HookRefusal, HookRefusalKind, Said};
use fencepost_guard::run_state::{self, ToolRules};
use fencepost_guard::{clock, report_file};

use self::agent::{HookEvent, HookInput, ToolCall};
use self::lease::{Denial, check_lease};
use crate::args::Global;
use crate::args::hook::HookOptions;
use crate::exit::{Code, Failure};
use crate::inside::{self, Inside};
use crate::{report, show};

/// The most input that is read. A tool call holds whole files.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// What a job guards if it does not say so.
pub const GUARD_COMMANDS: [&str; 1] = ["git push"];

/// The answer to an agent.
#[derive(Debug, PartialEq, Eq)]
enum HookAnswer {
    Pass,
    Refuse(String),
}

pub fn run(global: &Global, options: &HookOptions) -> Result<Code, Failure> {
    let bytes = read_input();
    let input = bytes.and_then(|bytes| options.agent.understand(&bytes));
    // The process of an agent may serve several sessions: which of them this is, its input says.
    let inside = if inside::is_in_session() { None } else { Inside::find()? };
    let answer = match (&inside, &options.job) {
        (Some(inside), _) => under_run(global, &input, inside),
        (None, Some(job)) => session::answer(global, options, job, &input)?,
        (None, None) => HookAnswer::Pass,
    };
    match (answer, &input) {
        (HookAnswer::Pass, _) => options.agent.pass().iter().for_each(show::foreign_json),
        (HookAnswer::Refuse(reason), Ok(input)) => show::foreign_json(&options.agent.refusal(&input.event, &reason)),
        // It is unknown which event it is, and so is the form of its answer. Every agent takes this exit code as a refusal.
        (HookAnswer::Refuse(reason), Err(_)) => {
            report::say(&reason);
            return Ok(Code::USAGE);
        }
    }
    Ok(Code::DONE)
}

fn read_input() -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    match std::io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut bytes) {
        Ok(length) if length as u64 > INPUT_BYTES_MAX => Err("its input is longer than 64 MiB".to_string()),
        Ok(_) => Ok(bytes),
        Err(error) => Err(format!("its input cannot be read: {error}")),
    }
}

/// The answer inside a run.
fn under_run(global: &Global, input: &Result<HookInput, String>, inside: &Inside) -> HookAnswer {
    let state = run_state::read(&inside.said).ok().filter(|state| state.run == inside.run);
    let rules = state.as_ref().map(|state| state.rules.clone()).unwrap_or_default();
    if rules.observe {
        return HookAnswer::Pass;
    }
    let desk = HookDesk { inside, rules };
    let event = match input {
        Ok(HookInput { event, .. }) => event,
        Err(why) => return desk.not_understood("a tool call", why),
    };
    match event {
        HookEvent::Tool(call) if call.writes(&desk.rules.write_tools) => {
            match check_lease(global, inside, state.as_ref()) {
                Err(denial) => desk.denied(call, denial),
                Ok(()) => desk.redirected(call),
            }
        }
        HookEvent::Stop { again } => desk.stop(*again),
        HookEvent::Tool(_) | HookEvent::Prompt(_) | HookEvent::SessionEnd | HookEvent::Other => HookAnswer::Pass,
    }
}

/// A run whose agent is answered.
struct HookDesk<'a> {
    inside: &'a Inside,
    rules: ToolRules,
}

impl HookDesk<'_> {
    /// Writes a refusal into the run's private file. If that fails, it is still a refusal.
    fn refuse(&self, kind: HookRefusalKind, what: &str, reason: String) -> HookAnswer {
        let refusal = HookRefusal { kind, what: what.to_string(), reason: reason.clone(), at: clock::wall_now() };
        let _ = report_file::append(&self.inside.said, self.inside.run, Said::Hooked(refusal));
        HookAnswer::Refuse(reason)
    }

    fn not_understood(&self, what: &str, why: &str) -> HookAnswer {
        if self.rules.pass_unknown {
            return HookAnswer::Pass;
        }
        let reason = format!(
            "fencepost refused {what} in this run of {}, because it cannot understand it: {why}. If it only reads, set \
             on_unknown_input = \"pass\" in the job's configuration.",
            self.inside.job
        );
        self.refuse(HookRefusalKind::Refused, what, reason)
    }

    /// A tool that must not write now. Because of a lost lease the run ends as fenced, although its agent may exit 0.
    fn denied(&self, call: &ToolCall, denial: Denial) -> HookAnswer {
        let reason = denial.instruction(&call.name, &self.inside.job);
        if let Denial::Lost { why, seen } = denial
            && let Some(refused) = self.inside.refused_write(format!("{}: {why}", call.name), seen)
        {
            let _ = report_file::append(&self.inside.said, self.inside.run, Said::Published(refused));
        }
        self.refuse(HookRefusalKind::Refused, &call.name, reason)
    }

    /// Refuses a command that has a fenced equivalent, and names that.
    fn redirected(&self, call: &ToolCall) -> HookAnswer {
        if !call.is_shell() {
            return HookAnswer::Pass;
        }
        let Some(text) = &call.command else {
            return self.not_understood(&call.name, "it has no command");
        };
        for words in shell::commands(text) {
            let guarded = self.rules.guard_commands.iter().find(|guarded| shell::begins_with(&words, guarded));
            let Some(guarded) = guarded else { continue };
            let is_push = shell::begins_with(&words, "git push");
            if is_push && words.iter().any(|word| word == "--dry-run" || word == "-n") {
                continue;
            }
            let fenced = if is_push { shell::publish_git(&words) } else { shell::publish_exec(&words, guarded) };
            let reason = format!(
                "fencepost refused `{guarded}`: a bare {guarded} could overwrite the work of a newer run. Nothing of this \
                 call was executed. Use this command instead, after the rest of what the call should do: {fenced}"
            );
            return self.refuse(HookRefusalKind::Redirected, guarded, reason);
        }
        HookAnswer::Pass
    }

    /// Sends an agent back that has not reported its outcome: once.
    fn stop(&self, again: bool) -> HookAnswer {
        if again || !self.rules.must_report {
            return HookAnswer::Pass;
        }
        let said = report_file::peek(&self.inside.said, self.inside.run);
        let is_done = |said: &Said| match said {
            Said::Recorded(_) => true,
            Said::Published(published) => published.refused.is_some(),
            Said::Hooked(refusal) => refusal.kind == HookRefusalKind::SentBack,
            Said::Gated(_) | Said::OtherContent(_) | Said::Rehearsed(_) => false,
        };
        if said.iter().any(is_done) {
            return HookAnswer::Pass;
        }
        let reason = format!(
            "This run of {} has to report its outcome before it ends. Run one of these now, then stop: `{program} record ok` \
             if the work is done, `{program} record empty --note \"why\"` if there was nothing to do, `{program} record error \
             --note \"why\"` if it failed.",
            self.inside.job,
            program = shell::program(),
        );
        self.refuse(HookRefusalKind::SentBack, "the end of the turn", reason)
    }
}

#[cfg(test)]
mod tests {
    use super::agent::HookEvent;
    use super::shell;
    use crate::args::hook::Agent;

    /// Numbers that look random and are the same in every run.
    struct Dice(u64);

    impl Dice {
        fn throw(&mut self, sides: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % sides.max(1)
        }
    }

    const SEEDS: [&str; 4] = [
        r#"{"hook_event_name":"PreToolUse","tool_name":"Bash","session_id":"s","tool_input":{"command":"cd \"$(pwd)\" && git -C x push <<E | `a`"}}"#,
        r#"{"hook_event_name":"Stop","stop_hook_active":false,"session_id":"s"}"#,
        r#"{"hook_event_name":"UserPromptSubmit","prompt":"go","session_id":"s"}"#,
        r#"{"conversationId":"c","toolCall":{"name":"run_command","args":{"CommandLine":"git push"}}}"#,
    ];

    /// A text with some bytes replaced, removed, inserted or repeated.
    fn mutated(dice: &mut Dice, text: &str) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..=dice.throw(6) {
            let at = dice.throw(bytes.len());
            match dice.throw(5) {
                0 if !bytes.is_empty() => bytes[at] = dice.throw(256) as u8,
                1 if !bytes.is_empty() => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"\"{}[]:,\\$`'\n\0 <"[dice.throw(15)]),
                3 => bytes.truncate(at),
                _ => bytes.extend(bytes[at..].to_vec()),
            }
        }
        bytes
    }

    #[test]
    fn ten_thousand_mutated_inputs_of_each_agent_are_understood_or_not() {
        let (mut dice, mut understood, mut commands) = (Dice(7), 0, 0);
        for round in 0..40_000 {
            let agent = [Agent::Claude, Agent::Codex, Agent::Gemini, Agent::Antigravity][round % 4];
            let seed = SEEDS[dice.throw(SEEDS.len())];
            let Ok(input) = agent.understand(&mutated(&mut dice, seed)) else { continue };
            understood += 1;
            assert!(agent.refusal(&input.event, "why").is_object());
            if let HookEvent::Tool(call) = &input.event {
                call.writes(&["a*b".to_string(), "!*".to_string()]);
                commands += shell::commands(call.command.as_deref().unwrap_or_default()).len();
            }
        }
        assert!(understood > 1000 && understood < 39_000 && commands > 1000, "{understood} {commands}");
    }

    #[test]
    fn a_deeply_nested_command_ends() {
        for text in ["$(".repeat(50_000), "`".repeat(50_001), "<<".repeat(50_000), "sh -c '".repeat(10_000)] {
            shell::commands(&text);
        }
    }
}
