//! The version of this program, and how it was built: the first lines of a bug report.

/// The version with the commit, the target and the stores that are compiled in, one to a line.
pub fn verbose() -> String {
    let commit = option_env!("FENCEPOST_COMMIT").unwrap_or("unknown");
    let stores: Vec<&str> = fencepost_store::schemes().collect();
    format!(
        "{}\ncommit: {commit}\ntarget: {}\nstores: {}",
        concat!("fencepost ", env!("CARGO_PKG_VERSION")),
        env!("FENCEPOST_TARGET"),
        stores.join(" ")
    )
}
