//! TLS: the user's certificate, or one that the server makes for itself.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use fencepost_core::hex;
use fencepost_sys::flush;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

use super::tokens::{open_private, random_hex};
use crate::exit::Failure;

/// The longest file with certificates.
const PEM_BYTES_MAX: u64 = 1024 * 1024;

/// The directory in the state directory for the server's own certificate, and the file with it and its key.
const OWN: &str = "serve-tls";
const OWN_FILE: &str = "identity.pem";

/// Random bytes in the name of a file that is not complete yet.
const DRAFT_BYTES: usize = 8;

/// A certificate with its key.
#[derive(Clone, Debug)]
pub struct TlsIdentity {
    pub config: Arc<ServerConfig>,
    /// `sha256:` and the digest of the certificate, by which a client knows it.
    pub pin: String,
}

/// The user's certificate and key.
pub fn of_files(cert: &Path, key: &Path) -> Result<TlsIdentity, Failure> {
    let file = File::open(cert).map_err(|error| wrong("certificate", cert, &format!("cannot be read: {error}")))?;
    let chain = read(&file).map_err(|error| wrong("certificate", cert, &format!("cannot be read: {error}")))?;
    let key_file = open_private(key, "private key")?;
    let secret = read(&key_file).map_err(|error| wrong("private key", key, &format!("cannot be read: {error}")))?;
    identity(&chain, &secret, cert, key)
}

/// The server's own certificate, made at the first start. Of servers that start together, one makes it for all.
pub fn self_signed(state: &Path, names: Vec<String>) -> Result<TlsIdentity, Failure> {
    let directory = state.join(OWN);
    let path = directory.join(OWN_FILE);
    if !path.exists() {
        let cannot = |error: io::Error| Failure::Other(format!("Cannot write {}: {error}.", path.display()));
        let made = rcgen::generate_simple_self_signed(names);
        let made = made.map_err(|error| Failure::Other(format!("Cannot make a certificate: {error}.")))?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(cannot)?;
        let draft = directory.join(format!(".draft-{}", random_hex(DRAFT_BYTES)?));
        let written = write(&draft, &(made.cert.pem() + &made.signing_key.serialize_pem()));
        // A link replaces nothing: the first one stays.
        let linked = written.and_then(|()| std::fs::hard_link(&draft, &path)).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        });
        let _ = std::fs::remove_file(&draft);
        linked.and_then(|()| flush(&File::open(&directory)?)).map_err(cannot)?;
    }
    of_files(&path, &path)
}

fn identity(chain: &[u8], secret: &[u8], cert: &Path, key: &Path) -> Result<TlsIdentity, Failure> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|error| wrong("certificate", cert, &format!("is not PEM: {error}")))?;
    let Some(first) = chain.first() else { return Err(wrong("certificate", cert, "holds no certificate")) };
    let pin = format!("sha256:{}", hex::encode(&Sha256::digest(first)));
    // An error never shows the key.
    let secret = PrivateKeyDer::from_pem_slice(secret).map_err(|_| wrong("private key", key, "holds no key as PEM"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
    let mut config = config.map_err(|error| wrong("certificate", cert, &format!("does not fit the key: {error}")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsIdentity { config: Arc::new(config), pin })
}

fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(PEM_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    flush(&file)
}

fn wrong(what: &str, path: &Path, why: &str) -> Failure {
    Failure::Usage(format!("The {what} {} {why}.", path.display()))
}
