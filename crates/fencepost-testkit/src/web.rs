//! A web server on the loopback that keeps the requests it was sent.

use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::eventually;
use crate::http::{Request, answer};
use crate::network::Loopback;

pub struct Web {
    loopback: Loopback,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Web {
    /// Answers every request with this status.
    pub fn answering(status: u16) -> Self {
        Self::start(move |stream| drop(answer(stream, status, "")))
    }

    /// Redirects every request to another URL.
    pub fn redirecting(status: u16, to: String) -> Self {
        Self::start(move |stream| drop(answer(stream, status, &format!("Location: {to}\r\n"))))
    }

    /// Takes every request, and never answers.
    pub fn hanging() -> Self {
        Self::start(|_| thread::sleep(Duration::from_secs(120)))
    }

    /// Answers every request in the way of a test.
    pub fn start(answer: impl Fn(&TcpStream) + Send + Sync + 'static) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&seen);
        let loopback = Loopback::start(move |stream| {
            if let Ok(request) = Request::read(&stream) {
                notes.lock().unwrap().push(request);
            }
            answer(&stream);
        });
        Self { loopback, seen }
    }

    pub fn url(&self, path: &str) -> String {
        self.loopback.url(path)
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
