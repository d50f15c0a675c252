//! The credentials for a bucket: those that fencepost is given, then the places of the AWS tools, in their order.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusty_s3::Credentials;
use serde::Deserialize;
use ureq::Agent;
use ureq::http::request::Builder;
use ureq::http::{Request, Uri};

use super::environment::AwsEnvironment;
use crate::http_client::{HttpFailure, agent, send_once};
use crate::transport::is_loopback;
use crate::{Fate, OpenError, Secret, Trouble};

/// The time limit for each question to a metadata service, which is on this host or beside it.
const METADATA_PATIENCE: Duration = Duration::from_secs(2);

const METADATA_BYTES_MAX: u64 = 64 * 1024;

/// Credentials of a role are asked for again after this time. The services give new ones at least five minutes before
/// the old ones expire.
const ROLE_VALID: Duration = Duration::from_secs(240);

const CONTAINER: &str = "http://169.254.170.2";
const INSTANCE: &str = "http://169.254.169.254";

/// Where credentials come from. They are found at the first call.
pub(super) struct CredentialChain {
    given: Option<Credentials>,
    environment: AwsEnvironment,
    /// The credentials found last, and when they are to be asked for again.
    found: Mutex<Option<(Credentials, Option<Instant>)>>,
}

/// The answer of a metadata service.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleCredentials {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
}

impl CredentialChain {
    /// `password` is one line, `ACCESS_KEY_ID:SECRET_ACCESS_KEY`, and precedes all other places.
    pub(super) fn new(environment: AwsEnvironment, password: Option<&Secret>) -> Result<Self, OpenError> {
        let given = password.map(|text| pair(text.reveal())).transpose().map_err(OpenError::Usage)?;
        Ok(Self { given, environment, found: Mutex::new(None) })
    }

    /// Returns the credentials of the first place that has some.
    pub(super) fn find(&self) -> Result<Credentials, HttpFailure> {
        if let Some(given) = &self.given {
            return Ok(given.clone());
        }
        let known = self.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_valid = |until: Option<Instant>| until.is_none_or(|until| Instant::now() < until);
        if let Some((credentials, _)) = known.filter(|(_, until)| is_valid(*until)) {
            return Ok(credentials);
        }
        let found = self.search()?;
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
        Ok(found.0)
    }

    fn search(&self) -> Result<(Credentials, Option<Instant>), HttpFailure> {
        let mut searched = vec!["FENCEPOST_STORE_PASSWORD and store_password_file (not given)".to_string()];
        let role = |found: RoleCredentials| {
            let token = found.token.unwrap_or_default();
            let credentials = match token.is_empty() {
                true => Credentials::new(found.access_key_id, found.secret_access_key),
                false => Credentials::new_with_token(found.access_key_id, found.secret_access_key, token),
            };
            (credentials, Some(Instant::now() + ROLE_VALID))
        };
        match self.of_variables() {
            Ok(credentials) => return Ok((credentials, None)),
            Err(why) => searched.push(why),
        }
        match self.of_file() {
            Ok(credentials) => return Ok((credentials, None)),
            Err(why) => searched.push(why),
        }
        match self.of_container() {
            Ok(found) => return Ok(role(found)),
            Err(why) => searched.push(why),
        }
        match self.of_instance() {
            Ok(found) => return Ok(role(found)),
            Err(why) => searched.push(why),
        }
        let what = format!("cannot be asked: no credentials were found. Searched: {}", searched.join("; "));
        let step = "Give them by one of these.";
        Err(HttpFailure { trouble: Trouble::Refused, fate: Fate::NotDone, step, ..HttpFailure::unsent(what) })
    }

    fn of_variables(&self) -> Result<Credentials, String> {
        let variable = |name| self.environment.variable(name);
        let names = "the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
        let (Some(id), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) else {
            return Err(format!("{names} (not set)"));
        };
        Ok(match variable("AWS_SESSION_TOKEN") {
            Some(token) => Credentials::new_with_token(id, secret, token),
            None => Credentials::new(id, secret),
        })
    }

    fn of_file(&self) -> Result<Credentials, String> {
        let files = [("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")];
        for (variable, usual) in files {
            let setting = |name| self.environment.setting(variable, usual, name);
            if let (Some(id), Some(secret)) = (setting("aws_access_key_id"), setting("aws_secret_access_key")) {
                return Ok(match setting("aws_session_token") {
                    Some(token) => Credentials::new_with_token(id, secret, token),
                    None => Credentials::new(id, secret),
                });
            }
        }
        let path = self.environment.path(files[0].0, files[0].1).unwrap_or_default();
        let profile = self.environment.profile();
        Err(format!("{} (no keys of the profile {profile})", path.display()))
    }

