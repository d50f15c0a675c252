//! The rules of the core, as one program: what they share is compiled once.

mod agenda;
mod agenda_day;
mod attempts;
mod calendar;
mod claim;
mod common;
mod differential;
mod fenced;
mod history;
mod lease;
mod overdue;
mod plan;
mod record;
mod run;
mod schedule;
mod slot;
mod stages;
mod start;
mod transition;
mod walk;
mod zone;
