//! The server: reads requests from standard input, and writes an answer to each on standard output.
//!
//! One thread reads. What asks a store or starts a process runs on a thread of its own, so a store that hangs delays no other
//! answer. The order of the answers is free.

use std::collections::HashMap;
use std::io::{self, BufReader, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::message::{self, INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, Message, Request, RpcError};
use super::protocol::{self, CacheHint, ProtocolEra};
use super::tools::{self, Tool, ToolEffect};
use super::{arguments, order, question, resources, run_now};
use crate::args::Global;
use crate::exit::{Code, Failure};
use crate::lines::{LINE_BYTES_MAX, Line, read_line};

/// The most calls at once. While they go on, no further request is read.
const CALLS_MAX: usize = 16;

/// How long the calls in progress may take after the input has ended.
const FAREWELL: Duration = Duration::from_secs(10);

/// What the server offers.
#[derive(Debug)]
pub struct McpService {
    pub global: Global,
    pub allow_writes: bool,
}

/// Serves until the input ends, or the client stops reading.
pub fn serve(service: McpService) -> Result<Code, Failure> {
    let mut server = Server { service: Arc::new(service), calls: Arc::default(), is_open: false };
    let mut input = BufReader::with_capacity(64 * 1024, io::stdin().lock());
    loop {
        let line =
            read_line(&mut input).map_err(|error| Failure::Other(format!("Cannot read standard input: {error}")))?;
        let written = match line {
            Line::End => break,
            Line::TooLong => {
                let what = format!("A message may have {LINE_BYTES_MAX} bytes.");
                write(&message::answer(Value::Null, Err(RpcError::new(INVALID_REQUEST, what))))
            }
            Line::Whole(line) if line.trim_ascii().is_empty() => Ok(()),
            Line::Whole(line) => server.take(&line),
        };
        if written.is_err() {
            break;
        }
    }
    server.calls.finish(FAREWELL);
    Ok(Code::DONE)
}

struct Server {
    service: Arc<McpService>,
    calls: Arc<Calls>,
    /// `initialize` has opened a session.
    is_open: bool,
}

/// What computes an answer on a thread of its own.
type Call = Box<dyn FnOnce(&McpService) -> Result<Value, RpcError> + Send>;

/// What is done for a request.
enum Work {
    /// The answer is there.
    Done(Result<Value, RpcError>, CacheHint),
    /// It takes a while.
    Later(Call, CacheHint),
}

impl Server {
    /// Takes a line. Fails if the client does not read any more.
    fn take(&mut self, line: &[u8]) -> io::Result<()> {
        let request = match message::parse(line) {
            Ok(Message::Request(request)) => request,
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled"
                    && let Some(id) = params.get("requestId")
                {
                    self.calls.cancel(id);
                }
                return Ok(());
            }
            Ok(Message::Answer) => return Ok(()),
            Err(wrong) => return write(&message::answer(wrong.id, Err(wrong.error))),
        };
        let Request { id, method, params } = request;
        let (era, work) = match self.era(&method, &params) {
            Ok(era) => (era, self.work(&method, params, era)),
            Err(error) => (ProtocolEra::Session, Work::Done(Err(error), CacheHint::Absent)),
        };
        match work {
            Work::Done(result, hint) => {
                write(&message::answer(id, result.map(|result| protocol::finished(result, era, hint))))
            }
            Work::Later(call, hint) => self.start(id, era, call, hint),
        }
    }

    fn era(&self, method: &str, params: &Map<String, Value>) -> Result<ProtocolEra, RpcError> {
        match (method, protocol::era(params, self.is_open)) {
            ("initialize", _) => Ok(ProtocolEra::Session),
            // Both work before a session: they find out whether the server is there, and what it speaks.
            ("ping", Err(_)) if !params.contains_key("_meta") => Ok(ProtocolEra::Session),
            ("server/discover", Err(_)) if !params.contains_key("_meta") => Ok(ProtocolEra::Stateless),
            (_, era) => era,
        }
    }

    fn work(&mut self, method: &str, params: Map<String, Value>, era: ProtocolEra) -> Work {
        match (method, era) {
            ("initialize", _) => {
                let result = protocol::initialize(&params);
                self.is_open |= result.is_ok();
                Work::Done(result, CacheHint::Absent)
            }
            // There is no session to keep alive without one.
            ("ping", ProtocolEra::Session) => Work::Done(Ok(json!({})), CacheHint::Absent),
            // It is answered in its own form in any session.
            ("server/discover", _) => Work::Done(
                Ok(protocol::finished(protocol::discover(), ProtocolEra::Stateless, CacheHint::Fixed)),
                CacheHint::Fixed,
            ),
            ("tools/list", _) => Work::Done(self.tools(&params), CacheHint::Fixed),
            ("tools/call", _) => match self.tool(params) {
                Ok((tool, given)) => {
                    Work::Later(Box::new(move |service| call(service, tool, &given)), CacheHint::Absent)
                }
                Err(error) => Work::Done(Err(error), CacheHint::Absent),
            },
            ("resources/templates/list", _) => Work::Done(Ok(resources::templates()), CacheHint::Fixed),
            ("resources/list", _) => {
                Work::Later(Box::new(move |service| resources::list(&service.global, &params)), CacheHint::Stale)
            }
            ("resources/read", _) => {
                Work::Later(Box::new(move |service| resources::read(&service.global, &params, era)), CacheHint::Stale)
            }
            _ => {
                let name: String = method.chars().take(100).collect();
                let error = RpcError::new(METHOD_NOT_FOUND, format!("There is no method {name:?}."));
                Work::Done(Err(error), CacheHint::Absent)
            }
        }
    }

    fn tools(&self, params: &Map<String, Value>) -> Result<Value, RpcError> {
        match params.get("cursor") {
            None | Some(Value::Null) => Ok(tools::list(self.service.allow_writes)),
            Some(_) => Err(RpcError::params("The cursor is not one that this server gave.")),
        }
    }

    /// The tool that a call names, and its arguments.
    fn tool(&self, mut params: Map<String, Value>) -> Result<(&'static Tool, Map<String, Value>), RpcError> {
        let Some(Value::String(name)) = params.get("name") else {
            return Err(RpcError::params("tools/call takes name, which is a string."));
        };
        let shown: String = name.chars().take(100).collect();
        let tool = tools::find(name).ok_or_else(|| {
            let known: Vec<&str> = tools::offered(self.service.allow_writes).map(|tool| tool.name).collect();
            RpcError::params(format!("Unknown tool: {shown}. There are: {}.", known.join(", ")))
        })?;
        if tool.effect != ToolEffect::Nothing && !self.service.allow_writes {
            return Err(RpcError::params(format!(
                "Unknown tool: {shown}. It writes, and this server only reads. A person can allow it: fencepost mcp --allow-writes"
            )));
        }
        let given = match params.remove("arguments") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(given)) => given,
            Some(_) => return Err(RpcError::params("arguments is an object.")),
        };
        arguments::check(tool, &given)?;
        Ok((tool, given))
    }

    /// Makes a call on a thread of its own.
    fn start(&self, id: Value, era: ProtocolEra, call: Call, hint: CacheHint) -> io::Result<()> {
        let (service, calls) = (Arc::clone(&self.service), Arc::clone(&self.calls));
        let number = self.calls.begin(&id);
        let answered = id.clone();
        let spawned = std::thread::Builder::new().spawn(move || {
            let result = call(&service).map(|result| protocol::finished(result, era, hint));
            if calls.is_wanted(number) {
                let _ = write(&message::answer(answered, result));
            }
            calls.end(number);
        });
        if let Err(error) = spawned {
            self.calls.end(number);
            let error = RpcError::new(INTERNAL_ERROR, format!("Cannot start a thread: {error}. Try again later."));
            return write(&message::answer(id, Err(error)));
        }
        Ok(())
    }
}

