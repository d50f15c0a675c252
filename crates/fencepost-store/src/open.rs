//! From a URL to a store: the only list of backends.

/// The backends, each in a file of its own beside this one.
#[path = "."]
pub mod backends {
    #[cfg(feature = "dir")]
    pub mod dir;
    #[cfg(feature = "git")]
    pub mod git;
    #[cfg(feature = "http")]
    pub mod http;
    #[cfg(feature = "postgres")]
    pub mod postgres;
    #[cfg(feature = "redis")]
    pub mod redis;
    #[cfg(feature = "sqlite")]
    pub mod sqlite;
}

use std::path::Path;
use std::time::Duration;

use fencepost_core::nearest::distance;
use thiserror::Error;

use crate::file_system::shared_file_system;
use crate::{Access, Declared, Declaring, Store, StoreError};

/// Why there is no store.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The URL itself is wrong, and will be tomorrow.
    #[error("{0}")]
    Usage(String),
    /// The URL is right and the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Opens the store that `url` names. Errors hold no password.
pub fn open(url: &str) -> Result<Box<dyn Store>, OpenError> {
    open_with(url, &Access::default())
}

/// Opens the store that `url` names, by what `access` adds to it. Errors hold no password.
pub fn open_with(url: &str, access: &Access) -> Result<Box<dyn Store>, OpenError> {
    Ok(backend(url, access)?)
}

/// What the settings of the store say that cannot be proved by using it.
pub fn declared(url: &str, access: &Access) -> Result<Vec<Declared>, OpenError> {
    Ok(backend(url, access)?.declared()?)
}

/// The shortest time-to-live that makes sense with the store: one that takes seconds for a swap, or cannot be asked
/// often, does not serve short leases.
pub fn minimum_ttl(url: &str) -> Duration {
    let Some((scheme, rest)) = split(url) else { return Duration::ZERO };
    let known = SCHEMES.iter().find(|known| known.name == scheme);
    known.map_or(Duration::ZERO, |known| (known.minimum_ttl)(rest))
}

/// Whether the store is the embedded one, which answers within seconds whatever others do.
pub fn is_embedded(url: &str) -> bool {
    split(url).is_some_and(|(scheme, _)| scheme == "sqlite")
}

/// Says what is wrong with a URL that names no kind of store. None is opened.
pub fn must_name_a_store(url: &str) -> Result<(), OpenError> {
    kind(url).map(|_| ())
}

/// The kind of store that a URL names, and what stands behind it.
fn kind(url: &str) -> Result<(&'static Scheme, &str), OpenError> {
    let (scheme, rest) = split(url).ok_or_else(|| OpenError::Usage(without_scheme(url)))?;
    let known = SCHEMES.iter().find(|known| known.name == scheme);
    Ok((known.ok_or_else(|| OpenError::Usage(unknown_scheme(url, scheme)))?, rest))
}

/// The one arm per backend.
fn backend(url: &str, access: &Access) -> Result<Box<dyn Declaring>, OpenError> {
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
            Ok(Box::new(backends::postgres::PostgresStore::open(url, access.password.as_ref())?))
        }
        #[cfg(feature = "redis")]
        ("redis" | "rediss", _, access) => {
            Ok(Box::new(backends::redis::RedisStore::open(url, access.password.as_ref())?))
        }
        #[cfg(feature = "http")]
        ("http" | "https", _, access) => Ok(Box::new(backends::http::HttpStore::open(url, access.password.as_ref())?)),
        (name, ..) => usage(format!(
            "{:?} names a {name} store, which this fencepost is built without. It is built with: {}.",
            redacted(url),
            built_in().map(|known| known.example).collect::<Vec<_>>().join(", ")
        )),
    }
}

/// The URL without its password, for people. In doubt too much is left out, never too little.
pub fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = split(url) else {
        return hidden_before_at(url, false);
    };
    if PATHS.contains(&scheme) {
        return url.to_string();
    }
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let slashes = place.len() - place.trim_start_matches('/').len();
    let (slashes, place) = place.split_at(slashes);
    let place = hidden_before_at(place, NAMED_USERS.contains(&scheme) && slashes == "//");
    let query = query.map_or(String::new(), |query| {
        let parts: Vec<String> = query.split('&').map(hidden_value).collect();
        format!("?{}", parts.join("&"))
    });
    format!("{scheme}:{slashes}{place}{query}")
}

/// The URL with no password at all, not even a hint of one: for a process that is to find its own.
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

/// Whether the store is certainly still to be made, so that nobody can hold anything in it. Opening it would make it.
#[cfg_attr(not(feature = "dir"), allow(unused_variables, reason = "only a directory needs it"))]
pub fn is_unmade(url: &str, access: &Access) -> bool {
    match split(url) {
        Some(("sqlite", path)) => Path::new(path).is_absolute() && is_absent_or_empty(Path::new(path)),
        #[cfg(feature = "dir")]
        Some(("dir", path)) => backends::dir::is_unmade(path, access),
        _ => false,
    }
}

