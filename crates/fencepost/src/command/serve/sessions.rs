//! Browsers that have sent a token once: a cookie stands for it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::tokens::{Client, random_hex};
use crate::exit::Failure;

/// How long a browser stays signed in.
const SESSION_LENGTH: Duration = Duration::from_secs(12 * 3600);

/// The most sessions. A further one ends the oldest.
const SESSIONS_MAX: usize = 1000;

const SECRET_BYTES: usize = 32;

/// The sessions of this process. A restart ends them.
#[derive(Debug)]
pub struct Sessions {
    /// Two servers on one host share their cookies, so each has a name of its own.
    cookie: String,
    is_secure: bool,
    open: Mutex<HashMap<[u8; 32], BrowserSession>>,
}

/// A browser that is signed in.
#[derive(Clone, Debug)]
pub struct BrowserSession {
    pub client: Client,
    /// Forms of this browser carry it. A page of another origin cannot read it.
    pub csrf: String,
    until: Instant,
}

impl Sessions {
    pub fn new(port: u16, is_secure: bool) -> Self {
        Self { cookie: format!("fencepost_session_{port}"), is_secure, open: Mutex::default() }
    }

    /// Opens a session, and returns the header that sets its cookie.
    pub fn open(&self, client: Client) -> Result<String, Failure> {
        let (secret, csrf) = (random_hex(SECRET_BYTES)?, random_hex(SECRET_BYTES)?);
        let until = Instant::now() + SESSION_LENGTH;
        let mut open = self.sessions();
        open.retain(|_, session| session.until > Instant::now());
        while open.len() >= SESSIONS_MAX {
            let oldest = open.iter().min_by_key(|(_, session)| session.until).map(|(id, _)| *id);
            oldest.map(|id| open.remove(&id));
        }
        open.insert(id(&secret), BrowserSession { client, csrf, until });
        Ok(self.set_cookie(&secret, SESSION_LENGTH))
    }

    /// The session of a request, by its cookies.
    pub fn find(&self, cookies: &str) -> Option<BrowserSession> {
        let id = id(self.secret(cookies)?);
        self.sessions().get(&id).filter(|session| session.until > Instant::now()).cloned()
    }

    /// Ends a session, and returns the header that removes its cookie.
    pub fn close(&self, cookies: &str) -> String {
        if let Some(secret) = self.secret(cookies) {
            self.sessions().remove(&id(secret));
        }
        self.set_cookie("", Duration::ZERO)
    }

    fn secret<'c>(&self, cookies: &'c str) -> Option<&'c str> {
        cookies
            .split(';')
            .filter_map(|cookie| cookie.trim().split_once('='))
            .find(|(name, _)| *name == self.cookie)
            .map(|(_, value)| value)
    }

    fn set_cookie(&self, value: &str, length: Duration) -> String {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let (name, seconds) = (&self.cookie, length.as_secs());
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<[u8; 32], BrowserSession>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The digest of a secret. Looking it up tells nothing of the secret by its time.
fn id(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}
