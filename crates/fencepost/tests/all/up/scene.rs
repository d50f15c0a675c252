//! Machines that run `up`: each has its own state directory, and all have one store.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};

use fencepost_testkit::eventually;
use fencepost_testkit::process::{children_of, code};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{Said, Site};

pub struct Scene {
    pub site: Site,
}

impl Scene {
    pub fn new(config: &str) -> Self {
        let scene = Self { site: Site::new() };
        fs::create_dir(scene.path("shared")).unwrap();
        scene.write("fencepost.toml", config);
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.site.path(name)
    }

    pub fn store(&self) -> String {
        format!("sqlite:{}", self.path("shared/store.db").display())
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Writes the file at once.
    pub fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let draft = self.path("draft");
        fs::write(&draft, text).unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(draft, self.path(name)).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command(&["--store", &self.store()]);
        command.args(arguments).env("FENCEPOST_CONFIG", self.path("fencepost.toml"));
        command
    }

    pub fn say(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().unwrap())
    }

    pub fn without_config(&self, arguments: &[&str]) -> Said {
        self.site.say(arguments)
    }

    /// `up` with its lines.
    pub fn plain(&self, options: &[&str]) -> Up {
        let mut command = self.command(&["up"]);
        command.args(options);
        self.start(command, "up.out")
    }

    /// `up` on another machine.
    pub fn machine(&self, name: &str, options: &[&str]) -> Up {
        let mut command = self.command(&["up"]);
        command.args(options).env("FENCEPOST_STATE_DIR", self.path(&format!("state-{name}")));
        self.start(command, &format!("{name}.out"))
    }

    pub fn start(&self, mut command: Command, output: &str) -> Up {
        let output = self.path(output);
        let file = File::create(&output).unwrap();
        let child = command.stderr(file.try_clone().unwrap()).stdout(file).spawn().unwrap();
        Up { child, output }
    }
}

impl Site {
    /// The one job that `status` shows of another store.
    pub fn job_at(&self, store: &str, job: &str) -> Value {
        let status = self.json(&["--store", store, "status", job]);
        status["jobs"][0].clone()
    }
}

pub struct Up {
    child: Child,
    output: PathBuf,
}

impl Up {
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// How many lines have this part.
    pub fn count(&self, part: &str) -> usize {
        self.stdout().lines().filter(|line| line.contains(part)).count()
    }

    pub fn send(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Ends it and everything it started at one instant, as far as they can tell: the machine is gone.
    pub fn kill_with_children(mut self) {
        self.send(Signal::SIGSTOP);
        let mut all = vec![self.pid()];
        let mut at = 0;
        while at < all.len() {
            let pid = all[at];
            let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
            all.extend(children_of(pid));
            at += 1;
        }
        for pid in all.iter().rev() {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }

    pub fn wait(&mut self) -> i32 {
        let mut status = None;
        eventually("up has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        code(status.unwrap())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.pid()), Signal::SIGTERM);
        let _ = kill(Pid::from_raw(self.pid()), Signal::SIGCONT);
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            let _ = kill(Pid::from_raw(self.pid()), Signal::SIGTERM);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
