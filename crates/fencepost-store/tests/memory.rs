//! The memory store keeps the contract.

use fencepost_store::{Era, MemoryStore, StoreClock, Wall, conformance};

#[test]
fn conforms() {
    let store = MemoryStore::new();
    conformance::run(&|| Ok(Box::new(store.clone()))).unwrap();
}

#[test]
fn conforms_with_a_clock() {
    let clock = || StoreClock { wall: Wall(1_800_000_000_000), era: Era("one".to_string()), tick: 7 };
    let store = MemoryStore::with_clock(clock);
    conformance::run(&|| Ok(Box::new(store.clone()))).unwrap();
}
