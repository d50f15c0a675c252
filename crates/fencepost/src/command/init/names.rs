//! Derives a job's name from its command.

use std::collections::BTreeSet;

use fencepost_core::name::Name;

use crate::command::install::words;

/// Programs that run another program, which gives the better name.
const WRAPPERS: [&str; 18] = [
    "nice",
    "ionice",
    "timeout",
    "flock",
    "chronic",
    "sudo",
    "exec",
    "time",
    "nohup",
    "env",
    "setsid",
    "stdbuf",
    "test",
    "command",
    "systemd-cat",
    "logger",
    "ts",
    "cronic",
];

const INTERPRETERS: [&str; 12] =
    ["sh", "bash", "dash", "zsh", "ksh", "python", "python3", "perl", "ruby", "node", "php", "deno"];

const ENDINGS: [&str; 9] = [".sh", ".bash", ".py", ".pl", ".rb", ".js", ".ts", ".php", ".mjs"];

/// Maximum length of a derived name.
const NAME_BYTES_MAX: usize = 60;

/// The names already in use.
#[derive(Debug, Default)]
pub struct Names {
    taken: BTreeSet<String>,
}

impl Names {
    /// Returns an unused name for a job with this command.
    pub fn of(&mut self, command: &str) -> String {
        let base = guess(command).unwrap_or_else(|| "job".to_string());
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let free = std::iter::once(base.clone()).chain(numbered).find(|name| !self.taken.contains(name));
        let name = free.unwrap_or(base);
        self.taken.insert(name.clone());
        name
    }
}

fn guess(command: &str) -> Option<String> {
    // Of several commands the last counts: those before it are mostly `cd` or a test.
    let parts = parts(command);
    let own = parts.iter().find(|part| {
        let first = words(part).first().cloned().unwrap_or_default();
        !first.is_empty()
            && !["cd", "[", "test", ".", "source", "export", "sleep", "umask", "set"].contains(&first.as_str())
    })?;
    let words = words(own);
    let mut words = words.iter().map(String::as_str).skip_while(|word| word.contains('=') && !word.starts_with('/'));
    let mut program = words.next()?;
    while WRAPPERS.contains(&stem(program)) {
        let is_flock = stem(program) == "flock";
        let mut next = words.by_ref().skip_while(|word| {
            word.starts_with('-') || word.contains('=') || word.starts_with(|c: char| c.is_ascii_digit())
        });
        program = next.next()?;
        if is_flock {
            // The first argument is the lock file.
            program = next.next().unwrap_or(program);
        }
    }
    if INTERPRETERS.iter().any(|known| {
        stem(program).trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') == *known || stem(program) == *known
    }) {
        while let Some(word) = words.next() {
            match word {
                "-c" => return words.next().and_then(guess),
                "-m" => return words.next().and_then(sound),
                option if option.starts_with('-') => {}
                script => return sound(script),
            }
        }
    }
    sound(program)
}

/// Splits a line into its commands, outside quotes.
fn parts(command: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut quote) = (0, None);
    for (at, c) in command.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == ';' || c == '&' => {
                parts.push(&command[start..at]);
                start = at + 1;
            }
            None => {}
        }
    }
    parts.push(&command[start..]);
    parts
}

/// The file name of a path.
fn stem(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// Turns a path into a valid job name.
fn sound(path: &str) -> Option<String> {
    let name = stem(path);
    let name = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect();
    let plain = plain.replace("..", "-");
    let mut plain = plain.trim_matches(['.', '-']).to_string();
    plain.truncate(NAME_BYTES_MAX);
    let plain = plain.trim_matches(['.', '-']).to_string();
    Name::new(&plain).ok().map(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_what_is_run() {
        for (command, name) in [
            ("/home/x/bin/report.sh --daily > /dev/null 2>&1", "report"),
            ("cd /srv/news && ./refresh.py", "refresh"),
            ("A=b /usr/bin/python3 /opt/jobs/sync.py", "sync"),
            ("nice -n 10 ionice -c3 backup /home", "backup"),
            ("flock -n /tmp/x.lock /usr/local/bin/index", "index"),
            ("/bin/bash -c 'cd /x; ./tidy.sh'", "tidy"),
            ("[ -x /usr/bin/certbot ] && certbot renew", "certbot"),
            ("timeout 10m curl -s https://example.org", "curl"),
            ("python3 -m backup.main", "backup.main"),
            ("\"/opt/my tool/run it.sh\"", "run-it"),
            ("$HOME/bin/x", "x"),
        ] {
            assert_eq!(Names::default().of(command), name, "{command}");
        }
        let mut names = Names::default();
        assert_eq!([names.of("a"), names.of("a"), names.of("!!")], ["a", "a-2", "job"].map(String::from));
    }
}
