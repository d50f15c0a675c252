//! TLS to a server whose certificate no authority vouches for.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};

/// The settings of a client that accepts the servers of `accepts` and no others.
pub(crate) fn client_config(
    accepts: impl Fn(&CertificateDer<'_>) -> bool + Send + Sync + 'static,
) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(OwnVerifier { accepts, provider: Arc::clone(&provider) });
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// How the verification of a server fails that `accepts` refuses.
const NOT_ACCEPTED: rustls::Error = rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);

/// Whether a connection failed because the client does not accept this server's certificate.
pub(crate) fn is_not_accepted(error: &rustls::Error) -> bool {
    *error == NOT_ACCEPTED
}

/// The signature of the handshake shows that the server has the certificate's key.
struct OwnVerifier<F> {
    accepts: F,
    provider: Arc<CryptoProvider>,
}

impl<F> fmt::Debug for OwnVerifier<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnVerifier")
    }
}

impl<F: Fn(&CertificateDer<'_>) -> bool + Send + Sync> ServerCertVerifier for OwnVerifier<F> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if (self.accepts)(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(NOT_ACCEPTED)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