/// Carries out `tools/call`.
fn call(service: &McpService, tool: &Tool, given: &Map<String, Value>) -> Result<Value, RpcError> {
    let reply = match (tool.effect, tool.name) {
        (ToolEffect::Nothing, _) => question::ask(&service.global, &arguments::words(tool, given)),
        (_, "run_now") => run_now::call(&service.global, given),
        _ => order::give(&service.global, tool, given)?,
    };
    Ok(reply.into_result())
}

/// Writes a message as one line. What a terminal would obey is escaped.
fn write(message: &Value) -> io::Result<()> {
    let mut line = crate::show::escaped(message.to_string());
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}

/// The calls in progress.
#[derive(Default)]
struct Calls {
    going: Mutex<Going>,
    changed: Condvar,
}

#[derive(Default)]
struct Going {
    next: u64,
    /// The id of each call; none if the client cancelled it.
    ids: HashMap<u64, Option<Value>>,
}

impl Calls {
    /// Waits until there is room for another call.
    fn begin(&self, id: &Value) -> u64 {
        let mut going = self.going();
        while going.ids.len() >= CALLS_MAX {
            going = self.changed.wait(going).unwrap_or_else(PoisonError::into_inner);
        }
        let number = going.next;
        going.next += 1;
        going.ids.insert(number, Some(id.clone()));
        number
    }

    fn end(&self, number: u64) {
        self.going().ids.remove(&number);
        self.changed.notify_all();
    }

    /// Notes that the client does not want the answer any more. What was begun goes on.
    fn cancel(&self, id: &Value) {
        self.going().ids.values_mut().filter(|known| known.as_ref() == Some(id)).for_each(|known| *known = None);
    }

    fn is_wanted(&self, number: u64) -> bool {
        self.going().ids.get(&number).is_some_and(Option::is_some)
    }

    /// Waits for the calls in progress, for a limited time.
    fn finish(&self, patience: Duration) {
        let going = self.going();
        let _ = self.changed.wait_timeout_while(going, patience, |going| !going.ids.is_empty());
    }

    fn going(&self) -> MutexGuard<'_, Going> {
        self.going.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
