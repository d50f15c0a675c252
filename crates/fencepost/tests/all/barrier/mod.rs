//! The dependency barrier by the real command: every state of an upstream, under every rule of freshness.

mod cells;
mod older;
mod pins;
mod ranges;
mod several;
mod stages;
mod times;
