//! A server that applies the fence: the receiving side of `publish http`, as `docs/publish/http.md` describes it.
//!
//! ```text
//! cargo run -p fencepost-guard --example fenced_server -- 127.0.0.1:8080 /tmp/fenced
//! ```
//!
//! It keeps each resource in a directory: the content in a file of its own, and one small file with the fence, the
//! idempotency keys and the name of the content. That small file is renamed into place under a lock, so that check,
//! write, fence and key are one step: after a crash either all of them happened or none.
//!
//! The tests include this file as a module, and script its failures by [`Fault`].

#![allow(dead_code)]

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fencepost_core::fence::{Fence, FenceVerdict, Refused, StrictFence, Write, WriteMode, judge};
use fencepost_core::name::Job;
use fencepost_core::time::Wall;
use fencepost_core::token::{RunId, StoreId, Token};
use fencepost_guard::{clock, publish::digest};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The most bytes of a request's head.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// How many idempotency keys a resource remembers. A key that fell out is new again: say so to your users.
const KEYS_MAX: usize = 1000;
const SILENCE_MAX: Duration = Duration::from_secs(30);

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, directory] = &arguments[..] else {
        eprintln!("usage: fenced_server ADDRESS:PORT DIRECTORY");
        std::process::exit(2);
    };
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    serve(&listener, &Server::open(Path::new(directory))?);
    Ok(())
}

/// What is to go wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Pass,
    /// Answer this at once, with `Retry-After: 0`, and do nothing.
    Status(u16),
    /// Close the connection before the effect.
    CutBefore,
    /// Close the connection after the effect, so that the client cannot know.
    CutAfter,
    /// Answer half of the head after the effect.
    TornAfter,
    /// Answer this after the effect.
    StatusAfter(u16),
    /// Wait this many milliseconds before looking at the fence.
    Delay(u64),
}

/// A request as it came, for tests that look at what was sent.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
}

#[derive(Debug)]
pub struct Server {
    directory: PathBuf,
    /// Spans check and write. A server of several processes would use a transaction of its database instead.
    lock: Mutex<()>,
    faults: Mutex<VecDeque<Fault>>,
    seen: Mutex<Vec<Seen>>,
    applied: Mutex<Vec<(String, u64)>>,
}

/// Everything about a resource but its content.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    resource: String,
    fence: Fence,
    content: String,
    content_type: String,
    keys: VecDeque<Key>,
}

/// An idempotency key that was used, and by whom for what.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Key {
    key: String,
    token: Token,
    run: RunId,
    digest: String,
}

struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
}

/// A status and its reason, the headers that matter, and a body.
struct Response {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

/// Takes connections for ever, each in a thread of its own.
pub fn serve(listener: &TcpListener, server: &Arc<Server>) {
    for connection in listener.incoming().flatten() {
        let server = Arc::clone(server);
        thread::spawn(move || server.converse(&connection));
    }
}

impl Server {
    pub fn open(directory: &Path) -> io::Result<Arc<Self>> {
        fs::create_dir_all(directory)?;
        Ok(Arc::new(Self {
            directory: directory.to_path_buf(),
            lock: Mutex::new(()),
            faults: Mutex::default(),
            seen: Mutex::default(),
            applied: Mutex::default(),
        }))
    }

    /// What happens to the coming requests, one fault each.
    pub fn script(&self, faults: &[Fault]) {
        held(&self.faults).extend(faults);
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        held(&self.seen).clone()
    }

    /// The writes that took effect, in their order: resource and token.
    pub fn applied(&self) -> Vec<(String, u64)> {
        held(&self.applied).clone()
    }

    pub fn content(&self, resource: &str) -> Option<Vec<u8>> {
        let state = self.state(resource).ok()??;
        fs::read(self.directory.join(state.content)).ok()
    }

    fn converse(&self, connection: &TcpStream) {
        let _ = connection.set_read_timeout(Some(SILENCE_MAX));
        let _ = connection.set_write_timeout(Some(SILENCE_MAX));
        let mut reader = BufReader::new(connection);
        let Ok(Some(request)) = read_head(&mut reader) else { return };
        held(&self.seen).push(Seen {
            method: request.method.clone(),
            path: request.path.clone(),
            headers: request.headers.clone(),
        });
        let fault = held(&self.faults).pop_front().unwrap_or(Fault::Pass);
        let response = match fault {
            Fault::Status(status) => {
                let _ = io::copy(&mut request.body(&mut reader), &mut io::sink());
                Ok(Response::new(status).with("Retry-After", "0"))
            }
            Fault::CutBefore => return,
            _ => {
                if let Fault::Delay(millis) = fault {
                    thread::sleep(Duration::from_millis(millis));
                }
                self.answer(&request, &mut reader)
            }
        };
        let response = response.unwrap_or_else(|error| {
            Response::new(500).problem("failed", &format!("The server failed: {error}."), json!({}))
        });
        let mut bytes = response.written(request.method == "HEAD");
        match fault {
            Fault::CutAfter => return,
            Fault::TornAfter => bytes.truncate(20),
            Fault::StatusAfter(status) => bytes = Response::new(status).with("Retry-After", "0").written(false),
            _ => {}
        }
        let mut connection = connection;
        let _ = connection.write_all(&bytes);
    }

