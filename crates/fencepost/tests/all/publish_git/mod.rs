//! `publish git` against real bare repositories, over the file system and over smart HTTP.

mod command;
mod fence;
mod hook;
mod limits;
mod rebase;
mod scene;
mod storm;
mod traps;
