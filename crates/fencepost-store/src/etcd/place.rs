//! Parses the URL of a cluster, with its user and its certificates.

use std::fmt;
use std::fs;

use ureq::http::Uri;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::http_client::{Addressed, system_roots};
use crate::transport::{Transport, is_loopback, refusal, refused};
use crate::{OpenError, Secret, percent, redacted};

const EXAMPLE: &str = "for example etcd://etcd1:2379,etcd2:2379/fencepost?tls=1";

/// The default port of etcd for clients.
const PORT: u16 = 2379;

/// More members than a cluster should have.
const ENDPOINTS_MAX: usize = 9;

/// The prefix of all keys, where the URL names none.
const PREFIX: &str = "fencepost";

/// The address of a cluster, and the credentials for it.
pub(super) struct EtcdPlace {
    /// The base URLs in the order of the URL.
    pub(super) endpoints: Vec<String>,
    /// Without a slash at its ends.
    pub(super) prefix: String,
    pub(super) user: Option<(String, Secret)>,
    pub(super) transport: Transport,
    options: EtcdOptions,
    shown: String,
}

#[derive(Default)]
struct EtcdOptions {
    tls: bool,
    insecure: bool,
    /// Paths of files in PEM format.
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

impl fmt::Debug for EtcdPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Addressed for EtcdPlace {
    fn shown(&self) -> &str {
        &self.shown
    }

    fn secrets(&self) -> Vec<&str> {
        self.user.iter().map(|(_, password)| password.reveal()).collect()
    }
}

impl EtcdPlace {
    /// Parses a URL. A `password` from the caller precedes the URL's. Errors contain neither.
    pub(super) fn parse(url: &str, password: Option<&Secret>) -> Result<Self, OpenError> {
        let shown = redacted(url);
        let wrong = |why: &str| OpenError::Usage(format!("{shown:?} is not the URL of a store: {why}, {EXAMPLE}."));
        let (_, rest) = url.split_once("://").ok_or_else(|| wrong("it lacks //"))?;
        let (place, query) = rest.rsplit_once('?').map_or((rest, ""), |(place, query)| (place, query));
        let (user, place) = place.rsplit_once('@').map_or((None, place), |(user, place)| (Some(user), place));
        let (hosts, prefix) = place.split_once('/').unwrap_or((place, ""));
        let options = EtcdOptions::parse(query).map_err(|why| wrong(&why))?;
        let scheme = if options.tls { "https" } else { "http" };
        let endpoints: Result<Vec<_>, _> = hosts.split(',').map(|host| endpoint(scheme, host)).collect();
        let endpoints = endpoints.map_err(|why| wrong(&why))?;
        if endpoints.len() > ENDPOINTS_MAX {
            return Err(wrong(&format!("it names more than {ENDPOINTS_MAX} hosts")));
        }
        let prefix = Some(prefix.trim_matches('/')).filter(|prefix| !prefix.is_empty()).unwrap_or(PREFIX);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
        if !prefix.bytes().all(is_plain) || prefix.contains("//") {
            return Err(wrong("its prefix may hold letters, digits and - _ . ~ / only"));
        }
        let user = login(user, password).map_err(|why| wrong(&why))?;
        let other = endpoints.iter().find(|(_, host)| !is_loopback(host)).map(|(_, host)| host.clone());
        let transport = match (&other, options.tls) {
            (_, true) => Transport::Verified,
            (None, false) => Transport::Local,
            (Some(_), false) => Transport::Plain,
        };
        if let (Some(host), Transport::Plain, false) = (&other, transport, options.insecure) {
            let remedy = "Add ?tls=1 to the URL; or ?insecure=1, if you trust every host on the way.";
            return Err(refused(refusal(&shown, host, remedy)));
        }
        let endpoints = endpoints.into_iter().map(|(base, _)| base).collect();
        Ok(Self { endpoints, prefix: prefix.to_string(), user, transport, options, shown })
    }

    /// Reads the certificates that the URL names. `None` without TLS.
    pub(super) fn tls(&self) -> Result<Option<TlsConfig>, OpenError> {
        if !self.options.tls {
            return Ok(None);
        }
        let roots = match &self.options.ca {
            None => system_roots(),
            Some(path) => RootCerts::new_with_certs(&certificates(path)?),
        };
        let client = match (&self.options.cert, &self.options.key) {
            (Some(chain), Some(key)) => {
                let key = PrivateKey::from_pem(&file(key)?).map_err(|_| unusable(key, "holds no private key"))?;
                Some(ClientCert::new_with_certs(&certificates(chain)?, key))
            }
            _ => None,
        };
        Ok(Some(TlsConfig::builder().root_certs(roots).client_cert(client).build()))
    }
}

impl EtcdOptions {
    fn parse(query: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let path = |text: &str| match percent::decode(text) {
                Some(path) if path.starts_with('/') => Ok(Some(path)),
                _ => Err("ca, cert and key name files by their whole path".to_string()),
            };
            match pair.split_once('=') {
                Some(("tls", "1")) => options.tls = true,
                Some(("insecure", "1")) => options.insecure = true,
                Some(("ca", text)) => options.ca = path(text)?,
                Some(("cert", text)) => options.cert = path(text)?,
                Some(("key", text)) => options.key = path(text)?,
                _ => {
                    return Err("the options after its ? are tls=1, ca=FILE, cert=FILE, key=FILE and insecure=1".into());
                }
            }
        }
        let names_files = options.ca.is_some() || options.cert.is_some() || options.key.is_some();
        if names_files && !options.tls {
            return Err("ca, cert and key are for TLS: add tls=1".to_string());
        }
        if options.cert.is_some() != options.key.is_some() {
            return Err("cert and key belong together".to_string());
        }
        if options.tls && options.insecure {
            return Err("insecure=1 is for plain text and makes no TLS less secure".to_string());
        }
        Ok(options)
    }
}

