//! Checks whether the commands of a configuration exist, without running them.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::config::{CommandLine, Config, Located, Mistake};
use crate::options::JobOptions;
use fencepost_core::nearest::did_you_mean;

/// Warns about each missing command. Another machine, or another PATH, may have it.
pub fn not_found(config: &Config) -> Vec<Mistake> {
    config.jobs.values().flat_map(|job| of_job(config, job)).collect()
}

fn of_job(config: &Config, job: &JobOptions) -> Vec<Mistake> {
    let directory = config.working_directory(job);
    if !directory.is_dir() {
        let message = format!("There is no directory {} to run in.", directory.display());
        return vec![Mistake::at(&job.at, message, None)];
    }
    let path = job.environment().get("PATH").map(Into::into).or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let commands = [&job.prepare, &job.command].into_iter().flatten();
    let told = job.notifiers().map(|command| job.at.with(command.clone())).collect::<Vec<_>>();
    let missing_told = told.iter().filter_map(|command| missing(command, &config.directory, &path));
    commands.filter_map(|command| missing(command, &directory, &path)).chain(missing_told).collect()
}

fn missing(command: &Located<CommandLine>, directory: &Path, path: &OsStr) -> Option<Mistake> {
    let program = program(&command.value)?;
    if program.contains('/') {
        let file = directory.join(program);
        return match (file.exists(), is_executable(&file)) {
            (_, true) => None,
            (true, false) => {
                let hint = Some(format!("Try: chmod +x {}", file.display()));
                Some(Mistake::at(command, format!("{} cannot be executed.", file.display()), hint))
            }
            (false, _) => {
                let hint = beside(&file, program);
                Some(Mistake::at(command, format!("There is no {} to run.", file.display()), hint))
            }
        };
    }
    let is_there = std::env::split_paths(path).any(|place| is_executable(&directory.join(place).join(program)));
    let hint = directory.join(program).is_file().then(|| format!("Did you mean \"./{program}\"?"));
    (!is_there).then(|| Mistake::at(command, format!("{program:?} is not found in PATH."), hint))
}

/// The program of a command. Of a shell script only a plain first word is understood.
fn program(command: &CommandLine) -> Option<&str> {
    match command {
        CommandLine::Argv(words) => words.first().map(String::as_str),
        CommandLine::Shell(script) => {
            let word = script.to_str()?.split_whitespace().next()?;
            let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./+".contains(c));
            Some(word).filter(|word| is_plain && !OF_SHELL.contains(word))
        }
    }
}

/// Builtins and keywords of the shell.
const OF_SHELL: [&str; 27] = [
    ".", "alias", "break", "case", "cd", "command", "continue", "eval", "exec", "exit", "export", "for", "getopts",
    "if", "local", "read", "readonly", "return", "set", "shift", "source", "trap", "ulimit", "umask", "unset", "until",
    "while",
];

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Suggests a similarly named file in the same directory.
fn beside(file: &Path, program: &str) -> Option<String> {
    let names: Vec<PathBuf> =
        file.parent()?.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.file_name().into())).collect();
    let typed = Path::new(program).file_name()?.to_str()?;
    did_you_mean(typed, names.iter().filter_map(|name| name.to_str()))
}
