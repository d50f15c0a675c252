//! What a program asks of its session.

use std::fmt;

use fencepost_core::contract::Word;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The id of a request: its answer repeats it. The id of a claim also names the lease in later requests and in events.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RequestId {
    Number(u64),
    Text(String),
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// One line of a program.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionRequestLine {
    pub id: RequestId,
    #[serde(flatten)]
    pub request: SessionRequest,
}

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum SessionRequest {
    Hello(HelloRequest),
    Claim(Box<ClaimRequest>),
    Once(Box<OnceRequest>),
    Publish(Box<PublishRequest>),
    Record(RecordRequest),
    Release(ReleaseRequest),
    Gate(GateRequest),
    Judge(JudgeRequest),
}

/// Declares a request: first the fields that it must have, then those that it may have.
macro_rules! request {
    (
        $(#[$meta:meta])*
        $name:ident {
            $($(#[doc = $about:literal])* $field:ident: $type:ty,)* ;
            $($(#[doc = $optional_about:literal])* $optional:ident: $optional_type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
        pub struct $name {
            $($(#[doc = $about])* pub $field: $type,)*
            $(
                $(#[doc = $optional_about])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $optional: Option<$optional_type>,
            )*
        }
    };
}

request! {
    /// Asks for the versions. A program sends it first.
    HelloRequest {
        ;
        /// The program and its version, for people.
        client: String,
    }
}

request! {
    /// Claims the lease of a job, checks its upstreams, and renews the lease until `release` or the end of input.
    ///
    /// The fields below `job` are the keys of `fencepost.toml`. They take precedence over the configuration.
    ClaimRequest {
        /// The job's name: the same on every machine that may do it.
        job: String,
        ;
        /// Claim now, for the current slot or before the time of the next, which does not run again then.
        now: bool,
        /// Repeat the newest slot, or the one of `slot`, although it is done.
        again: bool,
        /// How long the lease lasts without a renewal, such as "10m".
        ttl: String,
        /// How long the program has to end once it is asked to stop, or before its lease is lost.
        grace: String,
        /// Ask the program to stop if it works longer.
        timeout: String,
        /// How long to wait for the lease if another run holds it.
        wait: String,
        /// What to do while another run holds the lease: "skip" or "replace".
        overlap: String,
        /// The job is each host's own.
        per_host: bool,
        /// When the job is due, in cron's notation or as "every 45m".
        schedule: String,
        /// The job is due this often.
        every: String,
        /// The time zone of the schedule and of the days that count, by its IANA name.
        timezone: String,
        /// The slot: "day", "hour", "minute", an instant or a local time.
        slot: String,
        /// How late a claim may come and be on time.
        slack: String,
        /// How many attempts a slot has after its first.
        retries: u32,
        /// What to do about a slot whose run died: "rerun" or "skip".
        on_lost: String,
        /// After a gap, grant at most this many of the newest slots, one per claim.
        catch_up: u32,
        /// No slot older than this is caught up.
        catch_up_within: String,
        /// Whether each missed slot is granted, or one grant covers the gap: "each" or "collapse".
        catch_up_mode: String,
        /// Which missed slot is granted first.
        catch_up_order: String,
        /// The upstreams: NAME[@RULE][,artifact=PATH][,on-empty=proceed].
        needs: Vec<String>,
        /// How long to wait for upstreams that are not good yet.
        needs_wait: String,
        /// The files that the work leaves: PATH[,min-bytes=N].
        produces: Vec<String>,
        /// Say so when this many good runs in a row have left the same bytes.
        stuck_after: u32,
        /// A release without an outcome ends as an error.
        must_record: bool,
    }
}

/// What to do about an item whose last attempt may have had its effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknownWord {
    /// Answer with an error.
    #[default]
    Halt,
    /// Do it again.
    Retry,
}

request! {
    /// Claims an item of work that is done once. `release` ends it: exit code 0 is done for good, 1 to 128 failed without an
    /// effect, any other leaves it unknown.
    OnceRequest {
        /// The item of work: the same for every attempt at it, and for nothing else.
        key: String,
        ;
        /// What it is done with: the same key with another text is refused.
        params: String,
        on_unknown: OnUnknownWord,
        /// Retry, if no attempt has begun after the one with this token: the program has seen that it had no effect.
        retry_after: u64,
        ttl: String,
        grace: String,
        timeout: String,
        wait: String,
    }
}

request! {
    /// Writes under the token of a lease, as `fencepost publish` does.
    PublishRequest {
        /// The id of the claim.
        claim: RequestId,
        /// The target: "file", "tree", "git", "http", "sql", "redis" or "s3".
        kind: String,
        ;
        /// For `file` and `tree`: where it is published.
        path: String,
        /// For `tree`: the directory to publish.
        source: String,
        /// For `file`, `http`, `sql`, `redis` and `s3`: the content.
        data: String,
        /// The file that holds the content, in place of `data`.
        from: String,
        /// For `http`, `sql`, `redis` and `s3`: where it is published.
        url: String,
        /// For `redis`: the key.
        key: String,
        /// For `git`: the clone, the remote and the branches.
        repo: String,
        remote: String,
        branch: Vec<String>,
        rebase: bool,
        /// For `http` and `s3`: what the content is.
        content_type: String,
        /// For `s3`.
        cache_control: String,
        metadata: Vec<String>,
        /// For `http`.
        method: String,
        header: Vec<String>,
        bearer_file: String,
        /// For `tree`: how many old versions are kept.
        keep: u32,
        /// For `git`, `http` and `sql`: how long the write may take.
        timeout: String,
        /// For `file` and `tree`: how long to wait for another write to the same place.
        wait: String,
        /// How often one token may write: "many" or "once".
        mode: String,
        /// The operation's name: the same name under the same token is the same write.
        op: String,
        /// What `status` calls the target.
        resource: String,
        /// Take the target over from another store or job.
        adopt: bool,
        /// Say whether it would be accepted, and touch nothing.
        dry_run: bool,
        /// Write only content with this digest.
        if_digest: String,
    }
}

/// How work ended, in the program's own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeWord {
    Ok,
    /// There was nothing to do.
    Empty,
    Error,
}

impl From<OutcomeWord> for Word {
    fn from(word: OutcomeWord) -> Self {
        match word {
            OutcomeWord::Ok => Self::Ok,
            OutcomeWord::Empty => Self::Empty,
            OutcomeWord::Error => Self::Error,
        }
    }
}

request! {
    /// States the outcome of a lease, which `release` records; or records an outcome of a job by hand.
    RecordRequest {
        outcome: OutcomeWord,
        ;
        /// The id of the claim.
        claim: RequestId,
        /// The job, for a record by hand.
        job: String,
        /// Why, in words.
        note: String,
        /// Files that the work left.
        artifacts: Vec<String>,
        /// By hand: the slot, as an instant or a local time.
        slot: String,
        /// By hand: the day it was for.
        date: String,
        timezone: String,
        per_host: bool,
    }
}

request! {
    /// Ends the work: records how, and releases the lease, in one swap.
    ReleaseRequest {
        /// The id of the claim.
        claim: RequestId,
        ;
        /// How it ended (default: as `record` said, or by the exit code).
        outcome: OutcomeWord,
        /// The exit code (default: 0, and 1 with the outcome `error`).
        exit_code: u8,
        note: String,
        artifacts: Vec<String>,
    }
}

request! {
    /// Asks whether upstreams are good, as `fencepost gate` does.
    GateRequest {
        /// The upstreams: NAME[@RULE][,artifact=PATH][,on-empty=proceed].
        upstreams: Vec<String>,
        ;
        /// The lease whose slot asks, and whose end records what was let through.
        claim: RequestId,
        slot: String,
        date: String,
        timezone: String,
        /// How long to wait for upstreams that are not good yet.
        wait: String,
        on_empty_proceed: bool,
    }
}

request! {
    /// Judges a write in a transaction of the program: the program reads the fence in the transaction, writes the one that the
    /// answer holds, and commits.
    JudgeRequest {
        /// The id of the claim.
        claim: RequestId,
        /// The name of what is written, for the record of a refusal.
        resource: String,
        ;
        /// The fence as it was read; absent or null if there is none yet.
        fence: String,
        /// The digest of the write, as "sha256:…".
        digest: String,
        /// How often one token may write: "many" or "once".
        mode: String,
        /// The operation's name.
        op: String,
        /// Take the resource over from another store or job.
        adopt: bool,
    }
}
