//! `fencepost publish redis`: a key and its fence, set by one script.

use fencepost_guard::publish::PublishError;
use fencepost_guard::publish::redis::{self, Server, VALUE_BYTES_MAX};

use super::{Desk, exposed, read_payload, target_url};
use crate::args::Global;
use crate::args::publish::RedisOptions;
use crate::exit::{Code, Failure};

const VARIABLE: &str = "FENCEPOST_REDIS_URL";

pub fn run(global: &Global, options: &RedisOptions) -> Result<Code, Failure> {
    let url = target_url(options.url.as_ref(), VARIABLE, "redis://host:6379")?;
    let server = Server::parse(&url).map_err(|error| Failure::Usage(error.to_string()))?;
    Desk::open(global, &options.common)?.publish("redis", format!("redis:{}", options.key), |request| {
        let value = read_payload(&options.payload, VALUE_BYTES_MAX)?;
        let mut receipt = redis::publish(request, &server, &options.key, &value)?;
        receipt.remarks.extend(exposed(options.url.as_ref(), VARIABLE));
        Ok::<_, PublishError>(receipt)
    })
}
