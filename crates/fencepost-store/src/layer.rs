//! Layers around a store, for tests.

mod faulty;
mod trace;

pub use faulty::{Faulty, InjectedFault};
pub use trace::{Trace, TraceCall, TraceEnd, TraceVerb};
