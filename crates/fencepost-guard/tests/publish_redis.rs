//! Fenced keys in a real Redis.
#![cfg(all(feature = "redis", feature = "sql"))]

use fencepost_core::fence::{Level, Reason, WriteMode};
use fencepost_core::token::StoreId;
use fencepost_guard::publish::redis::{Keys, RedisDestination, RedisSession, publish};
use fencepost_guard::publish::{PublishError, Receipt, WriteRequest};
use fencepost_testkit::fenced::{failure, refusal, request, storm, winner};
use fencepost_testkit::network::{Cut, Scissors};
use fencepost_testkit::servers::Redis;
use redis::Commands;
use uuid::Uuid;

const ROUNDS: u64 = 1000;

fn write(request: &WriteRequest, server: &RedisDestination) -> Result<Receipt, PublishError> {
    publish(request, server, "report", request.writer.token.to_string().as_bytes())
}

fn client(server: &Redis) -> redis::Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

#[test]
fn no_old_token_wins_a_storm() {
    let server = Redis::start(&[]);
    let target = RedisDestination::parse(&server.url()).unwrap();
    let keys = Keys::of("report").unwrap();
    let writer = || {
        let (mut session, keys) = (RedisSession::open(&target).unwrap(), keys.clone());
        move |request: &WriteRequest| session.publish(request, &keys, request.writer.token.to_string().as_bytes())
    };
    let mut reader = client(&server);
    let (first, refused, contents) = storm(ROUNDS, writer(), writer(), || reader.get::<_, u64>("report").unwrap_or(0));
    let winners: Vec<u64> = (0..ROUNDS).map(winner).collect();
    assert_eq!(contents, winners, "the content does not belong to the highest token");
    println!("redis: {ROUNDS} rounds, the older one came first in {first} and was refused in {refused}, stale wins 0");
    assert!(refused > 0, "nothing was put to the test");
}

#[test]
fn the_rule_holds() {
    let server = Redis::start(&[]);
    let target = RedisDestination::parse(&server.url()).unwrap();
    let mut client = client(&server);
    let dry = write(&WriteRequest { dry_run: true, ..request(5) }, &target).unwrap();
    assert_eq!(dry.fence.seq, 1);
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut client).unwrap(), 0, "a dry run wrote something");

    let receipt = write(&request(5), &target).unwrap();
    assert_eq!((receipt.level, receipt.fence.seq), (Level::Atomic, 1));
    assert_eq!(refusal(write(&request(4), &target)), Reason::Stale);
    assert_eq!(write(&request(5), &target).unwrap().fence.seq, 2, "a second write is meant");
    let once = WriteRequest { mode: WriteMode::Once, ..request(6) };
    assert!(!write(&once, &target).unwrap().already_applied);
    assert!(write(&once, &target).unwrap().already_applied);
    let mut other = request(99);
    other.writer.store = StoreId(Uuid::from_u128(2));
    assert_eq!(refusal(write(&other, &target)), Reason::OtherLineage);
    assert_eq!(client.get::<_, u64>("report").unwrap(), 6);
    assert_eq!(client.ttl::<_, i64>("{report}:fencepost").unwrap(), -1, "a fence never expires");

    let bytes = [0, 255, 10, b'=', 0];
    publish(&request(7), &target, "report", &bytes).unwrap();
    assert_eq!(client.get::<_, Vec<u8>>("report").unwrap(), bytes);

    for damaged in ["", "0", "{", "{\"v\":2}"] {
        let () = client.set("{report}:fencepost", damaged).unwrap();
        assert!(failure(write(&request(9), &target)).contains("cannot be read"), "{damaged}");
        assert_eq!(client.get::<_, Vec<u8>>("report").unwrap(), bytes);
    }
    let () = client.set("{report}:fencepost", "").unwrap();
    write(&WriteRequest { adopt: true, ..request(9) }, &target).unwrap();
    assert_eq!(client.get::<_, u64>("report").unwrap(), 9);
}

/// A writer that stops between check and write finds another fence afterwards: the script compares.
#[test]
fn a_write_that_was_judged_by_an_older_fence_does_not_land() {
    let server = Redis::start(&[]);
    let target = RedisDestination::parse(&server.url()).unwrap();
    write(&request(4), &target).unwrap();
    for (how, token) in [(Cut::Late, 6), (Cut::Before, 8)] {
        let proxy = Scissors::start(server.port, b"EVAL", how);
        let slow = RedisDestination::parse(&format!("redis://127.0.0.1:{}", proxy.port)).unwrap();
        let quick = target.clone();
        proxy.at_cut(move || drop(write(&request(token), &quick).unwrap()));
        let written = write(&request(token - 1), &slow);
        match how {
            Cut::Late => assert_eq!(refusal(written), Reason::Stale),
            _ => assert!(failure(written).contains("NOT KNOWN")),
        }
        assert_eq!(client(&server).get::<_, u64>("report").unwrap(), token);
    }
}

#[test]
fn an_answer_that_is_lost_is_settled_by_asking_again() {
    for how in [Cut::After, Cut::Before] {
        let server = Redis::start(&[]);
        let proxy = Scissors::start(server.port, b"EVAL", how);
        let target = RedisDestination::parse(&format!("redis://127.0.0.1:{}", proxy.port)).unwrap();
        let receipt = write(&request(5), &target).unwrap();
        assert!(proxy.cut.load(std::sync::atomic::Ordering::SeqCst), "nothing was cut");
        assert_eq!((receipt.fence.seq, receipt.already_applied), (1, false));
        assert_eq!(client(&server).get::<_, u64>("report").unwrap(), 5);
    }
}

#[test]
fn a_server_that_cannot_keep_a_fence_says_so() {
    let primary = Redis::start(&["--requirepass", "s3cret"]);
    let with_password = format!("redis://:s3cret@127.0.0.1:{}", primary.port);
    write(&request(5), &RedisDestination::parse(&with_password).unwrap()).unwrap();
    let wrong = RedisDestination::parse(&with_password.replace("s3cret", "wr0ng")).unwrap();
    let text = failure(write(&request(6), &wrong));
    assert!(!text.contains("wr0ng") && text.contains("nothing was changed"), "{text}");

    let port = primary.port.to_string();
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &port, "--masterauth", "s3cret"]);
    let text = failure(write(&request(6), &RedisDestination::parse(&replica.url()).unwrap()));
    assert!(text.contains("is a replica") && text.contains(&port), "{text}");

    let cache = Redis::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let receipt = write(&request(5), &RedisDestination::parse(&cache.url()).unwrap()).unwrap();
    assert_eq!(receipt.level, Level::Gated);
    assert!(receipt.remarks[0].contains("allkeys-lru"), "{:?}", receipt.remarks);

    let cluster = Redis::start(&["--cluster-enabled", "yes"]);
    let text = failure(write(&request(5), &RedisDestination::parse(&cluster.url()).unwrap()));
    assert!(text.contains("nothing was changed"), "{text}");
}

#[test]
fn a_server_that_falls_silent_is_named_and_nothing_was_changed() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let text = failure(write(&request(5), &RedisDestination::parse(&format!("redis://127.0.0.1:{port}")).unwrap()));
    assert!(text.contains(&format!("redis://127.0.0.1:{port}")) && text.contains("nothing was changed"), "{text}");
    assert!(!text.contains("how it is") && !text.contains("os error 11"), "{text}");
    assert!(text.contains("did not answer in time"), "{text}");
}
