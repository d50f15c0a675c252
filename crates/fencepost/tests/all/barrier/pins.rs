//! What a job reads: a copy of exactly the bytes that were checked, which is gone afterwards.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::common::Holder;
use crate::desk::Desk;

const READ_LATER: &str = r#"echo "$FENCEPOST_IN_UP"; read line; cat "$FENCEPOST_IN_UP""#;

fn good(data: &str) -> Desk {
    let desk = Desk::new();
    desk.write("data", data);
    desk.done(&["record", "up", "ok", "--artifact", "data"]);
    desk
}

fn reader(desk: &Desk) -> Holder {
    Holder::start(desk.command(&["run", "down", "--needs", "up@any,artifact=data", "-c", READ_LATER]))
}

#[test]
fn a_file_that_is_rewritten_while_the_job_runs_does_not_change_what_it_reads() {
    let desk = good("checked");
    let holder = reader(&desk);
    let pinned = fs::metadata(holder.first.trim()).unwrap();
    assert_eq!(pinned.permissions().mode() & 0o777, 0o400);
    assert_ne!(pinned.ino(), fs::metadata(desk.path("data")).unwrap().ino());
    let directory = desk.pins().remove(0);
    assert_eq!(fs::metadata(directory).unwrap().permissions().mode() & 0o777, 0o700);
    // In place, and then another file.
    desk.write("data", "rewritten in place, and longer");
    fs::remove_file(desk.path("data")).unwrap();
    desk.write("data", "another");
    let path = holder.first.trim().to_string();
    assert_eq!(holder.finish().stdout, "checked");
    assert!(!std::path::Path::new(&path).exists());
    assert!(desk.pins().is_empty());
}

#[test]
fn the_record_names_the_attempt_that_was_consumed() {
    let desk = good("one");
    desk.write("data", "two");
    desk.done(&["record", "up", "ok", "--artifact", "data"]);
    let (up, digest) = (desk.last("up"), "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3");
    desk.done(&["run", "down", "--needs", "up@any,artifact=data", "--", "true"]);
    let consumed = desk.last("down").upstreams;
    assert_eq!(consumed.len(), 1);
    assert_eq!((consumed[0].job.as_str(), consumed[0].slot, consumed[0].run), ("up", up.slot, up.run));
    assert_eq!(consumed[0].sha256.unwrap().to_string(), digest);
    // Without an artifact the attempt is named all the same, and by a job that fails as well.
    assert_eq!(desk.say(&["run", "down", "--needs", "up@any", "-c", "exit 3"]).code, 3);
    let consumed = desk.last("down").upstreams;
    assert_eq!((consumed[0].run, consumed[0].sha256), (up.run, None));
    // A gate inside a run is noted as well.
    desk.done(&["run", "other", "-c", "$BINARY gate up@any"]);
    assert_eq!(desk.last("other").upstreams[0].run, up.run);
}

#[test]
fn several_artifacts_are_a_directory_of_copies() {
    let desk = Desk::new();
    fs::create_dir(desk.path("sub")).unwrap();
    for (name, text) in [("a", "1"), ("sub/a", "2"), ("sub/..b", "3"), ("sub/_b", "4")] {
        desk.write(name, text);
    }
    let names = ["a", "sub/a", "sub/..b", "sub/_b"];
    let recorded: Vec<&str> = names.iter().flat_map(|name| ["--artifact", name]).collect();
    desk.done(&[&["record", "up", "ok"], &recorded[..]].concat());
    let need = format!("up@any,artifact={}", names.join(",artifact="));
    let script = r#"cd "$FENCEPOST_IN_UP" && cat a sub/a sub/..b sub/_b"#;
    assert_eq!(desk.done(&["run", "down", "--needs", &need, "-c", script]).stdout, "1234");
    assert_eq!(desk.last("down").upstreams.len(), 4);
    // One wrong one halts.
    desk.write("sub/_b", "5");
    assert_eq!(desk.say(&["run", "down", "--needs", &need, "-c", script]).code, 115);
    assert!(desk.pins().is_empty());
}

