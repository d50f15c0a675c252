//! JSON-RPC 2.0 as the Model Context Protocol uses it: one message per line, no batches.

use fencepost_view::text::clean;
use serde_json::{Map, Value, json};

pub const PARSE_ERROR: i32 = -32700;
pub const INVALID_REQUEST: i32 = -32600;
pub const METHOD_NOT_FOUND: i32 = -32601;
pub const INVALID_PARAMS: i32 = -32602;
pub const INTERNAL_ERROR: i32 = -32603;

/// What the client sent.
#[derive(Debug, PartialEq)]
pub enum Message {
    Request(Request),
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// An answer to a request. This server makes none.
    Answer,
}

/// A request, which gets exactly one answer.
#[derive(Debug, PartialEq)]
pub struct Request {
    /// A string or a number.
    pub id: Value,
    pub method: String,
    pub params: Map<String, Value>,
}

/// An error of the protocol: the request is wrong, or the server cannot answer it.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    pub code: i32,
    pub message: String,
    pub data: Option<Value>,
}

impl RpcError {
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub fn params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }
}

/// A message that cannot be read, with the id that its answer gets.
#[derive(Debug, PartialEq)]
pub struct UnreadMessage {
    pub id: Value,
    pub error: RpcError,
}

/// Reads one message.
pub fn parse(line: &[u8]) -> Result<Message, UnreadMessage> {
    let unreadable = |id: Value, code, message: &str| UnreadMessage { id, error: RpcError::new(code, message) };
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| unreadable(Value::Null, PARSE_ERROR, &format!("This is not JSON: {error}")))?;
    let Value::Object(mut fields) = value else {
        let what = match value {
            Value::Array(_) => "Batches are not supported: send each message on a line of its own.",
            _ => "A message is a JSON object.",
        };
        return Err(unreadable(Value::Null, INVALID_REQUEST, what));
    };
    let id = fields.remove("id");
    let known = match &id {
        Some(id @ (Value::String(_) | Value::Number(_))) => id.clone(),
        _ => Value::Null,
    };
    let invalid = |what: &str| unreadable(known.clone(), INVALID_REQUEST, what);
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(invalid("A message has \"jsonrpc\": \"2.0\"."));
    }
    let method = match fields.remove("method") {
        Some(Value::String(method)) => method,
        None if fields.contains_key("result") || fields.contains_key("error") => return Ok(Message::Answer),
        _ => return Err(invalid("A request has a method, which is a string.")),
    };
    let params = match fields.remove("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(unreadable(known, INVALID_PARAMS, "params is an object.")),
    };
    match id {
        None => Ok(Message::Notification { method, params }),
        Some(id @ (Value::String(_) | Value::Number(_))) => Ok(Message::Request(Request { id, method, params })),
        Some(_) => Err(invalid("An id is a string or a number.")),
    }
}

/// The answer to a request.
pub fn answer(id: Value, result: Result<Value, RpcError>) -> Value {
    match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(RpcError { code, message, data }) => {
            // It may quote the store or the client.
            let mut error = json!({ "code": code, "message": clean(&message) });
            if let Some(data) = data {
                error["data"] = data;
            }
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> (Value, i32) {
        let wrong = parse(text.as_bytes()).expect_err(text);
        (wrong.id, wrong.error.code)
    }

    #[test]
    fn messages_are_requests_notifications_or_answers() {
        let Ok(Message::Request(request)) = parse(br#"{"jsonrpc":"2.0","id":"a","method":"ping","params":null}"#)
        else {
            panic!("it is a request")
        };
        assert_eq!((request.id, request.method.as_str(), request.params.len()), (json!("a"), "ping", 0));
        let told = parse(br#"{"jsonrpc":"2.0","method":"x","params":{"a":1}}"#);
        assert!(matches!(told, Ok(Message::Notification { .. })), "{told:?}");
        assert_eq!(parse(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#), Ok(Message::Answer));
    }

    #[test]
    fn what_is_no_message_gets_the_error_of_json_rpc() {
        assert_eq!(code("{"), (Value::Null, PARSE_ERROR));
        assert_eq!(code("\u{0}"), (Value::Null, PARSE_ERROR));
        assert_eq!(code(&"[".repeat(100_000)), (Value::Null, PARSE_ERROR));
        assert_eq!(code("[]"), (Value::Null, INVALID_REQUEST));
        assert_eq!(code(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#), (Value::Null, INVALID_REQUEST));
        assert_eq!(code("3"), (Value::Null, INVALID_REQUEST));
        assert_eq!(code(r#"{"id":1,"method":"ping"}"#), (json!(1), INVALID_REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1}"#), (json!(1), INVALID_REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#), (Value::Null, INVALID_REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#), (Value::Null, INVALID_REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":7}"#), (json!(1), INVALID_REQUEST));
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#), (json!(1), INVALID_PARAMS));
    }
}
