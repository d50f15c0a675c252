//! `/openapi.json`: the API as programs read it, generated from the table of places and from the schema of the answers.

use std::sync::OnceLock;

use fencepost_view::schema::schema;
use fencepost_web::JobAction;
use hyper::body::Bytes;
use serde_json::{Map, Value, json};

use super::actions::{answer_of, fields_of};
use super::routes::{Needs, ROUTES, Route, RouteEndpoint};
use crate::command::mcp::arguments::{Parameter, Spot, schema as parameters_schema};
use crate::command::mcp::tools::{self, Tool};

/// The description, which stays the same while the server runs. With `is_open`, reading needs no token.
pub fn document(is_open: bool) -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    DOCUMENT.get_or_init(|| Bytes::from(description(is_open).to_string())).clone()
}

fn description(is_open: bool) -> Value {
    let whole = schema();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        if let Some(operation) = operation(route, &whole["answers"]) {
            let methods = paths.entry(route.path).or_insert_with(|| json!({}));
            methods[route.method.as_str().to_ascii_lowercase()] = operation;
        }
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "fencepost serve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The answers of fencepost --json over HTTP.",
        },
        "paths": paths,
        "components": {
            "schemas": whole["$defs"],
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": if is_open { json!([{}, { "token": [] }]) } else { json!([{ "token": [] }]) },
    });
    relocate(&mut document);
    document
}

/// One place, or nothing for pages and for what only browsers use.
fn operation(route: &Route, answers: &Value) -> Option<Value> {
    let (kind, body) = content(route.endpoint, answers)?;
    let mut parameters = Vec::new();
    if route.path.contains("{job}") {
        let about = "The job's name; a slash in it is written as %2F";
        let schema = json!({ "type": "string", "minLength": 1 });
        parameters
            .push(json!({ "name": "job", "in": "path", "required": true, "description": about, "schema": schema }));
    }
    parameters.extend(query(route.endpoint));
    let mut responses = json!({ "200": { "description": route.about, "content": { kind: { "schema": body } } } });
    for (status, what) in failures(route) {
        let content = match route.endpoint {
            // A caller that is refused is told so before the place is known.
            RouteEndpoint::StatusLine => json!({
                "text/plain": { "schema": { "type": "string" } },
                "application/json": { "schema": answers["error"] },
            }),
            _ => json!({ "application/json": { "schema": answers["error"] } }),
        };
        responses[status] = json!({ "description": what, "content": content });
    }
    if route.method == hyper::Method::GET && kind == "application/json" {
        responses["304"] = json!({ "description": "Nothing has changed since the answer with this ETag" });
    }
    let mut operation = json!({ "summary": route.about, "parameters": parameters, "responses": responses });
    if route.needs == Needs::Nothing {
        operation["security"] = json!([]);
    }
    if matches!(route.needs, Needs::Token | Needs::Action) {
        operation["security"] = json!([{ "token": [] }]);
    }
    if let RouteEndpoint::Action(action) = route.endpoint {
        operation["requestBody"] = form(action);
    }
    Some(operation)
}

/// The type and the schema of what a place answers.
fn content(endpoint: RouteEndpoint, answers: &Value) -> Option<(&'static str, Value)> {
    let json_of = |names: &[&str]| match names {
        [name] => Some(("application/json", answers[*name].clone())),
        names => {
            let any: Vec<&Value> = names.iter().map(|name| &answers[*name]).collect();
            Some(("application/json", json!({ "anyOf": any })))
        }
    };
    let text = |kind| Some((kind, json!({ "type": "string" })));
    match endpoint {
        RouteEndpoint::Status | RouteEndpoint::Job => json_of(&["status"]),
        RouteEndpoint::Overdue => json_of(&["overdue"]),
        RouteEndpoint::Graph => json_of(&["graph"]),
        RouteEndpoint::Store => json_of(&["store, as a server sees it"]),
        RouteEndpoint::Question(name) => json_of(tools::find(name)?.answers),
        RouteEndpoint::Action(action) => json_of(&[answer_of(action)]),
        RouteEndpoint::OpenApi => Some(("application/json", json!({ "type": "object" }))),
        RouteEndpoint::Health | RouteEndpoint::StatusLine | RouteEndpoint::Metrics => text("text/plain"),
        RouteEndpoint::Events => text("text/event-stream"),
        RouteEndpoint::Page(_)
        | RouteEndpoint::Asset
        | RouteEndpoint::SignInPage
        | RouteEndpoint::SignIn
        | RouteEndpoint::SignOut => None,
    }
}