    fn answer(&self, request: &Request, reader: &mut impl BufRead) -> io::Result<Response> {
        match request.method.as_str() {
            "GET" | "HEAD" => self.show(request),
            "PUT" | "POST" | "PATCH" => self.write(request, reader),
            _ => Ok(Response::new(405).with("Allow", "GET, HEAD, PUT, POST, PATCH")),
        }
    }

    /// The content, and in the headers what the fence remembers: `publish --dry-run` asks by `HEAD`.
    fn show(&self, request: &Request) -> io::Result<Response> {
        let Some(resource) = request.resource() else { return Ok(missing("Fencepost-Resource")) };
        let Some(state) = self.state(&resource)? else {
            return Ok(Response::new(404).with("Fencepost-Fence", "ready"));
        };
        let fence = encoded(&String::from_utf8_lossy(&state.fence.encode()));
        Ok(Response { body: fs::read(self.directory.join(&state.content))?, ..Response::new(200) }
            .with("Content-Type", &state.content_type)
            .with("Fencepost-Fence", "ready")
            .with("Fencepost-Seen", &state.fence.token.to_string())
            .with("Fencepost-Seen-Fence", &fence))
    }

    fn write(&self, request: &Request, reader: &mut impl BufRead) -> io::Result<Response> {
        // The whole body comes first: the lock is not held while a client takes its time.
        let draft = self.directory.join(format!("content-{}", uuid::Uuid::now_v7().simple()));
        let response = self.write_draft(request, reader, &draft);
        let used = response.as_ref().is_ok_and(|response| response.status == 201);
        if !used {
            let _ = fs::remove_file(&draft);
        }
        response
    }

    fn write_draft(&self, request: &Request, reader: &mut impl BufRead, draft: &Path) -> io::Result<Response> {
        let Some(length) = request.length() else { return Ok(Response::new(411)) };
        let mut file = File::create_new(draft)?;
        let (digest, copied) = digest::copy(&mut request.body(reader), &mut file)?;
        file.sync_all()?;
        if copied != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let write = match request.write_of(&digest) {
            Ok(write) => write,
            Err(response) => return Ok(response),
        };
        let (Some(resource), Some(key)) = (request.resource(), request.header("Idempotency-Key")) else {
            return Ok(missing("Fencepost-Resource or Idempotency-Key"));
        };
        self.apply(&resource, key, &write, request, draft)
    }

    /// The one step: nothing here is visible to anybody before the rename in [`commit`](Self::commit), and then all
    /// of it is.
    fn apply(&self, resource: &str, key: &str, write: &Write, request: &Request, draft: &Path) -> io::Result<Response> {
        let _lock = held(&self.lock);
        let state = self.state(resource)?;
        let known = state.as_ref().and_then(|state| state.keys.iter().find(|known| known.key == key).cloned());
        let same = |known: &Key| known.digest == write.digest;
        // A request that comes again because its answer was lost is told what became of it, even if a newer token has
        // written since: it did happen.
        if let (Some(known), Some(state)) = (&known, &state)
            && (known.token, known.run) == (write.token, write.run)
            && same(known)
        {
            return Ok(accepted(200, &state.fence).with("Fencepost-Already-Applied", "1"));
        }
        let fence = match judge::<StrictFence>(state.as_ref().map(|state| &state.fence), write) {
            Err(refused) => return Ok(refusal(&refused)),
            Ok(FenceVerdict::AlreadyApplied(fence)) => {
                return Ok(accepted(200, &fence).with("Fencepost-Already-Applied", "1"));
            }
            Ok(FenceVerdict::Accept(fence)) => fence,
        };
        match (&known, &state) {
            (Some(known), Some(state)) if same(known) => {
                return Ok(accepted(200, &state.fence).with("Fencepost-Already-Applied", "1"));
            }
            (Some(_), _) => {
                let detail = "This idempotency key was used with another payload.";
                return Ok(Response::new(422).problem("key-reused", detail, json!({})));
            }
            (None, _) => {}
        }
        let old = state.as_ref().map(|state| state.content.clone());
        let mut keys = state.map(|state| state.keys).unwrap_or_default();
        keys.push_back(Key { key: key.to_string(), token: write.token, run: write.run, digest: write.digest.clone() });
        while keys.len() > KEYS_MAX {
            keys.pop_front();
        }
        let next = State {
            resource: resource.to_string(),
            fence: fence.clone(),
            content: draft.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            content_type: request.header("Content-Type").unwrap_or("application/octet-stream").to_string(),
            keys,
        };
        self.commit(&next)?;
        held(&self.applied).push((resource.to_string(), write.token.number()));
        if let Some(old) = old {
            let _ = fs::remove_file(self.directory.join(old));
        }
        Ok(accepted(201, &fence))
    }

