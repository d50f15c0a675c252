//! The rules of fencepost, as functions from a record and a clock reading to a decision.
//!
//! Nothing here touches a clock, a file, a socket or a thread: the crate is `no_std`, so the compiler says so.
//! The shell (`fencepost-guard`) performs what is decided here, and the model (`fencepost-sim`) explores the very
//! same code.
//!
//! * [`name`]: what a job may be called, and the one encoding of names into store keys.
//! * [`time`]: the three clocks, kept apart by type.
//! * [`register`]: what a store answers.

#![no_std]

extern crate alloc;

pub mod name;
pub mod register;
pub mod time;