    fn of_container(&self) -> Result<RoleCredentials, String> {
        let variable = |name| self.environment.variable(name);
        let url = match variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
            Some(path) => format!("{CONTAINER}{path}"),
            None => variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")
                .ok_or("the variables AWS_CONTAINER_CREDENTIALS_… (not set)")?,
        };
        let failed = |why: &str| format!("the service that AWS_CONTAINER_CREDENTIALS_… names ({why})");
        let uri: Uri = url.parse().map_err(|_| failed("its URL cannot be read"))?;
        let host = uri.host().unwrap_or_default();
        let is_near = is_loopback(host) || ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"].contains(&host);
        let is_tls = uri.scheme_str() == Some("https");
        if !is_near && !is_tls {
            return Err(failed("plain text to another host is not used"));
        }
        let token = match variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
            Some(path) => Some(fs::read_to_string(&path).map_err(|error| failed(&format!("{path}: {error}")))?),
            None => variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
        };
        let mut request = Request::get(&url);
        if let Some(token) = token {
            request = request.header("Authorization", token.trim());
        }
        role_of(&ask(is_tls, request).map_err(|why| failed(&why))?).ok_or_else(|| failed("its answer has no keys"))
    }

    /// The credentials of the instance's role, by the second version of its metadata service.
    fn of_instance(&self) -> Result<RoleCredentials, String> {
        let variable = |name| self.environment.variable(name);
        if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|word| word.eq_ignore_ascii_case("true")) {
            return Err("the metadata of the instance (AWS_EC2_METADATA_DISABLED)".to_string());
        }
        let base = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| INSTANCE.to_string());
        let base = base.trim_end_matches('/');
        let failed = |why: &str| format!("the metadata of the instance at {base} ({why})");
        let request = Request::put(format!("{base}/latest/api/token"));
        let request = request.header("X-aws-ec2-metadata-token-ttl-seconds", "300").header("Content-Length", "0");
        let token = ask(false, request).map_err(|why| failed(&why))?;
        let token = String::from_utf8(token).map_err(|_| failed("its token cannot be read"))?;
        let roles = format!("{base}/latest/meta-data/iam/security-credentials/");
        let get = |url: &str| ask(false, Request::get(url).header("X-aws-ec2-metadata-token", &token));
        let names = get(&roles).map_err(|why| failed(&format!("no role: {why}")))?;
        let names = String::from_utf8(names).unwrap_or_default();
        let name =
            names.lines().next().map(str::trim).filter(|name| !name.is_empty()).ok_or_else(|| failed("no role"))?;
        let found = get(&format!("{roles}{name}")).map_err(|why| failed(&why))?;
        role_of(&found).ok_or_else(|| failed("its answer has no keys"))
    }
}

/// Splits `ACCESS_KEY_ID:SECRET_ACCESS_KEY`. The error holds neither.
fn pair(text: &str) -> Result<Credentials, String> {
    let line = text.trim_end_matches(['\r', '\n']);
    match line.split_once(':') {
        Some((id, secret)) if !id.is_empty() && !secret.is_empty() && !line.contains(char::is_whitespace) => {
            Ok(Credentials::new(id, secret))
        }
        _ => {
            Err("The password of an s3 store is one line, ACCESS_KEY_ID:SECRET_ACCESS_KEY, and the given one is not; \
                  nothing was sent."
                .to_string())
        }
    }
}

fn role_of(body: &[u8]) -> Option<RoleCredentials> {
    serde_json::from_slice(body).ok().filter(|found: &RoleCredentials| !found.access_key_id.is_empty())
}

/// Asks a metadata service, without a proxy.
fn ask(is_tls: bool, request: Builder) -> Result<Vec<u8>, String> {
    let client: Agent = agent(is_tls).proxy(None).timeout_global(Some(METADATA_PATIENCE)).build().new_agent();
    let (head, body) = send_once(&client, request, None, METADATA_BYTES_MAX).map_err(|failure| failure.what)?;
    match head.status.as_u16() {
        200 => Ok(body),
        status => Err(format!("HTTP {status}")),
    }
}
