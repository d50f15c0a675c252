//! The user this process runs as.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use nix::unistd::{Uid, geteuid};

/// A user of the passwd database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub home: PathBuf,
}

impl User {
    /// The user this process acts for. Looked up once, because the database may be on the network.
    pub fn current() -> Option<&'static Self> {
        static CURRENT: OnceLock<Option<User>> = OnceLock::new();
        CURRENT.get_or_init(|| system::user(geteuid())).as_ref()
    }

    /// A user's name and uid for messages, or the uid alone if the database does not have it.
    pub fn shown(number: u32) -> String {
        let user = system::user(Uid::from_raw(number));
        user.map_or(format!("uid {number}"), |user| format!("{} (uid {number})", user.name))
    }

    /// The user with this uid in lines of `/etc/passwd`.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there the file does not know the people"))]
    fn among(passwd: &[u8], user: Uid) -> Option<Self> {
        let mut lines =
            passwd.split(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b':').collect::<Vec<_>>());
        let number = user.to_string();
        let fields = lines.find(|fields| fields.len() == 7 && fields[2] == number.as_bytes())?;
        let name = String::from_utf8_lossy(fields[0]).into_owned();
        Some(Self { name, home: PathBuf::from(OsStr::from_bytes(fields[5])) })
    }
}

/// Looks in `/etc/passwd` first. Other users are looked up with `getent`: the C library may ask a daemon or the network
/// through modules that it loads into the calling process, which a static binary cannot do.
#[cfg(target_os = "linux")]
mod system {
    use std::fs;
    use std::io::{self, Read};
    use std::process::{Command, Stdio};

    use super::{Uid, User};

    pub(super) fn user(user: Uid) -> Option<User> {
        let here = fs::read("/etc/passwd").unwrap_or_default();
        User::among(&here, user).or_else(|| User::among(&asked(user).ok()?, user))
    }

    /// The whole passwd database. The exit status of `getent` is not checked: if SIGCHLD was inherited as ignored, it
    /// is not available.
    fn asked(user: Uid) -> io::Result<Vec<u8>> {
        let mut ask = Command::new("getent");
        ask.args(["passwd", &user.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut asked = ask.spawn()?;
        let mut answer = Vec::new();
        asked.stdout.take().map_or(Ok(0), |mut output| output.read_to_end(&mut answer))?;
        let _ = asked.wait();
        Ok(answer)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{Uid, User};

    pub(super) fn user(user: Uid) -> Option<User> {
        let known = nix::unistd::User::from_uid(user).ok().flatten()?;
        Some(User { name: known.name, home: known.dir })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_number_alone() {
        let passwd = b"root:x:0:0:root:/root:/bin/bash\n+::::::\nten:x:10:1000:J\xf6rg:/home/ten:/bin/sh\n\
                       hundred:x:100:10:A, B:/srv/hundred:\ntorn:x:1000:10\n";
        let user = |number| User::among(passwd, Uid::from_raw(number)).map(|user| (user.name, user.home));
        assert_eq!(user(0), Some(("root".to_string(), "/root".into())));
        assert_eq!(user(10), Some(("ten".to_string(), "/home/ten".into())));
        assert_eq!(user(100), Some(("hundred".to_string(), "/srv/hundred".into())));
        assert_eq!((user(1), user(1000)), (None, None), "for these the whole database is asked");
    }

    #[test]
    fn the_current_user_is_the_one_the_system_names() {
        let known = nix::unistd::User::from_uid(geteuid()).unwrap().expect("the test user is known");
        assert_eq!(User::current(), Some(&User { name: known.name, home: known.dir }));
    }
}
