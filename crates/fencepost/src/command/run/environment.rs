//! The environment variables of a run's job.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use fencepost_core::ledger::Trigger;
use fencepost_core::name::Job;
use fencepost_core::record::{Lease, Record};
use fencepost_core::slot::late;
use fencepost_core::token::RunId;
use fencepost_guard::child::{Environment, Variables};
use fencepost_guard::clock;
use fencepost_guard::upstream_check::{PINNED, Pinned};

use super::{again, trace};
use crate::config::EXCERPT_VARIABLE;
use crate::inside;
use crate::password;
use crate::place::Place;
use crate::settings::Settings;

/// Returns the variables of the child. Those of an outer run are replaced or removed.
pub fn environment(place: &Place, settings: &Settings, job: &Job, run: RunId) -> Environment {
    let job = job.to_string();
    let around = inside::around();
    let said = place.said(run).into_os_string();
    let store = place.bare_store();
    let mut configured: Variables =
        settings.options.environment().into_iter().map(|(name, value)| (name.into(), Some(value.into()))).collect();
    configured.extend(place.told_configuration());
    if !place.is_sent_the_environments() {
        configured.push((password::FILE_VARIABLE.into(), None));
    }
    configured.extend(trace::variables(run, trace::inherited(&configured).as_deref()));
    let zone = settings.zone.clone();
    Box::new(move |grant, inputs| {
        let lease = grant.and_then(|grant| grant.record.lease.as_ref().map(|lease| (&grant.record, lease)));
        // Without a lease no slot was claimed: the job gets the current time, and `manual` as its trigger.
        let slot = lease.map_or_else(|| clock::now().wall, |(_, lease)| lease.slot);
        let (since, trigger) = lease.map_or((slot, Trigger::Manual), |(_, lease)| (lease.since, lease.trigger));
        let covers = lease.and_then(|(_, lease)| lease.covers);
        let value = |value: fn(&Record, &Lease) -> String| lease.map(|(record, lease)| value(record, lease));
        let variables = [
            ("FENCEPOST_JOB", Some(job.clone())),
            ("FENCEPOST_RUN", value(|_, lease| lease.run.to_string())),
            ("FENCEPOST_TOKEN", value(|record, _| record.token.to_string())),
            ("FENCEPOST_SLOT", Some(zone.show(slot))),
            ("FENCEPOST_DATE", Some(zone.date(slot).to_string())),
            ("FENCEPOST_TZ", Some(zone.name().to_string())),
            ("FENCEPOST_TRIGGER", Some(trigger.as_str().to_string())),
            ("FENCEPOST_LATE_SECONDS", Some(late(slot, since).as_secs().to_string())),
            ("FENCEPOST_SLOT_FROM", covers.map(|covers| zone.show(covers.from))),
            ("FENCEPOST_SLOT_TO", covers.map(|covers| zone.show(covers.to))),
            ("FENCEPOST_SLOT_COUNT", covers.map(|covers| covers.count.to_string())),
            ("FENCEPOST_KEY", value(Record::key_of)),
            ("FENCEPOST_STORE", Some(store.clone())),
            ("FENCEPOST_STORE_ID", value(|record, _| record.store.to_string())),
            ("FENCEPOST_STORE_PASSWORD", None),
            (again::VARIABLE, None),
            (EXCERPT_VARIABLE, None),
        ];
        let outcome = (OsString::from("FENCEPOST_OUTCOME"), lease.map(|_| said.clone()));
        let told = variables.into_iter().map(|(name, value)| (name.into(), value.map(OsString::from)));
        configured.iter().cloned().chain(told).chain([outcome, around.clone()]).chain(pinned(inputs)).collect()
    })
}

/// The paths of the inputs pinned for this job. Those of an outer run are removed.
fn pinned(inputs: &[Pinned]) -> Variables {
    let outer = std::env::vars_os().map(|(name, _)| name).filter(|name| name.as_bytes().starts_with(PINNED.as_bytes()));
    let mine = inputs.iter().map(|input| (OsString::from(input.variable()), Some(input.path.clone().into_os_string())));
    outer.map(|name| (name, None)).chain(mine).collect()
}
