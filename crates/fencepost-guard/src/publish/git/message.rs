//! The fence as the message of a commit. People read it with `git log`; fencepost parses it strictly.

use fencepost_core::fence::Fence;
use uuid::Uuid;

const NONCE: &str = "Fencepost-Nonce: ";
const UNWRITTEN: &str = "fencepost: nothing written yet";

/// The content of a fence ref's tip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tip {
    /// The ref was created, and no write has landed under it yet.
    Unwritten,
    Written(Box<Fence>),
}

impl Tip {
    /// Returns a message that no two pushes share. An identical commit would be "up to date": git would drop it from
    /// the push, and with it the comparison.
    pub fn message(&self) -> String {
        self.with_nonce(&Uuid::now_v7().to_string())
    }

    /// Parses a message: it is a fence only if fencepost would have written exactly this text.
    pub fn read(message: &str) -> Result<Self, String> {
        let no_fence = || "its message is not a fence".to_string();
        let (body, nonce) = message.strip_suffix('\n').and_then(|text| text.rsplit_once(NONCE)).ok_or_else(no_fence)?;
        let nonce = Uuid::try_parse(nonce).map_err(|_| no_fence())?.to_string();
        let tip = match body.split("\n\n").nth(1) {
            Some(fence) if !fence.is_empty() => {
                Self::Written(Box::new(Fence::decode(fence.as_bytes()).map_err(|why| why.to_string())?))
            }
            _ => Self::Unwritten,
        };
        if tip.with_nonce(&nonce) == message { Ok(tip) } else { Err(no_fence()) }
    }

    fn with_nonce(&self, nonce: &str) -> String {
        match self {
            Self::Unwritten => format!("{UNWRITTEN}\n\n{NONCE}{nonce}\n"),
            Self::Written(fence) => {
                let json = String::from_utf8_lossy(&fence.encode()).into_owned();
                format!("fencepost: token {}, write {}\n\n{json}\n\n{NONCE}{nonce}\n", fence.token, fence.seq)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::name::{Job, Name};
    use fencepost_core::time::Wall;
    use fencepost_core::token::{RunId, StoreId, Token};

    fn fence() -> Fence {
        Fence {
            v: fencepost_core::fence::FENCE_FORMAT,
            store: StoreId(Uuid::from_u128(1)),
            job: Job::shared(Name::new("report").unwrap()),
            token: Token::new(7).unwrap(),
            seq: 2,
            run: RunId(Uuid::from_u128(2)),
            digest: "sha256:ab".to_string(),
            op: Some("a\n\nb".to_string()),
            at: Wall(1),
            host: "höst".to_string(),
            unknown: Default::default(),
        }
    }

    #[test]
    fn a_tip_is_read_back_and_no_two_messages_are_the_same() {
        for tip in [Tip::Unwritten, Tip::Written(Box::new(fence()))] {
            assert_eq!(Tip::read(&tip.message()), Ok(tip.clone()));
            assert_ne!(tip.message(), tip.message());
        }
    }

    #[test]
    fn what_is_torn_changed_or_foreign_is_never_a_fence() {
        for tip in [Tip::Unwritten, Tip::Written(Box::new(fence()))] {
            let message = tip.message();
            for end in (0..message.len()).filter(|&end| message.is_char_boundary(end)) {
                assert!(Tip::read(&message[..end]).is_err(), "torn at {end}");
            }
            assert!(Tip::read(&message.replacen("fencepost", "Fencepost", 1)).is_err());
            assert!(Tip::read(&format!("{message}\n")).is_err());
        }
        let message = Tip::Written(Box::new(fence())).message();
        assert!(Tip::read(&message.replacen("token 7", "token 9", 1)).is_err(), "subject and fence differ");
        assert!(Tip::read(&message.replacen(":7,", ":0.5,", 1)).is_err());
        assert!(Tip::read("Initial commit\n").is_err());
        assert!(Tip::read("").is_err());
    }
}
