//! The server's socket: takes connections up to a limit, and ends them in order on a signal.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fencepost_store::SharedStore;
use fencepost_view::ReasonCode;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::connection::Prompt;
use super::reply::{self, ServeReply};
use super::share::Share;
use super::terms::{CertificateOrigin, ServeTerms, ServeTransport};
use super::{Server, answer, compress, limit};
use crate::args::Global;
use crate::exit::{Code, Failure};
use crate::{report, show};

/// The most connections at once. It stays below 1,024, the usual limit of open files.
const CONNECTIONS_MAX: usize = 900;

/// How long a client may take to send the head of a request, and how long an idle connection is kept.
const HEAD_WITHIN: Duration = Duration::from_secs(15);

/// How long a TLS handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// How long an answer may take, besides a stream of events.
const ANSWER_WITHIN: Duration = Duration::from_secs(40);

/// How long requests in progress may take after a signal.
const FAREWELL: Duration = Duration::from_secs(10);

/// How long the server waits if the system refuses it another connection.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Threads for calls that block: questions to stores, and swaps of the shared one.
const BLOCKING_THREADS_MAX: usize = 64;

/// Serves until a signal.
pub fn serve(global: &Global, terms: ServeTerms, quiet: Global) -> Result<Code, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .map_err(|error| Failure::Other(format!("Cannot start the server: {error}")))?;
    let code = runtime.block_on(listen(global, terms, quiet));
    // A store that hangs must not keep the program.
    runtime.shutdown_background();
    code
}

async fn listen(global: &Global, terms: ServeTerms, quiet: Global) -> Result<Code, Failure> {
    let cannot = |error: io::Error| Failure::Other(format!("Cannot listen to signals: {error}"));
    let mut terminated = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(cannot)?;
    let listener = TcpListener::bind(terms.address).await.map_err(|error| refused(&terms, &error))?;
    let address = listener.local_addr().map_err(|error| refused(&terms, &error))?;
    let share = terms.share.as_deref().map(SharedStore::open).transpose()?.map(Share::new);
    let server = Arc::new(Server::new(quiet, terms, address.port(), share));
    let tls = match &server.terms.transport {
        ServeTransport::Tls(identity, origin) => {
            if *origin == CertificateOrigin::SelfSigned {
                show::line(&format!("pin {}", identity.pin));
            }
            Some(TlsAcceptor::from(Arc::clone(&identity.config)))
        }
        ServeTransport::Plain | ServeTransport::Proxy => None,
    };
    show::line(&format!("listening on {}://{address}", server.terms.scheme()));
    report::Voice::of(global).tell("Stop it with ctrl-C.");
    let (going, _) = watch::channel(());
    let (places, mut connections) =
        (Arc::new(Semaphore::new(limit("FENCEPOST_TEST_SERVE_CONNECTIONS", CONNECTIONS_MAX))), JoinSet::new());
    loop {
        tokio::select! {
            _ = terminated.recv() => break,
            _ = interrupted.recv() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                // A connection beyond the limit is closed at once.
                Ok((stream, _)) => if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                    let (server, tls, stopped) = (Arc::clone(&server), tls.clone(), going.subscribe());
                    connections.spawn(async move {
                        welcome(server, stream, tls, stopped).await;
                        drop(place);
                    });
                },
                Err(_) => tokio::time::sleep(REFUSED_PAUSE).await,
            },
        }
    }
    drop(listener);
    server.hub.close();
    drop(going);
    let _ = timeout(FAREWELL, async { while connections.join_next().await.is_some() {} }).await;
    Ok(Code::DONE)
}

/// Takes a connection, with TLS if the server has it.
async fn welcome(server: Arc<Server>, stream: TcpStream, tls: Option<TlsAcceptor>, stopped: watch::Receiver<()>) {
    let _ = stream.set_nodelay(true);
    let stream = Prompt::new(stream);
    match tls {
        None => converse(server, stream, stopped).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await {
                converse(server, stream, stopped).await;
            }
        }
    }
}

/// Answers the requests of one connection, until it ends or the server stops.
async fn converse<S>(server: Arc<Server>, stream: S, mut stopped: watch::Receiver<()>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = service_fn(move |request| bounded(Arc::clone(&server), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Answers one request in limited time.
async fn bounded(server: Arc<Server>, request: Request<Incoming>) -> Result<ServeReply, Infallible> {
    let is_short_wanted = compress::is_wanted(request.headers());
    let reply = match timeout(ANSWER_WITHIN, answer::answer(&server, request)).await {
        Ok(reply) => reply,
        Err(_) => {
            let message = "The answer took too long. Ask again, or ask for less.";
            reply::error(StatusCode::SERVICE_UNAVAILABLE, ReasonCode::Failed, message)
        }
    };
    let reply = if is_short_wanted { compress::compressed(reply).await } else { reply };
    Ok(reply::guarded(reply))
}

fn refused(terms: &ServeTerms, error: &io::Error) -> Failure {
    let why = match error.kind() {
        io::ErrorKind::AddrInUse => "another program uses this port".to_string(),
        io::ErrorKind::PermissionDenied => "this user may not use this port".to_string(),
        _ => error.to_string(),
    };
    Failure::Other(format!(
        "Cannot listen on {}: {why}. Let the system choose a free port: fencepost serve --listen 127.0.0.1:0",
        terms.address
    ))
}
