//! The database that `serve --share` serves: an embedded store whose clock goes on across reboots.
//!
//! The clock of an embedded store is the boot clock, and its era ends with the boot, because every holder on the machine
//! ends with it. Here the holders are on other machines and outlive a reboot of the server. So the era is a random name
//! in the database, for ever, and the tick is the boot clock and an offset that is kept with the boot it belongs to.
//!
//! After a reboot the boot clock has begun anew. The tick then goes on from a reading that certainly no answer had reached:
//! every answer stays below a reservation that was flushed before, which is at most [`RESERVE_MS`] ahead. A machine that
//! has been up for longer than that is past the reservation in true time, so the tick neither goes back nor ends a lease
//! too early. The time for which the server was down is not counted: leases last longer by it.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fencepost_core::hex;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::SqliteStore;
use super::failure::SqliteStage;
use super::setup::DatabaseKind;
use crate::declared::{Declaring, Property, Soundness};
use crate::{
    Answer, Entry, Era, Key, Store, StoreClock, StoreError, Swapped, Trouble, Version, fresh_version, host_clock,
};

/// How far ahead of the tick the reservation may be.
const RESERVE_MS: u64 = 10_000;

/// Reads the clock of this machine; its era is the boot.
type HostClock = fn() -> Option<StoreClock>;

/// A database file whose leases survive a reboot of this machine.
#[derive(Debug)]
pub struct SharedStore {
    /// Takes the swaps, one after the other.
    writer: SqliteStore,
    /// Answers reads while a swap is flushed.
    reader: SqliteStore,
    era: Era,
    boot: Era,
    /// How far the tick is ahead of the boot clock.
    ahead_ms: i64,
    /// No answer has a tick above it.
    reserved_ms: Mutex<u64>,
}

/// The clock as the database keeps it.
struct KeptClock {
    era: String,
    boot: String,
    ahead_ms: i64,
    reserved_ms: u64,
}

