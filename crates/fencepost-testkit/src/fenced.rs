//! Fenced writes: a request with any token, and an old and a new token that race for one target, round after round.

use std::fmt::Debug;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use fencepost_core::fence::{Reason, WriteMode};
use fencepost_core::name::{Job, Name};
use fencepost_core::token::{RunId, StoreId, Token};
use fencepost_guard::publish::{PublishError, Receipt, WriteRequest, Writer};
use uuid::Uuid;

use crate::fenced_server::{self, Server};

/// A request of a run that has its number from its token.
pub fn request(token: u64) -> WriteRequest {
    WriteRequest {
        writer: Writer {
            store: StoreId(Uuid::from_u128(1)),
            job: Job::shared(Name::new("report").unwrap()),
            token: Token::new(token).unwrap(),
            run: RunId(Uuid::from_u128(u128::from(token))),
            host: "here".to_string(),
        },
        mode: WriteMode::Many,
        op: None,
        adopt: false,
        dry_run: false,
        if_digest: None,
    }
}

/// Starts the example server in a directory, and returns it with its address.
pub fn server_in(directory: &Path) -> (Arc<Server>, SocketAddr) {
    let server = Server::open(directory).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = Arc::clone(&server);
    thread::spawn(move || fenced_server::serve(&listener, &serving));
    (server, address)
}

/// The token that round `round` is won by. The other one of the round is one less.
pub fn winner(round: u64) -> u64 {
    2 * round + 2
}

/// Lets two writers race in every round, and returns how many writes of the older token came first and how many were
/// refused. The newer one is always accepted; `after_round` looks at what stands there then. Everything is judged at
/// the end: a thread that panics in between would leave the others waiting.
pub fn storm<W, T>(rounds: u64, old: W, new: W, mut after_round: impl FnMut() -> T) -> (u64, u64, Vec<T>)
where
    W: FnMut(&WriteRequest) -> Result<Receipt, PublishError> + Send,
{
    let (start, end) = (Barrier::new(3), Barrier::new(3));
    let (old, new, seen) = thread::scope(|scope| {
        let play = |mut writer: W, older: u64| {
            let (start, end) = (&start, &end);
            scope.spawn(move || -> Vec<_> {
                let turn = |round| {
                    start.wait();
                    // Sometimes the one has a head start, sometimes the other, sometimes neither.
                    if round % 3 == older {
                        thread::sleep(Duration::from_micros(round % 7 * 200));
                    }
                    let written = writer(&request(winner(round) - older));
                    end.wait();
                    written
                };
                (0..rounds).map(turn).collect()
            })
        };
        let (old, new) = (play(old, 1), play(new, 0));
        let look = |_| {
            start.wait();
            end.wait();
            after_round()
        };
        let seen: Vec<T> = (0..rounds).map(look).collect();
        (old.join().unwrap(), new.join().unwrap(), seen)
    });
    let mut first = 0;
    for (round, (old, new)) in old.into_iter().zip(new).enumerate() {
        assert!(new.as_ref().is_ok_and(|receipt| !receipt.already_applied), "round {round}, the newer token: {new:?}");
        match old {
            Ok(_) => first += 1,
            Err(PublishError::Refused { refused, .. }) if refused.reason == Reason::Stale => {}
            Err(other) => panic!("round {round}, the older token: {other}"),
        }
    }
    (first, rounds - first, seen)
}

/// The tokens in the order in which they were applied never decrease, and the content is the last one's.
pub fn check_log(applied: &[u64], content: u64, rounds: u64) {
    let stale_wins = applied.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert_eq!(stale_wins, 0, "{applied:?}");
    assert_eq!(applied.last(), Some(&winner(rounds - 1)));
    assert_eq!(content, winner(rounds - 1), "the content does not belong to the highest token");
}

/// Why a write was refused.
#[track_caller]
pub fn refusal<T: Debug>(written: Result<T, PublishError>) -> Reason {
    match written {
        Err(PublishError::Refused { refused, .. }) => refused.reason,
        other => panic!("{other:?}"),
    }
}

/// Why a write failed.
#[track_caller]
pub fn failure<T: Debug>(written: Result<T, PublishError>) -> String {
    match written {
        Err(PublishError::Failed(text)) => text,
        other => panic!("{other:?}"),
    }
}
