//! Where the program begins if the C library is linked into it. Any other begins as Rust has it.
//!
//! Rust's own beginning also looks up where the stack ends, in a file that the kernel writes for it, so that an overflow
//! can be told from other faults. That is a fiftieth of a short run, and nothing in ours goes deep. The rest of what it
//! does is done here, but for the arguments: glibc hands those to Rust, and not every C library does.

/// What the C library calls.
#[expect(unsafe_code, reason = "it is found by its name, which nothing else may have")]
#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    if fencepost_guard::settle_process().is_err() {
        // Without standard streams there is nobody to tell.
        std::process::abort();
    }
    // This also writes out what is printed and not yet written.
    std::process::exit(crate::run().0.into())
}
