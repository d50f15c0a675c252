//! A place to work in: files, a configuration, and the ledger as the library reads it.
#![allow(dead_code, reason = "each file of tests uses its part")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use fencepost_core::history::Page;
use fencepost_core::ledger::Outcome;
use fencepost_core::name::{Job, Key, Name};
use fencepost_core::record::Record;
use fencepost_core::time::Wall;
use fencepost_core::zone::Zone;
use fencepost_store::{SqliteStore, Store, Swapped};
use serde_json::Value;

use crate::common::{Holder, Said, Site};

pub const HOUR: i64 = 3_600_000;
pub const DAY: i64 = 24 * HOUR;

/// A site with a working directory, and a configuration where there is one.
#[derive(Debug)]
pub struct Desk {
    pub site: Site,
    config: Option<PathBuf>,
}

impl Desk {
    pub fn new() -> Self {
        let site = Site::new();
        fs::create_dir(site.path("work")).unwrap();
        Self { site, config: None }
    }

    pub fn configured(config: &str) -> Self {
        let mut desk = Self::new();
        let path = desk.path("fencepost.toml");
        fs::write(&path, config).unwrap();
        desk.config = Some(path);
        desk
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.site.path("work").join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    fn at_work(&self, mut command: Command) -> Command {
        command.current_dir(self.path(""));
        if let Some(config) = &self.config {
            command.env("FENCEPOST_CONFIG", config);
        }
        command
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.at_work(self.site.command(arguments))
    }

    pub fn program(&self, program: &str, arguments: &[&str]) -> Command {
        self.at_work(self.site.program(program, arguments))
    }

    pub fn say(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().unwrap())
    }

    /// Says it, and it must end with 0.
    #[track_caller]
    pub fn done(&self, arguments: &[&str]) -> Said {
        let said = self.say(arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
        said
    }

    pub fn shell(&self, script: &str) -> Said {
        Said::of(self.program("/bin/sh", &["-c", script]).output().unwrap())
    }

    /// The exit code and the object of `gate --json`.
    pub fn gate(&self, arguments: &[&str]) -> (i32, Value) {
        let said = self.say(&[&["gate", "--json"], arguments].concat());
        let json = serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        (said.code, json)
    }

    pub fn store(&self) -> SqliteStore {
        SqliteStore::open(&self.site.database()).unwrap()
    }

    /// A job's record, without the code that is tested.
    #[track_caller]
    pub fn record(&self, name: &str) -> Record {
        let entry = self.store().read(&Key::job(&job(name))).unwrap().value.expect("there is a record");
        Record::decode(&entry.bytes, &job(name)).unwrap()
    }

    /// How often the lease of a job was renewed that is held now.
    pub fn renewals(&self, name: &str) -> Option<u64> {
        let entry = self.store().read(&Key::job(&job(name))).ok()?.value?;
        Some(Record::decode(&entry.bytes, &job(name)).ok()?.lease?.renewals)
    }

    /// How the newest run of a job ended.
    #[track_caller]
    pub fn last(&self, name: &str) -> Outcome {
        self.record(name).ledger.last().expect("there is an outcome").clone()
    }

    /// What the history holds of a slot, page by page: what the record gave up, and what it shows in short.
    pub fn history(&self, name: &str, slot: Wall) -> Vec<Outcome> {
        let store = self.store();
        let page = |page| store.read(&Key::history(&job(name), slot, page)).unwrap().value;
        let pages = (0..).map_while(page);
        let pages = pages.map(|entry| Page::decode(&entry.bytes, &job(name)).unwrap());
        pages.flat_map(|page| page.attempts.into_iter().chain(page.details)).collect()
    }

    /// Edits a record directly, for states that take days to come about.
    pub fn edit(&self, name: &str, change: impl Fn(&mut Record)) {
        loop {
            let store = self.store();
            let entry = store.read(&Key::job(&job(name))).unwrap().value.unwrap();
            let mut record = Record::decode(&entry.bytes, &job(name)).unwrap();
            change(&mut record);
            let swapped =
                store.swap(&Key::job(&job(name)), Some(&entry.version), Some(&record.encode())).unwrap().value;
            if matches!(swapped, Swapped::Won(_)) {
                return;
            }
        }
    }

    /// Replaces a record by unreadable bytes.
    pub fn damage(&self, name: &str) {
        let store = self.store();
        let key = Key::job(&job(name));
        let version = store.read(&key).unwrap().value.map(|entry| entry.version);
        store.swap(&key, version.as_ref(), Some(b"{\"v\":1,\"torn")).unwrap();
    }

    /// A run of the job that is going, for this slot.
    pub fn running(&self, name: &str, slot: Wall) -> Holder {
        let holder = self.site.holder(name, &[]);
        self.edit(name, |record| record.lease.as_mut().unwrap().slot = slot);
        holder
    }

    /// The directories of pinned copies that there are.
    pub fn pins(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.site.state().join("inputs")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    }
}

pub fn job(name: &str) -> Job {
    Job::shared(Name::new(name).unwrap())
}

pub fn now() -> Wall {
    Wall(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64)
}

/// An instant as it is given on the command line.
pub fn at(slot: Wall) -> String {
    Zone::utc().show(slot)
}

/// A zone in which it is noon now, so that no test meets a midnight.
pub fn noon() -> String {
    let west = now().0.rem_euclid(DAY) / HOUR - 12;
    format!("Etc/GMT{}{}", if west < 0 { '-' } else { '+' }, west.abs())
}
