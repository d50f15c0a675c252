//! Classifies the answers of an S3 server. Only an answer with an S3 error body is one: a proxy may have given any other.

use ureq::http::HeaderMap;

use crate::http_client::{HttpFailure, printable};
use crate::{Fate, Trouble};

/// What was asked, for the permission that an error names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum S3Call {
    Put,
    Get,
    List,
}

/// The body of an error.
pub(super) struct S3Error {
    pub(super) code: String,
    message: String,
    region: Option<String>,
}

impl S3Error {
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?.trim_start_matches('\u{feff}').trim_start();
        let root = match text.strip_prefix("<?xml") {
            Some(rest) => rest.split_once("?>")?.1.trim_start(),
            None => text,
        };
        if !root.starts_with("<Error>") && !root.starts_with("<Error ") {
            return None;
        }
        let element = |name: &str| {
            let (_, rest) = root.split_once(&format!("<{name}>"))?;
            Some(printable(rest.split_once(&format!("</{name}>"))?.0))
        };
        Some(Self {
            code: element("Code")?,
            message: element("Message").unwrap_or_default(),
            region: element("Region"),
        })
    }

    /// Whether the signature of the request had ended when it arrived. AWS and SeaweedFS have no code for it.
    pub(super) fn is_late(&self) -> bool {
        self.code == "AccessDenied" && self.message.trim_end_matches('.') == "Request has expired"
    }
}

/// The failure that an answer tells of. The fate is that of a write.
pub(super) fn failure(call: S3Call, status: u16, headers: &HeaderMap, error: Option<&S3Error>) -> HttpFailure {
    let unavailable = matches!(status, 408 | 409 | 425 | 429 | 500 | 502..);
    let trouble = if unavailable { Trouble::Unavailable } else { Trouble::Refused };
    let Some(error) = error else {
        let step = "Does the URL name an S3 server, and nothing that stands before it?";
        return HttpFailure::new(Fate::Unknown, trouble, format!("did not answer as S3 does (HTTP {status})"), step);
    };
    let is_refusal = matches!(status, 301 | 400 | 403 | 501) || (status, error.code.as_str()) == (404, "NoSuchBucket");
    let fate = if is_refusal { Fate::NotDone } else { Fate::Unknown };
    let message = error.message.trim_end_matches('.');
    let mut what = format!("refused the call (HTTP {status} {}: {message})", error.code);
    let region = headers.get("x-amz-bucket-region").and_then(|value| value.to_str().ok()).map(printable);
    if let (301 | 400, Some(region)) = (status, region.or(error.region.clone())) {
        what.push_str(&format!(", and the bucket is in the region {region}"));
    }
    let step = match (status, error.code.as_str()) {
        (_, "RequestTimeTooSkewed") => "Set the clock of this host.",
        (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "ExpiredToken" | "InvalidToken") => {
            "The credentials are wrong or have expired: FENCEPOST_STORE_PASSWORD, the variables AWS_…, or the shared file."
        }
        (301, _)
        | (
            400,
            "AuthorizationHeaderMalformed" | "AuthorizationQueryParametersError" | "IllegalLocationConstraintException",
        ) => "Add the bucket's region to the URL: region=REGION.",
        (403, _) if error.is_late() => "Set the clock of this host, unless the request took minutes.",
        (403, _) => match call {
            S3Call::Put => "Its policy must allow s3:PutObject.",
            S3Call::Get => "Its policy must allow s3:GetObject, and s3:ListBucket on the bucket.",
            S3Call::List => "Its policy must allow s3:ListBucket on the bucket.",
        },
        (404, "NoSuchBucket") => "Create the bucket, or correct its name and endpoint.",
        (501, _) => "The server does not know conditional writes: it cannot be a store.",
        _ => "",
    };
    HttpFailure::new(fate, trouble, what, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(code: &str) -> Vec<u8> {
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>No.</Message></Error>")
            .into_bytes()
    }

    #[test]
    fn a_refusal_is_one_only_with_the_words_of_s3() {
        let table = [
            (400, "InvalidArgument", Fate::NotDone, Trouble::Refused),
            (403, "AccessDenied", Fate::NotDone, Trouble::Refused),
            (404, "NoSuchBucket", Fate::NotDone, Trouble::Refused),
            (301, "PermanentRedirect", Fate::NotDone, Trouble::Refused),
            (501, "NotImplemented", Fate::NotDone, Trouble::Refused),
            (409, "ConditionalRequestConflict", Fate::Unknown, Trouble::Unavailable),
            (500, "InternalError", Fate::Unknown, Trouble::Unavailable),
            (503, "SlowDown", Fate::Unknown, Trouble::Unavailable),
            (429, "TooManyRequests", Fate::Unknown, Trouble::Unavailable),
            (307, "TemporaryRedirect", Fate::Unknown, Trouble::Refused),
            (404, "NoSuchUpload", Fate::Unknown, Trouble::Refused),
            (418, "Teapot", Fate::Unknown, Trouble::Refused),
        ];
        for (status, code, fate, trouble) in table {
            let error = S3Error::parse(&body(code)).unwrap();
            let found = failure(S3Call::Put, status, &HeaderMap::new(), Some(&error));
            assert_eq!((found.fate, found.trouble), (fate, trouble), "{found:?}");
            let proxy = failure(S3Call::Put, status, &HeaderMap::new(), None);
            assert_eq!(proxy.fate, Fate::Unknown, "{status}");
        }
        for other in [&b"<html><Code>AccessDenied</Code></html>"[..], b"", b"{}", b"<?xml", b"\xff", b"<Error></Error>"]
        {
            assert!(S3Error::parse(other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn the_step_names_what_to_correct() {
        let step = |call, status, code: &str| {
            failure(call, status, &HeaderMap::new(), S3Error::parse(&body(code)).as_ref()).step
        };
        assert!(step(S3Call::Put, 403, "AccessDenied").contains("s3:PutObject"));
        assert!(step(S3Call::Get, 403, "AccessDenied").contains("s3:GetObject"));
        assert!(step(S3Call::Put, 404, "NoSuchBucket").contains("Create the bucket"));
        assert!(step(S3Call::Put, 403, "RequestTimeTooSkewed").contains("clock"));
        let late = b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>";
        let late = failure(S3Call::Put, 403, &HeaderMap::new(), S3Error::parse(late).as_ref());
        assert_eq!((late.fate, late.step.contains("clock")), (Fate::NotDone, true), "{late:?}");
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-bucket-region", "eu-west-3".parse().unwrap());
        let found = failure(S3Call::Put, 301, &headers, S3Error::parse(&body("PermanentRedirect")).as_ref());
        assert!(found.what.contains("eu-west-3") && found.step.contains("region=REGION"), "{found:?}");
    }
}