fn query(endpoint: RouteEndpoint) -> Vec<Value> {
    let cursor =
        |about: &str| json!({ "name": "cursor", "in": "query", "description": about, "schema": { "type": "string" } });
    let next = "Where a part of a long list begins, from the Link header of the part before";
    match endpoint {
        RouteEndpoint::Status => {
            let schema = json!({ "type": "integer", "minimum": 1, "maximum": 10_000 });
            let about = "At most this many jobs";
            vec![json!({ "name": "limit", "in": "query", "description": about, "schema": schema }), cursor(next)]
        }
        RouteEndpoint::Question(name) => {
            let own = (name == "runs").then(|| cursor(next));
            tools::find(name).into_iter().flat_map(of_tool).chain(own).collect()
        }
        _ => Vec::new(),
    }
}

/// The parameters of a question, besides the job in the path.
fn of_tool(tool: &'static Tool) -> impl Iterator<Item = Value> {
    let schema = parameters_schema(tool);
    let is_asked = |parameter: &&Parameter| parameter.name != "job" && !matches!(parameter.spot, Spot::Own);
    tool.parameters.iter().filter(is_asked).map(move |parameter| {
        let mut schema = schema["properties"][parameter.name].clone();
        if parameter.kind.is_list() {
            schema["maxItems"] = json!(20);
        }
        json!({ "name": parameter.name, "in": "query", "description": parameter.about, "schema": schema })
    })
}

fn form(action: JobAction) -> Value {
    let fields: Map<String, Value> =
        fields_of(action).iter().map(|field| ((*field).to_string(), json!({ "type": "string" }))).collect();
    let schema = json!({ "type": "object", "properties": fields, "additionalProperties": false });
    json!({ "content": { "application/x-www-form-urlencoded": { "schema": schema } } })
}

/// What can go wrong at a place.
fn failures(route: &Route) -> Vec<(&'static str, &'static str)> {
    let mut all = vec![("403", "A foreign host or page, or an action that is not allowed")];
    if route.endpoint == RouteEndpoint::Health {
        return all;
    }
    all.push(("400", "A parameter is wrong"));
    all.push(("401", "There is no token, or it is wrong"));
    if route.path.contains("{job}") {
        all.push(("404", "The job is not known"));
    }
    if route.needs == Needs::Action {
        all.extend([("409", "Another holds the job"), ("413", "The form is too long"), ("415", "The body is no form")]);
    }
    all.push(("503", "The store cannot be read now, or the job needs attention"));
    all
}

/// Points references to where the types stand in this document, and removes the formats that validators do not know.
fn relocate(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get_mut("$ref") {
                *target = target.replace("#/$defs/", "#/components/schemas/");
            }
            let is_number =
                |format: &str| ["uint", "int", "float", "double"].iter().any(|kind| format.starts_with(kind));
            if fields.get("format").and_then(Value::as_str).is_some_and(is_number) {
                fields.remove("format");
            }
            fields.values_mut().for_each(relocate);
        }
        Value::Array(items) => items.iter_mut().for_each(relocate),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere_and_every_place_of_the_api_is_there() {
        let document = description(true);
        let text = document.to_string();
        assert!(!text.contains("#/$defs/"));
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
        for route in ROUTES.iter().filter(|route| route.path.starts_with("/api/")) {
            let operation = &document["paths"][route.path][route.method.as_str().to_ascii_lowercase()];
            let content = operation["responses"]["200"]["content"].as_object().expect(route.path);
            let schema = content.values().next().map(|content| content["schema"].to_string()).unwrap_or_default();
            // An answer that the schema does not list would be null.
            assert!(schema.contains("#/components/schemas/") || schema.contains("string"), "{}: {schema}", route.path);
            assert!(!schema.contains("null"), "{}: {schema}", route.path);
        }
        assert_eq!(document["security"][0], json!({}));
    }
}
