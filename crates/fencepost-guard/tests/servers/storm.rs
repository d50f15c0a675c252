//! An old and a new token that race for one target, round after round.

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use fencepost_core::fence::{Mode, Reason};
use fencepost_core::name::{Job, Name};
use fencepost_core::token::{RunId, StoreId, Token};
use fencepost_guard::publish::{PublishError, Receipt, Request, Writer};
use uuid::Uuid;

/// A request of a run that has its number from its token.
pub fn request(token: u64) -> Request {
    Request {
        writer: Writer {
            store: StoreId(Uuid::from_u128(1)),
            job: Job::shared(Name::new("report").unwrap()),
            token: Token::new(token).unwrap(),
            run: RunId(Uuid::from_u128(u128::from(token))),
            host: "host".to_string(),
        },
        mode: Mode::Many,
        op: None,
        adopt: false,
        dry_run: false,
    }
}

/// The token that round `round` is won by. The other one of the round is one less.
pub fn winner(round: u64) -> u64 {
    2 * round + 2
}

/// Lets two writers race in every round, and returns how many writes of the older token came first and how many were
/// refused. The newer one is always accepted; `after_round` sees what stands there then.
pub fn storm<W>(rounds: u64, old: W, new: W, mut after_round: impl FnMut(u64)) -> (u64, u64)
where
    W: FnMut(&Request) -> Result<Receipt, PublishError> + Send,
{
    let (start, end) = (Barrier::new(3), Barrier::new(3));
    thread::scope(|scope| {
        let play = |mut writer: W, older: u64| {
            let (start, end) = (&start, &end);
            scope.spawn(move || {
                let results: Vec<bool> = (0..rounds)
                    .map(|round| {
                        start.wait();
                        // Sometimes the one has a head start, sometimes the other, sometimes neither.
                        if round % 3 == older {
                            thread::sleep(Duration::from_micros(round % 7 * 200));
                        }
                        let written = writer(&request(winner(round) - older));
                        end.wait();
                        match written {
                            Ok(receipt) => !receipt.already_applied,
                            Err(PublishError::Refused { refused, .. }) if refused.reason == Reason::Stale => false,
                            Err(other) => panic!("round {round}: {other}"),
                        }
                    })
                    .collect();
                results
            })
        };
        let (old, new) = (play(old, 1), play(new, 0));
        for round in 0..rounds {
            start.wait();
            end.wait();
            after_round(round);
        }
        let (old, new) = (old.join().unwrap(), new.join().unwrap());
        assert!(new.iter().all(|&accepted| accepted), "a newer token was refused");
        let first = old.iter().filter(|&&accepted| accepted).count() as u64;
        (first, rounds - first)
    })
}

/// The tokens in the order in which they were applied never decrease, and the content is the last one's.
pub fn check_log(applied: &[u64], content: u64, rounds: u64) {
    let stale_wins = applied.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert_eq!(stale_wins, 0, "{applied:?}");
    assert_eq!(applied.last(), Some(&winner(rounds - 1)));
    assert_eq!(content, winner(rounds - 1), "the content does not belong to the highest token");
}
