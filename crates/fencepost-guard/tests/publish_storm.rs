//! Old and new tokens race for one file and for one tree, in processes of their own, while a thread reads.
//!
//! This program runs itself as the writers: they take a token a line from standard input and answer with what became of
//! it. Nothing checks a token but the target itself.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fencepost_guard::publish::{PublishError, Receipt, file, tree};
use fencepost_testkit::fenced::request;
use fencepost_testkit::runner;

const FILE_ROUNDS: u64 = 1000;
const TREE_ROUNDS: u64 = 200;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, kind, directory] = &arguments[..]
        && role == "--writer"
    {
        write_what_is_asked(kind, Path::new(directory));
        return ExitCode::SUCCESS;
    }
    let tests: &[runner::Test] =
        &[("file", || storm("file", FILE_ROUNDS, read_file)), ("tree", || storm("tree", TREE_ROUNDS, read_tree))];
    runner::run(tests, 1)
}

/// Each round an old and a new token are let loose at the same moment. Every third round the old one is the one that wrote
/// last; a token that was overtaken long ago is tried in between.
fn storm(kind: &str, rounds: u64, read: fn(&Path) -> Option<u64>) {
    let directory = tempfile::tempdir().unwrap();
    let mut writers = [Racer::start(kind, directory.path()), Racer::start(kind, directory.path())];
    let over = AtomicBool::new(false);
    let (mut refused, mut looks) = (0, 0);
    thread::scope(|scope| {
        let reader = scope.spawn(|| watch(directory.path(), read, &over));
        let is_over = Over(&over);
        for round in 1..=rounds {
            let new = round * 2;
            let old = if round.is_multiple_of(3) { new - 2 } else { new - 1 };
            let newer = (round % 2) as usize;
            writers[newer].ask(new);
            writers[1 - newer].ask(old.max(1));
            let answers = [writers[0].answer(), writers[1].answer()];
            assert_eq!(answers[newer], "accepted", "{kind}: the newest token was not accepted in round {round}");
            refused += u64::from(answers[1 - newer] == "refused");
            assert_eq!(read(directory.path()), Some(new), "{kind}: a stale write won in round {round}");
            if round.is_multiple_of(10) {
                writers[newer].ask(new / 2);
                let late = writers[newer].answer();
                assert_eq!(late, "refused", "{kind}: a token that was overtaken long ago, in round {round}");
            }
        }
        drop(is_over);
        looks = reader.join().unwrap();
    });
    println!("{kind}: {rounds} rounds, {refused} of the old refused, 0 stale wins, {looks} looks");
}

/// Ends the reader, also if an assertion ends the storm.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads for as long as the storm lasts: never a mixture, and never an older token after a newer one.
fn watch(directory: &Path, read: fn(&Path) -> Option<u64>, over: &AtomicBool) -> u64 {
    let (mut looks, mut last) = (0, 0);
    while !over.load(Ordering::Relaxed) {
        if let Some(token) = read(directory) {
            assert!(token >= last, "{token} after {last}");
            (looks, last) = (looks + 1, token);
        }
        // The writers need the processors more.
        thread::sleep(Duration::from_micros(200));
    }
    looks
}

fn read_file(directory: &Path) -> Option<u64> {
    whole(fs::read_to_string(directory.join("target")))
}

/// As readers should: the link is followed once, and everything is read from where it led.
fn read_tree(directory: &Path) -> Option<u64> {
    let tree = directory.join("target").canonicalize().ok()?;
    let pages = ["page", "sub/page"].map(|name| whole(fs::read_to_string(tree.join(name))));
    // A reader that is overtaken by more versions than are kept finds nothing, which is not a mixture.
    let [Some(first), Some(second)] = pages else { return None };
    assert_eq!(first, second, "a mixture of two versions");
    assert_eq!(fs::read_link(tree.join("token")).ok()?, PathBuf::from(first.to_string()));
    Some(first)
}

fn content(token: u64) -> String {
    format!("{token:08}\n").repeat(1000)
}

fn whole(text: std::io::Result<String>) -> Option<u64> {
    let text = match text {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        text => text.unwrap(),
    };
    let token = text.lines().next().and_then(|line| line.parse().ok()).expect("torn");
    assert!(text == content(token), "torn");
    Some(token)
}

/// A writer in a process of its own.
struct Racer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Racer {
    fn start(kind: &str, directory: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--writer", kind])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, orders, answers }
    }

    fn ask(&mut self, token: u64) {
        writeln!(self.orders, "{token}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }
}

impl Drop for Racer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_what_is_asked(kind: &str, directory: &Path) {
    for line in std::io::stdin().lines() {
        let token: u64 = line.unwrap().parse().unwrap();
        let written = if kind == "file" { write_file(token, directory) } else { write_tree(token, directory) };
        println!(
            "{}",
            match written {
                Ok(_) => "accepted".to_string(),
                Err(PublishError::Refused { .. }) => "refused".to_string(),
                Err(other) => other.to_string(),
            }
        );
    }
}

fn write_file(token: u64, directory: &Path) -> Result<Receipt, PublishError> {
    file::publish(&request(token), &directory.join("target"), &mut content(token).as_bytes(), file::PATIENCE)
}

fn write_tree(token: u64, directory: &Path) -> Result<Receipt, PublishError> {
    let source = tempfile::tempdir().unwrap();
    fs::create_dir(source.path().join("sub")).unwrap();
    for name in ["page", "sub/page"] {
        fs::write(source.path().join(name), content(token)).unwrap();
    }
    symlink(token.to_string(), source.path().join("token")).unwrap();
    tree::publish(&request(token), source.path(), &directory.join("target"), tree::Options::default())
}
