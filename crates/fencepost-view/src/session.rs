//! The lines of `fencepost session`, version 1: requests of a program, answers to them, and events of its leases.

mod reply;
mod request;

pub use reply::{
    ErrorReply, GatedReply, GrantedReply, HaltedReply, HelloReply, JudgedReply, PublishedReply, RecordedReply,
    ReleasedReply, SessionAnswer, SessionEvent, SessionEventLine, SessionReply, SkippedReply,
};
pub use request::{
    ClaimRequest, GateRequest, HelloRequest, JudgeRequest, OnUnknownWord, OnceRequest, OutcomeWord, PublishRequest,
    RecordRequest, ReleaseRequest, RequestId, SessionRequest, SessionRequestLine,
};

/// The version of the protocol. Fields and words may be added within it; both sides ignore fields that they do not know.
pub const PROTOCOL: u32 = 1;
