//! Limits the time that a silent server is waited for. The driver itself waits for ever.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::PostgresDestination;
use crate::publish::PublishError;

/// How far a write has come, which decides its fate if the server falls silent.
#[derive(Clone, Debug, Default)]
pub(in crate::publish::sql) struct CommitProgress(Arc<Mutex<CommitStage>>);

#[derive(Clone, Debug, Default)]
enum CommitStage {
    /// Nothing is committed: the server rolls back when the connection ends.
    #[default]
    Before,
    /// The COMMIT of this transaction was sent.
    Committing(String),
    /// Statements that commit by themselves were sent.
    Changing,
}

impl CommitProgress {
    pub(super) fn committing(&self, transaction: &str) {
        self.set(CommitStage::Committing(transaction.to_string()));
    }

    pub(super) fn changing(&self) {
        self.set(CommitStage::Changing);
    }

    fn set(&self, stage: CommitStage) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    fn expired(&self, server: &PostgresDestination) -> PublishError {
        let (shown, limit) = (server.shown(), server.limit());
        let stage = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        PublishError::Failed(match stage {
            CommitStage::Before => format!(
                "{shown} did not finish within {limit:?} (--timeout), and nothing was committed: nothing was changed. See \
                 what it waits for (SELECT * FROM pg_stat_activity), then publish again, or allow more time by --timeout."
            ),
            CommitStage::Committing(transaction) => format!(
                "{shown} did not answer the COMMIT within {limit:?} (--timeout). It is NOT KNOWN whether the statements \
                 took effect. Ask it later: SELECT txid_status({transaction})"
            ),
            CommitStage::Changing => format!(
                "{shown} did not finish within {limit:?} (--timeout). It is NOT KNOWN whether the schema was changed. Do it \
                 again: doing it twice changes nothing."
            ),
        })
    }
}

/// Does the work on a thread, and abandons the thread if the server does not answer in time.
pub(in crate::publish::sql) fn within<T: Send + 'static>(
    server: &PostgresDestination,
    work: impl FnOnce(CommitProgress) -> Result<T, PublishError> + Send + 'static,
) -> Result<T, PublishError> {
    let (tell, heard) = channel();
    let progress = CommitProgress::default();
    let shared = progress.clone();
    let worker = thread::spawn(move || drop(tell.send(work(shared))));
    match heard.recv_timeout(server.limit()) {
        Ok(done) => done,
        Err(RecvTimeoutError::Timeout) => Err(progress.expired(server)),
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => Err(progress.expired(server)),
        },
    }
}