impl SharedStore {
    /// Opens the database at `path`, creating it if it is missing. A database of another kind is refused.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::with_clock(path, host_clock::now)
    }

    fn with_clock(path: &Path, clock: HostClock) -> Result<Self, StoreError> {
        let writer = SqliteStore::open_as(path, DatabaseKind::Shared)?;
        let kept = {
            let mut connection = writer.connection()?;
            let transaction = Transaction::new(&mut connection, TransactionBehavior::Immediate)
                .map_err(writer.failed(SqliteStage::Before))?;
            let found = kept(&transaction).map_err(writer.failed(SqliteStage::Before))?;
            let kept = continued(found, clock)?;
            keep(&transaction, &kept).map_err(writer.failed(SqliteStage::Before))?;
            writer.commit(transaction)?;
            kept
        };
        let reader = SqliteStore::open_as(path, DatabaseKind::Shared)?;
        let KeptClock { era, boot, ahead_ms, reserved_ms } = kept;
        let reserved_ms = Mutex::new(reserved_ms);
        Ok(Self { writer, reader, era: Era(era), boot: Era(boot), ahead_ms, reserved_ms })
    }

    /// An answer with this store's clock in place of the machine's. The tick is reserved before it is told.
    fn told<T>(&self, answer: Answer<T>) -> Result<Answer<T>, StoreError> {
        let host = answer.clock.filter(|clock| clock.era == self.boot).ok_or_else(no_clock)?;
        let tick = host.tick.checked_add_signed(self.ahead_ms).ok_or_else(no_clock)?;
        self.reserve(tick)?;
        let clock = StoreClock { wall: host.wall, era: self.era.clone(), tick };
        Ok(Answer::new(answer.value, Some(clock)))
    }

    fn reserve(&self, tick: u64) -> Result<(), StoreError> {
        let mut reserved = self.reserved_ms.lock().unwrap_or_else(PoisonError::into_inner);
        if tick <= *reserved {
            return Ok(());
        }
        let wanted = tick + RESERVE_MS;
        let connection = self.writer.connection()?;
        let update = "UPDATE clock SET reserved_ms = max(reserved_ms, ?1)";
        let wanted_ms = i64::try_from(wanted).map_err(|_| no_clock())?;
        connection.execute(update, [wanted_ms]).map_err(self.writer.failed(SqliteStage::Before))?;
        *reserved = wanted;
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for SharedStore {
    fn read(&self, key: &Key) -> Result<Answer<Option<Entry>>, StoreError> {
        self.told(self.reader.read(key)?)
    }

    fn swap(&self, key: &Key, expected: Option<&Version>, new: Option<&[u8]>) -> Result<Answer<Swapped>, StoreError> {
        let answer = self.writer.swap(key, expected, new)?;
        let is_won = matches!(answer.value, Swapped::Won(_));
        // The swap is done, so a clock that cannot be reserved leaves its fate unknown to the client.
        self.told(answer).map_err(|error| match is_won {
            true => StoreError::unknown(error.trouble, error.detail),
            false => error,
        })
    }

    fn scan(&self, prefix: &str, after: Option<&Key>, limit: usize) -> Result<Answer<Vec<Key>>, StoreError> {
        self.told(self.reader.scan(prefix, after, limit)?)
    }
}

impl Declaring for SharedStore {
    fn declared(&self) -> Result<Vec<Property>, StoreError> {
        let log = "A commit is flushed before it is answered (write-ahead log, synchronous = FULL).";
        let copies = "One server with one disk: while it is down no job starts, and what its disk loses is lost.";
        let clock = "The server's boot clock, which goes on across restarts and reboots; the time in which the server is down \
                     is not counted.";
        Ok(vec![
            Property::new("durability", Soundness::Sound, log),
            Property::new("replication", Soundness::Weak, copies),
            Property::new("clock", Soundness::Sound, clock),
        ])
    }
}

/// The clock of this boot: a new one, the same as before, or one that goes on after a reboot.
fn continued(kept: Option<KeptClock>, clock: HostClock) -> Result<KeptClock, StoreError> {
    let now = clock().ok_or_else(no_clock)?;
    let Some(kept) = kept else {
        let era = format!("serve-{}", hex::encode(&fresh_version()?.0));
        return Ok(KeptClock { era, boot: now.era.0, ahead_ms: 0, reserved_ms: now.tick + RESERVE_MS });
    };
    if kept.boot == now.era.0 {
        return Ok(kept);
    }
    // The reservation lies at most this far ahead of the true time of the last answer, which was before this boot.
    thread::sleep(Duration::from_millis(RESERVE_MS.saturating_sub(now.tick)));
    let now = clock().ok_or_else(no_clock)?;
    let ahead = i128::from(kept.reserved_ms) - i128::from(now.tick);
    let ahead_ms = i64::try_from(ahead).map_err(|_| no_clock())?;
    Ok(KeptClock { era: kept.era, boot: now.era.0, ahead_ms, reserved_ms: kept.reserved_ms + RESERVE_MS })
}

fn kept(connection: &Connection) -> rusqlite::Result<Option<KeptClock>> {
    let mut statement = connection.prepare("SELECT era, boot, ahead_ms, reserved_ms FROM clock")?;
    statement
        .query_row([], |row| {
            let reserved_ms = u64::try_from(row.get::<_, i64>(3)?).unwrap_or_default();
            Ok(KeptClock { era: row.get(0)?, boot: row.get(1)?, ahead_ms: row.get(2)?, reserved_ms })
        })
        .optional()
}

fn keep(connection: &Connection, clock: &KeptClock) -> rusqlite::Result<()> {
    let KeptClock { era, boot, ahead_ms, reserved_ms } = clock;
    connection.execute("DELETE FROM clock", [])?;
    let reserved_ms = i64::try_from(*reserved_ms).unwrap_or(i64::MAX);
    connection.execute("INSERT INTO clock VALUES (?1, ?2, ?3, ?4)", params![era, boot, ahead_ms, reserved_ms])?;
    Ok(())
}

fn no_clock() -> StoreError {
    let detail = "This machine's boot clock or boot id cannot be read, so leases of other machines cannot be judged. Nothing \
                  was changed. In a container, mount /proc.";
    StoreError::not_done(Trouble::Unavailable, detail)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Wall;

    thread_local! {
        /// The boot and its clock, as this thread sees them.
        static HOST: Cell<(&'static str, u64)> = const { Cell::new(("first", 500_000)) };
    }

    fn host() -> Option<StoreClock> {
        let (boot, tick) = HOST.get();
        Some(StoreClock { wall: Wall(1), era: Era(boot.to_string()), tick })
    }

    fn key() -> Key {
        Key::from_stored("job/a").unwrap()
    }

    #[test]
    fn the_tick_goes_on_across_reboots_and_never_ahead_of_true_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shared.db");
        let reading = |boot, tick| {
            HOST.set((boot, tick));
            // The store reads the real clock; only the offset is judged here.
            let store = SharedStore::with_clock(&path, host).unwrap();
            let tick = tick.checked_add_signed(store.ahead_ms).unwrap();
            store.reserve(tick).unwrap();
            (store.era.clone(), tick)
        };
        let (era, first) = reading("first", 500_000);
        let (again, later) = reading("first", 560_000);
        assert_eq!((&again, later - first), (&era, 60_000), "a restart of the server is no reboot");
        // The machine was rebooted, and has been up for 20 s: at least as much time has passed.
        let (rebooted, after) = reading("second", 20_000);
        assert_eq!(rebooted, era, "a new era would end every lease");
        assert!(after >= later && after <= later + 20_000, "{later} {after}");
        let (_, still) = reading("second", 21_000);
        assert_eq!(still - after, 1_000);
        let (_, third) = reading("third", 10_000);
        assert!(third >= still && third <= still + 10_000, "{still} {third}");
    }

    #[test]
    fn a_database_of_one_kind_is_refused_by_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let [shared, embedded] = ["shared.db", "store.db"].map(|name| directory.path().join(name));
        SharedStore::open(&shared).unwrap().swap(&key(), None, Some(b"1")).unwrap();
        SqliteStore::open(&embedded).unwrap().swap(&key(), None, Some(b"1")).unwrap();
        let refused = SqliteStore::open(&shared).unwrap_err();
        assert!(refused.detail.contains("serve --share") && refused.detail.contains("URL"), "{refused}");
        assert!(SharedStore::open(&embedded).is_err());
    }
}
