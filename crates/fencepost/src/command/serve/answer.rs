//! From a request to its answer: who asks, which place, what it says.

use fencepost_view::ReasonCode;
use fencepost_view::status::StatusAnswer;
use fencepost_web::{JobAction, path};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, StatusCode, Uri};

use super::access::Caller;
use super::actions;
use super::poller::{BoardLook, TimedBoard};
use super::question::{self, Parameters};
use super::reply::{self, ServeReply};
use super::routes::{self, Needs, Route, RouteEndpoint, RouteMatch};
use super::{Server, events, form, openapi, pages, status_line};

/// The most jobs that a list of jobs has, if it is asked for in parts.
const JOBS_MAX: usize = 10_000;

const NO_ANSWER_YET: &str = "The store has not answered yet. Ask again in a moment.";

pub async fn answer(server: &Server, request: Request<Incoming>) -> ServeReply {
    if let Err(foreign) = server.access.check_origin(request.headers()) {
        return reply::error(StatusCode::FORBIDDEN, ReasonCode::Refused, foreign.message());
    }
    let caller = server.access.caller(request.headers());
    if let Some(share) = server.share.as_ref().filter(|_| request.uri().path().starts_with("/v1/")) {
        return share.answer(&caller, request).await;
    }
    let (route, job) = match routes::find(request.method(), request.uri().path()) {
        RouteMatch::Route(route, job) => (route, job),
        RouteMatch::OtherMethod(methods) => {
            let allowed: Vec<&str> = methods.iter().map(|method| method.as_str()).collect();
            let reply =
                reply::error(StatusCode::METHOD_NOT_ALLOWED, ReasonCode::Usage, "This place takes another method.");
            return reply::with_header(reply, header::ALLOW, &allowed.join(", "));
        }
        RouteMatch::Nothing => {
            return reply::error(StatusCode::NOT_FOUND, ReasonCode::Usage, "There is nothing at this path.");
        }
    };
    if let Some(refused) = refused(server, route, &caller, request.uri()) {
        return refused;
    }
    let (head, body) = request.into_parts();
    let query = head.uri.query().unwrap_or_default();
    let parameters = match (Parameters::parse(query), route.endpoint) {
        // A page shows what is wrong with its parameters.
        (_, RouteEndpoint::Page(_) | RouteEndpoint::SignInPage) => Parameters::default(),
        (Ok(parameters), _) => parameters,
        (Err(why), _) => return reply::bad_request(&why),
    };
    let asked = ServeRequest { server, caller: &caller, headers: &head.headers, job: job.as_deref(), parameters };
    match route.method {
        Method::POST => asked.order(route.endpoint, body).await,
        _ => match route.endpoint {
            RouteEndpoint::Page(page) => pages::answer(&asked, page, query).await,
            RouteEndpoint::SignInPage => pages::sign_in(query),
            RouteEndpoint::Asset => pages::asset(head.uri.path()),
            endpoint => asked.endpoint(endpoint).await,
        },
    }
}

/// Refuses a caller that may not ask here.
fn refused(server: &Server, route: &Route, caller: &Caller, asked: &Uri) -> Option<ServeReply> {
    let is_allowed = match route.needs {
        Needs::Nothing => true,
        Needs::Reading => server.access.is_open || caller.client().is_some(),
        Needs::Token | Needs::Action => caller.client().is_some(),
    };
    if route.needs == Needs::Action && !server.terms.allow_actions {
        let message = "This server only reads. Start it with --allow-actions and a token.";
        return Some(reply::error(StatusCode::FORBIDDEN, ReasonCode::Refused, message));
    }
    if is_allowed {
        return None;
    }
    if matches!(route.endpoint, RouteEndpoint::Page(_)) {
        let next = asked.path_and_query().map_or(path::OVERVIEW, |path| path.as_str());
        return Some(form::see_other(&format!("{}?{}={}", path::LOGIN, path::NEXT_FIELD, path::segment(next))));
    }
    let message = match server.access.has_tokens() {
        true => "This needs a token: send it as Authorization: Bearer TOKEN.",
        false => "This needs a token, and the server was started without one. Start it with --token-file FILE.",
    };
    let reply = reply::error(StatusCode::UNAUTHORIZED, ReasonCode::Refused, message);
    Some(reply::with_header(reply, header::WWW_AUTHENTICATE, "Bearer realm=\"fencepost\""))
}

