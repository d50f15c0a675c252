//! Runs the command of an observed run that could not be guarded, as without fencepost.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use fencepost_guard::child::{Environment, Variables};

use crate::exit::Failure;
use crate::report::{self, Voice};
use crate::settings::Settings;

/// How to start the command without fencepost.
pub struct Unguarded {
    argv: Vec<OsString>,
    directory: Option<PathBuf>,
    variables: Variables,
}

impl Unguarded {
    pub fn of(settings: &Settings, environment: Environment) -> Self {
        Self {
            argv: settings.argv.clone(),
            directory: settings.working_directory.clone(),
            variables: environment(None, &[]),
        }
    }

    /// Replaces this process by the command. Returns only if exec fails.
    pub fn exec(self, voice: Voice, job: &str, failure: &Failure) -> Failure {
        voice.warn(&format!("{job}: observing only; it runs without fencepost: {}", failure.message()));
        report::flush();
        let Some(program) = self.argv.first() else { return Failure::Other(failure.message().to_string()) };
        let mut command = Command::new(program);
        command.args(&self.argv[1..]);
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let error = command.exec();
        Failure::Other(format!("{job}: cannot run {:?}: {error}", program.display().to_string()))
    }
}
