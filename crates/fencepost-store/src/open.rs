//! Opens a store by its URL: the only list of backends.

/// The backends, each in a file of its own beside this one.
#[path = "."]
pub mod backends {
    #[cfg(feature = "dir")]
    pub mod dir;
    #[cfg(feature = "etcd")]
    pub mod etcd;
    #[cfg(feature = "git")]
    pub mod git;
    #[cfg(feature = "http")]
    pub mod http;
    #[cfg(feature = "postgres")]
    pub mod postgres;
    #[cfg(feature = "redis")]
    pub mod redis;
    #[cfg(feature = "s3")]
    pub mod s3;
    #[cfg(feature = "sqlite")]
    pub mod sqlite;
}

use std::path::Path;
use std::time::Duration;

use fencepost_core::nearest::distance;
use thiserror::Error;

use crate::file_system::shared_file_system;
use crate::{Access, Declaring, StoreError};

/// Why a store could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The URL itself is wrong; trying again does not help.
    #[error("{0}")]
    Usage(String),
    /// The URL is valid, and the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The properties that a kind of store declares before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The store is a file of this host: a call ends within seconds, and fencepost's own tests prove its swap.
    pub is_embedded: bool,
    /// The store is a path in the file system, which has no password.
    pub is_path: bool,
    /// The shortest time-to-live that makes sense: a store that takes seconds for a swap, or that limits how often it is
    /// called, does not serve short leases.
    pub minimum_ttl: Duration,
}

/// Returns the properties of the store that `url` names. An unknown kind has the defaults.
pub fn properties(url: &str) -> Properties {
    let known = split(url).and_then(|(name, rest)| Some((scheme_of(name)?, rest)));
    Properties {
        is_embedded: known.is_some_and(|(scheme, _)| scheme.is_embedded),
        is_path: known.is_some_and(|(scheme, _)| scheme.is_path),
        minimum_ttl: known.map_or(Duration::ZERO, |(scheme, rest)| (scheme.minimum_ttl)(rest)),
    }
}

/// Returns the URL with the name that fencepost uses for its scheme: `postgresql://` is `postgres://`.
pub fn canonical(url: &str) -> String {
    match split(url).and_then(|(name, rest)| Some((name, scheme_of(name)?.name, rest))) {
        Some((typed, name, rest)) if typed != name => format!("{name}:{rest}"),
        _ => url.to_string(),
    }
}

/// Returns the canonical URL with an absolute path, if the rest of the URL is a path: a child that changes its working
/// directory finds the same store.
pub fn absolute(url: &str, directory: &Path) -> String {
    let url = canonical(url);
    let relative = split(&url).filter(|(name, path)| {
        let is_path = scheme_of(name).is_some_and(|scheme| scheme.is_path);
        is_path && !path.is_empty() && !path.starts_with(['/', '~', ':'])
    });
    let whole = relative.and_then(|(name, path)| {
        let path = std::path::absolute(directory.join(path)).ok()?;
        Some(format!("{name}:{}", path.to_str()?))
    });
    whole.unwrap_or(url)
}

/// Explains a URL that names no kind of store. Opens nothing.
pub fn must_name_a_store(url: &str) -> Result<(), OpenError> {
    kind(url).map(|_| ())
}

/// Returns the kind of store that a URL names, and the part of the URL behind the scheme.
fn kind(url: &str) -> Result<(&'static Scheme, &str), OpenError> {
    let (scheme, rest) = split(url).ok_or_else(|| OpenError::Usage(without_scheme(url)))?;
    Ok((scheme_of(scheme).ok_or_else(|| OpenError::Usage(unknown_scheme(url, scheme)))?, rest))
}

fn scheme_of(name: &str) -> Option<&'static Scheme> {
    SCHEMES.iter().find(|known| known.name == name || known.alias == Some(name))
}

