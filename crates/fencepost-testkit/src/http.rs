//! Messages of HTTP, as a server of the tests reads them.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

/// A request that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// The path, with the query if there is one.
    pub target: String,
    /// The names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn read(stream: &TcpStream) -> io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let first = line(&mut reader)?;
        let mut words = first.split_whitespace().map(String::from);
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(io::Error::other(format!("not a request: {first:?}")));
        };
        let mut headers = Vec::new();
        loop {
            let line = line(&mut reader)?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
        }
        let mut request = Self { method, target, headers, body: Vec::new() };
        request.body = request.read_body(&mut reader)?;
        Ok(request)
    }

    fn read_body(&self, reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if self.header("transfer-encoding") == Some("chunked") {
            loop {
                let length = usize::from_str_radix(&line(reader)?, 16).map_err(io::Error::other)?;
                let mut chunk = vec![0; length];
                reader.read_exact(&mut chunk)?;
                line(reader)?;
                body.extend(chunk);
                if length == 0 {
                    return Ok(body);
                }
            }
        }
        let length = self.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        reader.take(length).read_to_end(&mut body)?;
        Ok(body)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(self.target.as_str(), |(path, _)| path)
    }

    pub fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Method and target.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// Answers with a status, headers (`"Name: value\r\n"` each) and no body, and asks for the connection to be closed.
pub fn answer(mut stream: &TcpStream, status: u16, headers: &str) -> io::Result<()> {
    write!(stream, "HTTP/1.1 {status} x\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n")
}

/// The bytes of a whole request or answer: its head, and as much more as the head says, or up to the empty chunk.
pub fn message(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let (mut message, mut buffer) = (Vec::new(), [0; 16384]);
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        message.extend_from_slice(&buffer[..read]);
        let Some(end) = message.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&message[..end]).to_ascii_lowercase();
        if head.contains("transfer-encoding: chunked") {
            if message.ends_with(b"\r\n0\r\n\r\n") {
                return Some(message);
            }
            continue;
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        if message.len() >= end + 4 + length.unwrap_or(0_usize) {
            return Some(message);
        }
    }
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(line.trim_end().to_string())
}