    fn commit(&self, next: &State) -> io::Result<()> {
        let place = self.place(&next.resource);
        let draft = place.with_extension("new");
        let mut file = File::create(&draft)?;
        file.write_all(&serde_json::to_vec(next)?)?;
        file.sync_all()?;
        fs::rename(&draft, &place)?;
        File::open(&self.directory)?.sync_all()
    }

    /// What stands of a resource. What cannot be read is an error, never "nothing yet".
    fn state(&self, resource: &str) -> io::Result<Option<State>> {
        match fs::read(self.place(resource)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn place(&self, resource: &str) -> PathBuf {
        let name = digest::of(resource.as_bytes()).replace(':', "-");
        self.directory.join(name).with_extension("state")
    }
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    fn resource(&self) -> Option<String> {
        decoded(self.header("Fencepost-Resource")?)
    }

    fn length(&self) -> Option<u64> {
        self.header("Content-Length")?.parse().ok()
    }

    fn body<'a>(&self, reader: &'a mut impl BufRead) -> impl Read + 'a {
        reader.take(self.length().unwrap_or(0))
    }

    /// The write as its headers describe it, with the digest of what really came.
    fn write_of(&self, digest: &str) -> Result<Write, Response> {
        fn parsed<T>(request: &Request, name: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<T, Response> {
            request.header(name).and_then(parse).ok_or_else(|| missing(name))
        }
        if self.header("Fencepost-Digest") != Some(digest) {
            let detail = format!("What came has the digest {digest}, which is not the one that was announced.");
            return Err(Response::new(400).problem("digest-mismatch", &detail, json!({})));
        }
        Ok(Write {
            store: parsed(self, "Fencepost-Store", |text| text.parse().ok().map(StoreId))?,
            job: parsed(self, "Fencepost-Job", |text| Job::parse(text).ok())?,
            token: parsed(self, "Fencepost-Token", |text| Token::new(text.parse().ok()?))?,
            run: parsed(self, "Fencepost-Run", |text| text.parse().ok())?,
            mode: parsed(self, "Fencepost-Mode", |text| match text {
                "many" => Some(WriteMode::Many),
                "once" => Some(WriteMode::Once),
                _ => None,
            })?,
            op: self.header("Fencepost-Op").and_then(decoded),
            digest: digest.to_string(),
            replaces: false,
            adopt: self.header("Fencepost-Adopt") == Some("1"),
            at: Wall(clock::wall_now().0),
            host: self.header("Fencepost-Host").and_then(decoded).unwrap_or_default(),
        })
    }
}

impl Response {
    fn new(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    /// A problem as RFC 9457 writes it.
    fn problem(mut self, kind: &str, detail: &str, more: serde_json::Value) -> Self {
        let mut problem = json!({ "type": format!("urn:fencepost:{kind}"), "status": self.status, "detail": detail });
        if let (Some(problem), Some(more)) = (problem.as_object_mut(), more.as_object()) {
            problem.extend(more.clone());
        }
        self.body = problem.to_string().into_bytes();
        self.with("Content-Type", "application/problem+json")
    }

    fn written(&self, head_only: bool) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} {}\r\nConnection: close\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n", self.body.len());
        let mut bytes = text.into_bytes();
        if !head_only {
            bytes.extend(&self.body);
        }
        bytes
    }
}

fn accepted(status: u16, fence: &Fence) -> Response {
    Response::new(status)
        .with("Fencepost-Fence", "accepted")
        .with("Fencepost-Seen", &fence.token.to_string())
        .with("Fencepost-Seq", &fence.seq.to_string())
}

fn refusal(refused: &Refused) -> Response {
    use fencepost_core::fence::Reason;
    let kind = match refused.reason {
        Reason::Stale => "stale-token",
        Reason::Spent => "spent-token",
        Reason::OtherRun => "other-run",
        Reason::OtherLineage => "other-lineage",
    };
    let seen = serde_json::from_slice(&refused.seen.encode()).unwrap_or(serde_json::Value::Null);
    Response::new(412).with("Fencepost-Seen", &refused.seen.token.to_string()).problem(
        kind,
        &refused.to_string(),
        json!({ "seen": seen }),
    )
}

fn missing(name: &str) -> Response {
    let detail = format!("{name} is missing or cannot be read. Writes without a token are not taken here.");
    Response::new(400).problem("bad-request", &detail, json!({}))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        404 => "Not Found",
        409 => "Conflict",
        412 => "Precondition Failed",
        422 => "Unprocessable Content",
        _ => "See Status",
    }
}

/// The request line and the headers; `None` if the client went away.
fn read_head(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut head = reader.take(HEAD_BYTES_MAX);
    let mut line = String::new();
    if head.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_ascii_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let mut request = Request { method: method.to_string(), path: path.to_string(), headers: Vec::new() };
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) => request.headers.push((name.trim().to_string(), value.trim().to_string())),
            None if line.trim_end().is_empty() => return Ok(Some(request)),
            None => return Ok(None),
        }
    }
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            0x21..=0x7e if byte != b'%' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