/// Opens the store that `url` names: one arm per backend. Errors hold no password.
pub(crate) fn backend(url: &str, access: &Access) -> Result<Box<dyn Declaring>, OpenError> {
    let usage = |text: String| Err(OpenError::Usage(text));
    let (known, rest) = kind(url)?;
    match (known.name, rest, access) {
        #[cfg(feature = "sqlite")]
        ("sqlite", path, _) => {
            let path = sqlite_path(path).map_err(OpenError::Usage)?;
            Ok(Box::new(backends::sqlite::SqliteStore::open(path)?))
        }
        #[cfg(feature = "dir")]
        ("dir", path, access) => Ok(Box::new(backends::dir::DirStore::open(path, access)?)),
        #[cfg(feature = "git")]
        ("git+ssh" | "git+https" | "git+file", _, access) => Ok(Box::new(backends::git::GitStore::open(url, access)?)),
        #[cfg(feature = "postgres")]
        ("postgres", _, access) => {
            let store = backends::postgres::PostgresStore::open(url, access.password.as_ref())?;
            Ok(Box::new(if access.must_exist { store.without_making() } else { store }))
        }
        #[cfg(feature = "redis")]
        ("redis" | "rediss", _, access) => {
            Ok(Box::new(backends::redis::RedisStore::open(url, access.password.as_ref())?))
        }
        #[cfg(feature = "http")]
        ("http" | "https", _, access) => Ok(Box::new(backends::http::HttpStore::open(url, access.password.as_ref())?)),
        #[cfg(feature = "etcd")]
        ("etcd", _, access) => Ok(Box::new(backends::etcd::EtcdStore::open(url, access.password.as_ref())?)),
        #[cfg(feature = "s3")]
        ("s3", _, access) => Ok(Box::new(backends::s3::S3Store::open(url, access.password.as_ref())?)),
        (name, ..) => usage(format!(
            "{:?} is a store of the kind {name}, which this fencepost is built without: {}. It is built with: {}.",
            redacted(url),
            how_to_get(known.feature.name),
            built_in().map(|known| known.example).collect::<Vec<_>>().join(", ")
        )),
    }
}

/// Returns the step to take if this program was built without a feature.
pub fn how_to_get(feature: &str) -> String {
    format!("install one that has the feature {feature}, by cargo install fencepost --features {feature}")
}

/// Returns the URL without its password, for people. In doubt it hides too much, never too little.
pub fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = split(url) else {
        return if scp_like(url).is_some_and(|(user, ..)| user == "git") {
            url.to_string()
        } else {
            hidden(url, false, &[])
        };
    };
    let known = scheme_of(scheme);
    if known.is_some_and(|known| known.is_path) {
        return url.to_string();
    }
    let slashes = rest.len() - rest.trim_start_matches('/').len();
    let (slashes, rest) = rest.split_at(slashes);
    let names_user = known.is_some_and(|known| known.names_user) && slashes == "//";
    let files = known.map_or(&[][..], |known| known.files);
    format!("{scheme}:{slashes}{}", hidden(rest, names_user, files))
}

/// Returns the URL without a password and without a placeholder for one: for a process that finds its own password.
pub fn bare(url: &str) -> String {
    let shown = redacted(url);
    if shown == url {
        return shown;
    }
    let shown = shown.replacen(":***@", "@", 1).replacen("***@", "", 1).replacen("//@", "//", 1);
    let (place, query) = shown.split_once('?').map_or((shown.as_str(), ""), |(place, query)| (place, query));
    let kept: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty() && !pair.ends_with("=***")).collect();
    if kept.is_empty() { place.to_string() } else { format!("{place}?{}", kept.join("&")) }
}

/// Whether there is certainly no store yet: opening it would create one.
pub(crate) fn is_absent(url: &str) -> bool {
    kind(url).is_ok_and(|(scheme, rest)| (scheme.is_absent)(Path::new(rest)))
}

