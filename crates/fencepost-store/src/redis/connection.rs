//! A connection to a Redis server. Every wait on it is limited, and a signal interrupts none.
//!
//! The client library's own connection cannot be used: a read that a signal interrupts, as ctrl-Z and `fg` do, loses
//! the answer, and it buffers as much as a server sends. The library encodes commands and parses answers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, ConnectionAddr, ConnectionInfo, ConnectionLike, Parser, RedisConnectionInfo, RedisError, Value};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The limit of an answer. A listing of the longest keys is the longest that a store gives.
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// How long to look for an answer after the time limit. A process that was stopped in between finds it in the socket.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// A connection that has logged in.
#[expect(missing_debug_implementations, reason = "a connection shows nothing worth seeing")]
pub struct RedisConnection {
    stream: RedisStream,
    parser: Parser,
    database: i64,
    answering: Duration,
}

impl RedisConnection {
    /// Connects and logs in within `connecting`, and waits for each later answer up to `answering`.
    pub(super) fn open(info: &ConnectionInfo, connecting: Duration, answering: Duration) -> Result<Self, RedisError> {
        let deadline = Instant::now() + connecting;
        let (socket, tls_name) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => (dial(host, *port, deadline)?, None),
            ConnectionAddr::TcpTls { host, port, .. } => (dial(host, *port, deadline)?, Some(host)),
            ConnectionAddr::Unix(path) => (Socket::Unix(UnixStream::connect(path)?), None),
            _ => return Err(io::Error::from(ErrorKind::Unsupported).into()),
        };
        let wire = Wire { socket, patience: connecting, deadline, bytes_left: ANSWER_BYTES_MAX };
        wire.socket.set_write_timeout(answering)?;
        let stream = match tls_name {
            None => RedisStream::Plain(wire),
            Some(host) => {
                let mut stream = StreamOwned::new(tls(host)?, wire);
                // The handshake completes before the first command: a refused certificate must not look like a lost
                // answer.
                stream.conn.complete_io(&mut stream.sock)?;
                RedisStream::Tls(Box::new(stream))
            }
        };
        let settings = info.redis_settings();
        let answering_login = deadline.saturating_duration_since(Instant::now()).max(LAST_LOOK);
        let mut connection =
            Self { stream, parser: Parser::new(), database: settings.db(), answering: answering_login };
        connection.log_in(settings)?;
        connection.answering = answering;
        Ok(connection)
    }

    fn log_in(&mut self, settings: &RedisConnectionInfo) -> Result<(), RedisError> {
        if let Some(password) = settings.password() {
            let said = match authentication(settings.username(), password).query::<()>(self) {
                // Redis before version 6 has no users.
                Err(error) if settings.username().is_some() && error.to_string().contains("wrong number of arg") => {
                    authentication(None, password).query(self)
                }
                said => said,
            };
            said.map_err(|error| match error.code() {
                None => error,
                Some(_) => (redis::ErrorKind::AuthenticationFailed, "the login failed", error.to_string()).into(),
            })?;
        }
        match self.database {
            0 => Ok(()),
            number => redis::cmd("SELECT").arg(number).query(self),
        }
    }
}

fn authentication(user: Option<&str>, password: &str) -> Cmd {
    let mut command = redis::cmd("AUTH");
    for part in user.into_iter().chain([password]) {
        command.arg(part);
    }
    command
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command(&mut self, command: &[u8]) -> Result<Value, RedisError> {
        self.stream.write_all(command)?;
        self.stream.flush()?;
        self.stream.wire().expect_answer(self.answering);
        self.parser.parse_value(&mut self.stream)
    }

    fn req_packed_commands(&mut self, _: &[u8], _: usize, _: usize) -> Result<Vec<Value>, RedisError> {
        Err((redis::ErrorKind::Client, "fencepost sends one command at a time").into())
    }

    fn get_db(&self) -> i64 {
        self.database
    }

    fn supports_pipelining(&self) -> bool {
        false
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").query::<()>(self).is_ok()
    }

    fn is_open(&self) -> bool {
        true
    }
}

enum RedisStream {
    Plain(Wire),
    Tls(Box<StreamOwned<ClientConnection, Wire>>),
}

