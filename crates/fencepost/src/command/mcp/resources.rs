//! The state of a job as a resource: `fencepost://job/NAME`.

use std::collections::BTreeSet;

use fencepost_core::name::Name;
use serde_json::{Map, Value, json};

use super::message::{INTERNAL_ERROR, RpcError};
use super::protocol::{ProtocolEra, no_resource};
use super::question::{ToolReply, ask, bounded};
use crate::args::Global;
use crate::command::all_jobs;
use crate::exit::Failure;
use crate::place::Place;

const PREFIX: &str = "fencepost://job/";
const TYPE: &str = "application/json";

/// The most jobs on one page of the list.
const PAGE: usize = 500;

/// Answers `resources/templates/list`.
pub fn templates() -> Value {
    json!({ "resourceTemplates": [{
        "uriTemplate": format!("{PREFIX}{{name}}"),
        "name": "job",
        "title": "State of a job",
        "description": "Who holds the job, how it last ended, when it is due: the answer of status for this job.",
        "mimeType": TYPE,
    }] })
}

/// Answers `resources/list`: the jobs of the configuration and of the store. A cursor is the last name of a page.
pub fn list(global: &Global, params: &Map<String, Value>) -> Result<Value, RpcError> {
    let after = match params.get("cursor") {
        None | Some(Value::Null) => None,
        Some(Value::String(cursor)) => {
            Some(Name::new(cursor).map_err(|_| RpcError::params("The cursor is not one that this server gave."))?)
        }
        Some(_) => return Err(RpcError::params("cursor is a string.")),
    };
    let global = global.clone();
    let names = bounded(move || names(&global)).map_err(|failure| internal(&failure))?;
    let mut rest = names.into_iter().filter(|name| after.as_ref().is_none_or(|after| name > after)).peekable();
    let page: Vec<Name> = rest.by_ref().take(PAGE).collect();
    let resource = |name: &Name| {
        json!({
            "uri": uri(name),
            "name": name.as_str(),
            "title": format!("State of {name}"),
            "mimeType": TYPE,
        })
    };
    let mut result = json!({ "resources": page.iter().map(resource).collect::<Vec<_>>() });
    if let (Some(last), Some(_)) = (page.last(), rest.peek()) {
        result["nextCursor"] = json!(last.as_str());
    }
    Ok(result)
}

/// Answers `resources/read`.
pub fn read(global: &Global, params: &Map<String, Value>, era: ProtocolEra) -> Result<Value, RpcError> {
    let Some(Value::String(uri)) = params.get("uri") else {
        return Err(RpcError::params("resources/read takes uri, which is a string."));
    };
    let shown: String = uri.chars().take(200).collect();
    let unknown = || RpcError {
        code: no_resource(era),
        message: format!("There is no such resource. A job's state is {PREFIX}NAME; resources/list has the names."),
        data: Some(json!({ "uri": shown })),
    };
    let name = uri.strip_prefix(PREFIX).and_then(decoded).and_then(|name| Name::new(&name).ok()).ok_or_else(unknown)?;
    let place = global.clone();
    if !bounded(move || names(&place)).map_err(|failure| internal(&failure))?.contains(&name) {
        return Err(unknown());
    }
    let reply = ask(global, &["status".to_string(), name.to_string()]);
    if reply.is_error {
        return Err(RpcError::new(INTERNAL_ERROR, reply.text.unwrap_or_default()));
    }
    let text = ToolReply::into_result(reply)["structuredContent"].to_string();
    Ok(json!({ "contents": [{ "uri": uri, "mimeType": TYPE, "text": text }] }))
}

fn names(global: &Global) -> Result<BTreeSet<Name>, Failure> {
    let place = Place::find(global)?;
    let store = place.open_to_read()?;
    let (jobs, _) = all_jobs(&place, store.as_ref())?;
    Ok(jobs.into_iter().map(|job| job.name).collect())
}

fn internal(failure: &Failure) -> RpcError {
    RpcError::new(INTERNAL_ERROR, failure.message())
}

/// The URI of a job. Names have few characters: only the slash and the colon have a meaning in a URI.
fn uri(name: &Name) -> String {
    format!("{PREFIX}{}", name.as_str().replace('/', "%2F").replace(':', "%3A"))
}

/// A name without percent-encoding.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_from_its_uri() {
        for name in ["a", "news/daily", "a:b-c_d.e"] {
            let uri = uri(&Name::new(name).unwrap());
            assert_eq!(decoded(uri.strip_prefix(PREFIX).unwrap()).as_deref(), Some(name), "{uri}");
        }
        assert_eq!(decoded("news/daily").as_deref(), Some("news/daily"));
        for wrong in ["%", "%2", "%zz", "%ff", "%+1"] {
            assert!(decoded(wrong).is_none_or(|name| Name::new(&name).is_err()), "{wrong}");
        }
    }
}