fn is_absent_or_empty(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(file) => file.is_file() && file.len() == 0,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// The prefix of files that a `dir` store has not finished writing.
pub(crate) const DRAFT: &str = "t-";

/// Whether a path is absent or an empty directory. A directory in which the creation of a store was cut short counts as
/// empty.
fn is_absent_or_empty_directory(path: &Path) -> bool {
    let is_draft = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(DRAFT);
    match std::fs::read_dir(path) {
        Ok(mut entries) => entries.all(|entry| entry.is_ok_and(is_draft)),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// A kind of store: the one place where its properties are declared.
struct Scheme {
    name: &'static str,
    /// Another name of the scheme.
    alias: Option<&'static str>,
    example: &'static str,
    feature: StoreFeature,
    is_embedded: bool,
    /// The rest of the URL is a path. It may hold any character and holds no password.
    is_path: bool,
    /// In `user:password@` the part before the colon is a user's name. Elsewhere it may be a token.
    names_user: bool,
    /// The options whose values are paths of files, and no secrets.
    files: &'static [&'static str],
    /// Computes the minimum from the part of the URL behind the scheme.
    minimum_ttl: fn(&str) -> Duration,
    is_absent: fn(&Path) -> bool,
}

/// The feature of this crate that a store is compiled with.
#[derive(Clone, Copy)]
struct StoreFeature {
    name: &'static str,
    is_on: bool,
}

macro_rules! feature {
    ($name:literal) => {
        StoreFeature { name: $name, is_on: cfg!(feature = $name) }
    };
}

const fn scheme(name: &'static str, example: &'static str, feature: StoreFeature) -> Scheme {
    Scheme {
        name,
        alias: None,
        example,
        feature,
        is_embedded: false,
        is_path: false,
        names_user: false,
        files: &[],
        minimum_ttl: |_| Duration::ZERO,
        is_absent: |_| false,
    }
}

const fn git(name: &'static str, example: &'static str) -> Scheme {
    Scheme { minimum_ttl: |_| GIT_TTL_MIN, ..scheme(name, example, feature!("git")) }
}

const SCHEMES: &[Scheme] = &[
    Scheme {
        is_embedded: true,
        is_path: true,
        is_absent: |path| path.is_absolute() && is_absent_or_empty(path),
        ..scheme("sqlite", "sqlite:/var/lib/fencepost/store.db", feature!("sqlite"))
    },
    Scheme {
        is_path: true,
        minimum_ttl: |path| if is_shared(path) { FILE_SERVER_TTL_MIN } else { Duration::ZERO },
        is_absent: is_absent_or_empty_directory,
        ..scheme("dir", "dir:/mnt/shared/fencepost", feature!("dir"))
    },
    Scheme { names_user: true, ..git("git+ssh", "git+ssh://git@host/repository.git") },
    git("git+https", "git+https://host/repository.git"),
    Scheme { is_path: true, ..git("git+file", "git+file:///srv/repository.git") },
    Scheme {
        alias: Some("postgresql"),
        names_user: true,
        ..scheme("postgres", "postgres://user@host/database", feature!("postgres"))
    },
    Scheme { names_user: true, ..scheme("redis", "redis://host:6379", feature!("redis")) },
    Scheme { names_user: true, ..scheme("rediss", "rediss://host:6379", feature!("redis")) },
    scheme("http", "http://localhost:8787", feature!("http")),
    scheme("https", "https://fencepost.example.workers.dev", feature!("http")),
    Scheme {
        names_user: true,
        files: &["ca", "cert", "key"],
        ..scheme("etcd", "etcd://host:2379/fencepost?tls=1", feature!("etcd"))
    },
    Scheme { minimum_ttl: |_| S3_TTL_MIN, ..scheme("s3", "s3://bucket/fencepost?region=eu-west-1", feature!("s3")) },
];

/// Clients of a file server may show a listing that is a minute old.
const FILE_SERVER_TTL_MIN: Duration = Duration::from_secs(180);

/// A push takes seconds, and a git host does not accept one every minute for ever.
const GIT_TTL_MIN: Duration = Duration::from_secs(600);

/// A call may take seconds, and each renewal is paid for.
const S3_TTL_MIN: Duration = Duration::from_secs(60);

fn is_shared(path: &str) -> bool {
    let nearest = Path::new(path).ancestors().find(|above| above.is_dir());
    nearest.is_some_and(|directory| shared_file_system(directory).is_ok_and(|kind| kind.is_some()))
}

/// Lists the schemes of the stores that are compiled in.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    built_in().map(|known| known.name)
}

fn built_in() -> impl Iterator<Item = &'static Scheme> {
    SCHEMES.iter().filter(|known| known.feature.is_on)
}

