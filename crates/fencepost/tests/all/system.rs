//! What the program takes from the system it was started on: its libraries, its users, its hosts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use nix::unistd::geteuid;

use crate::common::{BINARY, Said, Site, install};

/// A number that no machine's own file has.
const STRANGER: u32 = 3_141_592;

#[test]
fn a_user_whom_only_the_network_knows_is_asked_for() {
    if !geteuid().is_root() {
        return println!("skipped: becoming another user needs root");
    }
    let site = Site::new();
    let home = site.path("home");
    fs::create_dir(&home).unwrap();
    let answer = format!(
        "#!/bin/sh\n[ \"$*\" = 'passwd {STRANGER}' ] && echo 'who:*:{STRANGER}:1::{}:/bin/sh'\n",
        home.display()
    );
    fs::write(site.path("answer"), answer).unwrap();
    install(site.path("answer"), site.path("getent"), "755");
    install(BINARY, site.path("fencepost"), "755");
    fs::set_permissions(site.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&home, Some(STRANGER), None).unwrap();
    let program = site.path("fencepost");
    let status_by = |script: &str, path: &str| {
        let mut command = site.program("/bin/sh", &["-c", script, program.to_str().unwrap()]);
        command.env_remove("FENCEPOST_STATE_DIR").env("PATH", path).current_dir("/").uid(STRANGER);
        Said::of(command.output().unwrap())
    };
    let status = |path: &str| status_by("exec \"$0\" status", path);
    let known = status(site.path("").to_str().unwrap());
    let store = format!("store   sqlite:{}/.local/state/fencepost/store.db", home.display());
    assert_eq!((known.code, known.stdout.lines().next()), (0, Some(store.as_str())), "{known:?}");
    assert_eq!(status_by("trap '' CHLD; exec \"$0\" status", site.path("").to_str().unwrap()), known);
    // With nobody to ask there is no place for the store, and saying so is better than one that depends on `$HOME`.
    let unknown = status("/nonexistent");
    assert_eq!(unknown.code, 125, "{unknown:?}");
    assert!(unknown.stderr.contains("Set FENCEPOST_STATE_DIR"), "{unknown:?}");
}

/// What a run remembers is nobody else's, whatever the umask.
#[test]
fn everything_in_the_state_directory_is_its_owners_alone() {
    let site = Site::new();
    let store = format!("dir:{}", site.path("shared").display());
    let script = format!(
        "umask 0; export FENCEPOST_STATE_DIR=$FENCEPOST_STATE_DIR/new
         {BINARY} run j --output-on-failure -- true && {BINARY} once k -- true && {BINARY} lease hold j </dev/null &&
         {BINARY} run j --store {store} -- true ; cd \"$FENCEPOST_STATE_DIR\" &&
         find . -type f ! -perm 600; find . -type d ! -perm 700; find . -type f | wc -l"
    );
    let said = site.shell(&script);
    let count: usize = said.stdout.lines().last().unwrap().trim().parse().unwrap();
    let open: Vec<&str> = said.stdout.lines().filter(|line| line.starts_with('.')).collect();
    assert!(open.is_empty() && count > 6, "{said:?}");
}

/// A daemon that closes its streams and starts us must not have its next message written into the store.
#[test]
fn a_standard_stream_that_is_closed_is_no_file_of_ours() {
    let site = Site::new();
    let look = "seen=$(for fd in 0 1 2; do readlink /proc/$$/fd/$fd; done); echo $seen >seen; echo lost; echo lost >&2";
    let script = format!("{BINARY} run j -c '{look}' 0<&- 1>&- 2>&-");
    let ended = site.program("sh", &["-c", &script]).current_dir(site.path("")).status().unwrap();
    assert_eq!(ended.code(), Some(0));
    assert_eq!(fs::read_to_string(site.path("seen")).unwrap(), "/dev/null /dev/null /dev/null\n");
    let said = Said::of(site.program(BINARY, &["status", "j"]).output().unwrap());
    assert!(said.code == 0 && said.stdout.contains("ok"), "{said:?}");
}

/// Whoever has stopped reading is an error to us, and not our end.
#[test]
fn a_reader_who_is_gone_does_not_end_the_run() {
    let site = Site::new();
    let script = format!("{{ sleep 0.2; {BINARY} run --timeout 50ms j -- sleep 9; echo $? >code; }} 2>&1 | true");
    site.program("sh", &["-c", &script]).current_dir(site.path("")).status().unwrap();
    assert_eq!(fs::read_to_string(site.path("code")).unwrap(), "124\n", "it is told that the job was stopped");
}

#[cfg(linked_statically)]
mod linked_statically {
    use super::*;

    #[test]
    fn the_program_needs_no_library() {
        let elf = fs::read(BINARY).unwrap();
        let number = |at: usize, bytes: usize| {
            elf[at..at + bytes].iter().rev().fold(0, |number: usize, byte| number << 8 | usize::from(*byte))
        };
        let (table, size, count) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
        let kinds: Vec<usize> = (0..count).map(|at| number(table + at * size, 4)).collect();
        const LOAD: usize = 1;
        const INTERPRETER: usize = 3;
        assert!(kinds.contains(&LOAD) && !kinds.contains(&INTERPRETER), "{kinds:?}");
    }

    #[test]
    fn hosts_are_looked_up_without_modules() {
        let site = Site::new();
        let services = "hosts: mymachines mdns4_minimal resolve [!UNAVAIL=return] files dns myhostname\n";
        fs::write(site.path("nsswitch.conf"), services).unwrap();
        let script = "mount --bind nsswitch.conf /etc/nsswitch.conf && exec strace -f -o trace -e trace=openat \
                      \"$BINARY\" --store 'redis://nowhere.invalid:1?insecure=1' status";
        let mut command = site.program("unshare", &["-m", "sh", "-c", script]);
        let said = Said::of(command.current_dir(site.path("")).output().unwrap());
        let Ok(trace) = fs::read_to_string(site.path("trace")) else {
            return println!("skipped: mounting needs root: {said:?}");
        };
        assert!(said.stderr.contains("nowhere.invalid"), "{said:?}");
        let opened = |what: &str| trace.lines().any(|line| line.contains(what));
        assert!(opened("/etc/hosts") && !opened("libnss_"), "{trace}");
    }
}
