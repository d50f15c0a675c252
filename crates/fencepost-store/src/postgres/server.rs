//! Parses the URL of a server: its parameters, the source of the password, and the TLS mode.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::geteuid;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::transport::{Transport, is_loopback, refusal};
use crate::{Secret, User, tls};

/// The time limit for one address of the server.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Where servers put their sockets, for a URL without a host: Debian and others, then PostgreSQL's own default, which
/// Homebrew keeps.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// The host of a URL that names none: the directory with the server's socket, or else this machine's TCP port. In a
/// directory that every user writes to, only a socket of this user or of root counts.
fn default_host(directories: [&str; 2], port: u16) -> &str {
    let [own, open] = directories;
    let is_trusted = |socket: Metadata| [0, geteuid().as_raw()].contains(&socket.uid());
    let socket = Path::new(open).join(format!(".s.PGSQL.{port}"));
    if Path::new(own).is_dir() {
        own
    } else if fs::symlink_metadata(socket).is_ok_and(is_trusted) {
        open
    } else {
        "localhost"
    }
}

/// The address of a server, and the credentials for it.
#[derive(Clone)]
pub struct PostgresServer {
    config: Config,
    tls: Tls,
    /// The `sslmode` in the URL falls back to plain text.
    falls_back: bool,
    shown: String,
    remarks: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tls {
    /// No TLS, or TLS that does not verify the server.
    Unverified,
    /// The server's certificate must be valid for the host's name, by these roots or by the system's.
    Verified(Option<PathBuf>),
}

impl std::fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}

impl PostgresServer {
    /// Parses a URL. A `password` from the caller precedes the URL's, then come `PGPASSWORD` and the password file.
    /// Errors contain no password.
    pub fn parse(url: &str, password: Option<&Secret>) -> Result<Self, String> {
        let UrlSettings { url, tls, mode } = split_tls(url)?;
        // The parser's error may quote the text at fault, which may be a piece of the password.
        let mut config: Config = url.parse().map_err(|_| {
            "It is not a URL that PostgreSQL understands. Signs such as @ : / % in a password are written as %40 %3A %2F \
             %25."
                .to_string()
        })?;
        config.connect_timeout(CONNECT_PATIENCE);
        if config.get_application_name().is_none() {
            config.application_name("fencepost");
        }
        if config.get_user().is_none() {
            let user = std::env::var("PGUSER").ok().or_else(system_user).ok_or("It names no user.")?;
            config.user(&user);
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            let port = config.get_ports().first().copied().unwrap_or(5432);
            config.host(default_host(SOCKET_DIRECTORIES, port));
        }
        // libpq's default would fall back to plain text, which is allowed only within this machine.
        let default = if other_host(&config).is_some() { SslMode::Require } else { SslMode::Prefer };
        config.ssl_mode(mode.unwrap_or(default));
        let shown = shown(&config);
        if let Some(password) = password {
            config.password(password.reveal());
        }
        let falls_back = mode == Some(SslMode::Prefer);
        let mut server = Self { config, tls, falls_back, shown, remarks: Vec::new() };
        server.find_password();
        Ok(server)
    }

    /// Returns the database's name, by the rules of libpq.
    pub fn database(&self) -> &str {
        self.config.get_dbname().or_else(|| self.config.get_user()).unwrap_or_default()
    }

    /// Returns the URL for people, without a password.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns remarks about unusual settings.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Refuses an `sslmode` that would fall back to plain text on the way to another host. Callers call it before they
    /// send anything.
    pub fn must_be_private(&self) -> Result<(), String> {
        match other_host(&self.config) {
            Some(host) if self.falls_back => {
                let shown = format!("{} with sslmode=prefer falls back to plain text and", self.shown);
                Err(refusal(&shown, &host, ENCRYPT))
            }
            _ => Ok(()),
        }
    }

    /// Returns the parameter to add for a server that offers no TLS, if the error means that.
    pub fn remedy(&self, explained: &str) -> Option<&'static str> {
        (self.config.get_ssl_mode() == SslMode::Require && explained.contains("does not support TLS"))
            .then_some(ENCRYPT)
    }

    pub(super) fn transport(&self) -> Transport {
        match (other_host(&self.config), self.config.get_ssl_mode(), &self.tls) {
            (None, ..) => Transport::Local,
            (Some(_), SslMode::Disable, _) => Transport::Plain,
            (Some(_), _, Tls::Verified(_)) => Transport::Verified,
            (Some(_), _, Tls::Unverified) => Transport::Encrypted,
        }
    }

    /// Returns the TLS configuration. Called only if the URL does not disable TLS.
    pub fn tls(&self) -> Result<MakeRustlsConnect, String> {
        self.tls_config().map(MakeRustlsConnect::new)
    }

    fn find_password(&mut self) {
        if self.config.get_password().is_some() {
            return;
        }
        if let Some(password) = std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty()) {
            self.config.password(password);
            return;
        }
        let Some(path) = password_file() else { return };
        let Ok(metadata) = fs::metadata(&path) else { return };
        if metadata.mode() & 0o077 != 0 {
            self.remarks.push(format!("{} can be read by others, and is ignored: chmod 600 it.", path.display()));
            return;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let found =
            password_in(&text, &self.host(), self.port(), self.database(), self.config.get_user().unwrap_or_default());
        if let Some(password) = found {
            self.config.password(password);
        }
    }

    fn host(&self) -> String {
        match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            _ => "localhost".to_string(),
        }
    }

    fn port(&self) -> u16 {
        self.config.get_ports().first().copied().unwrap_or(5432)
    }

    fn tls_config(&self) -> Result<ClientConfig, String> {
        let failed = |error: rustls::Error| format!("TLS cannot be set up ({error}).");
        match &self.tls {
            // As libpq does for `prefer` and `require`: it protects against eavesdroppers, not against impostors.
            Tls::Unverified => tls::client_config(|_| true).map_err(failed),
            Tls::Verified(roots) => {
                let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
                let builder = builder.with_safe_default_protocol_versions().map_err(failed)?;
                Ok(builder.with_root_certificates(root_store(roots.as_deref())?).with_no_client_auth())
            }
        }
    }
}

