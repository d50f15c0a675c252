#![doc = include_str!("../README.md")]

mod claim;
mod error;
mod free_records;
mod guard;
mod lease;
mod parked;
mod publish;

pub use claim::JobClaim;
pub use error::GuardError as Error;
pub use fencepost_core::contract::Word as Outcome;
pub use guard::Guard;
pub use lease::HeldLease as Lease;
