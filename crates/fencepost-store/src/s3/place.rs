//! Parses the URL of a bucket: `s3://BUCKET/PATH?endpoint=URL&region=R&style=S`.

use std::fmt;

use rusty_s3::{Bucket, UrlStyle};

use super::environment::AwsEnvironment;
use crate::transport::{Transport, is_loopback, refusal, refused};
use crate::{OpenError, percent, redacted};

const EXAMPLE: &str = "for example s3://my-bucket/fencepost?region=eu-west-1";

/// A bucket at its server, and a path in it.
pub struct S3Place {
    bucket: Bucket,
    /// Without a slash at its ends.
    path: String,
    shown: String,
    transport: Transport,
    is_aws: bool,
}

impl fmt::Debug for S3Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[derive(Default)]
struct S3Options {
    endpoint: Option<String>,
    region: Option<String>,
    style: Option<bool>,
    insecure: bool,
}

impl S3Place {
    pub fn parse(url: &str) -> Result<Self, OpenError> {
        Self::parse_in(url, &AwsEnvironment::of_process())
    }

    fn parse_in(url: &str, environment: &AwsEnvironment) -> Result<Self, OpenError> {
        let shown = redacted(url);
        let wrong = |why: &str| OpenError::Usage(format!("{shown:?} is not the URL of a bucket: {why}, {EXAMPLE}."));
        let rest = url.strip_prefix("s3://").ok_or_else(|| wrong("it lacks s3://"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (name, path) = place.split_once('/').unwrap_or((place, ""));
        if place.contains('@') {
            return Err(wrong(
                "credentials do not stand in it: they come from FENCEPOST_STORE_PASSWORD or from AWS's own places",
            ));
        }
        let is_of_bucket = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
        if !(3..=63).contains(&name.len()) || !name.bytes().all(is_of_bucket) || name.starts_with(['.', '-']) {
            return Err(wrong("a bucket has 3 to 63 lower-case letters, digits, dots and hyphens"));
        }
        let path = path.trim_matches('/');
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~=+,:!'()* ".contains(&byte);
        if !path.bytes().all(is_plain)
            || (!path.is_empty() && path.split('/').any(|part| ["", ".", ".."].contains(&part)))
        {
            return Err(wrong("its path has an empty part, a part of dots, or signs that S3 advises against"));
        }
        let options = S3Options::parse(query).map_err(|why| wrong(&why))?;
        let region = options.region.or_else(|| environment.region());
        let region = match (region, &options.endpoint) {
            (Some(region), _) => region,
            (None, Some(_)) => "us-east-1".to_string(),
            (None, None) => return Err(wrong("no region is known: add ?region=REGION, or set AWS_REGION")),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !region.bytes().all(is_name) {
            return Err(wrong("its region has letters, digits and hyphens only"));
        }
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let (is_aws, is_path) = (options.endpoint.is_none(), options.style.unwrap_or(options.endpoint.is_some()));
        let endpoint = options.endpoint.unwrap_or_else(|| format!("https://s3.{region}.{domain}"));
        if !is_path && name.contains('.') && endpoint.starts_with("https") {
            return Err(wrong("the certificate of a server is not good for a bucket with a dot: add style=path"));
        }
        let style = if is_path { UrlStyle::Path } else { UrlStyle::VirtualHost };
        if !endpoint.contains("://") {
            return Err(wrong("its endpoint lacks https:// (or http://) before the host"));
        }
        let endpoint = endpoint.parse().map_err(|_| wrong("its endpoint cannot be read"))?;
        let bucket = Bucket::new(endpoint, style, name.to_string(), region).map_err(|_| {
            wrong("its endpoint is no https:// or http:// URL, or cannot have the bucket before its name")
        })?;
        let host = bucket.base_url().host_str().unwrap_or_default().to_string();
        let transport = match bucket.base_url().scheme() {
            "https" => Transport::Verified,
            _ if is_loopback(&host) || host.ends_with(".localhost") => Transport::Local,
            _ => Transport::Plain,
        };
        match (transport, options.insecure) {
            (Transport::Plain, false) => {
                let remedy =
                    "Write endpoint=https://…; or add &insecure=1 to the URL, if you trust every host on the way.";
                Err(refused(refusal(&shown, &host, remedy)))
            }
            (Transport::Verified, true) => Err(wrong("insecure=1 is for http:// and makes no https:// less secure")),
            _ => Ok(Self { bucket, path: path.to_string(), shown, transport, is_aws }),
        }
    }

    /// The path in the bucket, without a slash at its ends; may be empty.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The name of the bucket.
    pub fn bucket_name(&self) -> &str {
        self.bucket.name()
    }

    /// Returns the URL for people.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Whether it is AWS's own S3.
    pub(super) fn is_aws(&self) -> bool {
        self.is_aws
    }

    pub(super) fn is_tls(&self) -> bool {
        self.transport == Transport::Verified
    }

    pub(super) fn transport(&self) -> Transport {
        self.transport
    }
}

impl S3Options {
    fn parse(query: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let decoded = |text: &str| percent::decode(text).ok_or("an option has a % that begins nothing".to_string());
            match pair.split_once('=') {
                Some(("endpoint", text)) => options.endpoint = Some(decoded(text)?),
                Some(("region", text)) => options.region = Some(decoded(text)?),
                Some(("style", "path")) => options.style = Some(true),
                Some(("style", "virtual")) => options.style = Some(false),
                Some(("insecure", "1")) => options.insecure = true,
                _ => {
                    return Err(
                        "the options after its ? are endpoint=URL, region=R, style=path|virtual and insecure=1".into(),
                    );
                }
            }
        }
        let has_secret = |endpoint: &String| endpoint.contains('@') || endpoint.contains('?');
        match options.endpoint.as_ref().is_some_and(has_secret) {
            true => Err("its endpoint has a user or a query, which are not used".to_string()),
            false => Ok(options),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> Result<S3Place, OpenError> {
        S3Place::parse_in(url, &AwsEnvironment::of(&[("HOME", "/no/such")]))
    }

    #[test]
    fn urls() {
        let table = [
            ("s3://locks?region=eu-west-1", "https://locks.s3.eu-west-1.amazonaws.com/", "", true),
            ("s3://locks/a/b/?region=cn-north-1", "https://locks.s3.cn-north-1.amazonaws.com.cn/", "a/b", true),
            ("s3://a.b.c/x?region=r&style=path", "https://s3.r.amazonaws.com/a.b.c/", "x", true),
            (
                "s3://locks/x?endpoint=https://acc.r2.cloudflarestorage.com&region=auto",
                "https://acc.r2.cloudflarestorage.com/locks/",
                "x",
                false,
            ),
            ("s3://locks?endpoint=http://127.0.0.1:9000", "http://127.0.0.1:9000/locks/", "", false),
            (
                "s3://locks?endpoint=http%3A%2F%2Flocalhost:9000&style=virtual",
                "http://locks.localhost:9000/",
                "",
                false,
            ),
            ("s3://locks?endpoint=http://10.0.0.1:9000&insecure=1", "http://10.0.0.1:9000/locks/", "", false),
        ];
        for (url, base, path, is_aws) in table {
            let place = place(url).unwrap();
            assert_eq!(
                (place.bucket().base_url().as_str(), place.path(), place.is_aws()),
                (base, path, is_aws),
                "{url}"
            );
        }
        let named = AwsEnvironment::of(&[("AWS_REGION", "eu-south-2")]);
        assert_eq!(S3Place::parse_in("s3://locks", &named).unwrap().bucket().region(), "eu-south-2");
    }

    #[test]
    fn wrong_urls_are_refused_in_words() {
        let table = [
            ("s3://locks", "add ?region=REGION"),
            ("s3:locks", "lacks s3://"),
            ("s3://x?region=r", "3 to 63"),
            ("s3://Locks?region=r", "3 to 63"),
            ("s3://AKIA:s3cret@locks?region=r", "FENCEPOST_STORE_PASSWORD"),
            ("s3://locks/a/../b?region=r", "a part of dots"),
            ("s3://locks/a//b?region=r", "an empty part"),
            ("s3://locks?region=r&acl=public", "the options after"),
            ("s3://locks?region=a/b", "its region"),
            ("s3://locks?endpoint=ftp://h", "https:// or http://"),
            ("s3://locks?endpoint=127.0.0.1:9000", "lacks https://"),
            ("s3://locks?endpoint=http://10.0.0.1", "add &insecure=1"),
            ("s3://locks?endpoint=http://u:s3cret@localhost", "its endpoint has a user"),
            ("s3://locks?endpoint=https://h&insecure=1", "makes no https:// less secure"),
            ("s3://a.b.c?region=r", "add style=path"),
        ];
        for (url, part) in table {
            let text = place(url).unwrap_err().to_string();
            assert!(text.contains(part), "{url}: {text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }
}
