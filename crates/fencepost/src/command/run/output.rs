//! Held-back output, and the stand-in for an unavailable store.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use fencepost_core::register::StoreError;
use fencepost_core::token::RunId;
use fencepost_store::{Answer, Entry, Key, Store, Swapped, Version};

use crate::exit::Failure;
use crate::file;
use crate::place::Place;
use crate::settings::Settings;

/// The command's output, held back until the run's result shows whether to print it.
#[derive(Debug)]
pub struct RunOutput {
    pub stdout: PathBuf,
    pub stderr: PathBuf,
}

impl RunOutput {
    pub fn prepare(settings: &Settings, place: &Place, run: RunId) -> Result<Option<Self>, Failure> {
        if !settings.options.output_on_failure() {
            return Ok(None);
        }
        let directory = place.state.join("output");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| {
            Failure::Other(format!("Cannot hold the output back in {}: {error}", directory.display()))
        })?;
        file::forget_old(&directory);
        let file = |stream: &str| directory.join(format!("{run}.{stream}"));
        Ok(Some(Self { stdout: file("stdout"), stderr: file("stderr") }))
    }

    pub fn show_if(self, failed: bool) {
        if failed {
            let copy = |path: &PathBuf, to: &mut dyn io::Write| {
                std::fs::File::open(path).and_then(|mut file| io::copy(&mut file, to))
            };
            let _ = copy(&self.stdout, &mut io::stdout().lock());
            let _ = copy(&self.stderr, &mut io::stderr().lock());
        }
    }
}

impl Drop for RunOutput {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.stdout);
        let _ = std::fs::remove_file(&self.stderr);
    }
}

/// Stands in for a store that could not be opened, for a run that continues without one.
#[derive(Debug)]
pub struct OutOfReach(pub StoreError);

impl Store for OutOfReach {
    fn read(&self, _key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        Err(self.0.clone())
    }

    fn swap(&self, _: &Key, _: Option<&Version>, _: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        Err(self.0.clone())
    }

    fn scan(&self, _prefix: &str, _after: Option<&Key>, _limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        Err(self.0.clone())
    }
}
