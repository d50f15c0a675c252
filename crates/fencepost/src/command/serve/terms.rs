//! What the command line allows, and what it lacks.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::tls::{self, TlsIdentity};
use super::tokens::Tokens;
use crate::args::serve::ServeOptions;
use crate::exit::Failure;

/// A server that may be started.
#[derive(Debug)]
pub struct ServeTerms {
    pub address: SocketAddr,
    /// Names under which it is reached besides its own.
    pub public_hosts: Vec<String>,
    pub transport: ServeTransport,
    pub tokens: Option<Arc<Tokens>>,
    pub allow_actions: bool,
    /// The database of the store for other machines.
    pub share: Option<PathBuf>,
}

/// How bytes come to the server.
#[derive(Clone, Debug)]
pub enum ServeTransport {
    Plain,
    /// A proxy in front of it speaks TLS.
    Proxy,
    /// The certificate, and whether the server made it for itself.
    Tls(TlsIdentity, CertificateOrigin),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateOrigin {
    Given,
    SelfSigned,
}

impl ServeTerms {
    pub fn of(options: &ServeOptions, state: &Path) -> Result<Self, Failure> {
        let address = address(&options.listen)?;
        let is_local = address.ip().is_loopback();
        let has_tls = options.tls_cert.is_some() || options.tls_self_signed;
        if !has_tls && !options.behind_proxy && !is_local {
            return Err(lacks(
                &format!("{} can be reached from other machines, so serve needs TLS there", options.listen),
                "Pass --tls-cert FILE --tls-key FILE, or --tls-self-signed, or --behind-proxy with --public-host NAME.",
            ));
        }
        if options.behind_proxy && options.public_host.is_empty() {
            return Err(lacks(
                "--behind-proxy needs --public-host",
                "Pass --public-host NAME, as browsers name the proxy.",
            ));
        }
        let tokens = Tokens::find(options.token_file.as_deref())?.map(Arc::new);
        let wants = [
            (!is_local, "An address that other machines can reach"),
            (options.behind_proxy, "--behind-proxy"),
            (options.allow_actions, "--allow-actions"),
            (options.share, "--share"),
        ];
        if let Some((_, what)) = wants.iter().find(|(is_wanted, _)| *is_wanted && tokens.is_none()) {
            return Err(lacks(
                &format!("{what} needs a token"),
                "Pass --token-file FILE, after: fencepost serve token NAME --token-file FILE",
            ));
        }
        let public_hosts: Vec<String> = options.public_host.iter().map(|name| name.to_ascii_lowercase()).collect();
        let transport = match (&options.tls_cert, &options.tls_key) {
            (Some(cert), Some(key)) => ServeTransport::Tls(tls::of_files(cert, key)?, CertificateOrigin::Given),
            _ if options.tls_self_signed => {
                let identity = tls::self_signed(state, own_names(&address, &public_hosts))?;
                ServeTransport::Tls(identity, CertificateOrigin::SelfSigned)
            }
            _ if options.behind_proxy => ServeTransport::Proxy,
            _ => ServeTransport::Plain,
        };
        let file = || options.share_file.clone().unwrap_or_else(|| state.join("shared.db"));
        let share = options.share.then(file);
        Ok(Self { address, public_hosts, transport, tokens, allow_actions: options.allow_actions, share })
    }

    /// Whether reading needs no token: the server is reached from this machine only, and by no proxy.
    pub fn is_open(&self) -> bool {
        self.address.ip().is_loopback() && !matches!(self.transport, ServeTransport::Proxy)
    }

    pub fn scheme(&self) -> &'static str {
        if matches!(self.transport, ServeTransport::Tls(..)) { "https" } else { "http" }
    }

    /// Whether browsers reach the server by TLS.
    pub fn is_secure(&self) -> bool {
        !matches!(self.transport, ServeTransport::Plain)
    }
}

/// The names in a certificate that the server makes for itself.
fn own_names(address: &SocketAddr, public_hosts: &[String]) -> Vec<String> {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let ip = (!address.ip().is_unspecified()).then(|| address.ip().to_string());
    let all = public_hosts.iter().cloned().chain(host).chain(ip).chain(["localhost".to_string()]);
    let mut names: Vec<String> = Vec::new();
    all.for_each(|name| {
        if !names.contains(&name) {
            names.push(name);
        }
    });
    names
}

fn lacks(what: &str, how: &str) -> Failure {
    Failure::Usage(format!("{what}. Nothing was started. {how}"))
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    let mut found = text.to_socket_addrs().map_err(|error| {
        Failure::Usage(format!(
            "--listen {text}: {error}. It takes an address and a port, as in 127.0.0.1:7333 or [::1]:7333."
        ))
    })?;
    found.next().ok_or_else(|| Failure::Usage(format!("--listen {text}: this name has no address.")))
}