/// Returns the base URL of an endpoint, and its host.
fn endpoint(scheme: &str, text: &str) -> Result<(String, String), String> {
    let uri: Uri = format!("{scheme}://{text}").parse().map_err(|_| "a host cannot be read".to_string())?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or("it names no host")?;
    let port = match text.strip_prefix(host) {
        Some("") => PORT,
        _ => uri.port_u16().ok_or("a port cannot be read")?,
    };
    Ok((format!("{scheme}://{host}:{port}"), host.to_string()))
}

/// The user of the URL with the password: the one handed in, else the URL's.
fn login(user: Option<&str>, password: Option<&Secret>) -> Result<Option<(String, Secret)>, String> {
    let given = password.map(|given| given.reveal().trim_end_matches(['\r', '\n']).to_string());
    let Some(user) = user else {
        return match given {
            None => Ok(None),
            Some(_) => Err("a password is given, and it names no user: write etcd://USER@HOST".to_string()),
        };
    };
    let decoded = |text: &str| percent::decode(text).ok_or("its user is written with a % that begins nothing");
    let (name, written) = user.split_once(':').map_or((user, None), |(name, word)| (name, Some(word)));
    let written = written.map(decoded).transpose()?;
    let word = given.or(written).filter(|word| !word.is_empty()).ok_or(
        "it names a user and no password: give it by FENCEPOST_STORE_PASSWORD, by FENCEPOST_STORE_PASSWORD_FILE, or by \
         store_password_file",
    )?;
    Ok(Some((decoded(name)?, Secret::new(word))))
}

fn file(path: &str) -> Result<Vec<u8>, OpenError> {
    fs::read(path).map_err(|error| unusable(path, &format!("cannot be read ({error})")))
}

fn certificates(path: &str) -> Result<Vec<Certificate<'static>>, OpenError> {
    let pem = file(path)?;
    let found: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() { Err(unusable(path, "holds no certificate")) } else { Ok(found) }
}

fn unusable(path: &str, why: &str) -> OpenError {
    refused(format!("{path}, which the URL of the store names, {why}. Nothing was sent."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let table = [
            ("etcd://localhost", &["http://localhost:2379"][..], "fencepost"),
            ("etcd://127.0.0.1:1,[::1]:2/team/a/", &["http://127.0.0.1:1", "http://[::1]:2"], "team/a"),
            ("etcd://a,b:2/x?tls=1", &["https://a:2379", "https://b:2"], "x"),
            ("etcd://u:p%40/s@a:1/?tls=1", &["https://a:1"], "fencepost"),
            ("etcd://10.0.0.1:1?insecure=1", &["http://10.0.0.1:1"], "fencepost"),
        ];
        for (url, endpoints, prefix) in table {
            let place = EtcdPlace::parse(url, None).unwrap();
            assert_eq!(
                (place.endpoints.as_slice(), place.prefix.as_str()),
                (&endpoints.iter().map(ToString::to_string).collect::<Vec<_>>()[..], prefix),
                "{url}"
            );
        }
        let (name, word) = EtcdPlace::parse("etcd://me:p%40/s@a:1?tls=1", None).unwrap().user.unwrap();
        assert_eq!((name.as_str(), word.reveal()), ("me", "p@/s"));
        let given = EtcdPlace::parse("etcd://me:old@a?tls=1", Some(&Secret::new("new\n"))).unwrap().user.unwrap();
        assert_eq!(given.1.reveal(), "new", "what is handed in goes first");
    }

    #[test]
    fn wrong_urls_are_refused_in_words_without_the_password() {
        let table = [
            ("etcd://10.0.0.1", "Add ?tls=1"),
            ("etcd://localhost,db:2379", "every host on the way to db"),
            ("etcd://u:s3cret@db", "not encrypted"),
            ("etcd:localhost", "lacks //"),
            ("etcd://", "cannot be read"),
            ("etcd://localhost:port", "cannot be read"),
            ("etcd://localhost/a b", "its prefix"),
            ("etcd://localhost?tls=yes", "the options after"),
            ("etcd://localhost?ca=/x", "add tls=1"),
            ("etcd://db?tls=1&cert=/x", "belong together"),
            ("etcd://db?tls=1&ca=x", "whole path"),
            ("etcd://db?tls=1&insecure=1", "makes no TLS less secure"),
            ("etcd://u@localhost", "FENCEPOST_STORE_PASSWORD"),
            ("etcd://%zz:s3cret@localhost", "a % that begins nothing"),
        ];
        for (url, part) in table {
            let text = EtcdPlace::parse(url, None).unwrap_err().to_string();
            assert!(text.contains(part), "{url}: {text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
        let text = EtcdPlace::parse("etcd://localhost", Some(&Secret::new("s3cret"))).unwrap_err().to_string();
        assert!(text.contains("names no user") && !text.contains("s3cret"), "{text}");
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        for (url, part) in [
            ("etcd://db?tls=1&ca=/no/such/ca.pem", "/no/such/ca.pem"),
            ("etcd://db?tls=1&ca=/etc/hostname", "holds no certificate"),
        ] {
            let text = EtcdPlace::parse(url, None).unwrap().tls().unwrap_err().to_string();
            assert!(text.contains(part) && text.contains("Nothing was sent"), "{text}");
        }
    }
}
