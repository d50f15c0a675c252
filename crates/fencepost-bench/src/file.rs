//! A fenced write of a file, beside the bare system calls that it needs.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use fencepost_core::fence::WriteMode;
use fencepost_core::name::{Job, Name};
use fencepost_core::token::{RunId, StoreId, Token};
use fencepost_guard::publish::{WriteRequest, Writer, file};
use uuid::Uuid;

use crate::measure::{Subject, interleave, millis};

/// How much longer a fenced write may take than its flushes and renames alone.
const RATIO_MAX: f64 = 1.3;

const PAYLOAD: &[u8] = &[b'x'; 16 * 1024];

/// About as long as a fence is.
const FENCE: &[u8] = &[b'x'; 400];

pub fn report(directory: &Path, rounds: usize) {
    let [bare, fenced] = ["bare", "fenced"].map(|name| directory.join(name));
    for place in [&bare, &fenced] {
        fs::create_dir(place).expect("a directory to write in");
    }
    let mut token = 0;
    let medians = interleave(
        rounds,
        vec![
            Subject::new("the bare calls", || {
                replace(&bare, "fence", FENCE).and_then(|()| replace(&bare, "report", PAYLOAD)).expect("a write");
            }),
            Subject::new("publish file", || {
                token += 1;
                let path = fenced.join("report");
                file::publish(&request(token), &path, &mut &PAYLOAD[..], file::PATIENCE).expect("a fenced write");
            }),
        ],
    );
    let [bare, fenced] = medians[..] else { unreachable!("two subjects have two medians") };
    let ratio = fenced.as_secs_f64() / bare.as_secs_f64();
    println!("\nA fenced write of a file of 16 KiB, median of {rounds} rounds");
    println!("  {:28} {:8.2} ms", "two bare durable replacements", millis(bare));
    println!("  {:28} {:8.2} ms  ({ratio:.2} times, at most {RATIO_MAX})", "publish file", millis(fenced));
    println!("  {}", if ratio <= RATIO_MAX { "within the budget" } else { "OVER THE BUDGET" });
}

/// What replacing a file durably takes, and nothing else.
fn replace(directory: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let draft = directory.join("draft");
    let mut file = File::create(&draft)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&draft, directory.join(name))?;
    File::open(directory)?.sync_all()
}

fn request(token: u64) -> WriteRequest {
    let writer = Writer {
        store: StoreId(Uuid::from_u128(1)),
        job: Job::shared(Name::new("bench").expect("a name")),
        token: Token::new(token).expect("a token"),
        run: RunId(Uuid::from_u128(u128::from(token))),
        host: "here".to_string(),
    };
    WriteRequest { writer, mode: WriteMode::Many, op: None, adopt: false, dry_run: false, if_digest: None }
}
