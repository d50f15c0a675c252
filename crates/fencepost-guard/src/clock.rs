//! This host's clocks. The only module of this crate that reads the time.

use fencepost_core::lease::Now;
use fencepost_core::time::{Boot, Wall};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use crate::sys::BOOT_CLOCK;

/// The clock for deadlines, which runs through suspend.
pub fn boot_now() -> Boot {
    let reading = read(BOOT_CLOCK);
    Boot(u64::try_from(millis(reading)).unwrap_or(0))
}

/// The wall clock, for people and for tokens.
pub fn wall_now() -> Wall {
    Wall(millis(read(ClockId::CLOCK_REALTIME)))
}

/// Both clocks, as the core takes them.
pub fn now() -> Now {
    Now { boot: boot_now(), wall: wall_now() }
}

fn read(clock: ClockId) -> TimeSpec {
    // The kernel refuses only unknown clocks, and these two exist on every supported system.
    clock_gettime(clock).expect("this kernel lacks a clock that fencepost counts on")
}

fn millis(reading: TimeSpec) -> i64 {
    reading.tv_sec() * 1000 + reading.tv_nsec() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_boot_clock_does_not_go_back() {
        let first = boot_now();
        std::thread::sleep(Duration::from_millis(5));
        assert!(boot_now() >= first + Duration::from_millis(5));
    }

    #[test]
    fn the_wall_clock_is_of_this_century() {
        assert!(wall_now() > Wall(946_684_800_000));
    }
}