/// Splits a URL into its scheme and the text behind the colon. A path or a single letter before the colon is no scheme.
fn split(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let sound = scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-._".contains(&b));
    sound.then_some((scheme, rest))
}

#[cfg(feature = "sqlite")]
fn sqlite_path(rest: &str) -> Result<&Path, String> {
    let example = "for example sqlite:/var/lib/fencepost/store.db";
    if rest.is_empty() {
        return Err(format!("sqlite: lacks the path of a file, {example}."));
    }
    if rest == ":memory:" {
        return Err(format!("A database in memory guards nothing: name a file, {example}."));
    }
    if rest.starts_with('~') {
        return Err(format!("The shell leaves the ~ in sqlite:{rest} as it is: write the whole path, {example}."));
    }
    if rest.starts_with("//") && !rest.starts_with("///") {
        let path = rest.trim_start_matches('/');
        return Err(format!("sqlite:{rest} names a host: write sqlite:{path} or sqlite:/{path}."));
    }
    Ok(Path::new(rest))
}

/// Splits `user@host:path`, the form that git and scp accept.
fn scp_like(url: &str) -> Option<(&str, &str, &str)> {
    let (user, rest) = url.split_once('@')?;
    let (host, path) = rest.split_once(':')?;
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    (is_name(user) && is_name(host) && !path.is_empty() && !path.contains('@')).then_some((user, host, path))
}

fn without_scheme(url: &str) -> String {
    let shown = redacted(url);
    if let Some((user, host, path)) = scp_like(url) {
        let user = if user == "git" { user } else { "USER" };
        let path = path.trim_start_matches('/');
        return format!(
            "{shown:?} lacks its scheme. A git repository over ssh is written: git+ssh://{user}@{host}/{path}"
        );
    }
    let looks_like_path = url.contains('/') || url.ends_with(".db");
    let hint = if looks_like_path && !url.contains('@') {
        format!("did you mean sqlite:{url}?")
    } else {
        "a store is written like sqlite:/var/lib/fencepost/store.db.".to_string()
    };
    format!("{shown:?} does not say which kind of store it is: {hint}")
}

fn unknown_scheme(url: &str, scheme: &str) -> String {
    let typed = scheme.to_ascii_lowercase();
    let apart = |known: &Scheme| {
        let begins_alike = known.name.starts_with(&typed) || typed.starts_with(known.name);
        let ends_alike = known.name.split_once('+').is_some_and(|(_, transport)| transport == typed);
        if begins_alike || ends_alike { 0 } else { distance(&typed, known.name) }
    };
    let nearest = SCHEMES.iter().map(|known| (apart(known), known)).min_by_key(|(apart, _)| *apart);
    let hint = match nearest {
        Some((0..=2, known)) => format!("did you mean {}, as in {}?", known.name, known.example),
        _ => format!("known are {}.", SCHEMES.iter().map(|known| known.name).collect::<Vec<_>>().join(", ")),
    };
    format!("{:?} names no kind of store that fencepost knows: {hint}", redacted(url))
}

