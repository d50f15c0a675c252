//! Fenced commands with real processes.
//!
//! A fork wants a process with one thread, so that this program runs itself once more for every writer. A writer takes
//! any token, which the command line would refuse early: here the fence itself is under test.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use fencepost_core::fence::WriteMode;
use fencepost_core::name::{Job, Name};
use fencepost_core::token::{RunId, StoreId, Token};
use fencepost_guard::drive::Callee;
use fencepost_guard::host::Host;
use fencepost_guard::keeper::Keeper;
use fencepost_guard::local::Local;
use fencepost_guard::publish::exec::{FencedCommand, FencedHost, Ran, publish};
use fencepost_guard::publish::{PublishError, WriteRequest, Writer};
use fencepost_store::{Access, StoreHandle};
use fencepost_testkit::{PATIENCE, eventually, runner};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use uuid::Uuid;

const TESTS: &[runner::Test] = &[
    ("of_an_old_and_a_new_token_that_race_the_old_never_comes_last", of_an_old_and_a_new_token_that_race),
    ("a_newer_token_waits_for_the_older_command_and_a_lower_one_is_refused", a_newer_token_waits),
    ("whoever_is_killed_leaves_no_survivor_and_is_in_nobodys_way", whoever_is_killed),
    ("a_wrapper_that_is_stopped_past_its_turn_writes_nothing_after_the_next", a_wrapper_that_is_stopped),
    ("a_named_command_runs_once_and_a_death_in_it_is_unknown", a_named_command_runs_once),
    ("what_cannot_be_started_uses_nothing_up", what_cannot_be_started),
    ("a_long_command_is_renewed", a_long_command_is_renewed),
    ("what_the_command_leaves_running_is_ended_before_the_next", what_the_command_leaves_running),
];

/// A tree that ignores TERM outlives its wrapper by this.
const GRACE: Duration = Duration::from_millis(300);
const GATE: &str = "FENCEPOST_TEST_GATE";
const REFUSED: i32 = 13;
const FAILED: i32 = 125;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "writer") {
        return be_writer(&arguments[1..]);
    }
    runner::run(TESTS, 1)
}

/// `writer DATABASE TOKEN TTL_MS WAIT_MS OP CMD…`
fn be_writer(arguments: &[String]) -> ExitCode {
    let [database, token, ttl, wait, op, command @ ..] = arguments else { panic!("{arguments:?}") };
    let millis = |text: &String| Duration::from_millis(text.parse().unwrap());
    let keeper = Keeper::start().unwrap();
    let token: u64 = token.parse().unwrap();
    let writer = Writer {
        store: StoreId(Uuid::from_u128(1)),
        job: Job::shared(Name::new("deploy").unwrap()),
        token: Token::new(token).unwrap(),
        run: RunId(Uuid::from_u128(u128::from(token))),
        host: "here".to_string(),
    };
    let op = Some(op.clone()).filter(|op| !op.is_empty());
    let request = WriteRequest { writer, mode: WriteMode::Many, op, adopt: false, dry_run: false, if_digest: None };
    let task = FencedCommand {
        resource: "the live site".to_string(),
        argv: command.iter().map(Into::into).collect(),
        ttl: millis(ttl),
        grace: GRACE,
        wait: millis(wait),
        env: Vec::new(),
        is_by_hand: true,
    };
    let host = Host::this();
    let store = StoreHandle::new(database, Access::default()).open().unwrap();
    let local = Local::new(Path::new("state"), host.clone());
    let desk = FencedHost { store: Callee { store, is_prompt: true }, host: &host, local: &local };
    // Writers that are to race wait here for each other, as near to the check as can be.
    if let Some(gate) = std::env::var_os(GATE) {
        fs::write(format!("{}-{token}", Path::new(&gate).display()), "").unwrap();
        while !Path::new(&gate).exists() {
            std::hint::spin_loop();
        }
    }
    let code = match publish(&request, desk, &task, keeper, &mut |_| {}) {
        Ok(Ran { code, receipt }) => {
            eprintln!("{receipt:?}");
            code
        }
        Err(PublishError::Refused { refused, .. }) => {
            eprintln!("{refused}");
            REFUSED
        }
        Err(other) => {
            eprintln!("{other}");
            FAILED
        }
    };
    ExitCode::from(u8::try_from(code).unwrap())
}

