//! The variables and files of the AWS tools: where credentials and a region come from.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use crate::User;

type Lookup = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The variables of a process.
pub(super) struct AwsEnvironment(Box<Lookup>);

impl fmt::Debug for AwsEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsEnvironment")
    }
}

impl AwsEnvironment {
    pub(super) fn of_process() -> Self {
        Self(Box::new(|name| std::env::var(name).ok()))
    }

    #[cfg(test)]
    pub(super) fn of(variables: &[(&str, &str)]) -> Self {
        let variables: Vec<_> = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        Self(Box::new(move |wanted| variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())))
    }

    /// A variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    pub(super) fn profile(&self) -> String {
        self.variable("AWS_PROFILE").unwrap_or_else(|| "default".to_string())
    }

    /// The path of a file of the AWS tools: the variable's, or the usual one.
    pub(super) fn path(&self, variable: &str, usual: &str) -> Option<PathBuf> {
        let home = || self.variable("HOME").map(PathBuf::from).or_else(|| Some(User::current()?.home.clone()));
        self.variable(variable).map(PathBuf::from).or_else(|| Some(home()?.join(".aws").join(usual)))
    }

    /// A setting of the profile in one of the files.
    pub(super) fn setting(&self, variable: &str, usual: &str, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(variable, usual)?).ok()?;
        setting(&text, &self.profile(), name)
    }

    /// The region that the AWS tools would use.
    pub(super) fn region(&self) -> Option<String> {
        self.variable("AWS_REGION")
            .or_else(|| self.variable("AWS_DEFAULT_REGION"))
            .or_else(|| self.setting("AWS_CONFIG_FILE", "config", "region"))
    }
}

/// Finds a setting of a profile. The section is `[NAME]`, or `[profile NAME]` in the file named config.
fn setting(text: &str, profile: &str, name: &str) -> Option<String> {
    let mut is_ours = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.split_once(']')).map(|(section, _)| section)
        {
            let section = section.trim();
            is_ours = section.strip_prefix("profile ").map_or(section, str::trim) == profile;
        } else if let Some((_, value)) = line.split_once('=').filter(|(key, _)| is_ours && key.trim() == name) {
            return Some(value.trim().to_string()).filter(|value| !value.is_empty());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_belong_to_their_profile() {
        let text = "# x = 1\n[default]\nregion=eu-west-1\n\n[profile work]\n region = us-east-2 \n[bare]\nregion = x\n";
        assert_eq!(setting(text, "default", "region").as_deref(), Some("eu-west-1"));
        assert_eq!(setting(text, "work", "region").as_deref(), Some("us-east-2"));
        assert_eq!(setting(text, "bare", "region").as_deref(), Some("x"));
        assert_eq!(setting(text, "other", "region"), None);
        assert_eq!(setting(text, "default", "x"), None);
    }

    #[test]
    fn the_region_comes_from_the_first_place_that_has_one() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join(".aws")).unwrap();
        fs::write(directory.path().join(".aws/config"), "[default]\nregion = eu-north-1\n").unwrap();
        let home = ("HOME", directory.path().to_str().unwrap());
        assert_eq!(AwsEnvironment::of(&[home]).region().as_deref(), Some("eu-north-1"));
        let named = AwsEnvironment::of(&[home, ("AWS_REGION", "ca-west-1"), ("AWS_DEFAULT_REGION", "x")]);
        assert_eq!(named.region().as_deref(), Some("ca-west-1"));
        assert_eq!(AwsEnvironment::of(&[("HOME", "/no/such")]).region(), None);
    }
}
