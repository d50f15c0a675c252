//! Every place of the server: one table.

use fencepost_store::percent;
use fencepost_web::{JobAction, path};
use hyper::Method;

use super::pages::PageKind;

/// A place, and what is served there.
#[derive(Debug)]
pub struct Route {
    pub method: Method,
    /// Segments; `{job}` is one percent-encoded segment.
    pub path: &'static str,
    pub needs: Needs,
    pub endpoint: RouteEndpoint,
    /// What it answers, in a sentence.
    pub about: &'static str,
}

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// A token, except where reading is open.
    Reading,
    /// A token everywhere: it shows what jobs print, or how they are configured.
    Token,
    /// A token, on a server that allows actions.
    Action,
}

/// What is served at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteEndpoint {
    Health,
    Status,
    Job,
    Overdue,
    Graph,
    Store,
    /// The answer of a verb to a question about one job. The name is that of a tool of `mcp`, which has the same parameters.
    Question(&'static str),
    Events,
    Metrics,
    StatusLine,
    OpenApi,
    Page(PageKind),
    Asset,
    SignInPage,
    SignIn,
    SignOut,
    Action(JobAction),
}

const fn get(path: &'static str, needs: Needs, endpoint: RouteEndpoint, about: &'static str) -> Route {
    Route { method: Method::GET, path, needs, endpoint, about }
}

const fn post(path: &'static str, needs: Needs, endpoint: RouteEndpoint, about: &'static str) -> Route {
    Route { method: Method::POST, path, needs, endpoint, about }
}

const fn page(path: &'static str, page: PageKind, about: &'static str) -> Route {
    get(path, Needs::Reading, RouteEndpoint::Page(page), about)
}

const fn action(path: &'static str, action: JobAction, about: &'static str) -> Route {
    post(path, Needs::Action, RouteEndpoint::Action(action), about)
}

pub const ROUTES: &[Route] = &[
    page(path::OVERVIEW, PageKind::Overview, "All jobs"),
    page(path::TIMELINE, PageKind::Timeline, "All jobs over time"),
    page("/jobs/{job}", PageKind::Job, "A job"),
    page(path::GRAPH, PageKind::Graph, "Which job needs which"),
    page(path::FENCES, PageKind::Fences, "Where jobs write"),
    page(path::STORES, PageKind::Stores, "The store"),
    get("/assets/{file}", Needs::Nothing, RouteEndpoint::Asset, "The style sheet, the script and the icon"),
    get(path::LOGIN, Needs::Nothing, RouteEndpoint::SignInPage, "The form that takes a token"),
    get("/healthz", Needs::Nothing, RouteEndpoint::Health, "Whether the server runs"),
    get("/api/v1/status", Needs::Reading, RouteEndpoint::Status, "All jobs, and what needs attention"),
    get("/api/v1/jobs/{job}", Needs::Reading, RouteEndpoint::Job, "One job"),
    get(
        "/api/v1/jobs/{job}/runs",
        Needs::Reading,
        RouteEndpoint::Question("runs"),
        "How runs of a job ended, newest first",
    ),
    get("/api/v1/jobs/{job}/why", Needs::Reading, RouteEndpoint::Question("why"), "What became of a slot, and why"),
    get("/api/v1/jobs/{job}/plan", Needs::Reading, RouteEndpoint::Question("plan"), "Which slots run next"),
    get("/api/v1/jobs/{job}/advise", Needs::Reading, RouteEndpoint::Question("advise"), "How long runs of a job take"),
    get(
        "/api/v1/jobs/{job}/logs",
        Needs::Token,
        RouteEndpoint::Question("logs"),
        "What runs of a job printed on this host",
    ),
    get("/api/v1/overdue", Needs::Reading, RouteEndpoint::Overdue, "Slots that passed with nothing recorded"),
    get("/api/v1/graph", Needs::Reading, RouteEndpoint::Graph, "Which job needs which"),
    get("/api/v1/store", Needs::Reading, RouteEndpoint::Store, "The store, its declarations and its last check"),
    get(path::EVENTS, Needs::Reading, RouteEndpoint::Events, "Changes as they are seen, as server-sent events"),
    get("/openapi.json", Needs::Reading, RouteEndpoint::OpenApi, "This API, as OpenAPI 3.1"),
    get("/metrics", Needs::Reading, RouteEndpoint::Metrics, "The jobs as metrics"),
    get("/status/{job}", Needs::Reading, RouteEndpoint::StatusLine, "One line about a job, for uptime monitors"),
    post(path::LOGIN, Needs::Nothing, RouteEndpoint::SignIn, "Takes a token once, and sets the session cookie"),
    post(path::LOGOUT, Needs::Nothing, RouteEndpoint::SignOut, "Ends the session"),
    action("/api/v1/jobs/{job}/run_now", JobAction::RunNow, "Starts a job of the server's configuration on its host"),
    action("/api/v1/jobs/{job}/pause", JobAction::Pause, "Stops a job from starting"),
    action("/api/v1/jobs/{job}/resume", JobAction::Resume, "Lets a paused job start again"),
    action("/api/v1/jobs/{job}/release", JobAction::Release, "Takes the lease from its holder, which is stopped"),
];

