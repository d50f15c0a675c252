//! A connection and the event loop that drives it, behind blocking calls.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::PostgresServer;
use super::failure::{PostgresFailure, explained};

/// The time limit for a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The time limit for an answer. A call therefore ends after 15 s at most.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// A connection with its event loop, which runs while a call waits for an answer.
#[derive(Debug)]
pub(super) struct PostgresConnection {
    runtime: Option<Runtime>,
    client: Client,
}

impl PostgresConnection {
    pub(super) fn make(server: &PostgresServer) -> Result<Self, PostgresFailure> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(PostgresFailure::System)?;
        let config = server.config();
        let begun = Instant::now();
        let connected = match config.get_ssl_mode() {
            SslMode::Disable => runtime.block_on(connect(config, NoTls)),
            _ => runtime.block_on(connect(config, server.tls().map_err(PostgresFailure::Tls)?)),
        };
        match connected {
            Ok(Ok(client)) => Ok(Self { runtime: Some(runtime), client }),
            failed => {
                // A name lookup runs in a thread, and the shutdown does not wait for it.
                runtime.shutdown_background();
                Err(failed.map_or_else(
                    |_| PostgresFailure::Unreachable(begun.elapsed()),
                    |error| PostgresFailure::Connect(error.err()),
                ))
            }
        }
    }

    /// Whether the other side has not closed the connection, as far as this side can see.
    pub(super) fn is_open(&self) -> bool {
        let Some(runtime) = &self.runtime else { return false };
        // The loop has not run since the last answer, and checks the socket now.
        runtime.block_on(async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
        !self.client.is_closed()
    }

    pub(super) fn ask(&self, message: &str, idle: bool) -> Result<Vec<SimpleQueryMessage>, PostgresFailure> {
        let Some(runtime) = &self.runtime else { return Err(PostgresFailure::Unreachable(Duration::ZERO)) };
        let asked = runtime.block_on(async {
            // The timer must be created inside the loop.
            tokio::time::timeout(ANSWER_PATIENCE, self.client.simple_query(message)).await
        });
        match asked {
            Ok(Ok(messages)) => Ok(messages),
            Ok(Err(error)) if error.as_db_error().is_some() => Err(PostgresFailure::Said(error)),
            Ok(Err(error)) => Err(PostgresFailure::Lost { why: explained(&error), idle }),
            Err(_) => {
                let why = format!("there was no answer for {} s", ANSWER_PATIENCE.as_secs());
                Err(PostgresFailure::Lost { why, idle: false })
            }
        }
    }
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn connect<T>(
    config: &Config,
    tls: T,
) -> Result<Result<Client, tokio_postgres::Error>, tokio::time::error::Elapsed>
where
    T: tokio_postgres::tls::MakeTlsConnect<tokio_postgres::Socket>,
    T::Stream: Send + 'static,
{
    let connected = tokio::time::timeout(CONNECT_PATIENCE, config.connect(tls)).await?;
    Ok(connected.map(|(client, connection)| {
        // The task ends with its client or the connection; the next call reports the error.
        tokio::spawn(async {
            let _ = connection.await;
        });
        client
    }))
}
