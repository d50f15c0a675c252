//! Opens stores by their URL, without the memory of a host.
#![allow(dead_code, reason = "each file of tests uses its part")]

use fencepost_store::{Access, Declared, OpenError, Store, StoreHandle};

pub fn open(url: &str) -> Result<Box<dyn Store>, OpenError> {
    open_with(url, &Access::default())
}

pub fn open_with(url: &str, access: &Access) -> Result<Box<dyn Store>, OpenError> {
    StoreHandle::new(url, access.clone()).open().map(|store| Box::new(store) as Box<dyn Store>)
}

pub fn declared(url: &str, access: &Access) -> Result<Vec<Declared>, OpenError> {
    StoreHandle::new(url, access.clone()).declared()
}
