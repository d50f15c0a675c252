//! Fencing tokens, and the identities that stand beside them.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A number greater than every number granted before for its job. Order comes from it, never from a clock.
///
/// It stays below 2^53, exact in JavaScript, Lua and every JSON reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Token(u64);

impl Token {
    pub const MAX: Self = Self((1 << 53) - 1);

    pub fn new(number: u64) -> Option<Self> {
        (number <= Self::MAX.0).then_some(Self(number))
    }

    pub fn number(self) -> u64 {
        self.0
    }

    /// The next token, or `None` at the maximum.
    pub fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u64> for Token {
    type Error = &'static str;
    fn try_from(number: u64) -> Result<Self, Self::Error> {
        Self::new(number).ok_or("a token is below 2^53")
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        token.0
    }
}

/// One run of a job, or one holder of a lease by hand. Generated once, at random, and passed on: never derived again
/// from host name and pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

impl RunId {
    /// A number below 256 that spreads out runs that act at the same time.
    pub fn spread(self) -> u32 {
        u32::from(self.0.as_bytes()[9])
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for RunId {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::from_str(text).map(Self)
    }
}

/// The store that a record or a fence belongs to. Tokens of two stores are not comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreId(pub Uuid);

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Makes every write of a record unique, even if all else is equal.
///
/// Some stores derive a version from the content; without a nonce an old expectation could match again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Nonce {
    pub by: RunId,
    pub write: u32,
}