/// Hides the passwords in the part of a URL behind its slashes. A password may contain any character, also `@`, `/` and
/// `?`, so everything before the last `@` counts as part of it.
fn hidden(rest: &str, names_user: bool, files: &[&str]) -> String {
    let Some((before, after)) = rest.rsplit_once('@') else { return hidden_values(rest, files) };
    // The `@` may be part of an option's value, which then continues behind it.
    let ends_in_secret =
        before.contains('?') && before.rsplit(['?', '&']).next().is_some_and(|pair| hidden_value(pair, files) != pair);
    let after = match after.split_once('&') {
        Some((_, others)) if ends_in_secret => hidden_values(&format!("***&{others}"), files),
        None if ends_in_secret => "***".to_string(),
        _ => hidden_values(after, files),
    };
    let before = match before.split_once(':') {
        None if names_user => hidden_values(before, files),
        Some((user, _)) if names_user && !user.contains(['/', '?']) => format!("{user}:***"),
        _ => "***".to_string(),
    };
    format!("{before}@{after}")
}

/// Hides the values of options whose names suggest a secret, unless they are paths of files.
fn hidden_values(text: &str, files: &[&str]) -> String {
    text.split_inclusive(['?', '&'])
        .map(|part| {
            let end = part.len() - usize::from(part.ends_with(['?', '&']));
            let (pair, sign) = part.split_at(end);
            format!("{}{sign}", hidden_value(pair, files))
        })
        .collect()
}

