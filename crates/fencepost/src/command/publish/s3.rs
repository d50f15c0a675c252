//! `fencepost publish s3`: an object, behind a fence beside it.

use fencepost_guard::publish::s3::{self, OBJECT_BYTES_MAX, S3Destination};

use super::{PublishDesk, PublishEnd, whole_payload};
use crate::args::publish::s3::S3Options;
use crate::exit::Failure;

pub fn write(desk: &PublishDesk<'_>, options: &S3Options) -> Result<PublishEnd, Failure> {
    let mut to =
        S3Destination::parse(&options.url, options.timeout)?.with_header("content-type", &options.content_type)?;
    if let Some(value) = &options.cache_control {
        to = to.with_header("cache-control", value)?;
    }
    for pair in &options.metadata {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Failure::Usage(format!("--metadata {pair:?} has no =; write it like NAME=VALUE.")));
        };
        to = to.with_metadata(name, value)?;
    }
    let payload = || whole_payload(&options.payload, OBJECT_BYTES_MAX);
    desk.publish("s3", to.shown(), |request| s3::publish(request, &to, &payload()?))
}
