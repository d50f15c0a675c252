//! The plan as sentences for people.

use alloc::format;
use alloc::string::{String, ToString};

use super::{CatchUpMode, CatchUpTerms, Gap, Plan, PlanReason, Trust};
use crate::barrier::words::moment;
use crate::duration::exact;
use crate::time::Wall;
use crate::zone::Zone;

impl Plan {
    /// What the plan does and why.
    pub fn reason(&self, terms: &CatchUpTerms, zone: &Zone) -> String {
        let mut sentences = alloc::vec![self.about_slots(terms, zone)];
        sentences.extend(self.dropped.map(|gap| about_dropped(&gap, terms, zone)));
        sentences.extend(self.ahead.map(|(mark, trust)| about_clock(mark, trust, zone)));
        sentences.join(" ")
    }

    fn about_slots(&self, terms: &CatchUpTerms, zone: &Zone) -> String {
        let slot = |at: Wall| format!("the slot {}", moment(at, zone));
        let others = match self.run.len() {
            0 | 1 => String::new(),
            2 => ", and one late slot is caught up".to_string(),
            count => format!(", and {} late slots are caught up", count - 1),
        };
        let covered = match self.run.first().and_then(|due| due.covers) {
            Some(gap) => format!(", in one run for {} slots since {}", gap.count, moment(gap.from, zone)),
            None => String::new(),
        };
        match self.why {
            PlanReason::OnTime(at) => sentence(&format!("{} is on time{others}{covered}", slot(at))),
            PlanReason::Again(at) => {
                sentence(&format!("{} did not end well and is tried again{others}{covered}", slot(at)))
            }
            PlanReason::CatchUp if !covered.is_empty() => format!("What was missed is caught up{covered}."),
            PlanReason::CatchUp if self.run.len() == 1 => "One late slot is caught up.".to_string(),
            PlanReason::CatchUp => format!("{} late slots are caught up.", self.run.len()),
            PlanReason::TooLate(at) => sentence(&format!("nothing runs: {} {}", slot(at), too_late(terms))),
            PlanReason::Done(at) => sentence(&format!("nothing is due, because {} is accounted for", slot(at))),
            PlanReason::Failed(at) => {
                sentence(&format!("nothing runs: {} failed, and its attempts are used up", slot(at)))
            }
            PlanReason::Running(at) => sentence(&format!("nothing runs: {} is running", slot(at))),
            PlanReason::NoneYet => {
                "Nothing is due, because no slot came since the job was first seen, resumed or edited.".to_string()
            }
        }
    }
}

fn too_late(terms: &CatchUpTerms) -> String {
    match (terms.catch_up, terms.within) {
        (0, _) => format!("is more than {} late and catch_up is 0", exact(terms.slack)),
        (_, Some(within)) => format!("is older than {}", exact(within)),
        (_, None) => "is too old to be caught up".to_string(),
    }
}

fn about_dropped(gap: &Gap, terms: &CatchUpTerms, zone: &Zone) -> String {
    let which = match gap.count {
        1 => format!("The slot {} is dropped", moment(gap.from, zone)),
        count => format!("{count} slots from {} to {} are dropped", moment(gap.from, zone), moment(gap.to, zone)),
    };
    let bound = match (terms.mode, terms.catch_up, terms.within) {
        (_, 0, _) => "catch_up is 0".to_string(),
        (CatchUpMode::Collapse, _, within) => format!("catch_up_within is {}", exact(within.unwrap_or_default())),
        (CatchUpMode::Each, most, None) => format!("catch_up is {most}"),
        (CatchUpMode::Each, most, Some(within)) => format!("catch_up is {most} within {}", exact(within)),
    };
    format!("{which}, for {bound}.")
}

fn about_clock(mark: Wall, trust: Trust, zone: &Zone) -> String {
    let mark = moment(mark, zone);
    match trust {
        Trust::Wrong => format!(
            "The record has slots accounted for up to {mark}, which is in the future, so a clock was wrong or has been \
             set back. That is put right now: only what is on time runs."
        ),
        _ => format!(
            "The record has slots accounted for up to {mark}, so another machine's clock is ahead of this one. Nothing \
             before that is due."
        ),
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}
