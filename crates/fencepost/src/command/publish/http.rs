//! `fencepost publish http URL`: a fenced HTTP request.

use std::fs;

use fencepost_guard::publish::http::{self, BearerToken, Endpoint, EndpointUrl};
use fencepost_guard::publish::payload::UNLIMITED;

use super::{PublishDesk, PublishEnd, whole_payload};
use crate::args::publish::http::HttpOptions;
use crate::exit::Failure;
use crate::inside::variable;

pub fn write(desk: &PublishDesk<'_>, options: &HttpOptions) -> Result<PublishEnd, Failure> {
    let url = EndpointUrl::new(&options.url)?;
    let resource = options.common.resource.clone().unwrap_or_else(|| url.shown());
    let endpoint = Endpoint {
        url,
        method: options.method.as_str(),
        resource: resource.clone(),
        content_type: options.content_type.clone(),
        headers: options.header.iter().map(|header| split(header)).collect::<Result<_, _>>()?,
        bearer: bearer(options)?,
        slot: desk.slot.clone(),
        timeout: options.timeout,
    };
    desk.publish("http", resource, |request| {
        http::publish(request, &endpoint, &whole_payload(&options.payload, UNLIMITED)?)
    })
}

/// Reads the secret from a file or the environment, never from the command line.
fn bearer(options: &HttpOptions) -> Result<Option<BearerToken>, Failure> {
    let file = options.bearer_file.clone().or_else(|| variable("FENCEPOST_HTTP_BEARER_FILE").map(Into::into));
    let text = match (file, variable("FENCEPOST_HTTP_BEARER")) {
        (Some(path), _) => fs::read_to_string(&path).map(Some).map_err(|error| {
            Failure::Usage(format!("Cannot read the bearer token from {}: {error}", path.display()))
        })?,
        (None, text) => text,
    };
    text.map(|text| Ok(BearerToken::new(&text)?)).transpose()
}

fn split(header: &str) -> Result<(String, String), Failure> {
    match header.split_once(':') {
        Some((name, value)) => Ok((name.trim().to_string(), value.trim().to_string())),
        None => Err(Failure::Usage(format!("--header {header:?} has no colon; write it like 'Name: value'."))),
    }
}
