//! `fencepost publish redis`: sets a key and its fence in one script.

use fencepost_guard::publish::redis::{self, RedisDestination, VALUE_BYTES_MAX};

use super::{PublishDesk, PublishEnd, TargetUrl, read_payload};
use crate::args::publish::RedisOptions;
use crate::exit::Failure;

pub fn write(desk: &PublishDesk<'_>, options: &RedisOptions) -> Result<PublishEnd, Failure> {
    let url = TargetUrl::find(options.url.as_ref(), "FENCEPOST_REDIS_URL", "redis://host:6379", desk.is_typed())?;
    let server = RedisDestination::parse(&url.url)?;
    desk.publish("redis", format!("redis:{}", options.key), |request| {
        let value = read_payload(&options.payload, VALUE_BYTES_MAX)?;
        url.warn(redis::publish(request, &server, &options.key, &value)?)
    })
}
