//! `fencepost serve`: shows the jobs of a store over HTTP, and can be a store for other machines.
//!
//! * `terms`: what the command line allows, checked before anything is opened.
//! * `listen`, `tls`, `connection`, `compress`: connections, with a limit on their number and on the time that a peer may stall.
//! * `access`, `tokens`, `sessions`: who asks, and from which page.
//! * `routes`: one table of all places; `openapi` is generated from it.
//! * `answer`, `pages`, `question`, `status_line`, `events`: what is answered.
//! * `form`, `actions`: what changes something. Each is this program as a child.
//! * `poller`: reads the store for all viewers.
//! * `share`: the store protocol over a database of its own.
//!
//! It decides nothing: each answer is a verb's `--json`.

mod access;
mod actions;
mod answer;
mod compress;
mod connection;
mod events;
mod form;
mod listen;
mod older_runs;
mod openapi;
mod pages;
mod poller;
mod question;
mod reply;
mod routes;
mod sessions;
mod share;
mod status_line;
mod terms;
mod tls;
pub mod tokens;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;

use fencepost_sys::share_one_heap;

use crate::args::Global;
use crate::args::serve::{ServeOptions, ServeVerb};
use crate::exit::{Code, Failure};
use crate::inside::Inside;
use crate::place::Place;

use self::access::{AccessRules, Caller};
use self::events::Hub;
use self::older_runs::OlderRuns;
use self::poller::Poller;
use self::share::Share;
use self::terms::ServeTerms;

pub fn run(global: &Global, options: &ServeOptions) -> Result<Code, Failure> {
    if let Some(ServeVerb::Token { name, token_file }) = &options.verb {
        return tokens::add(global, name, token_file);
    }
    // Restores the variables of a run around this server, while there is one thread.
    let _ = Inside::find();
    // A configuration with a mistake outside any job is refused now and not at the first look.
    let place = Place::find(global)?;
    let terms = ServeTerms::of(options, &place.state)?;
    let created = DirBuilder::new().recursive(true).mode(0o700).create(&place.state);
    created.map_err(|error| Failure::Other(format!("Cannot create {}: {error}.", place.state.display())))?;
    share_one_heap();
    // Warnings on standard error would be repeated with every look.
    let quiet = Global { json: true, quiet: true, verbose: false, ..global.clone() };
    listen::serve(global, terms, quiet)
}

/// A limit. A test lowers it by a variable, which release builds do not read.
fn limit(_variable: &str, most: usize) -> usize {
    #[cfg(debug_assertions)]
    if let Some(lower) = std::env::var(_variable).ok().and_then(|text| text.parse().ok()) {
        return lower;
    }
    most
}

/// What all connections share.
#[derive(Debug)]
pub struct Server {
    pub global: Global,
    pub terms: ServeTerms,
    pub access: AccessRules,
    pub poller: Poller,
    pub hub: Arc<Hub>,
    /// Questions to the store that are being answered.
    pub questions: tokio::sync::Semaphore,
    pub older_runs: Arc<OlderRuns>,
    /// The store for other machines.
    pub share: Option<Share>,
}

impl Server {
    fn new(global: Global, terms: ServeTerms, port: u16, share: Option<Share>) -> Self {
        let hub = Arc::new(Hub::new());
        // One board for all viewers has only what each of them may see.
        let poller = Poller::start(Global { hides_configuration: terms.is_open(), ..global.clone() }, Arc::clone(&hub));
        let access = AccessRules::new(&terms, port);
        let questions = tokio::sync::Semaphore::new(question::QUESTIONS_MAX);
        Self { global, terms, access, poller, hub, questions, older_runs: Arc::default(), share }
    }

    /// The options of a question that this caller asks. Every user of the host may ask without a token.
    fn global_of(&self, caller: &Caller) -> Global {
        Global { hides_configuration: caller.client().is_none(), ..self.global.clone() }
    }
}
