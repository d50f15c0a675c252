//! The dependency barrier by the real command: every state of an upstream, under every rule of freshness.

mod cells;
#[path = "../common/mod.rs"]
mod common;
#[path = "../desk/mod.rs"]
mod desk;
mod pins;
#[path = "../process/mod.rs"]
mod process;
mod several;
mod stages;
mod times;
