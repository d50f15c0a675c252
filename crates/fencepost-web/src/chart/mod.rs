//! Drawings in SVG, written by hand. Geometry is in attributes and colours are in the style sheet.

pub mod durations;
pub mod spark;
pub mod strip;