/// A store and a log of effects in a directory of their own.
struct Scene {
    directory: TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { directory: TempDir::new().unwrap() };
        fs::write(scene.path("log"), "").unwrap();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn writer(&self, token: u64, script: &str) -> Writing {
        self.writer_with(token, "", Duration::from_secs(30), PATIENCE, &["sh", "-c", script])
    }

    fn writer_with(&self, token: u64, op: &str, ttl: Duration, wait: Duration, command: &[&str]) -> Writing {
        self.writer_at("", token, op, ttl, wait, command)
    }

    /// A writer that waits at a gate.
    fn writer_at(&self, gate: &str, token: u64, op: &str, ttl: Duration, wait: Duration, command: &[&str]) -> Writing {
        let database = format!("sqlite:{}", self.path("store.db").display());
        let stderr = self.path(&format!("stderr-{token}"));
        let mut process = Command::new(std::env::current_exe().unwrap());
        if !gate.is_empty() {
            process.env(GATE, self.path(gate));
        }
        let child = process
            .args(["writer", &database, &token.to_string(), &ttl.as_millis().to_string()])
            .args([&wait.as_millis().to_string(), op])
            .args(command)
            .current_dir(self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        Writing { child, stderr }
    }

    fn log(&self) -> Vec<String> {
        fs::read_to_string(self.path("log")).unwrap().lines().map(str::to_string).collect()
    }

    fn until_logged(&self, line: &str) {
        eventually(&format!("{line} is in the log"), || self.log().iter().any(|known| known == line));
    }
}

struct Writing {
    child: Child,
    stderr: PathBuf,
}

impl Writing {
    fn code(mut self) -> (i32, String) {
        let status = self.child.wait().unwrap();
        (status.code().unwrap_or(-1), fs::read_to_string(&self.stderr).unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }
}

/// Begins and ends are logged, so that two commands at once would show.
const EFFECT: &str = "echo begin $FENCEPOST_TOKEN >> log; echo end $FENCEPOST_TOKEN >> log";

fn of_an_old_and_a_new_token_that_race() {
    const ROUNDS: u64 = 100;
    let scene = Scene::new();
    let mut refused = 0;
    for round in 0..ROUNDS {
        let (old, new) = (round * 2 + 1, round * 2 + 2);
        let pair = if round % 2 == 0 { [old, new] } else { [new, old] };
        let gate = format!("gate-{round}");
        let writers = pair.map(|token| scene.writer_at(&gate, token, "", PATIENCE, PATIENCE, &["sh", "-c", EFFECT]));
        let waiting = |token: u64| scene.path(&format!("{gate}-{token}")).exists();
        eventually("both wait at the gate", || pair.into_iter().all(waiting));
        fs::write(scene.path(&gate), "").unwrap();
        for (token, writing) in pair.into_iter().zip(writers) {
            let (code, stderr) = writing.code();
            match code {
                0 => {}
                REFUSED if token == old => refused += 1,
                _ => panic!("token {token} ended with {code}: {stderr}"),
            }
        }
    }
    let log = scene.log();
    assert_eq!(log.len() as u64, (ROUNDS * 2 - refused) * 2);
    let mut newest = 0;
    for pair in log.chunks(2) {
        let token: u64 = pair[0].strip_prefix("begin ").expect("one at a time").parse().unwrap();
        assert_eq!(pair[1], format!("end {token}"), "one at a time");
        assert!(token > newest, "{token} came after {newest}");
        newest = token;
    }
    assert_eq!(newest, ROUNDS * 2);
    println!("{ROUNDS} rounds, {refused} stale commands refused, 0 ran after a newer one");
}

fn a_newer_token_waits() {
    let scene = Scene::new();
    let old = scene.writer(5, "echo begin 5 >> log; while [ ! -e go ]; do sleep 0.02; done; echo end 5 >> log");
    scene.until_logged("begin 5");
    let new = scene.writer(6, EFFECT);
    let impatient = scene.writer_with(7, "", PATIENCE, Duration::from_millis(300), &["sh", "-c", EFFECT]);
    let (code, stderr) = impatient.code();
    assert_eq!(code, FAILED);
    assert!(stderr.contains("still busy with a command of token 5") && stderr.contains("nothing was run"), "{stderr}");
    let (code, stderr) = scene.writer(4, EFFECT).code();
    assert_eq!(code, REFUSED);
    assert!(stderr.contains("token 4 is stale: token 5"), "{stderr}");
    assert_eq!(scene.log(), ["begin 5"], "the newer one waits");
    fs::write(scene.path("go"), "").unwrap();
    assert_eq!((old.code().0, new.code().0), (0, 0));
    assert_eq!(scene.log(), ["begin 5", "end 5", "begin 6", "end 6"]);
    assert_eq!(scene.writer(5, EFFECT).code().0, REFUSED);
    assert_eq!(scene.log().len(), 4);
}

/// Each command leaves a child and a daemon, and notes their pids before anything else can happen to it.
///
/// A whole tree stands a few milliseconds after the start. Every other kill falls into those, where the turn is taken
/// and the command started; moments spread over a longer time would nearly all find the tree complete.
fn whoever_is_killed() {
    const KILLS: u64 = 40;
    const TREE: usize = 3;
    let scene = Scene::new();
    // It ignores TERM, so that it is still there for a while after its wrapper is gone.
    let tree = "trap '' TERM; echo $$ >> pids; sh -c 'echo $$ >> pids; exec sleep 1000' & \
                setsid sh -c 'echo $$ >> pids; exec sleep 1000' & wait";
    let (mut before, mut halfway, mut complete) = (0, 0, 0);
    for round in 0..KILLS {
        fs::write(scene.path("pids"), "").unwrap();
        let victim = scene.writer(round * 2 + 1, tree);
        let within_micros = if round % 2 == 0 { 15_000 } else { 200_000 };
        sleep(Duration::from_micros(random() % within_micros));
        victim.signal(Signal::SIGKILL);
        // Counted now: the tree goes on growing until its keeper has ended it.
        match fs::read_to_string(scene.path("pids")).unwrap().lines().count() {
            0 => before += 1,
            TREE => complete += 1,
            _ => halfway += 1,
        }
        victim.code();
        let next = scene.writer(round * 2 + 2, "for pid in $(cat pids); do cat /proc/$pid/stat >> stats; done; true");
        let (code, stderr) = next.code();
        assert_eq!(code, 0, "round {round}: {stderr}");
        for stat in fs::read_to_string(scene.path("stats")).unwrap_or_default().lines() {
            let state = stat.rsplit_once(") ").unwrap().1.chars().next().unwrap();
            assert!(matches!(state, 'Z' | 'X'), "round {round}: alive while the next one ran: {stat}");
        }
        fs::write(scene.path("stats"), "").unwrap();
    }
    assert!(halfway + complete > 0, "no command was ever begun");
    println!(
        "{KILLS} kills, {before} before the command, {halfway} while its tree grew, {complete} after; 0 survivors, every \
         next token went on"
    );
}

fn a_wrapper_that_is_stopped() {
    let scene = Scene::new();
    let ttl = Duration::from_secs(3);
    let ticks = "while :; do echo tick 5 >> log; sleep 0.02; done";
    let old = scene.writer_with(5, "", ttl, PATIENCE, &["sh", "-c", ticks]);
    scene.until_logged("tick 5");
    old.signal(Signal::SIGSTOP);
    let new = scene.writer(6, "echo begin 6 >> log; sleep 0.5; echo end 6 >> log");
    assert_eq!(new.code().0, 0);
    old.signal(Signal::SIGCONT);
    let (code, stderr) = old.code();
    assert_eq!(code, FAILED, "{stderr}");
    assert!(stderr.contains("may have happened in part"), "{stderr}");
    let log = scene.log();
    let begin = log.iter().position(|line| line == "begin 6").unwrap();
    assert_eq!(log[begin..], ["begin 6", "end 6"], "nothing of the older one comes after");
}

fn a_named_command_runs_once() {
    let scene = Scene::new();
    let named =
        |op: &str, script: &str| scene.writer_with(5, op, Duration::from_secs(30), PATIENCE, &["sh", "-c", script]);
    let script = "echo once >> log; exit 7";
    assert_eq!(named("charge", script).code().0, 7);
    let (code, stderr) = named("charge", script).code();
    assert!(code == 7 && stderr.contains("already_applied: true"), "{code} {stderr}");
    assert_eq!(named("refund", script).code().0, 7);
    assert_eq!(scene.log().len(), 2);
    let script = "echo begin >> log; sleep 1000";
    let dies = named("slow", script);
    scene.until_logged("begin");
    dies.signal(Signal::SIGKILL);
    dies.code();
    let (code, stderr) = named("slow", script).code();
    assert!(code == FAILED && stderr.contains("may have happened"), "{code} {stderr}");
    assert_eq!(scene.log().len(), 3, "it was not run again");
    assert_eq!(named("next", "true").code().0, 0);
}

fn what_cannot_be_started() {
    let scene = Scene::new();
    let tool = scene.path("tool");
    let run = || {
        let command = [tool.to_str().unwrap()];
        scene.writer_with(5, "charge", Duration::from_secs(30), PATIENCE, &command).code()
    };
    let (code, stderr) = run();
    assert!(code == 127 && stderr.contains("Nothing was run"), "{code} {stderr}");
    write_script(&tool, "#!/bin/sh\necho done >> log\n");
    assert_eq!(run().0, 0);
    assert_eq!(scene.log(), ["done"]);
}

fn a_long_command_is_renewed() {
    let scene = Scene::new();
    let ttl = Duration::from_secs(2);
    let long =
        scene.writer_with(5, "", ttl, PATIENCE, &["sh", "-c", "echo begin 5 >> log; sleep 5; echo end 5 >> log"]);
    scene.until_logged("begin 5");
    assert_eq!(scene.writer(6, EFFECT).code().0, 0);
    assert_eq!(long.code().0, 0);
    assert_eq!(scene.log(), ["begin 5", "end 5", "begin 6", "end 6"]);
}

/// The daemon ignores TERM, so that it outlives its command by the whole grace, while the next one waits.
fn what_the_command_leaves_running() {
    let scene = Scene::new();
    let leaves = "setsid sh -c \"trap '' TERM; while :; do echo tick 5 >> log; sleep 0.02; done\" & \
                  while [ ! -e go ]; do sleep 0.02; done";
    let first = scene.writer(5, leaves);
    scene.until_logged("tick 5");
    let next = scene.writer(6, "echo begin 6 >> log; sleep 0.3; echo end 6 >> log");
    fs::write(scene.path("go"), "").unwrap();
    assert_eq!(next.code().0, 0);
    let (code, stderr) = first.code();
    let log = scene.log();
    let begin = log.iter().position(|line| line == "begin 6").unwrap();
    assert_eq!(log[begin..], ["begin 6", "end 6"], "nothing of the older one comes after");
    assert!(code == 0 && stderr.contains("left these running"), "{code} {stderr}");
}

fn write_script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let mut file = fs::File::create(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
}

fn random() -> u64 {
    u64::from_be_bytes(Uuid::new_v7(uuid::Timestamp::now(uuid::NoContext)).as_bytes()[8..].try_into().unwrap())
}
