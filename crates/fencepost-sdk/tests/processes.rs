//! Programs in processes of their own: this one, which plays the role that a variable names.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_guard::publish::sql::Database;
use fencepost_guard::publish::sql::install::{Action, Installation};
use fencepost_sdk::{Error, Guard, Lease, Outcome};
use fencepost_testkit::servers::Postgres;

const ROLE: &str = "FENCEPOST_TEST_ROLE";
const DIRECTORY: &str = "FENCEPOST_TEST_DIRECTORY";

/// How long a lease lasts whose program stops or dies.
const TTL: Duration = Duration::from_secs(6);

/// Begins each line of a program, whose output also has lines of the test harness.
const MARK: &str = "said: ";

/// A program that speaks by lines.
struct Program {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(role: &str, directory: &Path) -> Self {
        let mut myself = Command::new(std::env::current_exe().unwrap());
        myself.args(["--exact", "a_program", "--nocapture"]).env(ROLE, role).env(DIRECTORY, directory);
        let mut process = myself.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, input, output }
    }

    fn hear(&mut self) -> String {
        let mut lines = (&mut self.output).lines().map(Result::unwrap);
        // The harness does not end its line before the first of the program.
        lines.find_map(|line| line.split_once(MARK).map(|(_, said)| said.to_string())).expect("the program has ended")
    }

    fn tell(&mut self) {
        writeln!(self.input.as_mut().unwrap()).unwrap();
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn end(mut self) {
        self.input.take();
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn guard(directory: &Path) -> Guard {
    Guard::open_in(directory.join("state")).unwrap()
}

fn claim(guard: &Guard) -> Result<Lease, Error> {
    guard.job("j").unwrap().ttl(TTL).wait(Duration::from_secs(180)).claim()
}

fn say(text: &str) {
    println!("{MARK}{text}");
    stdout().flush().unwrap();
}

/// Waits for a line from the test, or its end.
fn hear() {
    stdin().lock().read_line(&mut String::new()).unwrap();
}

fn word<T>(result: &Result<T, Error>) -> &'static str {
    match result {
        Ok(_) => "done",
        Err(Error::Skipped { reason, .. }) => reason,
        Err(Error::Lost(_)) => "lost",
        Err(Error::Stale(_)) => "stale",
        Err(other) => panic!("{other}"),
    }
}

/// Not a test of its own: the program of the tests below.
#[test]
fn a_program() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let guard = guard(&directory);
    match role.as_str() {
        "holder" => holder(&guard, &directory.join("page")),
        "contender" => contender(&guard),
        other => panic!("{other:?} is no role"),
    }
}

/// Holds a lease, and writes when it is told to.
fn holder(guard: &Guard, page: &Path) {
    let lease = claim(guard).unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    lease.on_lost(move |why| told.send(why.to_string()).unwrap());
    lease.publish_file(page, b"old").unwrap();
    // The arguments of `fencepost_check` in a transaction of its own.
    let (store, job, token, run) = (lease.store_id(), lease.job(), lease.token(), lease.run());
    say(&format!("'{store}', '{job}', {token}, '{run}'"));
    hear();
    let why = heard.recv_timeout(Duration::from_secs(180)).expect("it is told of its loss");
    say(&format!("{}: {why}", word(&lease.publish_file(page, b"zombie"))));
    say(word(&lease.done(Outcome::Ok)));
}

/// Claims when it is told to, and holds what it has got until it is told to end.
fn contender(guard: &Guard) {
    say("ready");
    hear();
    let claimed = guard.job("race").unwrap().claim();
    say(word(&claimed));
    hear();
    claimed.map(|lease| lease.done(Outcome::Ok).unwrap()).ok();
}

/// It is stopped past its deadline, another takes over and writes, and it goes on.
#[test]
fn a_program_that_was_stopped_past_its_deadline_writes_nothing_any_more() {
    let (server, directory) = (Postgres::shared(), tempfile::tempdir().unwrap());
    let (database, page) = (server.database(), directory.path().join("page"));
    let url = server.url(&database);
    let mut client = server.client(&database);
    client.batch_execute("CREATE TABLE total (n int)").unwrap();
    let installation = Installation { resource: None, protect: Vec::new(), action: Action::Install };
    installation.perform(&Database::parse(&url).unwrap()).unwrap();
    let resource = Database::parse(&url).unwrap().resource();
    let mut zombie = Program::start("holder", directory.path());
    let lineage = zombie.hear();
    zombie.signal("STOP");
    let lease = claim(&guard(directory.path())).unwrap();
    lease.publish_file(&page, b"new").unwrap();
    lease.publish_sql(&url, "INSERT INTO total VALUES (1)").unwrap();
    zombie.signal("CONT");
    zombie.tell();
    let said = zombie.hear();
    assert!(said.starts_with("lost: "), "{said}");
    assert_eq!(zombie.hear(), "lost", "its end");
    // A transaction of its own asks the fence in the database, and not the library.
    let check = format!("BEGIN; SELECT fencepost_check('{resource}', {lineage}); INSERT INTO total VALUES (2); COMMIT");
    let refused = client.batch_execute(&check).unwrap_err();
    assert_eq!(refused.code().map(|code| code.code().to_string()).as_deref(), Some("ZF001"), "{refused:?}");
    client.batch_execute("ROLLBACK").unwrap();
    assert_eq!(client.query_one("SELECT sum(n)::int FROM total", &[]).unwrap().get::<_, i32>(0), 1);
    assert_eq!(std::fs::read(&page).unwrap(), b"new");
    lease.done(Outcome::Ok).unwrap();
    zombie.end();
}

#[test]
fn of_many_processes_one_gets_the_lease() {
    const PROCESSES: usize = 32;
    let directory = tempfile::tempdir().unwrap();
    // The store exists before the race.
    guard(directory.path()).job("race").unwrap().claim().unwrap().done(Outcome::Ok).unwrap();
    let mut programs: Vec<_> = (0..PROCESSES).map(|_| Program::start("contender", directory.path())).collect();
    programs.iter_mut().for_each(|program| assert_eq!(program.hear(), "ready"));
    programs.iter_mut().for_each(Program::tell);
    let said: Vec<_> = programs.iter_mut().map(Program::hear).collect();
    assert_eq!(said.iter().filter(|word| *word == "done").count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|word| *word == "held").count(), PROCESSES - 1, "{said:?}");
    programs.into_iter().for_each(Program::end);
}

#[test]
fn a_program_that_is_killed_leaves_nothing_but_a_lease_that_passes_on() {
    let directory = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let mut killed = Program::start("holder", directory.path());
    let lineage = killed.hear();
    let token: u64 = lineage.split(", ").nth(2).unwrap().parse().unwrap();
    let children = fencepost_testkit::process::children_of(killed.process.id().cast_signed());
    let files = || std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name());
    let before: std::collections::BTreeSet<_> = files().collect();
    killed.signal("KILL");
    killed.process.wait().unwrap();
    assert_eq!(children, [0; 0], "it has no process of its own that could stay");
    let next = claim(&guard(directory.path())).unwrap();
    assert!(begun.elapsed() >= TTL && next.token() > token);
    assert_eq!(files().collect::<std::collections::BTreeSet<_>>(), before);
    assert_eq!(std::fs::read(directory.path().join("page")).unwrap(), b"old");
    next.publish_file(directory.path().join("page"), b"new").unwrap();
    next.done(Outcome::Ok).unwrap();
}
