//! Translates a URL into git's arguments, which never contain a password.

use std::path::PathBuf;

use crate::percent::decode_leniently;
use crate::{Secret, redacted};

/// The default location of the refs. Git hosts leave it alone, and a plain clone does not fetch it.
const UNDER: &str = "refs/fencepost";

/// A remote repository.
#[derive(Debug)]
pub(super) struct GitRemote {
    url: String,
    under: String,
    login: Option<Login>,
    shown: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: Option<Secret>,
}

impl GitRemote {
    /// Parses a URL that begins with `git+`. Errors contain no password.
    pub(super) fn parse(url: &str, password: Option<&Secret>) -> Result<Self, String> {
        let shown = redacted(url);
        let whole = url.strip_prefix("git+").unwrap_or(url);
        let (place, query) = whole.split_once('?').unwrap_or((whole, ""));
        let mut under = UNDER.to_string();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("refs", value)) => under = value.trim_end_matches('/').to_string(),
                _ => return Err("It knows one parameter, refs=refs/…: where the refs are.".to_string()),
            }
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_".contains(&b);
        if !under.starts_with("refs/") || !under.bytes().all(plain) || under.contains("//") {
            return Err("refs= begins with refs/ and has letters, digits and the signs / - _.".to_string());
        }
        let (scheme, rest) = place.split_once("://").ok_or("It lacks the // behind its scheme.")?;
        if rest.trim_matches('/').is_empty() || (scheme == "file" && !rest.starts_with('/')) {
            return Err("It names no repository.".to_string());
        }
        let (url, login) = match scheme {
            "https" => split_login(rest, password),
            "ssh"
                if rest
                    .split('/')
                    .next()
                    .and_then(|host| host.split_once('@'))
                    .is_some_and(|(u, _)| u.contains(':')) =>
            {
                return Err("ssh takes no password from a URL: use a key.".to_string());
            }
            _ => (place.to_string(), None),
        };
        Ok(Self { url, under, login, shown })
    }

    /// Returns the URL for git's command line.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn under(&self) -> &str {
        &self.under
    }

    pub(super) fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// Returns the URL for people, without a password.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) fn is_ssh(&self) -> bool {
        self.url.starts_with("ssh://")
    }

    /// Returns the path of a repository that is, or seems to be, on this machine.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.url.strip_prefix("file://").map(|path| PathBuf::from(decode_leniently(path)))
    }
}

/// Extracts user and password from the text behind `https://`. The password `given` by the caller precedes the URL's.
fn split_login(rest: &str, given: Option<&Secret>) -> (String, Option<Login>) {
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (before, host) = host.rsplit_once('@').map_or((None, host), |(before, host)| (Some(before), host));
    let url = format!("https://{host}/{path}");
    let (user, own) = before.map_or((None, None), |before| {
        before.split_once(':').map_or((Some(before), None), |(user, password)| (Some(user), Some(password)))
    });
    let password = given.cloned().or(own.map(|own| Secret::new(decode_leniently(own))));
    let login = (user.is_some() || password.is_some())
        .then(|| Login { user: user.map_or("git".to_string(), decode_leniently), password });
    (url, login)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_told_to_git_by_its_arguments() {
        let parse = |url: &str, given: Option<&str>| GitRemote::parse(url, given.map(Secret::new).as_ref()).unwrap();
        let login = |user: &str, password: Option<&str>| {
            Some(Login { user: user.to_string(), password: password.map(Secret::new) })
        };
        let table = [
            ("git+https://h/r.git", None, "https://h/r.git", None),
            ("git+https://u:s3%40t@h:8443/r.git", None, "https://h:8443/r.git", login("u", Some("s3@t"))),
            ("git+https://u:s3@h/r.git", Some("given"), "https://h/r.git", login("u", Some("given"))),
            ("git+https://u@h/r.git", None, "https://h/r.git", login("u", None)),
            ("git+https://h/r.git", Some("given"), "https://h/r.git", login("git", Some("given"))),
            ("git+ssh://git@h/r.git", Some("given"), "ssh://git@h/r.git", None),
            ("git+file:///srv/r.git", None, "file:///srv/r.git", None),
        ];
        for (url, given, told, login) in table {
            let remote = parse(url, given);
            assert_eq!((remote.url(), remote.login()), (told, login.as_ref()), "{url}");
            assert!(!format!("{remote:?}").contains("s3"), "{remote:?}");
        }
        assert_eq!(parse("git+file:///srv/a%20b.git", None).path(), Some(PathBuf::from("/srv/a b.git")));
        assert_eq!(parse("git+file:///r?refs=refs/heads/locks", None).under(), "refs/heads/locks");
        for wrong in [
            "git+file://",
            "git+file://r",
            "git+file:/r",
            "git+file:///r?refs=x",
            "git+file:///r?a=b",
            "git+ssh://u:s3@h/r",
        ] {
            let error = GitRemote::parse(wrong, None).unwrap_err();
            assert!(!error.contains("s3"), "{error}");
        }
    }
}
