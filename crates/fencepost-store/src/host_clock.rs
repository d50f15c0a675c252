//! This machine's clock, for stores that live on one machine.
//!
//! Its era is the boot. Readings of one era are comparable in every process of the machine; the holder of a lease from
//! another era was ended by a reboot.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::clock_gettime;

use crate::{Era, StoreClock, Wall};

/// The current reading, or `None` if the boot id cannot be read: a clock without its era is worse than none.
pub fn now() -> Option<StoreClock> {
    static AHEAD_MS: OnceLock<Option<i64>> = OnceLock::new();
    let era = Era(boot_id()?.to_string());
    let ahead_ms = (*AHEAD_MS.get_or_init(platform::ahead_ms))?;
    let time = clock_gettime(fencepost_sys::BOOT_CLOCK).ok()?;
    let millis = i64::try_from(Duration::from(time).as_millis()).ok()?;
    let tick = u64::try_from(millis.checked_sub(ahead_ms)?).ok()?;
    Some(StoreClock { wall: wall(), era, tick })
}

/// The boot id, read once; `None` if it cannot be read.
pub fn boot_id() -> Option<&'static str> {
    static ID: OnceLock<Option<String>> = OnceLock::new();
    ID.get_or_init(|| fencepost_sys::boot_id().map(|id| id.trim().to_string()).filter(|id| !id.is_empty())).as_deref()
}

fn wall() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(target_os = "linux")]
mod platform {
    use std::fs;

    /// How far this process's boot clock is ahead of the machine's. A container in its own time namespace shares the
    /// boot id but not the reading, and would otherwise expire its neighbours' leases.
    pub(super) fn ahead_ms() -> Option<i64> {
        match fs::read_to_string("/proc/self/timens_offsets") {
            Ok(text) => boottime_offset_ms(&text),
            // A kernel without time namespaces does not have this file.
            Err(_) => Some(0),
        }
    }

    /// The line is `boottime`, seconds, nanoseconds; the nanoseconds are never negative.
    fn boottime_offset_ms(text: &str) -> Option<i64> {
        let line = text.lines().find_map(|line| line.strip_prefix("boottime"))?;
        let mut numbers = line.split_whitespace().map(|number| number.parse::<i64>().ok());
        let (seconds, nanos) = (numbers.next()??, numbers.next()??);
        Some(seconds.checked_mul(1000)? + nanos / 1_000_000)
    }

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        assert_eq!(boottime_offset_ms("monotonic           0         0\nboottime            0         0\n"), Some(0));
        assert_eq!(boottime_offset_ms("monotonic 5 0\nboottime 86400 500000000\n"), Some(86_400_500));
        assert_eq!(boottime_offset_ms("boottime -10 0\n"), Some(-10_000));
        assert_eq!(boottime_offset_ms("nonsense"), None);
    }
}

/// macOS has no time namespaces.
#[cfg(not(target_os = "linux"))]
mod platform {
    pub(super) fn ahead_ms() -> Option<i64> {
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::now;

    #[test]
    fn the_clock_runs_and_its_era_stays() {
        let first = now().expect("a clock");
        std::thread::sleep(std::time::Duration::from_millis(5));
        let second = now().expect("a clock");
        assert_eq!(first.era, second.era);
        assert!(second.tick >= first.tick + 5, "{first:?} {second:?}");
        assert!(second.wall.0 > 1_700_000_000_000, "{second:?}");
    }
}
