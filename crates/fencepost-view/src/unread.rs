//! Records that cannot be read: every answer that reads several records names them and shows the others.

use fencepost_core::name::Name;
use fencepost_core::record::{Record, decode};
use fencepost_core::time::StoreClock;
use fencepost_core::transition::unreadable;
use fencepost_store::records::HistoryError;
use fencepost_store::{Key, SCAN_KEYS_MAX, Store, StoreError, Trouble};

use crate::answer::ErrorDetail;
use crate::vocabulary::ReasonCode;

/// The exit code of a command whose answer has unreadable records.
const FAILED: u8 = 125;

/// The records of one answer that cannot be read, each with its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread(Vec<ErrorDetail>);

impl Unread {
    /// Passes a result on. A record that cannot be decoded is noted; any other failure of the store ends the question.
    pub fn noted<T>(&mut self, key: &Key, result: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.trouble == Trouble::Corrupt => {
                let detail = ErrorDetail {
                    code: FAILED,
                    reason: ReasonCode::Unreadable,
                    message: error.detail,
                    key: Some(key.to_string()),
                };
                if !self.0.contains(&detail) {
                    self.0.push(detail);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The same for a page of the history.
    pub fn noted_history<T>(&mut self, result: Result<T, HistoryError>) -> Result<Option<T>, StoreError> {
        result.map_or_else(|HistoryError { key, error }| self.noted(&key, Err(error)), |value| Ok(Some(value)))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn errors(&self) -> &[ErrorDetail] {
        &self.0
    }

    pub fn into_errors(self) -> Vec<ErrorDetail> {
        self.0
    }
}

/// The messages of unreadable records, a sentence each.
pub(crate) fn sentences(errors: &[ErrorDetail]) -> Vec<String> {
    errors.iter().map(|error| error.message.clone()).collect()
}

/// Reads every job's record, in the order of their keys. One that cannot be read goes to `unread`. Forgotten jobs are left
/// out, and so are forgotten outcomes.
pub fn each_record(
    store: &dyn Store,
    unread: &mut Unread,
    see: impl FnMut(&mut Unread, Record, Option<&StoreClock>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    each_shown_record(store, Key::JOBS, unread, see)
}

/// The same for the keys with a prefix.
pub(crate) fn each_shown_record(
    store: &dyn Store,
    prefix: &str,
    unread: &mut Unread,
    mut see: impl FnMut(&mut Unread, Record, Option<&StoreClock>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    each_whole_record(store, prefix, unread, |unread, record, clock| match record.is_hidden() {
        true => Ok(()),
        false => see(unread, record.remembered().into_owned(), clock),
    })
}

/// Reads every record as it stands, with what is forgotten: slots are judged by it.
pub(crate) fn each_whole_record(
    store: &dyn Store,
    prefix: &str,
    unread: &mut Unread,
    mut see: impl FnMut(&mut Unread, Record, Option<&StoreClock>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let keys = store.scan(prefix, after.as_ref(), SCAN_KEYS_MAX)?.value;
        let Some(last) = keys.last().cloned() else { return Ok(()) };
        for key in &keys {
            let Some(answer) = unread.noted(key, store.read(key))? else { continue };
            let Some(entry) = answer.value else { continue };
            let decoded: Result<Record, _> =
                decode(&entry.bytes).map_err(|why| unreadable(&format!("the record under {key}"), &why));
            if let Some(record) = unread.noted(key, decoded)? {
                see(unread, record, answer.clock.as_ref())?;
            }
        }
        after = Some(last);
    }
}

/// Whether a job of this name has a record, be it forgotten.
pub fn has_record(store: &dyn Store, name: &Name) -> Result<bool, StoreError> {
    let mut is_found = false;
    each_whole_record(store, Key::JOBS, &mut Unread::default(), |_, record, _| {
        is_found |= record.job.name == *name;
        Ok(())
    })?;
    Ok(is_found)
}

/// The names of all jobs that have a record. Records that cannot be read are left out.
pub fn job_names(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let mut known = Vec::new();
    each_record(store, &mut Unread::default(), |_, record, _| {
        known.push(record.job.to_string());
        Ok(())
    })?;
    Ok(known)
}
