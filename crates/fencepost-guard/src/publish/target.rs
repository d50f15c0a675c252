//! One fenced write, for every target: read what is remembered, judge, write, and issue the receipt.

use fencepost_core::fence::{Fence, FenceVerdict, Level, StrictFence, judge};
use fencepost_core::format::Unreadable;

use super::{PublishError, Receipt, WriteRequest};

/// A destination of fenced writes, opened for one write.
///
/// Each target makes check and write one step in its own way. A target with a lock or a transaction takes it when it is
/// opened, and it covers [`Self::remembered`] and [`Self::write`]. A target with a compare-and-swap writes on the
/// condition that the fence is still the one that was read, and answers [`Written::Moved`] if it is not. Opened for a
/// dry run, it changes nothing.
pub trait WriteTarget {
    /// Whether writing the same payload again changes nothing: true for a file, false for `x = x + 1`.
    const REPLACES: bool;

    /// Returns the digest of the payload.
    fn digest(&self) -> String;

    /// Reads the fence of the last accepted write.
    fn remembered(&mut self) -> Result<Remembered, PublishError>;

    /// Whether the content of a write that the fence records is in place, durably. False after a crash between the two;
    /// then the content is written again.
    fn has_arrived(&mut self, _fence: &Fence) -> Result<bool, PublishError> {
        Ok(true)
    }

    /// Writes the fence and the content. After a crash in between, the fence is ahead of the content and never behind.
    fn write(&mut self, fence: Fence) -> Result<Written, PublishError>;

    /// Returns whether check and write are one step there.
    fn level(&self) -> Level {
        Level::Atomic
    }

    /// Returns further remarks for the user.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A target's memory of earlier writes.
#[derive(Debug)]
pub enum Remembered {
    /// No fenced write ever landed there.
    Nothing,
    Fence(Fence),
    /// An earlier try of this same write has landed.
    Landed(Fence),
    /// The fence is lost or cannot be read. That never counts as a first write, unless a person adopts the target.
    Unusable {
        error: PublishError,
        may_be_adopted: bool,
    },
}

/// The result of a write that was judged.
#[derive(Debug)]
pub enum Written {
    /// It landed, under this fence.
    Done(Fence),
    /// The target has accepted this same write before.
    AlreadyApplied(Fence),
    /// Another write came between the read and the write, and nothing was changed.
    Moved,
}

impl Remembered {
    /// Decodes a fence. `of` names its target in an error, `restore` the way to repair it.
    pub fn decode(stored: Option<&[u8]>, of: &str, restore: &str) -> Self {
        match stored.map(Fence::decode) {
            None => Self::Nothing,
            Some(Ok(fence)) => Self::Fence(fence),
            Some(Err(why)) => Self::unusable(of, &why, restore, is_damaged(&why)),
        }
    }

