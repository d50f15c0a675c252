//! The shell of fencepost: what touches the operating system.
//!
//! * [`clock`]: the only caller of now.
//! * [`keeper`]: the process that runs the job and ends it by its deadline, whatever becomes of the wrapper.
//! * [`terminal`]: who reads from the terminal, the job or whoever started us.

pub mod clock;
pub mod keeper;
pub mod terminal;

mod sys;