/// The parameter that encrypts, and the one that allows plain text.
const ENCRYPT: &str = "Write sslmode=verify-full (or sslmode=require, which does not ask who the server is) if the server \
                       has TLS; or sslmode=disable, if you trust every host on the way.";

/// Returns the first host of the URL that is not this machine. A named address precedes the host's name.
fn other_host(config: &Config) -> Option<String> {
    let addresses = config.get_hostaddrs();
    if !addresses.is_empty() {
        return addresses.iter().find(|address| !address.is_loopback()).map(ToString::to_string);
    }
    config.get_hosts().iter().find_map(|host| match host {
        Host::Tcp(name) if !is_loopback(name) => Some(name.clone()),
        _ => None,
    })
}

/// The settings in the URL. `mode` is set if the URL names one.
#[derive(Debug, PartialEq, Eq)]
struct UrlSettings {
    url: String,
    tls: Tls,
    mode: Option<SslMode>,
}

/// Takes the parameters that the driver does not know out of the URL.
fn split_tls(url: &str) -> Result<UrlSettings, String> {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let (mut kept, mut mode, mut roots) = (Vec::new(), None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => roots = Some(PathBuf::from(value)),
            _ => kept.push(pair),
        }
    }
    let (tls, mode) = match (mode, roots) {
        (None, None) => (Tls::Unverified, None),
        (Some("disable"), _) => (Tls::Unverified, Some(SslMode::Disable)),
        (Some("prefer"), _) => (Tls::Unverified, Some(SslMode::Prefer)),
        (Some("require"), None) => (Tls::Unverified, Some(SslMode::Require)),
        // libpq verifies as well once it has root certificates; here that includes the host's name.
        (None | Some("require" | "verify-full"), roots) => (Tls::Verified(roots), Some(SslMode::Require)),
        _ => {
            return Err("It asks for an sslmode that is not known: there are disable, prefer, require, verify-full."
                .to_string());
        }
    };
    let url = if kept.is_empty() { place.to_string() } else { format!("{place}?{}", kept.join("&")) };
    Ok(UrlSettings { url, tls, mode })
}

fn shown(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => config.get_hostaddrs().first().map_or_else(String::new, ToString::to_string),
    };
    let port = config.get_ports().first().map_or_else(String::new, |port| format!(":{port}"));
    let user = config.get_user().unwrap_or_default();
    format!("postgres://{user}@{host}{port}/{}", config.get_dbname().unwrap_or(user))
}

fn system_user() -> Option<String> {
    User::current().map(|user| user.name.clone())
}

fn password_file() -> Option<PathBuf> {
    let named = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    named.or_else(|| {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let home = home.or_else(|| User::current().map(|user| user.home.clone()));
        home.map(|home| home.join(".pgpass"))
    })
}

/// Returns the password of the first matching line: `host:port:database:user:password`, with `*` for anything.
fn password_in(text: &str, host: &str, port: u16, database: &str, user: &str) -> Option<String> {
    let wanted = [host, &port.to_string(), database, user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let fits = fields.len() == 5 && fields.iter().zip(wanted).all(|(field, want)| field == "*" || field == want);
        fits.then(|| fields[4].clone())
    })
}

/// Splits a line into its fields, at most five. A backslash escapes the next character.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut signs = line.chars();
    while let Some(sign) = signs.next() {
        let last = fields.len() - 1;
        match sign {
            ':' if last < 4 => fields.push(String::new()),
            '\\' => fields[last].extend(signs.next()),
            _ => fields[last].push(sign),
        }
    }
    fields
}

