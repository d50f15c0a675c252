//! The transport between this host and a store, and which transports are refused.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::declared::{Property, Soundness};
use crate::{OpenError, StoreError, Trouble};

/// The transport to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// The server is on this machine.
    Local,
    /// TLS with a verified certificate.
    Verified,
    /// TLS without verification of the server.
    Encrypted,
    /// Plain text to another host, which the URL allows explicitly.
    Plain,
}

impl Transport {
    /// For `store check`.
    pub(crate) fn declared(self) -> Property {
        let (standing, detail) = match self {
            Self::Local => (Soundness::Sound, "The server is on this machine."),
            Self::Verified => (Soundness::Sound, "TLS. The server's certificate is checked on every connection."),
            Self::Encrypted => (
                Soundness::Weak,
                "TLS, but the server's certificate is not checked: another host can pretend to be the server. Use \
                 sslmode=verify-full.",
            ),
            Self::Plain => (
                Soundness::Weak,
                "Plain text to another host, as the URL allows: every host on the way can read the password and change \
                 the store. Use TLS.",
            ),
        };
        Property::new("transport", standing, detail)
    }
}

/// Whether a host is this machine by its name or address.
pub(crate) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_address = bare.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || bare.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
    host == "localhost" || is_address
}

/// Why plain text to another host is refused. `remedy` says how to write the URL, and which option allows plain text.
pub(crate) fn refusal(shown: &str, host: &str, remedy: &str) -> String {
    format!(
        "{shown} is not encrypted: every host on the way to {host} could read the password and change the data. Nothing \
         was sent. {remedy}"
    )
}

/// The error for a store that is refused before anything is sent.
pub(crate) fn refused(text: String) -> OpenError {
    OpenError::Store(StoreError::not_done(Trouble::Refused, text))
}
