//! The version of this program, and how it was built: the first lines of a bug report.

/// The version with the commit, the target, the Cargo features and the stores that are compiled in, one to a line.
pub fn verbose() -> String {
    let commit = option_env!("FENCEPOST_COMMIT").unwrap_or("unknown");
    let stores: Vec<&str> = fencepost_store::schemes().collect();
    // The other two are for tests.
    let features = [("default", true), ("next-version", cfg!(feature = "next-version"))];
    let features = features.into_iter().chain([("portable-processes", cfg!(feature = "portable-processes"))]);
    let features: Vec<&str> = features.filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect();
    format!(
        "{}\ncommit: {commit}\ntarget: {}\nfeatures: {}\nstores: {}",
        concat!("fencepost ", env!("CARGO_PKG_VERSION")),
        env!("FENCEPOST_TARGET"),
        features.join(" "),
        stores.join(" ")
    )
}
