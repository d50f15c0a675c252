//! Layers around a store, for tests.

mod faulty;
mod trace;

pub use faulty::{Fault, Faulty};
pub use trace::{Call, Ended, Trace, Verb};
