//! Swaps of the store that `serve --share` is for other machines: how many a second, and how long each takes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use fencepost_core::name::Key;
use fencepost_store::{HttpStore, Secret, Store, Swapped, Version};

use crate::measure::millis;
use crate::serve::BenchServer;

const LENGTH: Duration = Duration::from_secs(10);

/// About as long as a record is.
const VALUE: &[u8] = &[b'x'; 4096];

pub fn report(fencepost: &Path, directory: &Path) {
    let (state, most) = (directory.join("share"), 50);
    let file = directory.join("tokens").display().to_string();
    let tokens: Vec<String> = (0..most).map(|client| token(fencepost, &state, &file, client)).collect();
    let server = BenchServer::start(fencepost, &state, &["--share", "--token-file", &file]);
    println!("\nThe store of `serve --share`: swaps of 4 KiB, each flushed to the disk");
    for clients in [1, most] {
        let mut times: Vec<Duration> = scope(|scope| {
            let port = server.port;
            let clients: Vec<_> = (tokens[..clients].iter().enumerate())
                .map(|(client, token)| scope.spawn(move || swap_for(port, token, client)))
                .collect();
            clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
        });
        times.sort_unstable();
        let at = |share: f64| millis(times[((times.len() - 1) as f64 * share) as usize]);
        let rate = times.len() as f64 / LENGTH.as_secs_f64();
        println!(
            "  {:28} {rate:8.0} swaps a second, {:6.2} ms (p50), {:6.2} ms (p99)",
            format!("{clients} clients"),
            at(0.5),
            at(0.99)
        );
    }
}

fn token(fencepost: &Path, state: &Path, file: &str, client: usize) -> String {
    let mut command = Command::new(fencepost);
    command.env("FENCEPOST_STATE_DIR", state).args([
        "serve",
        "token",
        &format!("client-{client}"),
        "--token-file",
        file,
    ]);
    let said = command.stdin(Stdio::null()).output().expect("fencepost starts");
    assert!(said.status.success(), "{said:?}");
    String::from_utf8_lossy(&said.stdout).trim().to_string()
}

/// Swaps one key again and again, and returns how long each swap took.
fn swap_for(port: u16, token: &str, client: usize) -> Vec<Duration> {
    let store = HttpStore::open(&format!("http://127.0.0.1:{port}"), Some(&Secret::new(token))).expect("the store");
    let key = Key::from_stored(&format!("probe/client-{client}")).expect("a key");
    let mut version: Option<Version> = store.read(&key).expect("a read").value.map(|entry| entry.version);
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < LENGTH {
        let sent = Instant::now();
        match store.swap(&key, version.as_ref(), Some(VALUE)) {
            Ok(answer) => {
                times.push(sent.elapsed());
                let Swapped::Won(next) = answer.value else { panic!("another client has this key") };
                version = next;
            }
            // A client that swaps too often waits until it may again.
            Err(_) => sleep(Duration::from_millis(100)),
        }
    }
    times
}
