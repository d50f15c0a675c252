//! What macOS returns, read without a call: layouts of `sys/proc_info.h`, strings and ids of `sysctl`, error numbers.
//!
//! Compiled on every system, because the project's own tests run on Linux.

use std::io;

use super::{ProcessEntry, ProcessState};

/// The error numbers of a file system without a strong flush, from `sys/errno.h` of macOS: EINVAL, ENOTTY, ENOTSUP (the
/// answer of SMB) and EOPNOTSUPP.
const NOT_OFFERED: [i32; 4] = [22, 25, 45, 102];

/// `PROC_PIDT_SHORTBSDINFO` and the size of its `struct proc_bsdshortinfo`.
pub const SHORT_INFO: i32 = 13;
pub const SHORT_INFO_BYTES: usize = 64;

/// `PROC_PIDUNIQIDENTIFIERINFO` and the size of its `struct proc_uniqidentifierinfo`.
pub const UNIQUE_INFO: i32 = 17;
pub const UNIQUE_INFO_BYTES: usize = 56;

/// Reads both structures of one process.
pub fn entry(short: &[u8; SHORT_INFO_BYTES], unique: &[u8; UNIQUE_INFO_BYTES]) -> ProcessEntry {
    let id = |at| word(short, at).cast_signed();
    ProcessEntry {
        pid: id(0),
        parent: id(4),
        group: id(8),
        state: state(word(short, 12)),
        name: text(&short[16..32]),
        mark: long(unique, 16),
        // Set by fork and kept when the process gets another parent. 0 is the kernel.
        parent_mark: Some(long(unique, 24)).filter(|mark| *mark != 0),
    }
}

/// The user of a process: `pbsi_uid`.
pub fn uid(short: &[u8; SHORT_INFO_BYTES]) -> u32 {
    word(short, 36)
}

/// `p_stat` of `sys/proc.h`. macOS does not tell uninterruptible sleep here.
fn state(status: u32) -> ProcessState {
    match status {
        4 => ProcessState::Stopped,
        5 => ProcessState::Dead,
        _ => ProcessState::Running,
    }
}

/// A string up to its first NUL. Bytes that are not UTF-8 are replaced.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A UUID as macOS prints it.
pub fn uuid(bytes: &[u8; 16]) -> String {
    let hex = |range: std::ops::Range<usize>| bytes[range].iter().map(|byte| format!("{byte:02X}")).collect::<String>();
    [hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16)].join("-")
}

/// Ends a flush: if the file system does not offer the strong one, the plain one is made instead. Any other error is the
/// result, because the data may be lost.
pub fn flushed(strong: Result<(), i32>, plain: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match strong {
        Err(number) if NOT_OFFERED.contains(&number) => plain(),
        other => other.map_err(io::Error::from_raw_os_error),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The bytes are laid out by hand as `sys/proc_info.h` says. They were not recorded on a Mac.

    /// `proc_bsdshortinfo` of a shell, in the layout of a little-endian Mac.
    const SHORT: [u8; SHORT_INFO_BYTES] = *b"\x2a\x11\0\0\x01\0\0\0\x29\x11\0\0\x04\0\0\0\
        zsh\0\0\0\0\0\0\0\0\0\0\0\0\0\
        \x04\x40\0\0\xf5\x01\0\0\x14\0\0\0\xf5\x01\0\0\x14\0\0\0\xf5\x01\0\0\x14\0\0\0\0\0\0\0";
    /// `proc_uniqidentifierinfo` of the same: the program's UUID, 0x0102030405 and its parent 0x77.
    const UNIQUE: [u8; UNIQUE_INFO_BYTES] = *b"\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff\x01\
        \x05\x04\x03\x02\x01\0\0\0\x77\0\0\0\0\0\0\0\
        \x09\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

    #[test]
    fn both_structures_of_a_process_are_read() {
        let expected = ProcessEntry {
            pid: 0x112a,
            parent: 1,
            group: 0x1129,
            state: ProcessState::Stopped,
            name: "zsh".to_string(),
            mark: 0x01_0203_0405,
            parent_mark: Some(0x77),
        };
        assert_eq!(entry(&SHORT, &UNIQUE), expected);
        assert_eq!(uid(&SHORT), 501);
    }

    #[test]
    fn the_states_are_those_of_the_kernels_header() {
        let states = [1, 2, 3, 4, 5].map(state);
        let running = ProcessState::Running;
        assert_eq!(states, [running, running, running, ProcessState::Stopped, ProcessState::Dead]);
    }

    #[test]
    fn a_name_of_sixteen_characters_has_no_end_and_the_kernel_no_parent() {
        let mut short = SHORT;
        short[16..32].copy_from_slice(b"com.apple.WebKit");
        let mut unique = UNIQUE;
        unique[24..32].fill(0);
        let entry = entry(&short, &unique);
        assert_eq!((entry.name.as_str(), entry.parent_mark), ("com.apple.WebKit", None));
    }

    /// What a flush returns, and whether it made the plain one.
    fn flush(strong: Result<(), i32>, plain: io::Result<()>) -> (Result<(), Option<i32>>, bool) {
        let mut is_made = false;
        let result = flushed(strong, || {
            is_made = true;
            plain
        });
        (result.map_err(|error| error.raw_os_error()), is_made)
    }

    #[test]
    fn a_file_system_without_a_strong_flush_gets_the_plain_one() {
        for number in [22, 25, 45, 102] {
            assert_eq!(flush(Err(number), Ok(())), (Ok(()), true), "error {number}");
        }
        let full = io::Error::from_raw_os_error(28);
        assert_eq!(flush(Err(45), Err(full)), (Err(Some(28)), true), "the plain flush fails");
    }

    #[test]
    fn a_strong_flush_that_fails_is_not_hidden_by_the_plain_one() {
        assert_eq!(flush(Ok(()), Ok(())), (Ok(()), false));
        // EIO, EBADF, ENOSPC, EROFS, EDQUOT.
        for number in [5, 9, 28, 30, 69] {
            assert_eq!(flush(Err(number), Ok(())), (Err(Some(number)), false), "error {number}");
        }
    }

    #[cfg(target_os = "macos")]
    #[test]
    fn the_error_numbers_are_those_of_the_system() {
        use nix::libc::{EINVAL, ENOTSUP, ENOTTY, EOPNOTSUPP};
        assert_eq!(NOT_OFFERED, [EINVAL, ENOTTY, ENOTSUP, EOPNOTSUPP]);
    }

    #[test]
    fn strings_and_ids_are_read_as_sysctl_returns_them() {
        assert_eq!(text(b"0E6B1F4C-1111-4222-8333-0123456789AB\0"), "0E6B1F4C-1111-4222-8333-0123456789AB");
        assert_eq!(text(b""), "");
        assert_eq!(text(b"J\xf6rg\0rest"), "J\u{fffd}rg");
        let bytes = std::array::from_fn(|at| 0x10 * (at as u8 % 16) + 1);
        assert_eq!(uuid(&bytes), "01112131-4151-6171-8191-A1B1C1D1E1F1");
    }
}
