//! The style sheet, the script and the icon. Their paths contain the hash of their content: they may be cached for ever.

use std::sync::LazyLock;

/// A file that the pages refer to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// Where it is served.
    pub path: String,
    pub content_type: &'static str,
    pub bytes: &'static [u8],
}

pub(crate) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("style", "css", "text/css; charset=utf-8", include_bytes!("../assets/style.css")));

pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("script", "js", "text/javascript; charset=utf-8", include_bytes!("../assets/script.js"))
});

pub(crate) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_bytes!("../assets/icon.svg")));

/// The asset that is served at a path.
pub fn asset(path: &str) -> Option<Asset> {
    [&STYLE, &SCRIPT, &ICON].into_iter().find(|asset| asset.path == path).map(|asset| Asset::clone(asset))
}

impl Asset {
    fn new(name: &str, ending: &str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        Self { path: format!("/assets/{name}-{:016x}.{ending}", fnv(bytes)), content_type, bytes }
    }
}

/// FNV-1a. It tells versions of our own files apart, and protects from nothing.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asset_is_found_by_its_path_alone() {
        for known in [&STYLE, &SCRIPT, &ICON] {
            assert_eq!(asset(&known.path).as_ref(), Some(&**known));
            assert!(!known.bytes.is_empty());
        }
        assert_eq!(asset("/assets/style.css"), None);
        assert_eq!(asset("/assets/../Cargo.toml"), None);
    }
}
