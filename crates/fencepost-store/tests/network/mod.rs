//! A network that delays, cuts and loses answers, and a race through it whose outcome can be checked to the last swap.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fencepost_store::{Fate, Key, Store, Swapped};

/// What happens to a message of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    Fair,
    /// Every seventh message is lost before it arrives, every seventh has its answer lost, some are late.
    Foul,
    /// Nothing is carried any more, and nobody is told.
    Silent,
}

/// Stands between clients and a server.
pub struct Proxy {
    pub port: u16,
    weather: Arc<Mutex<Weather>>,
    ended: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    spoken: Arc<Mutex<Vec<u8>>>,
}

impl Proxy {
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            weather: Arc::new(Mutex::new(Weather::Fair)),
            ended: Arc::default(),
            turns: Arc::default(),
            spoken: Arc::default(),
        };
        let (weather, ended, turns) = (proxy.weather.clone(), proxy.ended.clone(), proxy.turns.clone());
        let spoken = proxy.spoken.clone();
        thread::spawn(move || {
            let dice = Arc::new(AtomicU64::new(1));
            for client in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(upstream) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
                let carrier = Carrier {
                    weather: weather.clone(),
                    dice: dice.clone(),
                    turns: turns.clone(),
                    spoken: spoken.clone(),
                    answered: Arc::new(AtomicBool::new(true)),
                    muted: Arc::default(),
                };
                thread::spawn(move || carrier.carry(client, upstream));
            }
        });
        proxy
    }

    pub fn set(&self, weather: Weather) {
        *self.weather.lock().unwrap() = weather;
    }

    /// How many times a client spoke after it had been answered: the round trips.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::SeqCst)
    }

    /// Everything that clients said since the last call.
    pub fn spoken(&self) -> Vec<u8> {
        std::mem::take(&mut self.spoken.lock().unwrap())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

struct Carrier {
    weather: Arc<Mutex<Weather>>,
    dice: Arc<AtomicU64>,
    turns: Arc<AtomicU64>,
    spoken: Arc<Mutex<Vec<u8>>>,
    answered: Arc<AtomicBool>,
    muted: Arc<AtomicBool>,
}

impl Carrier {
    fn carry(self, mut client: TcpStream, mut server: TcpStream) {
        let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let (answered, muted, weather) = (self.answered.clone(), self.muted.clone(), self.weather.clone());
        let returning = thread::spawn(move || {
            let mut buffer = [0; 16384];
            while let Ok(read @ 1..) = answers.read(&mut buffer) {
                answered.store(true, Ordering::SeqCst);
                if *weather.lock().unwrap() == Weather::Silent {
                    continue;
                }
                if muted.load(Ordering::SeqCst) || back.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
            let _ = back.shutdown(Shutdown::Both);
        });
        let mut buffer = [0; 16384];
        while let Ok(read @ 1..) = client.read(&mut buffer) {
            let fresh = self.answered.swap(false, Ordering::SeqCst);
            if fresh {
                self.turns.fetch_add(1, Ordering::SeqCst);
            }
            let weather = *self.weather.lock().unwrap();
            if weather == Weather::Fair {
                self.spoken.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
            if weather == Weather::Silent {
                continue;
            }
            // A message in several pieces is not judged again in its middle.
            let die = if weather == Weather::Foul && fresh { self.roll() } else { 6 };
            match die {
                0 => break,
                1 => {
                    self.muted.store(true, Ordering::SeqCst);
                    let _ = server.write_all(&buffer[..read]);
                    let _ = returning.join();
                    break;
                }
                2 => thread::sleep(Duration::from_millis(20)),
                _ => {}
            }
            if server.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }

    /// 0 to 6, in an order that is the same in every run as far as the threads are.
    fn roll(&self) -> u64 {
        let number = self.dice.fetch_add(1, Ordering::SeqCst);
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % 7
    }
}

/// How one attempt of a swap ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Won,
    Lost,
    NotDone,
    Unknown,
}

/// What a race saw.
#[derive(Debug, Default)]
pub struct Tally {
    pub won: usize,
    pub lost: usize,
    pub not_done: usize,
    pub unknown: usize,
    /// Of the unknown ones those that had happened.
    pub happened: usize,
}

/// Threads add lines to one value over a bad network until each has added its own. A line names its attempt, so that
/// the value shows afterwards of every swap whether it happened: what was won once, what was lost or not done never, and
/// each line of a thread exactly once.
pub fn race(
    open: &(dyn Fn() -> Box<dyn Store> + Sync),
    referee: &dyn Store,
    key: &Key,
    threads: usize,
    lines: usize,
) -> Tally {
    let attempts: Mutex<HashMap<String, Ended>> = Mutex::default();
    thread::scope(|scope| {
        for thread in 0..threads {
            let attempts = &attempts;
            scope.spawn(move || {
                let store = open();
                for line in 0..lines {
                    add(&*store, key, &format!("{thread}.{line}"), attempts);
                }
            });
        }
    });
    let found = referee.read(key).unwrap().value.expect("the lines");
    let text = String::from_utf8(found.bytes).unwrap();
    let stands: Vec<&str> = text.lines().collect();
    let attempts = attempts.into_inner().unwrap();
    let mut tally = Tally::default();
    for (attempt, ended) in &attempts {
        let times = stands.iter().filter(|line| *line == attempt).count();
        let (count, allowed) = match ended {
            Ended::Won => (&mut tally.won, 1..=1),
            Ended::Lost => (&mut tally.lost, 0..=0),
            Ended::NotDone => (&mut tally.not_done, 0..=0),
            Ended::Unknown => (&mut tally.unknown, 0..=1),
        };
        *count += 1;
        tally.happened += if *ended == Ended::Unknown { times } else { 0 };
        assert!(allowed.contains(&times), "{attempt} ended as {ended:?} and stands there {times} times:\n{text}");
    }
    for thread in 0..threads {
        for line in 0..lines {
            let begins = format!("{thread}.{line}.");
            let times = stands.iter().filter(|found| found.starts_with(&begins)).count();
            assert_eq!(times, 1, "{begins}:\n{text}");
        }
    }
    assert_eq!(stands.len(), threads * lines, "{text}");
    tally
}

/// Waits until a race has come so far.
pub fn wait_for_lines(store: &dyn Store, key: &Key, lines: usize) {
    let begun = Instant::now();
    let count = || {
        let entry = store.read(key).ok()?.value?;
        Some(entry.bytes.iter().filter(|byte| **byte == b'\n').count())
    };
    while count().is_none_or(|found| found < lines) {
        assert!(begun.elapsed() < Duration::from_secs(60), "there are not {lines} lines");
        thread::sleep(Duration::from_millis(2));
    }
}

fn add(store: &dyn Store, key: &Key, line: &str, attempts: &Mutex<HashMap<String, Ended>>) {
    let begun = Instant::now();
    for attempt in 0.. {
        assert!(begun.elapsed() < Duration::from_secs(60), "{line} could not be added");
        let Ok(read) = store.read(key) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let mut text =
            read.value.as_ref().map_or(String::new(), |entry| String::from_utf8(entry.bytes.clone()).unwrap());
        if text.lines().any(|found| found.starts_with(&format!("{line}."))) {
            return;
        }
        let name = format!("{line}.{attempt}");
        text.push_str(&name);
        text.push('\n');
        let ended = match store.swap(key, read.value.as_ref().map(|entry| &entry.version), Some(text.as_bytes())) {
            Ok(answer) if matches!(answer.value, Swapped::Won(_)) => Ended::Won,
            Ok(_) => Ended::Lost,
            Err(error) if error.fate == Fate::NotDone => Ended::NotDone,
            Err(_) => Ended::Unknown,
        };
        attempts.lock().unwrap().insert(name, ended);
        if ended == Ended::Won {
            return;
        }
    }
}