/// The same file under several names and from several directories.
#[test]
fn an_artifact_has_one_name_in_every_directory() {
    let desk = Desk::configured("[job.up]\n[job.down]\n");
    fs::create_dir(desk.path("sub")).unwrap();
    desk.write("sub/data", "x");
    let from = |directory: &str, arguments: &[&str]| {
        let status = desk.command(arguments).current_dir(desk.path(directory)).status().unwrap();
        status.code().unwrap()
    };
    assert_eq!(from("sub", &["record", "up", "ok", "--artifact", "data"]), 0);
    assert_eq!(desk.last("up").artifacts[0].path, "sub/data");
    assert_eq!(from("", &["gate", "up@any", "--artifact", "sub/data"]), 0);
    assert_eq!(from("sub", &["gate", "up@any", "--artifact", "../sub/./data"]), 0);
    assert_eq!(from("", &["gate", "up@any", "--artifact", desk.path("sub/data").to_str().unwrap()]), 0);
    assert_eq!(from("sub", &["run", "down", "--needs", "up@any,artifact=data", "-c", "cat $FENCEPOST_IN_UP"]), 0);
    // Another clone, with another base and the same bytes.
    let other = Desk::configured("[job.up]\n");
    fs::create_dir(other.path("sub")).unwrap();
    other.write("sub/data", "x");
    let store = format!("sqlite:{}", desk.site.database().display());
    assert_eq!(other.say(&["gate", "up@any", "--artifact", "sub/data", "--store", &store]).code, 0);
    other.write("sub/data", "y");
    assert_eq!(other.say(&["gate", "up@any", "--artifact", "sub/data", "--store", &store]).code, 15);
}

#[test]
fn what_a_killed_wrapper_left_is_removed_by_the_next_run_and_what_is_in_use_is_not() {
    let desk = good("bytes");
    let holder = reader(&desk);
    let used = Holder::start(desk.command(&["run", "third", "--needs", "up@any,artifact=data", "-c", READ_LATER]));
    assert_eq!(desk.pins().len(), 2);
    holder.kill();
    assert_eq!(desk.pins().len(), 2, "no process was left to remove it");
    desk.done(&["run", "fourth", "--needs", "up@any,artifact=data", "--", "true"]);
    assert_eq!(desk.pins().len(), 1);
    assert_eq!(used.finish().stdout, "bytes");
    assert!(desk.pins().is_empty());
}

/// What an outer run pinned is none of an inner one's business.
#[test]
fn an_inner_run_gets_its_own_inputs_only() {
    let desk = good("outer");
    let script = r#"$BINARY run inner -c 'echo "${FENCEPOST_IN_UP-none}"'; cat "$FENCEPOST_IN_UP""#;
    let said = desk.done(&["run", "down", "--needs", "up@any,artifact=data", "-c", script]);
    assert_eq!(said.stdout, "none\nouter");
}

/// An artifact beyond those that the record lists is found in the history.
#[test]
fn more_artifacts_than_the_record_lists_are_compared() {
    let desk = Desk::new();
    let names: Vec<String> = (10..40).map(|number| format!("out.{number}")).collect();
    let script = names.iter().map(|name| format!("echo {name} > {name};")).collect::<String>();
    desk.done(&["run", "up", "--produces", "out.*", "-c", &script]);
    let up = desk.last("up");
    assert!(up.clipped && up.artifacts.len() == 8);
    assert_eq!(desk.history("up", up.slot)[0].artifacts.len(), 30);
    let run = ["run", "down", "--needs", "up@any,artifact=out.39", "-c", "cat $FENCEPOST_IN_UP"];
    assert_eq!(desk.done(&run).stdout, "out.39\n");
    assert!(desk.last("down").upstreams[0].sha256.is_some());
    desk.write("out.39", "other");
    assert_eq!(desk.say(&run).code, 115);
}
