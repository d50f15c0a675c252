//! Fenced writes under a lease: each target of `fencepost publish` that needs no process of its own.

use std::path::Path;
use std::time::Duration;

use fencepost_core::fence::{Level, WriteMode};
use fencepost_core::said::{Published, Said};
use fencepost_guard::clock;
use fencepost_guard::publish::git::{Outgoing, Wish};
use fencepost_guard::publish::http::{BearerToken, Endpoint, EndpointUrl};
use fencepost_guard::publish::payload::{Payload, UNLIMITED};
use fencepost_guard::publish::redis::RedisDestination;
use fencepost_guard::publish::s3::S3Destination;
use fencepost_guard::publish::sql::Database;
use fencepost_guard::publish::{PublishError, Receipt, WriteRequest, Writer, file, git, http, redis, s3, sql, tree};

use crate::error::GuardError;
use crate::lease::HeldLease;

/// How long a server may say nothing.
const SILENCE: Duration = Duration::from_secs(60);

/// A write that the fence let through.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishedWrite {
    /// Whether the target checks the fence and writes in one step.
    pub level: Level,
    /// The target had this content from this run already.
    pub already_applied: bool,
    /// What else there is to say of this target, for people.
    pub remarks: Vec<String>,
}

/// Each returns [`Error::Stale`](crate::Error::Stale) if the fence refuses the write, and [`Error::Lost`](crate::Error::Lost) if the
/// lease is lost. Nothing is changed then. A refused write makes the run end as fenced.
impl HeldLease {
    /// Replaces a file, unless a newer run has written it.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`](crate::Error::Stale) and [`Error::Lost`](crate::Error::Lost), as for every fenced write.
    pub fn publish_file(&self, path: impl AsRef<Path>, mut content: &[u8]) -> Result<PublishedWrite, GuardError> {
        let path = path.as_ref();
        self.publish("file", shown(path), |request| file::publish(request, path, &mut content, file::PATIENCE))
    }

    /// Replaces a directory by a copy of `source`: `path` is a link, and one rename switches it.
    ///
    /// # Errors
    ///
    /// As [`HeldLease::publish_file`].
    pub fn publish_tree(&self, source: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<PublishedWrite, GuardError> {
        let (source, path) = (source.as_ref(), path.as_ref());
        self.publish("tree", shown(path), |request| tree::publish(request, source, path, tree::Options::default()))
    }

    /// Pushes branches of a clone together with the fence, in one atomic push. A branch is `NAME` or `COMMIT:NAME`; none means
    /// the current one.
    ///
    /// # Errors
    ///
    /// As [`HeldLease::publish_file`].
    pub fn publish_git(
        &self,
        clone: impl AsRef<Path>,
        remote: &str,
        branches: &[&str],
    ) -> Result<PublishedWrite, GuardError> {
        self.check_held()?;
        let branches: Vec<String> = branches.iter().map(ToString::to_string).collect();
        let wish = Wish { remote, branches: &branches, ..Wish::default() };
        let commits = Outgoing::find(clone.as_ref(), &wish, &self.writer.job)?;
        self.publish("git", commits.resource(), |request| git::publish(request, &commits))
    }

    /// Sends content by PUT, with the fence headers of docs/publish/http.md.
    ///
    /// # Errors
    ///
    /// As [`HeldLease::publish_file`].
    pub fn publish_http(
        &self,
        url: &str,
        bearer: Option<&str>,
        content_type: &str,
        content: &[u8],
    ) -> Result<PublishedWrite, GuardError> {
        let url = EndpointUrl::new(url)?;
        let resource = url.shown();
        let endpoint = Endpoint {
            url,
            method: "PUT",
            resource: resource.clone(),
            content_type: content_type.to_string(),
            headers: Vec::new(),
            bearer: bearer.map(BearerToken::new).transpose()?,
            slot: Some(self.slot()),
            timeout: SILENCE,
        };
        self.publish("http", resource, |request| http::publish(request, &endpoint, &payload(content)?))
    }

    /// Runs statements and the check of the fence in one transaction: `postgres://user@host/database` or `sqlite:PATH`.
    ///
    /// # Errors
    ///
    /// As [`HeldLease::publish_file`].
    pub fn publish_sql(&self, url: &str, statements: &str) -> Result<PublishedWrite, GuardError> {
        let database = Database::parse(url)?.with_limit(SILENCE);
        self.publish("sql", database.resource(), |request| {
            sql::publish(request, &database, None, statements.as_bytes())
        })
    }

    /// Sets a key of a Redis server and its fence, in one script.
    ///
    /// # Errors
    ///
    /// As [`HeldLease::publish_file`].
    pub fn publish_redis(&self, url: &str, key: &str, value: &[u8]) -> Result<PublishedWrite, GuardError> {
        let server = RedisDestination::parse(url)?;
        self.publish("redis", format!("redis:{key}"), |request| redis::publish(request, &server, key, value))
    }

    /// Writes an object, `s3://BUCKET/KEY?OPTIONS`, behind a fence beside it.
    ///
    /// # Errors
    ///
    /// As [`HeldLease::publish_file`].
    pub fn publish_s3(&self, url: &str, content_type: &str, content: &[u8]) -> Result<PublishedWrite, GuardError> {
        let to = S3Destination::parse(url, SILENCE)?.with_header("content-type", content_type)?;
        self.publish("s3", to.shown(), |request| s3::publish(request, &to, &payload(content)?))
    }

    fn check_held(&self) -> Result<(), GuardError> {
        self.loss().map_or(Ok(()), |why| Err(GuardError::lost(&why)))
    }

    /// Makes a write, and reports it to the run, which records it with its end.
    fn publish(
        &self,
        kind: &str,
        resource: String,
        write: impl FnOnce(&WriteRequest) -> Result<Receipt, PublishError>,
    ) -> Result<PublishedWrite, GuardError> {
        self.check_held()?;
        let writer = self.writer.clone();
        let request =
            WriteRequest { writer, mode: WriteMode::Many, op: None, adopt: false, dry_run: false, if_digest: None };
        let written = write(&request);
        let judged = match &written {
            Ok(receipt) => Some((receipt.level, receipt.fence.token, None)),
            Err(PublishError::Refused { refused, level }) => {
                Some((*level, refused.seen.token, Some(refused.to_string())))
            }
            Err(_) => None,
        };
        if let Some((level, seen, refused)) = judged {
            let Writer { token, run, .. } = self.writer;
            let (kind, at) = (kind.to_string(), clock::wall_now());
            self.handle.say(Said::Published(Published { resource, kind, level, token, run, at, seen, refused }));
        }
        let Receipt { level, already_applied, remarks, .. } = written?;
        Ok(PublishedWrite { level, already_applied, remarks })
    }
}

/// The whole path, as the ledger shows it.
fn shown(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

fn payload(mut content: &[u8]) -> Result<Payload, PublishError> {
    Payload::of_stream(&mut content, UNLIMITED)
        .map_err(|error| PublishError::Failed(format!("Cannot copy the content: {error}; nothing was changed.")))
}
