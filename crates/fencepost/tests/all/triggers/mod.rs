//! A home directory of its own with a configuration and a crontab, so that no user's triggers are touched.
#![allow(dead_code, reason = "each file of tests uses its part")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::common::{Said, Site};

pub struct Home {
    pub site: Site,
    directory: String,
}

impl Home {
    /// A project with this configuration, in a directory of this name.
    pub fn named(directory: &str, config: &str) -> Self {
        let home = Self { site: Site::new(), directory: directory.to_string() };
        fs::create_dir_all(home.path("")).unwrap();
        fs::create_dir_all(home.site.path("home")).unwrap();
        fs::create_dir_all(home.site.path("bin")).unwrap();
        if !config.is_empty() {
            home.write("fencepost.toml", config);
        }
        // As much of crontab(1) as is called.
        let spool = home.spool();
        home.program(
            "crontab",
            &format!(
                "#!/bin/sh\nspool='{0}'\ncase \"$1\" in\n\
                 -l) [ -e \"$spool\" ] && exec cat \"$spool\"; echo 'no crontab for you' >&2; exit 1 ;;\n\
                 -) cat > \"$spool.new\" && mv \"$spool.new\" \"$spool\" ;;\n\
                 -V) [ -e \"$spool.cronie\" ] && echo 'cronie 1.7.2'; exit 1 ;;\n*) exit 2 ;;\nesac\n",
                spool.display()
            ),
        );
        home
    }

    pub fn new(config: &str) -> Self {
        Self::named("project", config)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.site.path(&self.directory).join(name)
    }

    pub fn config(&self) -> PathBuf {
        self.path("fencepost.toml")
    }

    pub fn spool(&self) -> PathBuf {
        self.site.path("spool")
    }

    /// Makes crontab(1) say that it belongs to cronie.
    pub fn with_cronie(self) -> Self {
        fs::write(self.site.path("spool.cronie"), "").unwrap();
        self
    }

    pub fn units(&self) -> PathBuf {
        self.site.path("home/.config/systemd/user")
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    /// A program that is found before those of the machine.
    pub fn program(&self, name: &str, script: &str) {
        let path = self.site.path("bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// As if the configuration had been there for a while.
    pub fn age(&self, age: Duration) {
        let file = fs::File::options().write(true).open(self.config()).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command(arguments);
        let search = format!("{}:/usr/local/bin:/usr/bin:/bin", self.site.path("bin").display());
        command.env_remove("FENCEPOST_CONFIG").env_remove("XDG_CONFIG_HOME").current_dir(self.path(""));
        command.env("HOME", self.site.path("home")).env("PATH", search);
        command
    }

    pub fn say(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().unwrap())
    }

    #[track_caller]
    pub fn done(&self, arguments: &[&str]) -> Said {
        let said = self.say(arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
        said
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        let said = self.say(&[arguments, &["--json"]].concat());
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
    }

    pub fn crontab(&self) -> String {
        fs::read_to_string(self.spool()).unwrap_or_default()
    }
}

/// The zone that the schedulers of this machine go by.
pub fn machine_zone() -> String {
    let link = fs::read_link("/etc/localtime")
        .ok()
        .and_then(|link| link.to_str()?.split_once("zoneinfo/").map(|(_, name)| name.to_string()));
    let name = link.or_else(|| fs::read_to_string("/etc/timezone").ok().map(|name| name.trim().to_string()));
    name.filter(|name| !name.starts_with("Etc/")).unwrap_or_else(|| "UTC".to_string())
}
