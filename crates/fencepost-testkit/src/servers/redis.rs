//! Redis.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::network::free_port;
use crate::program;
use crate::servers::{end, own_directory, unprivileged, wait_until};

pub struct Redis {
    process: Child,
    directory: TempDir,
    pub port: u16,
    settings: Vec<String>,
}

impl Redis {
    pub fn start(settings: &[&str]) -> Self {
        let (directory, port) = (own_directory(), free_port());
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let process = Self::spawn(directory.path(), port, &settings);
        let mut server = Self { process, directory, port, settings };
        server.wait();
        server
    }

    fn spawn(directory: &Path, port: u16, settings: &[String]) -> Child {
        let mut redis = unprivileged(program("redis-server", "redis-server"));
        redis.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--loglevel",
            "warning",
            "--dir",
        ]);
        redis.arg(directory).args(settings).stdout(Stdio::null()).spawn().expect("redis-server")
    }

    /// Until it answers, and answers anything but that it is loading.
    fn wait(&mut self) {
        let port = self.port;
        let answers = || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
            stream.write_all(b"PING\r\n").ok()?;
            let mut answer = [0; 16];
            stream.read(&mut answer).ok().filter(|&read| read > 0 && !answer.starts_with(b"-LOADING"))
        };
        wait_until(&mut self.process, || answers().is_some());
    }

    /// Kills it where it stands, and starts it again on the same port.
    pub fn kill_and_restart(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.process = Self::spawn(self.directory.path(), self.port, &self.settings);
        self.wait();
    }

    /// Stops the server where it stands, or continues it. What was sent to it meanwhile is done then.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().cast_signed()), signal).expect("the server is running");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        end(&mut self.process, Signal::SIGTERM);
    }
}
