//! The last `store check` of this host, as its memory of the store keeps it.

use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_guard::clock;
use fencepost_store::StoreHandle;
use fencepost_view::answer::{CheckLine, CheckResult, LastStoreCheck, StoreCheckAnswer};
use fencepost_view::time::LocalTime;
use serde::{Deserialize, Serialize};

use crate::exit::Code;

/// The most characters that are kept of what a store said. The memory of a host is small.
const DETAIL_CHARACTERS_MAX: usize = 600;

#[derive(Serialize, Deserialize)]
struct KeptCheck {
    at: Wall,
    exit_code: u8,
    checks: Vec<KeptLine>,
}

#[derive(Serialize, Deserialize)]
struct KeptLine {
    name: String,
    result: String,
    detail: String,
    #[serde(default)]
    is_weak: bool,
    #[serde(default)]
    is_decisive: bool,
}

/// Remembers the result of a check. If that fails, the check is shown as before and is forgotten.
pub fn keep(handle: &StoreHandle, checks: &[CheckLine], code: Code) {
    let line = |line: &CheckLine| KeptLine {
        name: line.name.clone(),
        result: line.result.as_str().to_string(),
        detail: line.detail.chars().take(DETAIL_CHARACTERS_MAX).collect(),
        is_weak: line.is_weak,
        is_decisive: line.is_decisive,
    };
    let checks = checks.iter().map(line).collect();
    handle.note_check(&KeptCheck { at: clock::wall_now(), exit_code: code.0, checks });
}

/// The last check of the store that this host remembers.
pub fn recall(handle: &StoreHandle) -> Option<LastStoreCheck> {
    let kept: KeptCheck = handle.last_check()?;
    let line = |line: KeptLine| {
        let result = CheckResult::ALL.iter().copied().find(|result| result.as_str() == line.result)?;
        let (is_weak, is_decisive) = (line.is_weak, line.is_decisive);
        Some(CheckLine { is_weak, is_decisive, ..CheckLine::new(line.name, result, line.detail) })
    };
    let checks: Option<Vec<CheckLine>> = kept.checks.into_iter().map(line).collect();
    let StoreCheckAnswer { verdict, checks, .. } = StoreCheckAnswer::new(handle.shown(), checks?);
    let at = LocalTime::new(kept.at, &Zone::utc());
    Some(LastStoreCheck { at, exit_code: kept.exit_code, verdict, checks })
}
