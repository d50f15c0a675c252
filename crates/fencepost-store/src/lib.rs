//! The stores of fencepost: a linearizable register per key, and the suite that proves it.
//!
//! A store has three methods and no policy. It does not know what a lease is, never repeats a call by itself, and
//! reports of a failed call whether it may have taken effect.

mod access;
pub mod conformance;
mod declared;
pub mod file_system;
pub mod git_runner;
mod handle;
pub mod host_clock;
mod host_memory;
#[cfg(feature = "http-client")]
#[allow(dead_code, reason = "for stores behind HTTP, not all of which may be built in")]
mod http_client;
mod known;
pub mod layer;
mod memory;
mod open;
pub mod percent;
#[allow(dead_code, reason = "for stores behind a connection, none of which may be built in")]
mod pool;
pub mod records;
mod redact;
#[cfg(any(feature = "http-client", feature = "postgres"))]
#[allow(dead_code, reason = "not every store that may be built in trusts a certificate of its own")]
mod tls;
#[allow(dead_code, reason = "for stores on the network, none of which may be built in")]
mod transport;
mod user;

use std::sync::Arc;

pub use access::{Access, Secret};
pub use declared::{Declaring, Property, Soundness};
pub use handle::{Acceptance, StoreHandle};
pub use host_clock::boot_id;
pub use host_memory::HostMemory;
#[cfg(feature = "http-client")]
pub use http_client::{agent as http_agent, is_bad_certificate};
pub use known::KnownStore;
pub use memory::MemoryStore;
#[cfg(feature = "http")]
pub use open::backends::http::HttpStore;
#[cfg(feature = "postgres")]
pub use open::backends::postgres;
#[cfg(feature = "redis")]
pub use open::backends::redis;
#[cfg(feature = "s3")]
pub use open::backends::s3;
#[cfg(feature = "sqlite")]
pub use open::backends::sqlite::{SharedStore, SqliteStore};
pub use open::{
    OpenError, Properties, absolute, bare, canonical, how_to_get, must_name_a_store, properties, redacted, schemes,
};
pub use redact::redacted_text;
pub use user::User;

pub use fencepost_core::name::Key;
pub use fencepost_core::register::{Answer, Entry, Fate, StoreError, Swapped, Trouble, Version};
pub use fencepost_core::time::{Era, StoreClock, Wall};

/// The most bytes a value may have. Every store takes a value of this size.
pub const VALUE_BYTES_MAX: usize = 64 * 1024;

/// The most keys one [`Store::scan`] returns.
pub const SCAN_KEYS_MAX: usize = 1000;

/// A linearizable register per key.
///
/// All methods block. Each may be called from several threads at once, and a call that hangs hangs only its caller.
pub trait Store: Send + Sync {
    /// Reads the entry under `key`. Linearizable: it sees every swap that was won before the call began.
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError>;

    /// Replaces the entry under `key` if its version is `expected` (`None`: if there is no entry). A `new` of `None`
    /// removes it.
    ///
    /// Linearizable, durable when it answers, and tried exactly once. Of any number of swaps that expect the same state
    /// at most one is won. A value longer than [`VALUE_BYTES_MAX`] is refused and changes nothing.
    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError>;

    /// Lists keys that begin with `prefix`, in ascending order, after `after`, at most `limit` and at most
    /// [`SCAN_KEYS_MAX`]. The list may lag behind: no decision depends on it.
    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError>;
}

macro_rules! forward {
    ($pointer:ident) => {
        #[deny(clippy::missing_trait_methods)]
        impl<S: Store + ?Sized> Store for $pointer<S> {
            fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
                (**self).read(key)
            }

            fn swap(
                &self,
                key: &Key,
                expected: Option<&Version>,
                new: Option<&[u8]>,
            ) -> Result<Answer<Swapped>, StoreError> {
                (**self).swap(key, expected, new)
            }

            fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
                (**self).scan(prefix, after, limit)
            }
        }
    };
}

forward!(Box);
forward!(Arc);

/// Refuses keys and values that no store accepts. Every store calls it first in `swap`, which makes the limits the same
/// everywhere.
fn refuse_unsound(key: &Key, new: Option<&[u8]>) -> Result<(), StoreError> {
    let bytes = new.map_or(0, <[u8]>::len);
    if bytes > VALUE_BYTES_MAX {
        let detail =
            format!("The value for {key} has {bytes} bytes, more than {VALUE_BYTES_MAX}; nothing was changed.");
        return Err(StoreError::not_done(Trouble::Refused, detail));
    }
    if Key::from_stored(key.as_str()).is_none() {
        let detail = format!("{:?} is not a key that fencepost can have made; nothing was changed.", key.as_str());
        return Err(StoreError::not_done(Trouble::Refused, detail));
    }
    Ok(())
}

/// A random version, because a counter would start again when a key is removed or the database restored.
#[allow(dead_code, reason = "the store in memory alone has no use for it")]
fn fresh_version() -> Result<Version, StoreError> {
    let mut bytes = vec![0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let detail = format!("The system gives no random numbers ({error}); nothing was changed.");
        StoreError::not_done(Trouble::Unavailable, detail)
    })?;
    Ok(Version(bytes))
}