    /// Makes the error for a fence that cannot be trusted.
    pub fn unusable(of: &str, why: &dyn std::fmt::Display, restore: &str, may_be_adopted: bool) -> Self {
        let adopt = match may_be_adopted {
            true => "; or, if no older run can still be alive, publish once with --adopt",
            false => "",
        };
        let error = PublishError::Failed(format!(
            "The fence of {of} cannot be read: {why}. Nothing was changed, because without it the token of the last write is \
             not known. {restore}{adopt}."
        ));
        Self::Unusable { error, may_be_adopted }
    }
}

/// Whether a fence is damaged. A fence that a newer fencepost wrote is sound, and must not be adopted away.
pub fn is_damaged(why: &Unreadable) -> bool {
    matches!(why, Unreadable::Damaged(_) | Unreadable::OtherJob(_))
}

/// Writes to an opened target, if its fence allows that. In a dry run, reports whether it would.
pub fn publish<T: WriteTarget>(request: &WriteRequest, mut target: T) -> Result<Receipt, PublishError> {
    let (fence, already_applied) = decide(request, &mut target)?;
    Ok(Receipt { level: target.level(), fence, already_applied, remarks: target.remarks() })
}

/// Returns the fence of the write, and whether it was applied before.
fn decide<T: WriteTarget>(request: &WriteRequest, target: &mut T) -> Result<(Fence, bool), PublishError> {
    request.check(&target.digest())?;
    loop {
        let seen = match target.remembered()? {
            Remembered::Nothing => None,
            Remembered::Fence(fence) => Some(fence),
            Remembered::Landed(fence) => return Ok((fence, false)),
            Remembered::Unusable { may_be_adopted: true, .. } if request.adopt => None,
            Remembered::Unusable { error, .. } => return Err(error),
        };
        let fence = match judge::<StrictFence>(seen.as_ref(), &request.write(target.digest(), T::REPLACES)) {
            Err(refused) => return Err(PublishError::Refused { refused, level: target.level() }),
            Ok(FenceVerdict::AlreadyApplied(fence)) if request.dry_run || target.has_arrived(&fence)? => {
                return Ok((fence, true));
            }
            Ok(FenceVerdict::Accept(fence)) if request.dry_run => return Ok((fence, false)),
            Ok(FenceVerdict::Accept(fence) | FenceVerdict::AlreadyApplied(fence)) => fence,
        };
        match target.write(fence)? {
            Written::Done(fence) => return Ok((fence, false)),
            Written::AlreadyApplied(fence) => return Ok((fence, true)),
            Written::Moved => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::Writer;
    use fencepost_core::fence::{Reason, WriteMode};
    use fencepost_core::name::{Job, Name};
    use fencepost_core::token::{RunId, StoreId, Token};
    use uuid::Uuid;

    /// A target in memory that other writes may come between, and that may lose its content in a crash.
    #[derive(Default)]
    struct Cell {
        stored: Option<Vec<u8>>,
        /// The fences of other writers, each of which lands just before this one's write.
        others: Vec<Vec<u8>>,
        seen: Option<Vec<u8>>,
        content: Option<String>,
        writes: u32,
    }

    impl WriteTarget for &mut Cell {
        const REPLACES: bool = true;

        fn digest(&self) -> String {
            "sha256:aa".to_string()
        }

        fn remembered(&mut self) -> Result<Remembered, PublishError> {
            self.seen = self.stored.clone();
            Ok(Remembered::decode(self.stored.as_deref(), "the cell", "Restore it"))
        }

        fn has_arrived(&mut self, fence: &Fence) -> Result<bool, PublishError> {
            Ok(self.content.as_ref() == Some(&fence.digest))
        }

        fn write(&mut self, fence: Fence) -> Result<Written, PublishError> {
            self.writes += 1;
            self.stored = self.others.pop().or(self.stored.take());
            if self.stored != self.seen {
                return Ok(Written::Moved);
            }
            self.stored = Some(fence.encode());
            self.content = Some(fence.digest.clone());
            Ok(Written::Done(fence))
        }
    }

    fn request(token: u64) -> WriteRequest {
        let writer = Writer {
            store: StoreId(Uuid::from_u128(1)),
            job: Job::shared(Name::new("report").unwrap()),
            token: Token::new(token).unwrap(),
            run: RunId(Uuid::from_u128(u128::from(token))),
            host: "h".to_string(),
        };
        WriteRequest { writer, mode: WriteMode::Many, op: None, adopt: false, dry_run: false, if_digest: None }
    }

    fn written(token: u64) -> Cell {
        let mut cell = Cell::default();
        publish(&request(token), &mut cell).unwrap();
        cell
    }

    #[test]
    fn a_write_that_others_come_between_is_judged_again() {
        let others = [4, 3].map(|token| written(token).stored.unwrap()).to_vec();
        let mut cell = Cell { others: others.clone(), ..Cell::default() };
        assert!(publish(&request(5), &mut cell).is_ok() && cell.writes == 3);
        let mut cell = Cell { others: vec![written(6).stored.unwrap()], ..Cell::default() };
        let refused = publish(&request(5), &mut cell);
        assert!(matches!(refused, Err(PublishError::Refused { refused, .. }) if refused.reason == Reason::Stale));
        assert_eq!(cell.content, None);
    }

    #[test]
    fn a_repeated_write_is_recognised_and_lost_content_is_written_again() {
        let mut cell = written(5);
        assert!(publish(&request(5), &mut cell).unwrap().already_applied && cell.writes == 1);
        cell.content = None;
        assert!(!publish(&request(5), &mut cell).unwrap().already_applied && cell.writes == 2);
    }

    #[test]
    fn a_dry_run_writes_nothing() {
        let dry = |token| WriteRequest { dry_run: true, ..request(token) };
        let mut cell = Cell::default();
        assert!(!publish(&dry(5), &mut cell).unwrap().already_applied);
        let mut cell = Cell { content: None, ..written(5) };
        assert!(publish(&dry(5), &mut cell).unwrap().already_applied);
        assert!(publish(&dry(4), &mut cell).is_err() && cell.writes == 1);
    }

    #[test]
    fn a_broken_fence_is_replaced_only_by_adoption_and_a_newer_one_never() {
        let newer = String::from_utf8(written(5).stored.unwrap()).unwrap().replace("\"v\":1", "\"v\":9");
        for (stored, adoptable) in [(b"torn".to_vec(), true), (newer.into_bytes(), false)] {
            let mut cell = Cell { stored: Some(stored), ..Cell::default() };
            let text = publish(&request(5), &mut cell).unwrap_err().to_string();
            assert!(text.contains("The fence of the cell cannot be read"), "{text}");
            assert_eq!(text.contains("--adopt"), adoptable, "{text}");
            let adopted = publish(&WriteRequest { adopt: true, ..request(5) }, &mut cell);
            assert_eq!(adopted.is_ok(), adoptable, "{adopted:?}");
        }
    }
}
