//! Removes passwords from messages. In a URL a token is as often the user name as the password, so everything before
//! the `@` is removed, except a plain ssh user.

/// Redacts every URL in a text.
pub fn redacted_text(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = after.find(|c: char| c == '/' || c.is_whitespace() || "'\"<>`".contains(c)).unwrap_or(after.len());
        let (place, after) = after.split_at(end);
        match place.rsplit_once('@') {
            Some((user, host)) if is_secret(before, user) => {
                shown.push_str("***@");
                shown.push_str(host);
            }
            _ => shown.push_str(place),
        }
        rest = after;
    }
    shown.push_str(rest);
    shown
}

fn is_secret(before: &str, user: &str) -> bool {
    !before.ends_with("ssh://") || user.contains(':')
}

#[cfg(test)]
mod tests {
    use super::redacted_text;

    #[test]
    fn passwords_and_tokens_go_and_the_rest_stays() {
        for (whole, shown) in [
            ("https://me:s3cret@example.org/a.git", "https://***@example.org/a.git"),
            ("https://ghp_token@example.org/a.git", "https://***@example.org/a.git"),
            ("https://me:a@b@example.org/a.git", "https://***@example.org/a.git"),
            ("fatal: unable to access 'http://u:p@h:80/x/': no", "fatal: unable to access 'http://***@h:80/x/': no"),
            ("ssh://git@example.org/a.git", "ssh://git@example.org/a.git"),
            ("ssh://git:pw@example.org/a.git", "ssh://***@example.org/a.git"),
            ("git@example.org:a.git", "git@example.org:a.git"),
            ("/srv/a@b.git and https://x/@y", "/srv/a@b.git and https://x/@y"),
            ("http://u:p@h http://v:q@h", "http://***@h http://***@h"),
        ] {
            assert_eq!(redacted_text(whole), shown);
        }
    }
}
