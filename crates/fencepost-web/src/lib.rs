//! The pages of the dashboard, rendered from the typed answers of `fencepost-view`.
//!
//! This crate reads no store, speaks no HTTP, asks no clock and starts nothing. A caller passes the answers and a
//! [`Frame`]; a page is a `String`. Templates are checked by the compiler, and every value in them is escaped.
//! [`page`](layout) strips the control characters of the whole document, so that no page can forget to.
//!
//! * [`overview()`], [`timeline()`], [`job()`], [`graph()`], [`fences()`], [`stores()`], [`login()`], [`error()`]: a function per page.
//! * [`query`]: the parameters of the pages. A bad value falls back to the default, with a note on the page.
//! * [`path`]: the addresses of pages, actions and events.
//! * [`asset()`]: the style sheet, the script and the icon, at paths that contain the hash of their content.
//! * [`CONTENT_SECURITY_POLICY`]: the policy that all pages obey: no inline style, no inline script, nothing from elsewhere.

mod asset;
mod attention;
mod chart;
mod error;
mod face;
mod fences;
mod graph;
mod job;
mod layout;
mod login;
mod overview;
pub mod path;
pub mod query;
mod stores;
mod table;
mod timeline;
mod words;

pub use asset::{Asset, asset};
pub use error::error;
pub use fences::fences;
pub use graph::graph;
pub use job::{Disclosed, JobPage, job};
pub use layout::{CONTENT_SECURITY_POLICY, Frame};
pub use login::login;
pub use overview::overview;
pub use query::{JobAction, JobQuery, OverviewQuery, TimelineQuery};
pub use stores::stores;
pub use timeline::{MoreRuns, cut_jobs, timeline};
