//! What the program takes from the system it was started on: its libraries, its users, its hosts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use fencepost_testkit::process::install;
use nix::unistd::geteuid;

use crate::common::{BINARY, Said, Site};

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
    // Without a passwd entry there is no place for the store, and saying so is better than one that depends on `$HOME`.
    let unknown = status("/nonexistent");
    assert_eq!(unknown.code, 125, "{unknown:?}");
    assert!(unknown.stderr.contains("Set FENCEPOST_STATE_DIR"), "{unknown:?}");
}

/// A run's memory is private under any umask.
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

/// A reader that has stopped is an error, not the end of this process.
#[test]
fn a_reader_who_is_gone_does_not_end_the_run() {
    let site = Site::new();
    let script = format!("{{ sleep 0.2; {BINARY} run --timeout 50ms j -- sleep 9; echo $? >code; }} 2>&1 | true");
    site.program("sh", &["-c", &script]).current_dir(site.path("")).status().unwrap();
    assert_eq!(fs::read_to_string(site.path("code")).unwrap(), "124\n", "it is told that the job was stopped");
}

/// The tests pass under `nohup ./test &`: what they start does not inherit that HUP, INT and QUIT are ignored.
#[test]
fn tests_that_are_started_with_ignored_signals_pass() {
    let tests = std::env::current_exe().unwrap();
    let script = "trap '' HUP INT QUIT TERM USR1 CHLD; exec \"$0\" --exact \"$1\" --nocapture";
    for test in ["system::signals_that_are_sent_arrive", "stop::term_reaches_the_job_and_its_answer_passes_through"] {
        let mut command = Command::new("/bin/sh");
        let said = Said::of(command.args(["-c", script]).arg(&tests).arg(test).output().unwrap());
        assert_eq!(said.code, 0, "{said:?}");
    }
}

#[test]
fn signals_that_are_sent_arrive() {
    let site = Site::new();
    for (signal, code) in [("HUP", 129), ("INT", 130), ("QUIT", 131), ("TERM", 143), ("USR1", 138)] {
        assert_eq!(site.shell(&format!("kill -{signal} $$; exit 0")).code, code, "{signal}");
    }
}

/// Read from the file itself: position-independent, all relocations done and write-protected before the program begins,
/// and the system's C library loaded, so that its name service works.
#[test]
fn the_program_is_dynamic_position_independent_and_bound_at_its_start() {
    let elf = fs::read(BINARY).unwrap();
    let number = |at: usize, bytes: usize| {
        elf[at..at + bytes].iter().rev().fold(0, |number: usize, byte| number << 8 | usize::from(*byte))
    };
    assert_eq!((&elf[..5], number(0x10, 2)), (&b"\x7fELF\x02"[..], 3), "64 bits, and a shared object as PIE is");
    let (table, size, count) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
    let segment = |kind: usize| (0..count).map(|at| table + at * size).find(|at| number(*at, 4) == kind);
    const DYNAMIC: usize = 2;
    const INTERPRETER: usize = 3;
    const RELRO: usize = 0x6474_e552;
    assert!(segment(INTERPRETER).is_some() && segment(RELRO).is_some());
    let dynamic = segment(DYNAMIC).unwrap();
    let (start, length) = (number(dynamic + 8, 8), number(dynamic + 32, 8));
    let entries = (start..start + length).step_by(16).map(|at| (number(at, 8), number(at + 8, 8)));
    const FLAGS_1: usize = 0x6fff_fffb;
    let flags = entries.filter(|(tag, _)| *tag == FLAGS_1).map(|(_, flags)| flags).next().unwrap_or_default();
    let (now, pie) = (1, 0x0800_0000);
    assert_eq!((flags & now, flags & pie), (now, pie), "{flags:#x}");
}

/// The workflow for a Mac calls `./test`, and the action runs there: bash 3.2.
#[test]
fn scripts_that_run_on_macos_need_no_newer_bash() {
    let newer =
        ["@Q}", "^^}", ",,}", "declare -A", "local -A", "mapfile", "readarray", "coproc", "wait -n", "&>>", "|&"];
    for name in ["test", "action/guard", "action/hold"] {
        let text = fs::read_to_string(format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n");
        let found: Vec<_> = newer.into_iter().filter(|word| code.contains(word)).collect();
        assert!(found.is_empty(), "{name}: {found:?}");
        // Nothing is in this list at first, and no other list is read while it is empty.
        let (list, guarded) = ("\"${beside[@]}\"", "${beside[@]+\"${beside[@]}\"}");
        assert_eq!(code.matches(list).count(), code.matches(guarded).count(), "{name}: an empty list is an error");
    }
}

#[test]
fn an_unknown_part_of_the_tests_is_refused_with_a_list_of_the_parts() {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/../../test");
    let said = Said::of(Command::new(tests).args(["core", "nonsense"]).output().unwrap());
    assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{said:?}");
    let parts = "style worker book darwin core model store guard cli browser sdk portable bench release\n";
    assert!(said.stderr.contains("'nonsense'") && said.stderr.ends_with(parts), "{said:?}");
}