fn hidden_value(pair: &str, files: &[&str]) -> String {
    match pair.split_once('=') {
        Some((name, _)) if files.contains(&name) => pair.to_string(),
        Some((name, _)) if ["pass", "token", "secret", "key"].iter().any(|word| name.contains(word)) => {
            format!("{name}=***")
        }
        _ => pair.to_string(),
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;

    fn usage(url: &str) -> String {
        match backend(url, &Access::default()) {
            Err(OpenError::Usage(text)) => text,
            Err(other) => panic!("{url}: {other:?}"),
            Ok(_) => panic!("{url} was opened"),
        }
    }

    #[test]
    fn no_password_is_shown() {
        let table = [
            ("postgres://user:s3cret@host/db", "postgres://user:***@host/db"),
            ("postgres://user@host/db", "postgres://user@host/db"),
            ("postgres://user:s3@cr/et@host/db", "postgres://user:***@host/db"),
            ("postgres://host/db?user=u&password=s3cret", "postgres://host/db?user=u&password=***"),
            ("redis://:s3cret@host:6379/0", "redis://:***@host:6379/0"),
            ("rediss://u:s3cret@host", "rediss://u:***@host"),
            ("git+ssh://git@host/r.git", "git+ssh://git@host/r.git"),
            ("git+https://s3cret@host/r.git", "git+https://***@host/r.git"),
            ("https://s3cret:x-oauth-basic@host", "https://***@host"),
            ("https://host/x?token=s3cret", "https://host/x?token=***"),
            ("postgre://u:s3cret@host", "postgre://***@host"),
            ("postgres:u:s3cret@host", "postgres:***@host"),
            ("user:s3cret@host/db", "user:***@host/db"),
            ("sqlite:/a/b:c@d.db", "sqlite:/a/b:c@d.db"),
            ("s3cret@host", "***@host"),
            ("postgresql://user:s3cret@host/db", "postgresql://user:***@host/db"),
            ("postgres://user:s3?cret@host/db", "postgres://user:***@host/db"),
            ("postgres://user:s3?s3cret@host/db?password=s3cret", "postgres://user:***@host/db?password=***"),
            ("redis://:?s3cret?@host:6379", "redis://:***@host:6379"),
            ("https://s3?cret@host/x", "https://***@host/x"),
            ("postgres://host/db?user=a@b&password=s3cret", "postgres://host/db?user=a@b&password=***"),
            ("postgres://host/db?password=x@s3cret&a=b", "postgres://host/db?password=***@***&a=b"),
            ("git@github.com:owner/jobs.git", "git@github.com:owner/jobs.git"),
            ("etcd://u:s3cret@a:1,b:2/p?tls=1&key=/etc/k.pem", "etcd://u:***@a:1,b:2/p?tls=1&key=/etc/k.pem"),
            ("https://host/x?key=s3cret", "https://host/x?key=***"),
        ];
        for (url, shown) in table {
            assert_eq!(redacted(url), shown);
            assert!(!bare(url).contains("***"), "{}", bare(url));
            if let Err(error) = backend(url, &Access::default()) {
                assert!(!error.to_string().contains("s3cret"), "{error}");
            }
        }
    }

    #[test]
    fn a_bare_url_is_one_that_needs_its_password() {
        for (url, shown) in [
            ("postgres://user:s3cret@host/db", "postgres://user@host/db"),
            ("postgres://host/db?user=u&password=s3cret&sslmode=disable", "postgres://host/db?user=u&sslmode=disable"),
            ("postgres://host/db?password=s3cret", "postgres://host/db"),
            ("redis://:s3cret@host:6379/0", "redis://host:6379/0"),
            ("https://s3cret@host/x", "https://host/x"),
            ("git+ssh://git@host/r.git", "git+ssh://git@host/r.git"),
            ("sqlite:/a/b:***@d.db", "sqlite:/a/b:***@d.db"),
        ] {
            assert_eq!(bare(url), shown);
        }
    }

    #[test]
    fn a_wrong_url_gets_the_nearest_right_word() {
        let table = [
            ("/var/lib/x.db", "did you mean sqlite:/var/lib/x.db?"),
            ("store.db", "did you mean sqlite:store.db?"),
            ("", "sqlite:/var/lib/fencepost/store.db"),
            ("sqlit:/x", "did you mean sqlite, as in sqlite:/var"),
            ("SQLITE:/x", "did you mean sqlite,"),
            ("sqlite3:/x", "did you mean sqlite,"),
            ("postgressql://h/d", "did you mean postgres,"),
            ("git@github.com:owner/jobs.git", "written: git+ssh://git@github.com/owner/jobs.git"),
            ("me@host:/srv/jobs.git", "written: git+ssh://USER@host/srv/jobs.git"),
            ("git://h/r", "did you mean git+"),
            ("ssh://git@h/r.git", "did you mean git+ssh, as in git+ssh://git@host/repository.git"),
            ("mysql://h/d", "known are sqlite, dir, git+ssh"),
            ("dir:", "lacks the path"),
            ("dir:~/x", "whole path"),
            ("https://h?x=1", "the only option"),
            ("sqlite:", "lacks the path"),
            ("sqlite::memory:", "guards nothing"),
            ("sqlite:~/x.db", "whole path"),
            ("sqlite://x/y.db", "write sqlite:x/y.db or sqlite:/x/y.db"),
        ];
        for (url, part) in table {
            let text = usage(url);
            assert!(text.contains(part), "{url}: {text}");
        }
    }

    #[test]
    fn a_relative_path_becomes_absolute() {
        for (url, whole) in [
            ("sqlite:a/b.db", "sqlite:/here/a/b.db"),
            ("dir:x", "dir:/here/x"),
            ("sqlite:/a.db", "sqlite:/a.db"),
            ("sqlite:~/a.db", "sqlite:~/a.db"),
            ("sqlite::memory:", "sqlite::memory:"),
            ("git+file:///r.git", "git+file:///r.git"),
            ("postgresql://h/d", "postgres://h/d"),
            ("mysql:a", "mysql:a"),
        ] {
            assert_eq!(absolute(url, Path::new("/here")), whole);
        }
    }

    #[test]
    #[cfg(feature = "sqlite")]
    fn a_store_that_fails_is_not_a_wrong_url() {
        assert!(matches!(backend("sqlite:/proc/no/such/store.db", &Access::default()), Err(OpenError::Store(_))));
    }

    #[test]
    fn a_database_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/store.db", directory.path().display());
        assert_eq!(backend(&url, &Access::default()).err(), None, "{url}");
    }
}
