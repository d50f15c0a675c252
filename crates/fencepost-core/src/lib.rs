//! The rules of fencepost, as functions from a record and a clock reading to a decision.
//!
//! Nothing here touches a clock, a file, a socket or a thread: the crate is `no_std`, so the compiler says so.
//! The shell (`fencepost-guard`) performs what is decided here, and the model (`fencepost-sim`) explores the very
//! same code.
//!
//! * [`zone`]: time zones by name, and dates in them.
//! * [`schedule`]: when a job is due.
//! * [`slot`]: which slot a run is for.
//! * [`spelling`]: the words by which people write each choice.
//! * [`plan`]: which slots run now, which are dropped, and why.
//! * [`agenda`]: when the daemon starts its jobs.
//! * [`advice`]: what the ledger suggests about a job's terms.
//! * [`overdue`]: which slots passed with nothing recorded.
//! * [`name`]: what a job may be called, and the one encoding of names into store keys.
//! * [`time`]: the three clocks, kept apart by type.
//! * [`duration`]: lengths of time as people write them.
//! * [`register`]: what a store answers.
//! * [`token`]: fencing tokens and the identities that go with them.
//! * [`format`]: how stored values are encoded, and how versions work side by side.
//! * [`record`]: the one record per job.
//! * [`artifact`]: files that a run produced, by their bytes.
//! * [`contract`]: what a run's exit code, its words and its files make of it.
//! * [`definition`]: what a job's definition was at its last good run.
//! * [`ledger`]: how runs end.
//! * [`hex`]: bytes as hexadecimal digits.
//! * [`history`]: what no longer fits into a record, under keys of its own.
//! * [`barrier`]: whether a job may work on what its upstreams left.
//! * [`skips`]: the triggers that were waved off, counted under a key of their own.
//! * [`lease`]: every rule about who may hold, renew and release.
//! * [`fence`]: what a target checks in the same step as a write.
//! * [`said`]: what a job says of itself while it runs.
//! * [`transition`]: one change of a record, carried through lost swaps and unknown fates.
//! * [`run`]: one guarded run, from the first look to the last swap.
//! * [`waiting`]: a run that waits for another.

#![no_std]

extern crate alloc;

pub mod advice;
pub mod agenda;
pub mod artifact;
pub mod barrier;
pub mod contract;
pub mod definition;
pub mod duration;
pub mod fence;
pub mod format;
pub mod hex;
pub mod history;
pub mod lease;
pub mod ledger;
pub mod name;
pub mod nearest;
pub mod overdue;
pub mod plan;
pub mod record;
pub mod register;
pub mod run;
pub mod said;
pub mod schedule;
pub mod skips;
pub mod slot;
pub mod spelling;
pub mod time;
pub mod token;
pub mod transition;
pub mod waiting;
pub mod zone;
