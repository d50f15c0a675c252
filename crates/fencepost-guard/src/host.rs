//! This host: its name, its identity, and whether a holder on it is dead.

use std::fs;
use std::path::Path;

use fencepost_core::format::Unknown;
use fencepost_core::record::{Holder, Process, Processes};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, gethostname};

use crate::sys::{self, ProcessState};

/// The system this process runs on. Pids and start times are comparable only if all four marks match.
#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    machine: String,
    boot: String,
    /// Absent without a `/proc` of this process's own namespace: then no process can be looked up.
    namespaces: Option<Namespaces>,
}

/// The namespaces in which pids and start times are valid.
#[derive(Clone, Debug)]
struct Namespaces {
    pid: String,
    time: String,
}

impl Namespaces {
    /// Both, if processes can be looked up.
    fn of_this_process() -> Option<Self> {
        let (pid, time) = sys::namespaces()?;
        Some(Self { pid, time })
    }
}

impl Host {
    pub fn this() -> Self {
        let namespaces = Namespaces::of_this_process();
        // Tests simulate two hosts by two names. Release builds do not read the variable.
        #[cfg(debug_assertions)]
        if let Some(name) = std::env::var("FENCEPOST_TEST_HOST").ok().filter(|name| !name.is_empty()) {
            let namespaces = namespaces.map(|namespaces| Namespaces { pid: name.clone(), ..namespaces });
            return Self { machine: name.clone(), namespaces, boot: boot_id(), name };
        }
        let name = gethostname().ok().and_then(|name| name.into_string().ok());
        Self {
            name: name.filter(|name| !name.is_empty()).unwrap_or_else(|| "localhost".to_string()),
            machine: sys::machine_id(),
            boot: boot_id(),
            namespaces,
        }
    }

    /// This host, as the state directory knows it. Where the system changes the host name with the network, the first
    /// name is kept: it is part of the name of a `--per-host` job.
    pub fn known_in(state: &Path) -> Self {
        let mut host = Self::this();
        if !sys::HOST_NAME_STAYS {
            host.keep_name(&state.join(NAME_FILE));
        }
        host
    }

    /// Takes the name from the file if the file is this machine's. Otherwise writes the current name to it, without the
    /// network's domain. A file that cannot be written is tried again at the next start.
    fn keep_name(&mut self, file: &Path) {
        if self.machine.is_empty() {
            return;
        }
        let kept = fs::read_to_string(file).unwrap_or_default();
        if let Some(name) = kept_name(&kept, &self.machine) {
            self.name = name.to_string();
            return;
        }
        self.name.truncate(self.name.find('.').filter(|at| *at > 0).unwrap_or(self.name.len()));
        let draft = file.with_extension(std::process::id().to_string());
        let written = fs::write(&draft, format!("{}\n{}\n", self.machine, self.name));
        if written.and_then(|()| fs::rename(&draft, file)).is_err() {
            let _ = fs::remove_file(&draft);
        }
    }

    /// The boot id of this system; empty if it cannot be read.
    pub fn boot(&self) -> &str {
        &self.boot
    }

    /// A holder with processes on this host, which their absence can prove dead. If they cannot be looked up, the
    /// holder has no process evidence and its lease ends by its time-to-live.
    pub fn holder(&self, wrapper: i32, keeper: Option<Process>) -> Holder {
        Holder {
            host: self.name.clone(),
            processes: self.processes(wrapper, keeper),
            by_hand: false,
            inside: Vec::new(),
            unknown: Unknown::default(),
        }
    }

    fn processes(&self, wrapper: i32, keeper: Option<Process>) -> Option<Processes> {
        let Namespaces { pid, time } = self.namespaces.clone()?;
        Some(Processes {
            machine: self.machine.clone(),
            boot: self.boot.clone(),
            pid_namespace: pid,
            time_namespace: Some(time),
            wrapper: process(wrapper)?,
            keeper,
            unknown: Unknown::default(),
        })
    }

    /// A holder by hand: a script that comes and goes between `acquire` and `release`.
    pub fn holder_by_hand(&self) -> Holder {
        Holder {
            host: self.name.clone(),
            processes: None,
            by_hand: true,
            inside: Vec::new(),
            unknown: Unknown::default(),
        }
    }

    /// A holder by hand that stays: this process holds the lease for its caller.
    pub fn holder_for_another(&self) -> Holder {
        Holder { by_hand: true, ..self.holder(std::process::id().cast_signed(), None) }
    }

    /// A holder whose run a program does itself. It has no process evidence: children of a program that died may still be at
    /// work, so its lease ends by its time-to-live.
    pub fn holder_of_program(&self) -> Holder {
        Holder { by_hand: false, ..self.holder_by_hand() }
    }

    /// A name for a process that no other process of this machine has had or will have. None if processes cannot be
    /// looked up here.
    pub fn mark(&self, process: Process) -> Option<String> {
        Some(format!("{}{}.{}", self.mark_prefix()?, process.pid, process.started))
    }

    /// Whether the name is the mark of a process that has ended. None if it is no mark, or one of another namespace.
    pub fn has_ended(&self, mark: &str) -> Option<bool> {
        let (pid, started) = mark.strip_prefix(&self.mark_prefix()?)?.split_once('.')?;
        Some(is_gone(Process { pid: pid.parse().ok()?, started: started.parse().ok()? }))
    }

    fn mark_prefix(&self) -> Option<String> {
        let Namespaces { pid, time } = self.namespaces.as_ref()?;
        let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
        let is_known = !self.boot.is_empty() && !self.machine.is_empty();
        is_known.then(|| format!("{}.{}.{}.", plain(&self.boot), plain(pid), plain(time)))
    }

