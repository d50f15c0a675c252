//! A run that waits: for a lease that another holds, or for its upstreams. Its host knows of it, and no store does.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::record::Holder;
use crate::time::Wall;
use crate::token::RunId;

/// A run that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingRun {
    /// The store's URL without its password.
    pub store: String,
    pub job: String,
    pub run: RunId,
    /// The run's processes, by which others see whether it still waits, and the runs around it.
    pub holder: Holder,
    /// The jobs that it waits for: its own, while another run holds that, or its upstreams.
    pub waits_for: Vec<String>,
    /// The job that its command runs, where that is another `fencepost run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<String>,
    pub since: Wall,
    /// When it gives up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Wall>,
}

impl WaitingRun {
    /// Whether it waits for a lease.
    pub fn is_for_lease(&self) -> bool {
        self.waits_for.contains(&self.job)
    }
}
