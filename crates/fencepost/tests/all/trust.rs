//! Which configurations are trusted, how far each reaches, and which passwords and lines never leave.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;

use fencepost_testkit::network::Loopback;
use nix::unistd::geteuid;

use crate::common::{Said, Site, contains};

/// A user that owns nothing here.
const STRANGER: u32 = 12345;

const PRINTS_ITSELF: &str = "store = \"sqlite:found.db\"\n[job.j]\ncommand = 'echo ran'\n";

/// A directory below one that is sticky and writable by all, as a home below /tmp is.
struct Scene {
    site: Site,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { site: Site::new() };
        fs::create_dir_all(scene.path("open/project/below")).unwrap();
        mode(&scene.path("open"), 0o1777);
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site.path(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        mode(&path, 0o644);
        path
    }

    fn command(&self, directory: &str, arguments: &[&str]) -> Command {
        let mut command = self.site.command(arguments);
        command.env_remove("FENCEPOST_CONFIG").current_dir(self.path(directory));
        command
    }

    fn say(&self, directory: &str, arguments: &[&str]) -> Said {
        Said::of(self.command(directory, arguments).output().unwrap())
    }

    /// Whether the configuration is refused by every kind of verb, with the reason and both ways out.
    #[track_caller]
    fn is_refused(&self, directory: &str, parts: &[&str]) {
        let said = self.say(directory, &["run", "j"]);
        assert_eq!((said.code, said.stdout.as_str()), (125, ""), "{said:?}");
        contains(&said.stderr, &["is refused", "--config FILE", "FENCEPOST_CONFIG= "]);
        contains(&said.stderr, parts);
        assert_eq!(self.say(directory, &["status"]).code, 2);
        assert_eq!(self.say(directory, &["run", "unlisted", "--", "true"]).code, 125);
        let mut none = self.command(directory, &["run", "unlisted", "--", "echo", "without"]);
        let said = Said::of(none.env("FENCEPOST_CONFIG", "").output().unwrap());
        assert_eq!((said.code, said.stdout.as_str()), (0, "without\n"), "{said:?}");
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_configuration_directly_in_a_directory_open_to_all_is_not_considered() {
    let scene = Scene::new();
    scene.write("open/fencepost.toml", PRINTS_ITSELF);
    for directory in ["open", "open/project", "open/project/below"] {
        let said = scene.say(directory, &["status"]);
        contains(&said.stdout, &["config  none"]);
    }
    // Named, it is used: only its owner can replace it there.
    let said = scene.say("open", &["run", "j", "--config", "fencepost.toml"]);
    assert_eq!((said.code, said.stdout.as_str()), (0, "ran\n"), "{said:?}");
    // One below it is found.
    scene.write("open/project/fencepost.toml", PRINTS_ITSELF);
    assert_eq!(scene.say("open/project/below", &["run", "j"]).stdout, "ran\n");
}

#[test]
fn a_configuration_that_others_can_replace_is_refused_and_names_the_way_out() {
    let scene = Scene::new();
    scene.write("open/project/fencepost.toml", PRINTS_ITSELF);
    for (directory, bits) in [("open/project", 0o777), ("open", 0o777), ("open/project", 0o757)] {
        let (path, kept) = (scene.path(directory), fs::metadata(scene.path(directory)).unwrap().permissions());
        mode(&path, bits);
        scene.is_refused("open/project", &[&format!("can write the directory {}", path.display()), "chmod go-w"]);
        fs::set_permissions(&path, kept).unwrap();
    }
    assert_eq!(scene.say("open/project", &["run", "j"]).stdout, "ran\n");
    // A link that leads nowhere is not skipped either.
    fs::remove_file(scene.path("open/project/fencepost.toml")).unwrap();
    symlink("no/such", scene.path("open/project/fencepost.toml")).unwrap();
    let said = scene.say("open/project", &["run", "j", "--", "true"]);
    assert_eq!(said.code, 125, "{said:?}");
    contains(&said.stderr, &["Cannot read the configuration"]);
}

#[test]
fn the_owner_of_the_file_its_link_and_the_directories_above_is_checked() {
    if !geteuid().is_root() {
        return; // Only root can give a file away.
    }
    let stranger = format!("belongs to uid {STRANGER}, who is neither root nor you");
    // A group of another user that can write a directory above.
    let scene = Scene::new();
    let file = scene.write("open/project/fencepost.toml", PRINTS_ITSELF);
    std::os::unix::fs::chown(scene.path("open/project"), None, Some(STRANGER)).unwrap();
    mode(&scene.path("open/project"), 0o775);
    scene.is_refused("open/project", &["can write the directory"]);
    mode(&scene.path("open/project"), 0o755);
    assert_eq!(scene.say("open/project", &["run", "j"]).stdout, "ran\n");
    // The file.
    lchown(&file, Some(STRANGER), None).unwrap();
    scene.is_refused("open/project", &[&stranger]);
    // The directory that holds it.
    lchown(&file, Some(0), None).unwrap();
    lchown(scene.path("open/project"), Some(STRANGER), None).unwrap();
    scene.is_refused("open/project", &[&stranger, "open/project belongs"]);
    lchown(scene.path("open/project"), Some(0), None).unwrap();
    // The link, though what it leads to is root's.
    let target = scene.write("target.toml", PRINTS_ITSELF);
    fs::remove_file(&file).unwrap();
    symlink(&target, &file).unwrap();
    assert_eq!(scene.say("open/project", &["run", "j"]).stdout, "ran\n");
    lchown(&file, Some(STRANGER), None).unwrap();
    scene.is_refused("open/project", &[&stranger]);
    // Where the link leads through.
    lchown(&file, Some(0), None).unwrap();
    mode(&target, 0o666);
    scene.is_refused("open/project", &["others than its owner can write", "target.toml"]);
}

#[test]
fn no_line_of_a_file_that_is_not_toml_is_quoted() {
    let scene = Scene::new();
    let secret = scene.write("shadow", "root:$6$s3cret:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n");
    symlink(&secret, scene.path("open/project/fencepost.toml")).unwrap();
    for arguments in [&["status"][..], &["validate"], &["run", "j", "--", "true"], &["validate", "--json"]] {
        let said = scene.say("open/project", arguments);
        assert_ne!(said.code, 0, "{said:?}");
        let all = format!("{}{}", said.stdout, said.stderr);
        assert!(!all.contains("s3cret") && !all.contains("daemon"), "{said:?}");
        contains(&all, &["This is not TOML"]);
    }
}

#[test]
fn a_found_configuration_gives_other_jobs_its_store_and_its_zone_only() {
    let scene = Scene::new();
    let text = "timezone = 'Asia/Tokyo'\nstore = 'sqlite:found.db'\n\
                [defaults]\nprepare = 'touch prepared'\nttl = '20m'\nenvironment = { A = 'from-the-file' }\n\
                [notify]\non_error = 'touch notified'\n[logs]\ndirectory = 'logs'\n[job.j]\ncommand = 'echo $A'\n";
    scene.write("open/project/fencepost.toml", text);
    let script = r#"echo "${A:-nothing} $FENCEPOST_TZ $FENCEPOST_STORE"; exit 3"#;
    let project = scene.path("open/project").canonicalize().unwrap();
    let said = scene.say("open/project/below", &["run", "other", "-c", script]);
    assert_eq!(said.stdout, format!("nothing Asia/Tokyo sqlite:{}/found.db\n", project.display()));
    for made in ["prepared", "notified", "below/prepared", "logs"] {
        assert!(!project.join(made).exists(), "{made}");
    }
    // What the job itself calls is under the same rule, though it finds the file in FENCEPOST_CONFIG.
    let nested = format!(r#"unset A; "$BINARY" run inner -c '{script}'"#);
    let said = scene.say("open/project/below", &["run", "j", "-c", &nested]);
    contains(&said.stdout, &["nothing Asia/Tokyo"]);
    // Its own jobs, and those of a configuration that was named, get everything.
    fs::remove_file(project.join("prepared")).unwrap();
    assert_eq!(scene.say("open/project", &["run", "j"]).stdout, "from-the-file\n");
    assert!(project.join("prepared").exists() && project.join("logs").exists());
    let said = scene.say("open/project", &["run", "other", "--config", "fencepost.toml", "-c", script]);
    contains(&said.stdout, &["from-the-file Asia/Tokyo"]);
}

/// A server that writes down the first thing each client says, and hangs up.
fn listener() -> (Loopback, mpsc::Receiver<String>) {
    let (send, heard) = mpsc::channel();
    let loopback = Loopback::start(move |mut stream| {
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).unwrap_or(0);
        let _ = send.send(String::from_utf8_lossy(&bytes[..length]).into_owned());
    });
    (loopback, heard)
}

#[test]
fn the_password_of_the_environment_is_not_sent_to_a_store_that_was_found() {
    let scene = Scene::new();
    let (loopback, heard) = listener();
    let url = format!("redis://127.0.0.1:{}/0", loopback.port);
    let config = scene.write("open/project/fencepost.toml", &format!("store = '{url}'\n[job.j]\n"));
    let file = scene.write("password", "from-a-file\n");
    mode(&file, 0o600);
    let check = |sent: bool, arguments: &[&str], change: &dyn Fn(&mut Command)| {
        for (name, value) in
            [("FENCEPOST_STORE_PASSWORD", "s3cret"), ("FENCEPOST_STORE_PASSWORD_FILE", file.to_str().unwrap())]
        {
            let mut command = scene.command("open/project", arguments);
            command.env(name, value);
            change(&mut command);
            let said = Said::of(command.output().unwrap());
            assert_eq!(said.code, 125, "{said:?}");
            assert_eq!(said.stderr.contains("is not sent to"), !sent, "{said:?}");
            let all: Vec<String> = heard.try_iter().collect();
            assert!(!all.is_empty(), "it was called");
            let was_sent = all.iter().any(|text| text.contains("s3cret") || text.contains("from-a-file"));
            assert_eq!(was_sent, sent, "{arguments:?}: {all:?}");
        }
    };
    check(false, &["run", "j", "--", "true"], &|_| {});
    check(false, &["status"], &|_| {});
    check(true, &["status", "--config", "fencepost.toml"], &|_| {});
    check(true, &["status"], &|command| {
        command.env("FENCEPOST_CONFIG", &config);
    });
    check(true, &["status", "--store", &url], &|_| {});
    check(true, &["status"], &|command| {
        command.env("FENCEPOST_STORE", &url);
    });
}

#[test]
fn the_password_file_of_a_found_configuration_lies_beside_it() {
    let scene = Scene::new();
    let (loopback, heard) = listener();
    let config = |file: &str| {
        let text = format!("store = 'redis://127.0.0.1:{}/0'\nstore_password_file = '{file}'\n", loopback.port);
        scene.write("open/project/fencepost.toml", &text);
    };
    for name in ["elsewhere", "open/project/beside", "open/project/below/deeper"] {
        mode(&scene.write(name, "s3cret\n"), 0o600);
    }
    symlink(scene.path("elsewhere"), scene.path("open/project/link")).unwrap();
    for (file, is_sent) in [("beside", true), ("../../elsewhere", false), ("link", false), ("below/deeper", false)] {
        config(file);
        let said = scene.say("open/project", &["status"]);
        assert_eq!(said.code, if is_sent { 125 } else { 2 }, "{file}: {said:?}");
        let sent = heard.try_iter().any(|text| text.contains("s3cret"));
        assert_eq!(sent, is_sent, "{file}: {said:?}");
        if !is_sent {
            contains(&said.stderr, &["fencepost.toml:2:", "lies beside it", "--config "]);
            // Named, it may be anywhere.
            assert_eq!(scene.say("open/project", &["status", "--config", "fencepost.toml"]).code, 125);
            assert!(heard.try_iter().any(|text| text.contains("s3cret")), "{file}");
        }
    }
}

#[test]
fn a_configuration_with_a_password_that_all_can_read_gets_a_warning() {
    let scene = Scene::new();
    let text = "store = 'redis://:s3cret@127.0.0.1:1/0'\n[job.j]\ncommand = 'true'\n";
    let config = scene.write("open/project/fencepost.toml", text);
    for (bits, is_warned) in [(0o644, true), (0o600, false), (0o640, false)] {
        mode(&config, bits);
        for arguments in [&["validate"][..], &["status"]] {
            let said = scene.say("open/project", arguments);
            assert_eq!(said.stderr.contains("can read the password"), is_warned, "{bits:o}: {said:?}");
            assert!(!is_warned || said.stderr.contains("chmod 600"), "{said:?}");
            assert!(!said.stderr.contains("s3cret"), "{said:?}");
        }
    }
    // A store without a password is no reason.
    mode(&scene.write("open/project/fencepost.toml", PRINTS_ITSELF), 0o644);
    assert!(!scene.say("open/project", &["validate"]).stderr.contains("can read the password"));
}

/// Reads a configuration of many mistakes under a limit of CPU time, which other processes do not use up. It takes a few
/// seconds; work that grows with the square of the mistakes would take hours.
#[test]
fn a_configuration_with_200_000_mistakes_is_reported_within_seconds() {
    let keys = |between: &str| (0..200_000).map(|n| format!("k{n}=1")).collect::<Vec<_>>().join(between);
    let needs: String = (0..60_000).map(|n| format!("[job.a{n}]\nneeds=[\"b{n}\"]\n")).collect();
    let circle: String = (0..20_000).map(|n| format!("[job.a{n}]\nneeds=['a{}']\n", (n + 1) % 20_000)).collect();
    for (what, text, part) in [
        ("lines", keys("\n"), "has 10000 or more mistakes. These are the first 50."),
        ("one line", format!("defaults={{{}}}", keys(",")), "has 10000 or more mistakes. These are the first 50."),
        ("warnings", needs, ""),
        ("one circle", circle, ""),
    ] {
        let scene = Scene::new();
        scene.write("open/project/fencepost.toml", &text);
        let mut limited = scene.site.program("/bin/sh", &["-c", "ulimit -t 60; exec \"$BINARY\" status"]);
        limited.env_remove("FENCEPOST_CONFIG").current_dir(scene.path("open/project"));
        let said = Said::of(limited.output().unwrap());
        assert_eq!(said.code, if part.is_empty() { 0 } else { 2 }, "{what}: {}", said.stderr);
        assert!(said.stderr.len() < 100_000, "{what}: {} bytes", said.stderr.len());
        assert!(said.stdout.len() < 100_000, "{what}: {} bytes", said.stdout.len());
        contains(&said.stderr, &[part]);
        if what == "one circle" {
            assert_eq!(said.stdout.matches("These jobs wait for each other").count(), 20, "{}", said.stdout);
            contains(&said.stdout, &["19980 more. See them with: fencepost status --check"]);
        }
    }
}
