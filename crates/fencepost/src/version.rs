//! The version of this program, and how it was built: the first lines of a bug report.

use fencepost_guard::publish;

/// The version with the commit, the target and the features, one to a line.
pub fn verbose() -> String {
    let commit = option_env!("FENCEPOST_COMMIT").unwrap_or("unknown");
    let (stores, targets) = (fencepost_store::COMPILED.join(" "), publish::COMPILED.join(" "));
    format!(
        "{}\ncommit: {commit}\ntarget: {}\nstores: {stores}\npublish: {targets}",
        concat!("fencepost ", env!("CARGO_PKG_VERSION")),
        env!("FENCEPOST_TARGET")
    )
}