fn root_store(path: Option<&Path>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let certificates = match path {
        None => rustls_native_certs::load_native_certs().certs,
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| format!("sslrootcert={} cannot be read: {error}.", path.display()))?,
    };
    store.add_parsable_certificates(certificates);
    if store.is_empty() {
        return Err(
            "There are no root certificates to verify the server by: install ca-certificates, or name a file by \
                    sslrootcert=PATH."
                .to_string(),
        );
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_host_finds_the_socket_of_debian_and_of_homebrew() {
        let dir = tempfile::TempDir::new().unwrap();
        let place = |name: &str| dir.path().join(name).display().to_string();
        let (debian, shared) = (place("run"), place("tmp"));
        fs::create_dir(&shared).unwrap();
        assert_eq!(default_host([&debian, &shared], 5433), "localhost");
        fs::write(format!("{shared}/.s.PGSQL.5433"), "").unwrap();
        assert_eq!(default_host([&debian, &shared], 5433), shared);
        assert_eq!(default_host([&debian, &shared], 5432), "localhost", "a server of another port");
        fs::create_dir(&debian).unwrap();
        assert_eq!(default_host([&debian, &shared], 5433), debian);
    }

    #[test]
    fn a_password_file_is_read_as_libpq_reads_it() {
        let text = "# comment\nother:5432:shop:app:no\ndb:*:shop:app:s3:c\\\\ret\n*:*:*:*:rest\n";
        assert_eq!(password_in(text, "db", 5433, "shop", "app").as_deref(), Some("s3:c\\ret"));
        assert_eq!(password_in(text, "db", 5433, "shop", "root").as_deref(), Some("rest"));
        assert_eq!(password_in("a\\:b:1:d:u:p", "a:b", 1, "d", "u").as_deref(), Some("p"));
        assert_eq!(password_in("db:1:d:u", "db", 1, "d", "u"), None);
    }

    #[test]
    fn tls_is_what_the_url_asks_for() {
        let asked = |query: &str| split_tls(&format!("postgres://h/d{query}"));
        let plain = |tls, mode| UrlSettings { url: "postgres://h/d".to_string(), tls, mode };
        assert_eq!(asked("").unwrap(), plain(Tls::Unverified, None));
        assert_eq!(asked("?sslmode=disable").unwrap(), plain(Tls::Unverified, Some(SslMode::Disable)));
        assert_eq!(asked("?sslmode=require").unwrap(), plain(Tls::Unverified, Some(SslMode::Require)));
        let verified = |roots: Option<&str>| Tls::Verified(roots.map(PathBuf::from));
        assert_eq!(asked("?sslmode=verify-full").unwrap(), plain(verified(None), Some(SslMode::Require)));
        assert_eq!(asked("?sslrootcert=/r").unwrap(), plain(verified(Some("/r")), Some(SslMode::Require)));
        let both = asked("?a=b&sslmode=require&sslrootcert=/r&c=d").unwrap();
        assert_eq!((both.url.as_str(), both.tls), ("postgres://h/d?a=b&c=d", verified(Some("/r"))));
        assert!(asked("?sslmode=verify-ca").is_err() && asked("?sslmode=allow").is_err());
    }

    #[test]
    fn plain_text_to_another_host_must_be_allowed() {
        use Transport::{Encrypted, Local, Plain, Verified};
        let server = |url: &str| PostgresServer::parse(&format!("postgres://u:s3cret@{url}"), None).unwrap();
        for (url, mode, transport) in [
            ("127.0.0.1/d", SslMode::Prefer, Local),
            ("localhost/d?sslmode=prefer", SslMode::Prefer, Local),
            ("%2Frun%2Fpostgresql/d", SslMode::Prefer, Local),
            ("[::1]:5433/d?sslmode=disable", SslMode::Disable, Local),
            ("db/d", SslMode::Require, Encrypted),
            ("localhost,db/d", SslMode::Require, Encrypted),
            ("localhost/d?hostaddr=10.0.0.1", SslMode::Require, Encrypted),
            ("db/d?sslmode=verify-full", SslMode::Require, Verified),
            ("db/d?sslmode=disable", SslMode::Disable, Plain),
        ] {
            let server = server(url);
            assert_eq!((server.config().get_ssl_mode(), server.transport()), (mode, transport), "{url}");
            assert_eq!(server.must_be_private(), Ok(()), "{url}");
        }
        for url in ["db/d?sslmode=prefer", "localhost,10.0.0.1/d?sslmode=prefer"] {
            let text = server(url).must_be_private().unwrap_err();
            assert!(text.contains("sslmode=disable") && text.contains("sslmode=verify-full"), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn a_password_that_is_handed_in_goes_first() {
        let given = Secret::new("given");
        let server = PostgresServer::parse("postgres://app:own@db/shop", Some(&given)).unwrap();
        assert_eq!(server.config().get_password(), Some(&b"given"[..]));
        let server = PostgresServer::parse("postgres://app:own@db/shop", None).unwrap();
        assert_eq!(server.config().get_password(), Some(&b"own"[..]));
    }

    #[test]
    fn no_password_is_shown() {
        let server = PostgresServer::parse("postgres://app:s3cret@db:5433/shop?password=s3cret", None).unwrap();
        assert_eq!(server.shown(), "postgres://app@db:5433/shop");
        assert!(!format!("{server:?}").contains("s3cret"));
        let wrong = PostgresServer::parse("postgres://app:s3cret@db:s3cret/shop?nonsense=s3cret", None).unwrap_err();
        assert!(!wrong.to_string().contains("s3cret"), "{wrong}");
    }
}
