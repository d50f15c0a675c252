//! What cannot be proved by using a store, but is said by its settings.

use crate::{Store, StoreError};

/// One thing that a store's settings say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub name: &'static str,
    pub standing: Standing,
    /// A sentence for people.
    pub detail: String,
}

/// What a setting means for the promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The promises hold.
    Sound,
    /// They hold less firmly than with another setting, or only under an assumption that the detail names.
    Weak,
    /// A promise does not hold.
    Unsound,
    /// It could not be found out.
    Unknown,
}

impl Declared {
    pub fn new(name: &'static str, standing: Standing, detail: impl Into<String>) -> Self {
        Self { name, standing, detail: detail.into() }
    }
}

/// A store that also tells what cannot be proved by using it, for `store check`.
pub trait Declaring: Store {
    fn declared(&self) -> Result<Vec<Declared>, StoreError>;
}
