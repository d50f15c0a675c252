//! A small HTTP server in front of `git http-backend`, which can lose connections.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// What happens to the next push.
pub enum Fault {
    /// The connection ends before the server has seen it.
    Unheard,
    /// It is carried out, then something else happens, and then the connection ends without an answer.
    Unanswered(Box<dyn FnOnce() + Send>),
}

pub struct Server {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    faults: Mutex<Vec<Fault>>,
    /// Whoever has no such `Authorization` is turned away.
    password: Mutex<Option<String>>,
    ended: AtomicBool,
}

impl Server {
    /// Serves the repositories of a directory on a free port.
    pub fn start(root: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            root: root.to_path_buf(),
            faults: Mutex::default(),
            password: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.ended.load(Ordering::SeqCst) {
                    return;
                }
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.serve(&stream));
            }
        });
        Self { address, shared }
    }

    /// Has the next pushes go wrong, one after the other.
    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        let mut faults: Vec<Fault> = faults.into_iter().collect();
        faults.reverse();
        *self.shared.faults.lock().unwrap() = faults;
    }

    pub fn ask_for_a_password(&self) {
        *self.shared.password.lock().unwrap() = Some("Basic bWU6cmlnaHQ=".to_string());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    /// Answers one request and closes the connection. A client that goes away is its own affair.
    fn serve(&self, stream: &TcpStream) -> Option<()> {
        let request = Request::read(stream).ok()?;
        let password = self.password.lock().unwrap().clone();
        if password.is_some_and(|password| request.header("authorization") != Some(&password)) {
            let head = "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"t\"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            return (&mut &*stream).write_all(head.as_bytes()).ok();
        }
        let is_push = request.method == "POST" && request.path.ends_with("/git-receive-pack");
        match is_push.then(|| self.faults.lock().unwrap().pop()).flatten() {
            Some(Fault::Unheard) => None,
            Some(Fault::Unanswered(then)) => {
                self.backend(&request);
                then();
                None
            }
            None => (&mut &*stream).write_all(&answer(&self.backend(&request))).ok(),
        }
    }

    /// The answer of git's own CGI program.
    fn backend(&self, request: &Request) -> Vec<u8> {
        let mut child = Command::new("git")
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("REQUEST_METHOD", &request.method)
            .env("PATH_INFO", &request.path)
            .env("QUERY_STRING", &request.query)
            .env("CONTENT_TYPE", request.header("content-type").unwrap_or_default())
            .env("CONTENT_LENGTH", request.body.len().to_string())
            .env("HTTP_CONTENT_ENCODING", request.header("content-encoding").unwrap_or_default())
            .env("GIT_PROTOCOL", request.header("git-protocol").unwrap_or_default())
            .env("REMOTE_USER", "test")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("git http-backend is needed for this test: apt-get install git");
        let mut input = child.stdin.take().unwrap();
        let body = request.body.clone();
        let writer = thread::spawn(move || input.write_all(&body));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join().unwrap();
        output.stdout
    }
}

/// Turns the answer of a CGI program into one of HTTP.
fn answer(cgi: &[u8]) -> Vec<u8> {
    let split = cgi.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("git http-backend gave no answer");
    let (head, body) = (String::from_utf8_lossy(&cgi[..split]), &cgi[split + 4..]);
    let status = head.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
    let headers: String =
        head.lines().filter(|line| !line.starts_with("Status: ")).map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    let mut answer =
        format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n").into_bytes();
    answer.extend_from_slice(body);
    answer
}

struct Request {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn read(stream: &TcpStream) -> io::Result<Self> {
        let mut reader = BufReader::new(stream);
        let first = line(&mut reader)?;
        let mut words = first.split_whitespace().map(String::from);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let mut headers = Vec::new();
        loop {
            let line = line(&mut reader)?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
        }
        let mut request = Self { method, path: path.to_string(), query: query.to_string(), headers, body: Vec::new() };
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

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(line.trim_end().to_string())
}
