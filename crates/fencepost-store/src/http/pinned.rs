//! TLS to a server that is known by the digest of its certificate, in place of a certificate authority.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use fencepost_core::hex;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use sha2::{Digest, Sha256};
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, TcpConnector, Transport, TransportAdapter,
};
use ureq::{Agent, Error};

use crate::tls;

/// The SHA-256 digest of a server's certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Pin([u8; 32]);

impl Pin {
    /// Reads `sha256:` and 64 hexadecimal digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        hex::decode(&digits.to_ascii_lowercase())?.try_into().ok().map(Self)
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(&self.0))
    }
}

/// A client that talks to the server with this certificate and to no other. It uses no proxy.
pub(super) fn agent(config: Config, pin: Pin) -> Agent {
    let is_pinned = move |certificate: &CertificateDer<'_>| Sha256::digest(certificate)[..] == pin.0;
    let tls = tls::client_config(is_pinned).expect("the provider has the default versions");
    let connector = ().chain(TcpConnector::default()).chain(PinnedConnector { tls: Arc::new(tls) });
    Agent::with_parts(config, connector, DefaultResolver::default())
}

#[derive(Debug)]
struct PinnedConnector {
    tls: Arc<ClientConfig>,
}

impl<In: Transport> Connector<In> for PinnedConnector {
    type Out = PinnedTransport;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<PinnedTransport>, Error> {
        let Some(transport) = chained else { return Ok(None) };
        let host = details.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_string()).map_err(|_| Error::Tls("the host is not a name"))?;
        let mut connection = ClientConnection::new(Arc::clone(&self.tls), name)?;
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(PinnedTransport { buffers, stream: StreamOwned::new(connection, socket) }))
    }
}

struct PinnedTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl fmt::Debug for PinnedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PinnedTransport")
    }
}

impl Transport for PinnedTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.get_mut().set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
