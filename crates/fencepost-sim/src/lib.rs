//! The model of fencepost, and the bugs it must find.
//!
//! The model drives the machines that ship. It re-implements none of their decisions: it is their clock, their store,
//! their processes, and an adversary that does everything that can happen, in every order, within stated bounds.
//!
//! * [`config`]: the bounds of one exploration.
//! * [`world`]: the state.
//! * [`store`]: the store in it.
//! * [`shell`]: what a driver and a keeper do.
//! * [`steps`]: what can happen next.
//! * [`invariants`]: what must be true.
//! * [`model`]: what all models share: settings, bugs and their tables.
//! * [`explore`]: visits every state.
//! * [`worlds`]: what is explored completely.
//! * [`fenced`]: a second world, of writes to a fenced file, with its own bugs.
//! * [`barrier`]: a third one, of a job that asks its upstream, with its own bugs.
//! * [`slots`]: a fourth world, of slots and items of work, with its own bugs.
//! * [`bugs`] and [`mutants`]: the known bugs, each of which is found.

pub mod barrier;
pub mod bugs;
pub mod config;
pub mod explore;
pub mod fenced;
pub mod invariants;
pub mod model;
pub mod mutants;
pub mod rulebook;
pub mod shell;
pub mod slots;
pub mod steps;
pub mod store;
pub mod world;
pub mod worlds;
