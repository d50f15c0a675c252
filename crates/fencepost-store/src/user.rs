//! The user that this process runs as.

use std::path::PathBuf;
use std::sync::OnceLock;

use nix::unistd::{Uid, geteuid};

/// A user, as the passwd database knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub home: PathBuf,
}

impl User {
    /// Whom this process acts for. The database may be on the network, so that it is asked once.
    pub fn current() -> Option<&'static Self> {
        static CURRENT: OnceLock<Option<User>> = OnceLock::new();
        CURRENT.get_or_init(|| system::user(geteuid())).as_ref()
    }

    /// The user with this number among lines of `/etc/passwd`.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there the file does not know the people"))]
    fn among(passwd: &str, user: Uid) -> Option<Self> {
        let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let number = user.to_string();
        let fields = lines.find(|fields| fields.len() == 7 && fields[2] == number)?;
        Some(Self { name: fields[0].to_string(), home: PathBuf::from(fields[5]) })
    }
}

/// Who stands in this machine's own file is found there. The others are asked for by the program that comes with the
/// system's C library: it may ask a daemon or directories on the network, by modules that are loaded into whoever asks
/// and do not fit a program which has a C library of its own.
#[cfg(target_os = "linux")]
mod system {
    use std::fs;
    use std::process::{Command, Stdio};

    use super::{Uid, User};

    pub(super) fn user(user: Uid) -> Option<User> {
        let here = fs::read_to_string("/etc/passwd").unwrap_or_default();
        User::among(&here, user).or_else(|| {
            let mut ask = Command::new("getent");
            let asked = ask.args(["passwd", &user.to_string()]).stdin(Stdio::null()).output().ok()?;
            User::among(&String::from_utf8_lossy(&asked.stdout), user)
        })
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
        let passwd = "root:x:0:0:root:/root:/bin/bash\n+::::::\nten:x:10:1000::/home/ten:/bin/sh\n\
                      hundred:x:100:10:A, B:/srv/hundred:\ntorn:x:1000:10\n";
        let user = |number| User::among(passwd, Uid::from_raw(number)).map(|user| (user.name, user.home));
        assert_eq!(user(0), Some(("root".to_string(), "/root".into())));
        assert_eq!(user(10), Some(("ten".to_string(), "/home/ten".into())));
        assert_eq!(user(100), Some(("hundred".to_string(), "/srv/hundred".into())));
        assert_eq!((user(1), user(1000)), (None, None), "for these the whole database is asked");
    }

    #[test]
    fn the_current_user_is_the_one_the_system_names() {
        let known = nix::unistd::User::from_uid(geteuid()).unwrap().expect("whoever runs the tests is known");
        assert_eq!(User::current(), Some(&User { name: known.name, home: known.dir }));
    }
}
