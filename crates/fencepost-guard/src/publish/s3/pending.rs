//! Writes of the content that may still arrive. The fence lists them, because equal contents have the same ETag on most
//! servers: a write that was delayed finds its condition fulfilled if the content that it replaces is published again.

use std::time::Duration;

use fencepost_core::time::Wall;
use serde::{Deserialize, Serialize};

/// How far the clocks of a service's front ends may be apart.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(5);

/// The most writes that a fence lists.
const PENDING_MAX: usize = 64;

/// The line of a fence after the fence itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FenceTail {
    /// Marks the write, and gives the fence an ETag that no other fence has.
    pub(super) mark: String,
    pub(super) pending: Vec<PendingWrite>,
}

/// A write of the content that replaces an object, from its fence to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingWrite {
    pub(super) mark: String,
    /// The digest of the content that it replaces; `None` if fencepost did not write that.
    pub(super) replaces: Option<String>,
    /// The end of its signature. The server refuses it after that, by its own clock.
    pub(super) until: Wall,
}

impl FenceTail {
    /// Drops the writes that can no longer arrive: the signature has ended, or the write itself has.
    pub(super) fn retain(&mut self, now: Wall, has_ended: impl Fn(&str) -> bool) {
        self.pending.retain(|write| now <= write.until + CLOCKS_APART_MAX && !has_ended(&write.mark));
    }

    /// How long content with this digest has to wait, because a pending write would find what it expects.
    pub(super) fn wait(&self, now: Wall, digest: &str) -> Option<Duration> {
        let is_full = self.pending.len() >= PENDING_MAX;
        let expects = |write: &&PendingWrite| write.replaces.as_deref().is_none_or(|replaced| replaced == digest);
        let last = self.pending.iter().filter(|write| is_full || expects(write)).map(|write| write.until).max()?;
        Some((last + CLOCKS_APART_MAX).since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(mark: &str, replaces: Option<&str>, until: i64) -> PendingWrite {
        PendingWrite { mark: mark.to_string(), replaces: replaces.map(String::from), until: Wall(until) }
    }

    #[test]
    fn content_waits_for_the_writes_that_expect_it() {
        let pending = vec![write("a", Some("same"), 60_000), write("b", Some("other"), 90_000)];
        let mut tail = FenceTail { mark: String::new(), pending };
        assert_eq!(tail.wait(Wall(10_000), "same"), Some(Duration::from_secs(55)));
        assert_eq!(tail.wait(Wall(10_000), "other"), Some(Duration::from_secs(85)));
        assert_eq!(tail.wait(Wall(10_000), "third"), None);
        tail.retain(Wall(65_000), |_| false);
        assert_eq!(tail.pending.len(), 2, "front ends have clocks of their own");
        tail.retain(Wall(65_001), |_| false);
        assert_eq!(tail.wait(Wall(65_001), "same"), None);
        tail.retain(Wall(65_001), |mark| mark == "b");
        assert_eq!(tail.pending, []);
    }

    #[test]
    fn content_of_another_tool_may_be_any() {
        let tail = FenceTail { mark: String::new(), pending: vec![write("a", None, 60_000)] };
        assert_eq!(tail.wait(Wall(0), "third"), Some(Duration::from_secs(65)));
    }

    #[test]
    fn a_full_list_waits() {
        let pending = (0..64).map(|number| write("a", Some("same"), number)).collect();
        let tail = FenceTail { mark: String::new(), pending };
        assert_eq!(tail.wait(Wall(0), "third"), Some(Duration::from_millis(5063)));
    }
}
