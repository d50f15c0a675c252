//! A server on the loopback that remembers what it was told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::eventually;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub body: String,
}

impl Request {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

pub struct Web {
    port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Web {
    /// Answers every request with this status.
    pub fn answering(status: u16) -> Self {
        Self::start(move |stream| {
            let _ = write!(stream, "HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        })
    }

    /// Redirects every request to another URL.
    pub fn redirecting(status: u16, to: String) -> Self {
        Self::start(move |stream| {
            let head = format!("HTTP/1.1 {status} x\r\nLocation: {to}\r\n");
            let _ = write!(stream, "{head}Content-Length: 0\r\nConnection: close\r\n\r\n");
        })
    }

    /// Takes every request, and never answers.
    pub fn hanging() -> Self {
        Self::start(|_| thread::sleep(Duration::from_secs(120)))
    }

    fn start(answer: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, notes) = (Arc::new(answer), Arc::clone(&seen));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (answer, notes) = (Arc::clone(&answer), Arc::clone(&notes));
                thread::spawn(move || {
                    if let Some(request) = read(&stream) {
                        notes.lock().unwrap().push(request);
                    }
                    answer(&mut stream);
                });
            }
        });
        Self { port, seen }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// All requests, once there are so many.
    pub fn wait_for(&self, count: usize) -> Vec<Request> {
        eventually(&format!("{count} requests came"), || self.seen().len() >= count);
        self.seen()
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path, body: String::from_utf8(body).ok()? })
}
