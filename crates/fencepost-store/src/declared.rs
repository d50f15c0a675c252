//! Properties that using a store cannot prove but its settings show.

use crate::{Store, StoreError};

/// One property shown by a store's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    pub name: &'static str,
    pub standing: Soundness,
    /// A sentence for people.
    pub detail: String,
}

/// The effect of a setting on the promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Soundness {
    /// The promises hold.
    Sound,
    /// The promises hold under an assumption that the detail names, or less firmly than with another setting.
    Weak,
    /// A promise does not hold.
    Unsound,
    /// It could not be determined.
    Unknown,
}

impl Property {
    pub fn new(name: &'static str, standing: Soundness, detail: impl Into<String>) -> Self {
        Self { name, standing, detail: detail.into() }
    }
}

/// A store that also declares what using it cannot prove, for `store check`.
pub trait Declaring: Store {
    fn declared(&self) -> Result<Vec<Property>, StoreError>;
}