fn is_absent_or_empty(path: &Path) -> bool {
    match std::fs::metadata(path) {
        Ok(file) => file.is_file() && file.len() == 0,
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

struct Scheme {
    name: &'static str,
    example: &'static str,
    built_in: bool,
    /// By what stands behind the scheme.
    minimum_ttl: fn(&str) -> Duration,
}

const fn scheme(name: &'static str, example: &'static str, built_in: bool) -> Scheme {
    Scheme { name, example, built_in, minimum_ttl: |_| Duration::ZERO }
}

const SCHEMES: &[Scheme] = &[
    scheme("sqlite", "sqlite:/var/lib/fencepost/store.db", cfg!(feature = "sqlite")),
    Scheme {
        minimum_ttl: |path| if is_shared(path) { FILE_SERVER_TTL_MIN } else { Duration::ZERO },
        ..scheme("dir", "dir:/mnt/shared/fencepost", cfg!(feature = "dir"))
    },
    Scheme {
        minimum_ttl: |_| GIT_TTL_MIN,
        ..scheme("git+ssh", "git+ssh://git@host/repository.git", cfg!(feature = "git"))
    },
    Scheme {
        minimum_ttl: |_| GIT_TTL_MIN,
        ..scheme("git+https", "git+https://host/repository.git", cfg!(feature = "git"))
    },
    Scheme {
        minimum_ttl: |_| GIT_TTL_MIN,
        ..scheme("git+file", "git+file:///srv/repository.git", cfg!(feature = "git"))
    },
    scheme("postgres", "postgres://user@host/database", cfg!(feature = "postgres")),
    scheme("redis", "redis://host:6379", cfg!(feature = "redis")),
    scheme("rediss", "rediss://host:6379", cfg!(feature = "redis")),
    scheme("http", "http://localhost:8787", cfg!(feature = "http")),
    scheme("https", "https://fencepost.example.workers.dev", cfg!(feature = "http")),
];

/// The clients of a file server may show a listing that is a minute old.
const FILE_SERVER_TTL_MIN: Duration = Duration::from_secs(180);

/// A push takes seconds, and a host does not take one every minute for ever.
const GIT_TTL_MIN: Duration = Duration::from_secs(600);

fn is_shared(path: &str) -> bool {
    let nearest = Path::new(path).ancestors().find(|above| above.is_dir());
    nearest.is_some_and(|directory| shared_file_system(directory).is_ok_and(|kind| kind.is_some()))
}

/// Schemes whose rest is a path, which may hold any character and holds no password.
const PATHS: &[&str] = &["sqlite", "dir", "git+file"];

/// Schemes in which the part before the colon of `user:password@` is a user's name. Elsewhere it may be a token.
const NAMED_USERS: &[&str] = &["postgres", "redis", "rediss", "git+ssh"];

fn built_in() -> impl Iterator<Item = &'static Scheme> {
    SCHEMES.iter().filter(|known| known.built_in)
}

/// The scheme and what follows its colon. A path or a single letter in front of the colon is no scheme.
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

fn without_scheme(url: &str) -> String {
    let shown = redacted(url);
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
        if begins_alike { 0 } else { distance(&typed, known.name) }
    };
    let nearest = SCHEMES.iter().map(|known| (apart(known), known)).min_by_key(|(apart, _)| *apart);
    let hint = match nearest {
        Some((0..=2, known)) => format!("did you mean {}, as in {}?", known.name, known.example),
        _ => format!("known are {}.", SCHEMES.iter().map(|known| known.name).collect::<Vec<_>>().join(", ")),
    };
    format!("{:?} names no kind of store that fencepost knows: {hint}", redacted(url))
}

/// A password may itself hold an `@` or a `/`, so that all before the last `@` counts as its part.
fn hidden_before_at(place: &str, keep_user: bool) -> String {
    let Some((before, host)) = place.rsplit_once('@') else {
        return place.to_string();
    };
    match before.split_once(':') {
        None if keep_user => place.to_string(),
        Some((user, _)) if keep_user => format!("{user}:***@{host}"),
        _ => format!("***@{host}"),
    }
}

fn hidden_value(pair: &str) -> String {
    match pair.split_once('=') {
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
        match open(url) {
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
        ];
        for (url, shown) in table {
            assert_eq!(redacted(url), shown);
            assert!(!bare(url).contains("***"), "{}", bare(url));
            if let Err(error) = open(url) {
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
            ("postgresql://h/d", "did you mean postgres,"),
            ("git://h/r", "did you mean git+"),
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
    fn a_store_that_fails_is_not_a_wrong_url() {
        assert!(matches!(open("sqlite:/proc/no/such/store.db"), Err(OpenError::Store(_))));
    }

    #[test]
    fn a_database_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}/a/b/store.db", directory.path().display());
        assert_eq!(open(&url).err(), None, "{url}");
    }
}
