//! Who is refused: other hosts, other pages, callers without a token, forged forms.

use super::{FORM, Served, add_token, token_file};
use crate::common::Site;

fn locked() -> (Site, String, Served) {
    let site = Site::new();
    site.say(&["run", "j", "--", "true"]);
    let token = add_token(&site, "laptop");
    let options =
        ["--token-file", &token_file(&site), "--behind-proxy", "--public-host", "jobs.example", "--allow-actions"];
    let served = Served::of(&site, &options);
    (site, token, served)
}

const HOST: (&str, &str) = ("Host", "jobs.example");

#[test]
fn other_hosts_and_other_pages_are_refused() {
    let site = Site::new();
    site.say(&["run", "j", "--", "true"]);
    let served = Served::of(&site, &[]);
    for path in ["/", "/healthz", "/api/v1/status", "/metrics", "/login", "/assets/x", "/api/v1/events"] {
        let reply = served.ask("GET", path, &[("Host", "evil.example")], "");
        assert_eq!(reply.status, 403, "{path}: {reply:?}");
        for origin in ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"] {
            assert_eq!(served.ask("GET", path, &[("Origin", origin)], "").status, 403, "{path} from {origin}");
        }
    }
    let own = format!("http://127.0.0.1:{}", served.port);
    assert_eq!(served.ask("GET", "/", &[("Origin", &own)], "").status, 200);
    let local = format!("localhost:{}", served.port);
    assert_eq!(served.ask("GET", "/", &[("Host", &local)], "").status, 200);
    assert!(served.get("/").header("access-control-allow-origin").is_none());
}

#[test]
fn without_a_token_only_health_and_login_answer() {
    let (_site, token, served) = locked();
    for path in ["/healthz", "/login"] {
        assert_eq!(served.ask("GET", path, &[HOST], "").status, 200, "{path}");
    }
    for path in ["/api/v1/status", "/api/v1/events", "/metrics", "/status/j", "/openapi.json", "/api/v1/jobs/j/why"] {
        assert_eq!(served.ask("GET", path, &[HOST], "").status, 401, "{path}");
        for wrong in
            ["Bearer wrong", "Bearer ", "Basic eDp5", &format!("Bearer {token}x"), &format!("Bearer {}", &token[1..])]
        {
            let reply = served.ask("GET", path, &[HOST, ("Authorization", wrong)], "");
            assert_eq!(reply.status, 401, "{path} {wrong}");
            assert!(!reply.body.contains("store"), "{reply:?}");
        }
        if path != "/api/v1/events" {
            let reply = served.ask("GET", path, &[HOST, ("Authorization", &format!("bearer {token}"))], "");
            assert_eq!(reply.status, 200, "{path}");
        }
    }
    for path in ["/", "/jobs/j?slot=x", "/stores"] {
        let reply = served.ask("GET", path, &[HOST], "");
        assert_eq!(reply.status, 303, "{path}");
        assert!(reply.header("location").unwrap().starts_with("/login?next=%2F"), "{reply:?}");
    }
    assert_eq!(served.ask("GET", "/healthz", &[], "").status, 403, "only the public name is answered");
}

