//! Descriptors that whoever started this process has opened for it.

use std::fs::File;
use std::io;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::sys;

/// The descriptor with this number, to be written to. What is written goes where its owner's next word goes as well.
pub fn for_writing(number: u32) -> io::Result<File> {
    let file = File::from(sys::duplicate(number.try_into().unwrap_or(-1))?);
    let mode = OFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GETFL)?) & OFlag::O_ACCMODE;
    match mode {
        OFlag::O_RDONLY => Err(io::Error::other("it is open for reading only")),
        _ => Ok(file),
    }
}
