//! `fencepost`: run it once, on fresh input, and let nothing stale write.

mod args;
mod backlog;
mod calendar;
mod command;
mod config;
mod deliver;
mod drift;
mod events;
mod exit;
mod file;
mod help;
mod inside;
mod lines;
mod logs;
mod notify;
mod options;
mod password;
mod place;
mod rehearsal;
mod report;
mod settings;
mod show;
mod upstreams;
mod version;

use fencepost_core::duration;

use crate::args::{Arguments, Verb};
use crate::exit::Code;

#[cfg(target_env = "musl")]
#[global_allocator]
static HEAP: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> std::process::ExitCode {
    run().0.into()
}

/// Runs the command line, and returns the exit code.
fn run() -> Code {
    fencepost_guard::survive_file_size_limit();
    let code = obey();
    let code = match show::failure() {
        // The command succeeded, but its result could not be printed.
        Some(why) if code == Code::DONE => {
            report::say(&format!(
                "Cannot write to standard output: {why}. The command may still have taken effect. Free disk space if it is \
                 full, then look: fencepost status"
            ));
            Code::FAILED
        }
        _ => code,
    };
    report::flush();
    code
}

fn obey() -> Code {
    let arguments = match Arguments::from_command_line() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let code = match &arguments.verb {
        Verb::Run(options) => command::run::run(&arguments.global, options),
        Verb::Lease(verb) => command::lease::run(&arguments.global, verb),
        Verb::Publish(verb) => command::publish::run(&arguments.global, verb),
        Verb::Record(options) => command::record::run(&arguments.global, options),
        Verb::Gate(options) => command::gate::run(&arguments.global, options),
        Verb::Once(options) => command::once::run(&arguments.global, options),
        Verb::Hook(options) => command::hook::run(&arguments.global, options),
        Verb::AgentSession(options) => command::hook::session::wait(&options.file),
        Verb::Plan(options) => command::plan::run(&arguments.global, options),
        Verb::Pause(options) => command::pause::pause(&arguments.global, options),
        Verb::Forget(options) => command::forget::run(&arguments.global, options),
        Verb::Resume(options) => command::pause::resume(&arguments.global, options),
        Verb::Status(options) => command::status::run(&arguments.global, options),
        Verb::Runs(options) => command::runs::run(&arguments.global, options),
        Verb::Up(options) => command::up::run(&arguments.global, options),
        Verb::Logs(options) => command::logs::run(&arguments.global, options),
        Verb::Store(verb) => command::store::run(&arguments.global, verb),
        Verb::Validate(options) => command::validate::run(&arguments.global, options),
        Verb::Init(options) => command::init::run(&arguments.global, options),
        Verb::Install(options) => command::install::run(&arguments.global, options),
        Verb::Overdue(options) => command::overdue::run(&arguments.global, options),
        Verb::Notify(options) => command::notify::run(&arguments.global, options),
        Verb::Notifier => command::notifier::run(),
        Verb::Advise(options) => command::advise::run(&arguments.global, options),
        Verb::Mcp(options) => command::mcp::run(&arguments.global, options),
        Verb::Serve(options) => command::serve::run(&arguments.global, options),
        Verb::Demo(options) => command::demo::run(&arguments.global, options),
        Verb::Completions { shell } => command::completions::script(*shell),
        Verb::Man { directory } => command::completions::manual(directory.as_deref()),
        Verb::Complete(options) => command::completions::complete(options),
        Verb::Schema => command::schema::run(),
        Verb::Session => command::session::run(&arguments.global),
        Verb::Version => {
            match arguments.global.verbose {
                true => show::line(&version::verbose()),
                false => show::line(concat!("fencepost ", env!("CARGO_PKG_VERSION"))),
            }
            Ok(Code::DONE)
        }
        Verb::Why(options) => command::why::run(&arguments.global, options),
    };
    code.unwrap_or_else(|failure| {
        let code = failure.code(arguments.verb.is_wrapper());
        report::failure(&arguments.global, code, &failure);
        code
    })
}