/// Signs in, and returns the cookie and the token of the forms.
fn sign_in(served: &Served, token: &str) -> (String, String) {
    let reply = served.ask("POST", "/login", &[HOST, FORM], &format!("token={token}&next=%2Fjobs%2Fj"));
    assert_eq!((reply.status, reply.header("location")), (303, Some("/jobs/j")));
    let cookie = reply.header("set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Secure", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap().to_string();
    let page = served.ask("GET", "/jobs/j", &[HOST, ("Cookie", &cookie)], "");
    let csrf = page.body.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_string();
    (cookie, csrf)
}

#[test]
fn a_browser_signs_in_once_and_forged_forms_are_refused() {
    let (site, token, served) = locked();
    let (cookie, csrf) = sign_in(&served, &token);
    let post = |headers: &[(&str, &str)], form: &str| {
        served.ask("POST", "/api/v1/jobs/j/pause", &[&[HOST, FORM, ("Cookie", &cookie)], headers].concat(), form).status
    };
    for (headers, form) in [
        (&[][..], String::new()),
        (&[], "csrf=".to_string()),
        (&[], format!("csrf={}", "0".repeat(64))),
        (&[("Origin", "https://evil.example")], format!("csrf={csrf}")),
        (&[("Origin", "null")], format!("csrf={csrf}")),
    ] {
        assert_eq!(post(headers, &form), 403, "{form}");
    }
    assert_eq!(site.job("j")["state"], "free");
    assert_eq!(post(&[("Origin", "https://jobs.example"), ("Accept", "text/html")], &format!("csrf={csrf}")), 303);
    assert_eq!(site.job("j")["state"], "paused");
    assert_eq!(post(&[("X-CSRF-Token", &csrf)], ""), 200, "a script sends it as a header");
    // Signing out needs the same proof, and ends the session.
    let out = |form: &str| served.ask("POST", "/logout", &[HOST, FORM, ("Cookie", &cookie)], form).status;
    assert_eq!((out("csrf=x"), out(&format!("csrf={csrf}"))), (403, 303));
    assert_eq!(served.ask("GET", "/api/v1/status", &[HOST, ("Cookie", &cookie)], "").status, 401);
}

#[test]
fn a_wrong_token_opens_no_session_and_leads_nowhere_else() {
    let (_site, token, served) = locked();
    let reply = served.ask("POST", "/login", &[HOST, FORM, ("Accept", "text/html")], "token=wrong");
    assert_eq!((reply.status, reply.header("set-cookie")), (401, None));
    assert!(reply.body.contains("not known here"));
    for next in ["https://evil.example/", "//evil.example", "/\\evil.example", "/a%0d%0aSet-Cookie:x"] {
        let reply = served.ask("POST", "/login", &[HOST, FORM], &format!("token={token}&next={next}"));
        assert_eq!((reply.status, reply.header("location")), (303, Some("/")), "{next}");
    }
    let foreign =
        served.ask("POST", "/login", &[HOST, FORM, ("Origin", "https://evil.example")], &format!("token={token}"));
    assert_eq!((foreign.status, foreign.header("set-cookie")), (403, None));
}

#[test]
fn a_revoked_token_ends_its_sessions_too() {
    let (site, token, served) = locked();
    let (cookie, _) = sign_in(&served, &token);
    let asks = |header: (&str, &str)| served.ask("GET", "/api/v1/status", &[HOST, header], "").status;
    let bearer = format!("Bearer {token}");
    assert_eq!((asks(("Cookie", &cookie)), asks(("Authorization", &bearer))), (200, 200));
    std::fs::write(token_file(&site), "# nothing\n").unwrap();
    assert_eq!((asks(("Cookie", &cookie)), asks(("Authorization", &bearer))), (401, 401));
}

#[test]
fn secrets_are_in_no_output_and_no_child() {
    let desk = crate::desk::Desk::configured("[job.show]\ncommand = 'env'\n");
    let mut command = desk.command(&["serve", "--listen", "127.0.0.1:0", "--allow-actions"]);
    command.env("FENCEPOST_SERVE_TOKEN", "t0ken-of-the-environment");
    let served = Served::start(command);
    let token = "t0ken-of-the-environment";
    desk.say(&["run", "show"]);
    assert_eq!(served.post_as(token, "/api/v1/jobs/show/run_now", "").status, 200);
    assert_eq!(served.post_as("wr0ng-t0ken", "/api/v1/jobs/show/run_now", "").status, 401);
    served.ask("POST", "/login", &[FORM], "token=wr0ng-t0ken");
    fencepost_testkit::eventually("the run has ended", || desk.site.runs(&["show"]).len() == 2);
    assert!(!desk.say(&["logs", "show"]).stdout.contains("t0ken"), "the job sees the token");
    assert!(!served.said().contains("t0ken"), "{}", served.said());
    assert!(served.said().contains("environment asks for run_now of show"), "{}", served.said());
    let record = std::fs::read_to_string(desk.site.state().join("serve-actions.jsonl")).unwrap();
    assert!(!record.contains("t0ken") && record.contains("\"client\":\"environment\""), "{record}");
}