/// What a request leads to.
#[derive(Debug)]
pub enum RouteMatch {
    Route(&'static Route, Option<String>),
    /// The path is right; these methods are.
    OtherMethod(Vec<Method>),
    Nothing,
}

/// Finds the place of a request.
pub fn find(method: &Method, path: &str) -> RouteMatch {
    // An answer to HEAD is that to GET, of which the server sends the head.
    let wanted = if *method == Method::HEAD { &Method::GET } else { method };
    let matches: Vec<_> = ROUTES.iter().filter_map(|route| Some((route, matched(route.path, path)?))).collect();
    let methods = matches.iter().map(|(route, _)| route.method.clone()).collect::<Vec<_>>();
    match matches.into_iter().find(|(route, _)| route.method == *wanted) {
        Some((route, job)) => RouteMatch::Route(route, job),
        None if methods.is_empty() => RouteMatch::Nothing,
        None => RouteMatch::OtherMethod(methods),
    }
}

/// Whether a path fits, and the job in it.
fn matched(pattern: &str, path: &str) -> Option<Option<String>> {
    let (mut parts, mut given, mut job) = (pattern.split('/'), path.split('/'), None);
    loop {
        match (parts.next(), given.next()) {
            (None, None) => return Some(job),
            (Some("{job}" | "{file}"), Some(segment)) => {
                job = Some(percent::decode(segment).filter(|job| !job.is_empty())?);
            }
            (Some(part), Some(segment)) if part == segment => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_one_segment() {
        let job = |path: &str| match find(&Method::GET, path) {
            RouteMatch::Route(route, job) => Some((route.endpoint, job)),
            _ => None,
        };
        assert_eq!(job("/api/v1/jobs/a%2Fb"), Some((RouteEndpoint::Job, Some("a/b".to_string()))));
        assert_eq!(job("/api/v1/jobs/a%2Fb/why"), Some((RouteEndpoint::Question("why"), Some("a/b".to_string()))));
        assert_eq!(job("/healthz"), Some((RouteEndpoint::Health, None)));
        for path in
            ["/api/v1/jobs/a/b", "/api/v1/jobs/", "/api/v1/jobs/a%2", "/api/v1/jobs/%ff", "//healthz", "/healthz/"]
        {
            assert_eq!(job(path), None, "{path}");
        }
        assert!(
            matches!(find(&Method::POST, "/healthz"), RouteMatch::OtherMethod(methods) if methods == [Method::GET])
        );
        assert!(matches!(find(&Method::HEAD, "/healthz"), RouteMatch::Route(..)));
    }
}
