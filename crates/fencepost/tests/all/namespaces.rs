//! Holders in other namespaces of the same machine: what cannot be compared proves nothing.

use crate::common::{Holder, Said, Site};

/// Start times of processes are shifted in another time namespace, and a live holder there must not look dead.
#[test]
fn a_live_holder_in_another_time_namespace_keeps_its_lease() {
    let site = Site::new();
    let script = r#"exec "$BINARY" run nightly --ttl 5m -c 'echo "$FENCEPOST_TOKEN"; exec cat >/dev/null'"#;
    let inside = ["--time", "--boottime", "100000", "--fork", "sh", "-c", script];
    let holder = Holder::start(site.program("unshare", &inside));
    let second = site.say(&["run", "nightly", "-v", "-E", "7", "--", "echo", "SECOND"]);
    assert_eq!((second.code, second.stdout.as_str()), (7, ""), "{second:?}");
    let inside =
        ["--time", "--boottime", "200000", "--fork", "sh", "-c", r#"exec "$BINARY" run nightly -E 7 -- echo THIRD"#];
    let third = Said::of(site.program("unshare", &inside).output().unwrap());
    assert_eq!((third.code, third.stdout.as_str()), (7, ""), "{third:?}");
    drop(holder);
}
