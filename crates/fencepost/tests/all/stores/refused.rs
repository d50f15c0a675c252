//! Stores that are refused before they are used, because a promise could not be kept in them.

use std::fs;

use crate::common::{Said, Site, contains};

#[test]
fn a_database_that_is_bind_mounted_by_itself_is_refused() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "a", "--", "true"]).code, 0);
    fs::create_dir(site.path("elsewhere")).unwrap();
    fs::write(site.path("elsewhere/store.db"), b"").unwrap();
    let script = "mount --bind state/store.db elsewhere/store.db && touch mounted || exit 99
                  \"$BINARY\" --store sqlite:elsewhere/store.db run a -- touch ran; echo $?
                  ls -A elsewhere
                  umount elsewhere/store.db && mount --bind state elsewhere || exit 99
                  \"$BINARY\" --store sqlite:elsewhere/store.db run a -- touch ran; echo $?";
    let mut command = site.program("unshare", &["-m", "sh", "-c", script]);
    let said = Said::of(command.current_dir(site.path("")).output().unwrap());
    if !site.path("mounted").exists() {
        return println!("skipped: mounting needs root: {said:?}");
    }
    assert_eq!(said.stdout, "125\nstore.db\n0\n", "no log beside the file, and its directory may be mounted: {said:?}");
    contains(&said.stderr, &["elsewhere/store.db is a mount point", "nothing was changed", "Mount the directory"]);
    assert!(site.path("ran").exists());
}
