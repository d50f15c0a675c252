//! Systems without a usable `/proc`: runs leave no process evidence there, and are recorded all the same.

use std::fs;
use std::process::Command;

use crate::common::{BINARY, Said, Site};

/// Called three times, each prints its word once. The store remembers the run.
const SCRIPT: &str = r#"for i in 1 2 3; do "$BINARY" once k1 -- echo ONCE || echo "once: $?"; done
    for i in 1 2 3; do "$BINARY" run nightly --slot day -- echo RAN || echo "run: $?"; done
    "$BINARY" runs nightly --json"#;

fn ran_once(command: &mut Command) {
    let said = Said::of(command.output().unwrap());
    let mut lines = said.stdout.lines();
    assert_eq!((lines.next(), lines.next()), (Some("ONCE"), Some("RAN")), "{said:?}");
    let runs: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let [run] = &runs[..] else { panic!("one run, and nothing else was printed: {said:?}") };
    assert_eq!((&run["status"], &run["exit_code"]), (&"ok".into(), &0.into()), "{run}");
    assert_eq!(said.code, 0, "{said:?}");
}

/// A new pid namespace with the old `/proc`: `/proc/<getpid()>` is another process, or none.
#[test]
fn in_a_pid_namespace_with_the_proc_of_another_work_is_done_once() {
    let site = Site::new();
    let inside = ["--dev-bind", "/", "/", "--unshare-pid", "--unshare-user", "--", "sh", "-c", SCRIPT];
    ran_once(&mut site.program("bwrap", &inside));
}

#[test]
fn in_a_chroot_without_proc_work_is_done_once() {
    let site = Site::new();
    let root = site.path("root");
    for name in ["work", "program"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    // The libraries and the shell are mounted, the state is the chroot's own, and there is no /proc at all.
    let script = r#"cd "$ROOT" || exit 99
        for name in usr lib lib64 bin etc dev; do
            [ -e "/$name" ] || continue
            mkdir "$name" && mount --rbind "/$name" "$name" || exit 98
        done
        mount --bind "${BINARY%/*}" program || exit 98
        BINARY="/program/${BINARY##*/}" FENCEPOST_STATE_DIR=/work exec chroot . /bin/sh -c "$SCRIPT""#;
    let may_mount = Command::new("unshare").args(["-m", "true"]).output();
    if !may_mount.is_ok_and(|said| said.status.success()) {
        return println!("skipped: mounting needs root");
    }
    assert!(BINARY.starts_with('/') && !root.join("proc").exists());
    let mut command = site.program("unshare", &["-m", "sh", "-c", script]);
    ran_once(command.env("ROOT", &root).env("SCRIPT", SCRIPT));
    assert!(root.join("work/store.db").exists());
}
