//! A ledger with a past: outcomes of any slot and zone, written as the program writes them.
#![allow(dead_code, reason = "each file of tests uses its part")]

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::time::Duration;

use fencepost_core::lease::{Claim, Intent, Me};
use fencepost_core::ledger::{EndedBy, Ending, Outcome, Status, Trigger};
use fencepost_core::name::{Job, Key};
use fencepost_core::record::Record;
use fencepost_core::slot::Choice;
use fencepost_core::time::Wall;
use fencepost_core::token::RunId;
use fencepost_core::transition::Done;
use fencepost_core::zone::Zone;
use fencepost_guard::host::Host;
use fencepost_guard::local::Local;
use fencepost_guard::transact::transact;
use fencepost_store::{Access, Store, StoreHandle, Swapped};

use crate::common::Site;

/// The ledger of one job, whose runs belong to days in a zone.
pub struct Past {
    store: Arc<dyn Store>,
    local: Local,
    job: Job,
    zone: Zone,
}

impl Past {
    pub fn of(site: &Site, job: &str, zone: &str) -> Self {
        DirBuilder::new().recursive(true).mode(0o700).create(site.state()).unwrap();
        Self {
            store: StoreHandle::new(&format!("sqlite:{}", site.database().display()), Access::default())
                .open()
                .unwrap(),
            local: Local::new(&site.state(), Host::this()),
            job: Job::parse(job).unwrap(),
            zone: Zone::parse(zone).unwrap(),
        }
    }

    pub fn at(&self, slot: &str) -> Wall {
        self.zone.parse_time(slot).unwrap()
    }

    /// Records an outcome for a slot, which is a local time.
    pub fn record(&self, slot: &str, ending: Ending) {
        let claim = self.claim(self.at(slot));
        let run = claim.run;
        let done = self.intend(Intent::Claim(claim));
        let token = done.held.unwrap().record.token;
        self.intend(Intent::Complete { me: Me { token, run: Some(run) }, ending, escaped: false });
    }

    pub fn intend(&self, intent: Intent) -> Box<Done> {
        let by = RunId(uuid::Uuid::now_v7());
        transact(self.store.as_ref(), &self.local, &self.job, intent, by).unwrap()
    }

    /// Changes the last outcome into one that no verb makes yet.
    pub fn change_last(&self, change: impl FnOnce(&mut Outcome)) {
        let key = Key::job(&self.job);
        let entry = self.store.read(&key).unwrap().value.unwrap();
        let mut record = Record::decode(&entry.bytes, &self.job).unwrap();
        change(record.ledger.ring.last_mut().unwrap());
        let swapped = self.store.swap(&key, Some(&entry.version), Some(&record.encode())).unwrap().value;
        assert!(matches!(swapped, Swapped::Won(_)));
    }

    /// How many keys the history has.
    pub fn history(&self) -> usize {
        self.store.scan(&Key::histories(&self.job), None, 1000).unwrap().value.len()
    }

    fn claim(&self, slot: Wall) -> Claim {
        Claim {
            run: RunId(uuid::Uuid::now_v7()),
            ttl: Duration::from_secs(60),
            holder: Host::this().holder(std::process::id() as i32, None),
            slot: Choice::At(slot),
            zone: self.zone.name().to_string(),
            trigger: Trigger::Schedule,
        }
    }
}

pub fn ended(status: Status) -> Ending {
    Ending::new(status, EndedBy::Child)
}
