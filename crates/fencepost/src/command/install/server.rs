//! A unit or an agent that keeps `fencepost serve` running.

use std::ffi::OsString;

use clap::Parser;

use super::{InstallOptions, Target, TriggerChange, TriggerSetting, launchd, systemd, text};
use crate::args::{Arguments, Global, Verb};
use crate::exit::Failure;
use crate::place::Place;

/// The file of the server before and after.
pub fn change(global: &Global, options: &InstallOptions, place: &Place) -> Result<TriggerChange, Failure> {
    let mut setting = TriggerSetting::without_configuration(global)?;
    if let Some(config) = &place.config {
        setting.config = text(config.path.clone().into(), "the path of the configuration")?;
    }
    let words = words(&options.serve_options)?;
    let here =
        std::env::current_dir().map_err(|error| Failure::Other(format!("Cannot tell where this is: {error}")))?;
    let here = text(here.into(), "the path of the working directory")?;
    match options.target {
        Target::Systemd => systemd::server(&setting, &words, &here, options.remove),
        Target::Launchd => launchd::server(&setting, &words, &here, options.remove),
        _ => Err(Failure::Usage("--serve goes with systemd and launchd: cron keeps no server running.".to_string())),
    }
}

/// The command line of the server after the program. Mistakes in it are found now, and not when systemd starts it.
fn words(options: &[OsString]) -> Result<Vec<String>, Failure> {
    let line = ["fencepost", "serve"].map(OsString::from).into_iter().chain(options.iter().cloned());
    match Arguments::try_parse_from(line).map(|arguments| arguments.verb) {
        Ok(Verb::Serve(serve)) if serve.verb.is_none() => {}
        Ok(_) => return Err(Failure::Usage("Only the options of `fencepost serve` follow --.".to_string())),
        Err(error) => return Err(Failure::Usage(error.to_string().trim_start_matches("error: ").trim().to_string())),
    }
    let words = options.iter().map(|word| text(word.clone(), "an option of the server"));
    std::iter::once(Ok("serve".to_string())).chain(words).collect()
}
