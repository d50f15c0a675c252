//! `fencepost mcp`: serves the answers of the verbs as tools of the Model Context Protocol, over standard input and output.
//!
//! * `message`: JSON-RPC, one message per line.
//! * `protocol`: the versions, and how a client and this server agree on one.
//! * `server`: reads requests, answers them, and makes calls on threads.
//! * `tools`, `arguments`: the tools as a table; their arguments become the command line of a verb.
//! * `question`: tools that read. They compute the answer of the verb in this process.
//! * `order`, `run_now`: tools that write. They start this program as a child, because a run needs a process of its own.
//! * `resources`: the state of a job as a resource.
//!
//! It decides nothing: each tool is a verb, and its answer is the verb's `--json`.

pub mod arguments;
mod message;
pub mod order;
mod protocol;
pub mod question;
mod resources;
pub mod run_now;
mod server;
pub mod tools;

use crate::args::Global;
use crate::args::operate::McpOptions;
use crate::exit::{Code, Failure};
use crate::inside::Inside;

pub fn run(global: &Global, options: &McpOptions) -> Result<Code, Failure> {
    // Restores the variables of the run around this server, while there is one thread. If it is unclear which run that is, the
    // tools that depend on it say so.
    let _ = Inside::find();
    // Warnings on standard error would be repeated with every call.
    let global = Global { json: true, quiet: true, verbose: false, ..global.clone() };
    server::serve(server::McpService { global, allow_writes: options.allow_writes })
}
