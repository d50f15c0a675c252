#![doc = include_str!("../README.md")]

mod claim;
mod error;
mod free_records;
mod guard;
mod lease;
mod parked;
mod publish;

/// The page of the book, whose code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sdk/rust.md")]
struct BookPage;

pub use claim::JobClaim;
pub use error::GuardError as Error;
pub use fencepost_core::contract::Word as Outcome;
pub use fencepost_core::fence::Level;
pub use guard::Guard;
pub use lease::HeldLease as Lease;
pub use publish::PublishedWrite as Published;
