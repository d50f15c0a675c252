//! Stores by their URL, and the calls that their tests share.

use std::fmt::Debug;

use fencepost_store::{
    Access, Fate, Key, OpenError, Property, Store, StoreError, StoreHandle, Swapped, Trouble, Version,
};

/// Opens a store without the memory of a host.
pub fn open(url: &str) -> Result<Box<dyn Store>, OpenError> {
    open_with(url, &Access::default())
}

pub fn open_with(url: &str, access: &Access) -> Result<Box<dyn Store>, OpenError> {
    StoreHandle::new(url, access.clone()).open().map(|store| Box::new(store) as Box<dyn Store>)
}

pub fn declared(url: &str, access: &Access) -> Result<Vec<Property>, OpenError> {
    StoreHandle::new(url, access.clone()).declared()
}

/// Writes a value by a swap that must win.
#[track_caller]
pub fn put(store: &dyn Store, key: &Key, expected: Option<&Version>, bytes: &[u8]) -> Version {
    match store.swap(key, expected, Some(bytes)).unwrap().value {
        Swapped::Won(Some(version)) => version,
        other => panic!("{other:?}"),
    }
}

/// The call was refused, had no effect, and says why.
#[track_caller]
pub fn refused<T: Debug>(ended: Result<T, StoreError>, part: &str) {
    let error = ended.unwrap_err();
    assert_eq!((error.fate, error.trouble), (Fate::NotDone, Trouble::Refused), "{error}");
    assert!(error.detail.contains(part), "{error}");
}