/// A request that may be answered.
pub struct ServeRequest<'a> {
    pub server: &'a Server,
    pub caller: &'a Caller,
    pub headers: &'a HeaderMap,
    pub job: Option<&'a str>,
    pub parameters: Parameters,
}

impl ServeRequest<'_> {
    async fn endpoint(self, endpoint: RouteEndpoint) -> ServeReply {
        match endpoint {
            RouteEndpoint::Health => reply::text(StatusCode::OK, "ok\n"),
            RouteEndpoint::Status => self.status().await,
            RouteEndpoint::Job => self.one_job().await,
            RouteEndpoint::Overdue => self.of_board(|board| reply::json_bytes(&board.board.overdue)).await,
            RouteEndpoint::Graph => self.of_board(|board| reply::json_bytes(&board.board.graph)).await,
            RouteEndpoint::Store => self.store().await,
            RouteEndpoint::Question(tool) => question::answer(&self, tool).await,
            RouteEndpoint::Events => events::subscribe(&self),
            RouteEndpoint::Metrics => status_line::metrics(&self).await,
            RouteEndpoint::StatusLine => status_line::answer(&self).await,
            RouteEndpoint::OpenApi => reply::tagged(self.headers, openapi::document(self.server.access.is_open)),
            RouteEndpoint::Page(_) | RouteEndpoint::Asset | RouteEndpoint::SignInPage => {
                reply::bad_request("This place is a page.")
            }
            RouteEndpoint::SignIn | RouteEndpoint::SignOut | RouteEndpoint::Action(_) => {
                reply::bad_request("This place takes a form.")
            }
        }
    }

    /// Carries out what a form asks for.
    async fn order(self, endpoint: RouteEndpoint, body: Incoming) -> ServeReply {
        let form = match form::fields(self.headers, body).await {
            Ok(form) => form,
            Err(reply) => return reply,
        };
        match endpoint {
            RouteEndpoint::SignIn => form::sign_in(self.server, self.caller, self.headers, &form),
            RouteEndpoint::SignOut => {
                let refusal = form::csrf_refusal(self.caller, self.headers, &form);
                refusal.unwrap_or_else(|| form::sign_out(self.server, self.headers))
            }
            RouteEndpoint::Action(action) => self.act(action, &form).await.unwrap_or_else(|reply| reply),
            _ => reply::bad_request("This place takes no form."),
        }
    }

    async fn act(self, action: JobAction, form: &Parameters) -> Result<ServeReply, ServeReply> {
        if let Some(refusal) = form::csrf_refusal(self.caller, self.headers, form) {
            return Err(refusal);
        }
        let known = [actions::fields_of(action), &[path::CSRF_FIELD]].concat();
        self.parameters.only(&[]).and_then(|()| form.only(&known)).map_err(|why| reply::bad_request(&why))?;
        let Some(client) = self.caller.client() else { return Err(reply::bad_request("There is no token.")) };
        let board = self.board_with_job().await?;
        let job = self.job.unwrap_or_default();
        let named = actions::named(&board, action, job)
            .map_err(|why| reply::error(StatusCode::FORBIDDEN, ReasonCode::Refused, &why))?;
        let reply = actions::act(self.server, action, &named, client, form).await;
        if reply.status() == StatusCode::OK && form::is_of_page(self.caller, self.headers) {
            return Ok(form::see_other(&format!("{}?done={}", path::job(job), action.as_str())));
        }
        Ok(reply)
    }

    /// The state of the store now, or the answer that says why there is none.
    pub async fn board(&self) -> Result<std::sync::Arc<TimedBoard>, ServeReply> {
        match self.server.poller.fresh().await {
            BoardLook { trouble: Some(why), .. } => Err(reply::unavailable(&why)),
            BoardLook { board: Some(board), .. } => Ok(board),
            BoardLook { .. } => Err(reply::unavailable(NO_ANSWER_YET)),
        }
    }

    /// The state of the store, in which the job of the path is known.
    pub async fn board_with_job(&self) -> Result<std::sync::Arc<TimedBoard>, ServeReply> {
        let board = self.board().await?;
        let job = self.job.unwrap_or_default();
        if knows(&board.board.status, job) { Ok(board) } else { Err(unknown_job(job)) }
    }

    async fn of_board(self, body: impl FnOnce(&TimedBoard) -> hyper::body::Bytes) -> ServeReply {
        if let Err(why) = self.parameters.only(&[]) {
            return reply::bad_request(&why);
        }
        match self.board().await {
            Ok(board) => reply::tagged(self.headers, body(&board)),
            Err(reply) => reply,
        }
    }

    /// The store, as last known. That it cannot be read now is part of the answer.
    async fn store(self) -> ServeReply {
        if let Err(why) = self.parameters.only(&[]) {
            return reply::bad_request(&why);
        }
        match self.server.poller.fresh().await {
            BoardLook { board: Some(board), trouble, .. } => {
                reply::tagged(self.headers, reply::json_bytes(&board.store_state(trouble.as_deref())))
            }
            BoardLook { trouble, .. } => reply::unavailable(trouble.as_deref().unwrap_or(NO_ANSWER_YET)),
        }
    }

    async fn status(self) -> ServeReply {
        let limit =
            match self.parameters.only(&["limit", "cursor"]).and_then(|()| self.parameters.whole("limit", JOBS_MAX)) {
                Ok(limit) => limit,
                Err(why) => return reply::bad_request(&why),
            };
        let cursor = self.parameters.text("cursor");
        let board = match self.board().await {
            Ok(board) => board,
            Err(reply) => return reply,
        };
        if limit.is_none() && cursor.is_none() {
            return reply::tagged(self.headers, reply::json_bytes(&board.board.status));
        }
        let (part, next) = part(&board.board.status, cursor, limit.unwrap_or(JOBS_MAX));
        let reply = reply::tagged(self.headers, reply::json_bytes(&part));
        match next {
            Some(next) => {
                let query = format!("limit={}&cursor={}", part.jobs.len(), path::segment(&next));
                reply::with_header(reply, header::LINK, &format!("</api/v1/status?{query}>; rel=\"next\""))
            }
            None => reply,
        }
    }

    async fn one_job(self) -> ServeReply {
        if let Err(why) = self.parameters.only(&[]) {
            return reply::bad_request(&why);
        }
        match self.board_with_job().await {
            Ok(board) => {
                let status = board.board.status.only(self.job.unwrap_or_default());
                reply::tagged(self.headers, reply::json_bytes(&status))
            }
            Err(reply) => reply,
        }
    }
}

pub fn unknown_job(job: &str) -> ServeReply {
    let message = format!("No job {:?} is known here.", job.chars().take(100).collect::<String>());
    reply::error(StatusCode::NOT_FOUND, ReasonCode::Usage, &message)
}

/// Whether a name is that of a job that has run, is configured or waits.
pub fn knows(status: &StatusAnswer, job: &str) -> bool {
    let status = status.only(job);
    !status.jobs.is_empty() || !status.broken.is_empty() || !status.waiting.is_empty()
}

/// The jobs after a name, and where the next part begins.
fn part(status: &StatusAnswer, after: Option<&str>, limit: usize) -> (StatusAnswer, Option<String>) {
    let from = after.map_or(0, |after| status.jobs.partition_point(|job| job.job.as_str() <= after));
    let to = status.jobs.len().min(from.saturating_add(limit));
    let next = status.jobs[from..to].last().filter(|_| to < status.jobs.len()).map(|job| job.job.clone());
    (StatusAnswer { jobs: status.jobs[from..to].to_vec(), ..status.clone() }, next)
}