    /// Whether the holder is proved dead. Without proof the answer is no.
    pub fn knows_dead(&self, holder: &Holder) -> bool {
        let Some(processes) = &holder.processes else { return false };
        self.shares_processes(processes) && is_gone(processes.wrapper) && processes.keeper.is_none_or(is_gone)
    }

    /// Whether the holder runs here and is alive: a signal to its pid reaches it and no other process.
    pub fn knows_alive(&self, holder: &Holder) -> bool {
        let Some(processes) = &holder.processes else { return false };
        self.shares_processes(processes) && process(processes.wrapper.pid) == Some(processes.wrapper)
    }

    /// Containers on one machine share the boot id but not pids, images share machine ids, and another time namespace
    /// shifts start times.
    fn shares_processes(&self, processes: &Processes) -> bool {
        let Some(Namespaces { pid, time }) = &self.namespaces else { return false };
        let same = (&processes.machine, &processes.boot, &processes.pid_namespace, processes.time_namespace.as_ref())
            == (&self.machine, &self.boot, pid, Some(time));
        same && !self.boot.is_empty() && !self.machine.is_empty()
    }
}

/// The file of the state directory with the machine's id and, on the second line, its name.
const NAME_FILE: &str = "host-name";

/// The name in the file, if the file is this machine's: a backup of another Mac brings that one's file.
fn kept_name<'a>(text: &'a str, machine: &str) -> Option<&'a str> {
    let (first, rest) = text.split_once('\n')?;
    let name = rest.lines().next().map(str::trim).filter(|name| !name.is_empty())?;
    (first.trim() == machine).then_some(name)
}

/// A living process with its mark. A zombie is dead.
pub fn process(pid: i32) -> Option<Process> {
    let entry = sys::process(pid).filter(|entry| entry.state != ProcessState::Dead)?;
    Some(Process { pid, started: entry.mark })
}

/// The name of a process.
pub fn name(pid: i32) -> Option<String> {
    sys::process(pid).map(|entry| entry.name)
}

/// The parent of a process. None at the top, and if the process cannot be looked up.
pub fn parent(pid: i32) -> Option<i32> {
    sys::process(pid).map(|entry| entry.parent).filter(|&parent| parent > 0)
}

/// Whether the kernel says that the process does not exist, or that its pid is now another process. A hidden process
/// counts as alive.
fn is_gone(mark: Process) -> bool {
    if kill(Pid::from_raw(mark.pid), None) == Err(Errno::ESRCH) {
        return true;
    }
    sys::process(mark.pid).is_some_and(|entry| entry.state == ProcessState::Dead || entry.mark != mark.started)
}

fn boot_id() -> String {
    fencepost_store::boot_id().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_living_holder_is_not_dead_and_a_killed_one_is_even_as_a_zombie() {
        let here = Host::this();
        let mut child = sleeper();
        let holder = here.holder(child.id() as i32, None);
        assert!(!here.knows_dead(&holder));
        assert!(here.knows_alive(&holder));
        child.kill().unwrap();
        while process(child.id() as i32).is_some() {
            std::thread::yield_now();
        }
        assert!(here.knows_dead(&holder), "a zombie is dead");
        child.wait().unwrap();
        assert!(here.knows_dead(&holder));
        assert!(!here.knows_alive(&holder));
    }

    #[test]
    fn a_wrapper_whose_keeper_lives_is_not_dead() {
        let here = Host::this();
        let (mut wrapper, mut keeper) = (sleeper(), sleeper());
        let holder = here.holder(wrapper.id() as i32, process(keeper.id() as i32));
        wrapper.kill().unwrap();
        wrapper.wait().unwrap();
        assert!(!here.knows_dead(&holder));
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        assert!(here.knows_dead(&holder));
    }

    #[test]
    fn a_reused_process_id_is_another_process() {
        let here = Host::this();
        let mut child = sleeper();
        let mut holder = here.holder(child.id() as i32, None);
        if let Some(processes) = &mut holder.processes {
            processes.wrapper.started -= 1;
        }
        assert!(here.knows_dead(&holder));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_host_keeps_its_first_name_on_every_network() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join(NAME_FILE);
        let host = |name: &str, machine: &str| {
            let mut host = Host { name: name.to_string(), machine: machine.to_string(), ..Host::this() };
            host.keep_name(&file);
            host.name
        };
        assert_eq!(host("studio.fritz.box", "4C4C"), "studio");
        assert_eq!(host("dhcp-17.example.org", "4C4C"), "studio");
        fs::write(&file, "4C4C\nkitchen\n").unwrap();
        assert_eq!(host("studio.local", "4C4C"), "kitchen", "a person may choose the name");
        assert_eq!(host("laptop.local", "ABCD"), "laptop", "the file came from another machine");
        assert_eq!(fs::read_to_string(&file).unwrap(), "ABCD\nlaptop\n");
        assert_eq!(host("unknown.local", ""), "unknown.local", "without an id nothing is kept");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn nothing_is_known_about_another_container_machine_or_boot() {
        let here = Host::this();
        let mut child = sleeper();
        let dead = here.holder(child.id() as i32, None);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(here.knows_dead(&dead));
        let changes: [fn(&mut Processes); 5] = [
            |p| p.pid_namespace = "pid:[1]".to_string(),
            |p| p.machine = "another".to_string(),
            |p| p.boot = "another".to_string(),
            |p| p.time_namespace = Some("time:[1]".to_string()),
            |p| p.time_namespace = None,
        ];
        for change in changes {
            let mut other = dead.clone();
            change(other.processes.as_mut().unwrap());
            assert!(!here.knows_dead(&other));
        }
        assert!(!here.knows_dead(&here.holder_by_hand()));
    }
}
