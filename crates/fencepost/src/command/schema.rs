//! `fencepost schema`: prints the JSON Schema of every `--json` answer and of the events.

use crate::exit::{Code, Failure};
use crate::show;

pub fn run() -> Result<Code, Failure> {
    show::line(&format!("{:#}", fencepost_view::schema::schema()));
    Ok(Code::DONE)
}