impl RedisStream {
    fn wire(&mut self) -> &mut Wire {
        match self {
            Self::Plain(wire) => wire,
            Self::Tls(stream) => &mut stream.sock,
        }
    }
}

impl Read for RedisStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(wire) => wire.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for RedisStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(wire) => wire.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(wire) => wire.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A socket that limits the time and the bytes of one answer.
struct Wire {
    socket: Socket,
    patience: Duration,
    deadline: Instant,
    bytes_left: usize,
}

impl Wire {
    fn expect_answer(&mut self, patience: Duration) {
        self.patience = patience;
        self.deadline = Instant::now() + patience;
        self.bytes_left = ANSWER_BYTES_MAX;
    }

    fn timed_out(&self) -> io::Error {
        timed_out(self.patience)
    }
}

fn timed_out(after: Duration) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, format!("timed out after {} s", after.as_secs().max(1)))
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes_left == 0 {
            let text = format!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
        let most = buffer.len().min(self.bytes_left);
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            self.socket.set_read_timeout(left.max(LAST_LOOK))?;
            match self.socket.read(&mut buffer[..most]) {
                Ok(read) => {
                    self.bytes_left -= read;
                    return Ok(read);
                }
                // SIGCONT interrupts a socket with a time limit, even if no signal is handled.
                Err(error) if error.kind() == ErrorKind::Interrupted && !left.is_zero() => {}
                Err(error)
                    if [ErrorKind::Interrupted, ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) =>
                {
                    return Err(self.timed_out());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.socket.write(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(self.timed_out()),
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn set_read_timeout(&self, limit: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_read_timeout(Some(limit)),
            Self::Unix(socket) => socket.set_read_timeout(Some(limit)),
        }
    }

    fn set_write_timeout(&self, limit: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_write_timeout(Some(limit)),
            Self::Unix(socket) => socket.set_write_timeout(Some(limit)),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Unix(socket) => socket.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Unix(socket) => socket.write(bytes),
        }
    }
}

/// Tries every address of the host until the deadline.
fn dial(host: &str, port: u16, deadline: Instant) -> io::Result<Socket> {
    let begun = Instant::now();
    let mut last = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timed_out(deadline - begun));
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(Socket::Tcp(socket));
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => last = timed_out(deadline - begun),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Starts TLS. The server's certificate must be valid for its name, by the system's roots.
fn tls(host: &str) -> io::Result<ClientConnection> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let text = "there are no root certificates: install ca-certificates, or name a file by SSL_CERT_FILE";
        return Err(io::Error::new(ErrorKind::NotFound, text));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_string()).map_err(io::Error::other)?;
    ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a client, and the other end of its connection.
    fn pair(patience: Duration) -> (RedisConnection, UnixStream) {
        let (here, there) = UnixStream::pair().unwrap();
        let wire = Wire { socket: Socket::Unix(here), patience, deadline: Instant::now(), bytes_left: 0 };
        let stream = RedisStream::Plain(wire);
        (RedisConnection { stream, parser: Parser::new(), database: 0, answering: patience }, there)
    }

    #[test]
    fn a_timeout_says_so_and_after_how_long() {
        let (mut connection, _there) = pair(Duration::from_secs(1));
        let error = redis::cmd("PING").query::<()>(&mut connection).unwrap_err();
        assert!(error.is_timeout(), "{error:?}");
        assert!(error.to_string().contains("timed out after 1 s"), "{error}");
    }

    #[test]
    fn an_answer_without_end_is_not_read_to_its_end() {
        let (mut connection, mut there) = pair(Duration::from_secs(30));
        let endless = std::thread::spawn(move || {
            let _ = there.write_all(format!("${}\r\n", 1u64 << 40).as_bytes());
            let mut sent = 0usize;
            while there.write_all(&[b'x'; 4096]).is_ok() {
                sent += 4096;
            }
            sent
        });
        let error = redis::cmd("GET").arg("a").query::<Vec<u8>>(&mut connection).unwrap_err();
        assert!(error.to_string().contains("longer than 2097152 bytes"), "{error}");
        drop(connection);
        assert!(endless.join().unwrap() < 4 * ANSWER_BYTES_MAX);
    }
}
