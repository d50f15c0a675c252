//! Descriptors inherited from the parent process.

use std::fs::File;
use std::io;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::sys;

/// The descriptor with this number, for writing. It shares the file offset with the parent's.
pub fn for_writing(number: u32) -> io::Result<File> {
    let file = File::from(sys::duplicate(number.try_into().unwrap_or(-1))?);
    let mode = OFlag::from_bits_truncate(fcntl(&file, FcntlArg::F_GETFL)?) & OFlag::O_ACCMODE;
    match mode {
        OFlag::O_RDONLY => Err(io::Error::other("it is open for reading only")),
        _ => Ok(file),
    }
}
