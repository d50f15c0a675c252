//! `fencepost logs`: what runs printed.

use crate::args::{Global, LogsOptions};
use crate::exit::{Code, Failure};

pub fn run(_global: &Global, _options: &LogsOptions) -> Result<Code, Failure> {
    Err(Failure::Other("not yet".to_string()))
}
