//! Finds commands in the text of a shell, as an agent writes it: enough to recognise a bare `git push`, no sandbox.

use std::iter::Peekable;
use std::str::Chars;

/// How deep commands inside commands are looked at: substitutions, `sh -c`, `eval`.
const DEPTH_MAX: usize = 8;

/// Words before a command that run it.
const PREFIXES: [&str; 12] =
    ["sudo", "env", "command", "exec", "nohup", "nice", "time", "timeout", "xargs", "builtin", "doas", "stdbuf"];

/// Words of the shell's grammar before a command.
const KEYWORDS: [&str; 9] = ["if", "then", "else", "elif", "do", "while", "until", "!", "{"];

const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "fish"];

/// Options of `git` before its verb that take a value.
const GIT_VALUES: [&str; 7] = ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--super-prefix"];

/// The simple commands in a text, each as its words.
pub fn commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    collect(text, 0, &mut found);
    found
}

fn collect(text: &str, depth: usize, found: &mut Vec<Vec<String>>) {
    if depth > DEPTH_MAX {
        return;
    }
    let mut scanner = Scanner {
        rest: text.chars().peekable(),
        words: Vec::new(),
        word: None,
        inner: Vec::new(),
        heredocs: Vec::new(),
        found: Vec::new(),
    };
    scanner.scan();
    let Scanner { found: simple, inner, .. } = scanner;
    for words in simple {
        let words = bare(words);
        match words.first().map(|word| base_name(word)) {
            Some(shell) if SHELLS.contains(&shell) => {
                if let Some(script) = script(&words) {
                    collect(script, depth + 1, found);
                }
            }
            Some("eval") => collect(&words[1..].join(" "), depth + 1, found),
            _ => {}
        }
        if !words.is_empty() {
            found.push(words);
        }
    }
    for text in inner {
        collect(&text, depth + 1, found);
    }
}

/// The string after `-c`, or after options that end in it, such as `-lc`.
fn script(words: &[String]) -> Option<&str> {
    let at = words.iter().position(|word| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c'))?;
    words.get(at + 1).map(String::as_str)
}

/// The words without what only precedes the command: assignments, keywords, and programs that run another.
fn bare(words: Vec<String>) -> Vec<String> {
    let mut words = words.as_slice();
    loop {
        let Some(first) = words.first() else { return Vec::new() };
        if is_assignment(first) || KEYWORDS.contains(&first.as_str()) {
            words = &words[1..];
        } else if PREFIXES.contains(&base_name(first)) {
            let takes_value = matches!(base_name(first), "timeout");
            words = &words[1..];
            while words.first().is_some_and(|word| word.starts_with('-')) {
                // A value of such an option follows: -u root, -n 5, -I {}.
                let has_value = matches!(words[0].as_str(), "-u" | "-n" | "-I" | "-k" | "-s" | "-g" | "-P" | "-L");
                words = words.get(1 + usize::from(has_value)..).unwrap_or_default();
            }
            words = if takes_value { words.get(1..).unwrap_or_default() } else { words };
        } else {
            return words.to_vec();
        }
    }
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name.trim_end_matches('+'));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(is_name) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Whether a command begins with the words of another, options left out.
pub fn begins_with(words: &[String], guarded: &str) -> bool {
    let mut wanted = guarded.split_whitespace();
    let (Some(program), Some(first)) = (wanted.next(), words.first()) else { return false };
    let mut arguments = arguments(words);
    base_name(first) == base_name(program) && wanted.all(|word| arguments.next().is_some_and(|found| found == word))
}

/// The words after the program that are neither options nor the values of git's own options.
fn arguments(words: &[String]) -> impl Iterator<Item = &str> {
    let is_git = words.first().is_some_and(|word| base_name(word) == "git");
    let mut is_value = false;
    words.iter().skip(1).map(String::as_str).filter(move |word| {
        let skip = is_value || word.starts_with('-');
        is_value = is_git && !is_value && GIT_VALUES.contains(word);
        !skip
    })
}

/// The fenced equivalent of a `git push`.
pub fn publish_git(words: &[String]) -> String {
    let mut command = format!("{} publish git", program());
    let mut add = |option: &str, value: &str| command.push_str(&format!(" {option} {}", quoted(value)));
    if let Some(at) = words.iter().position(|word| word == "-C") {
        words.get(at + 1).iter().for_each(|directory| add("--repo", directory));
    }
    let mut arguments = arguments(words).skip_while(|word| *word != "push").skip(1);
    arguments.next().iter().filter(|remote| **remote != "origin").for_each(|remote| add("--remote", remote));
    for branch in arguments {
        add("--branch", branch.trim_start_matches('+'));
    }
    command
}

/// The fenced equivalent of any other command.
pub fn publish_exec(words: &[String], guarded: &str) -> String {
    let resource = guarded.split_whitespace().collect::<Vec<_>>().join("-");
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("{} publish exec --resource {} -- {}", program(), quoted(&resource), words.join(" "))
}

/// This program as an agent can call it: by the path that it was called by, if it was.
pub fn program() -> String {
    let called = std::env::args().next().filter(|called| called.starts_with('/') && !cfg!(test));
    called.map_or_else(|| "fencepost".to_string(), |path| quoted(&path))
}

/// A word as a shell reads it back.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Splits a text into simple commands.
struct Scanner<'a> {
    rest: Peekable<Chars<'a>>,
    words: Vec<String>,
    word: Option<String>,
    /// The texts of substitutions.
    inner: Vec<String>,
    /// The ends of here-documents whose bodies begin on the next line.
    heredocs: Vec<String>,
    found: Vec<Vec<String>>,
}

impl Scanner<'_> {
    fn scan(&mut self) {
        while let Some(c) = self.rest.next() {
            match c {
                '\n' => {
                    self.end_command();
                    self.skip_heredocs();
                }
                c if c.is_whitespace() => self.end_word(),
                ';' | '&' | '|' | '(' | ')' => self.end_command(),
                '#' if self.word.is_none() => self.skip_line(),
                '\'' => self.quote(),
                '"' => self.double_quote(),
                '\\' => {
                    if let Some(next) = self.rest.next().filter(|next| *next != '\n') {
                        self.push(next);
                    }
                }
                '`' => self.substitute('`'),
                '$' if self.rest.next_if_eq(&'(').is_some() => self.substitute(')'),
                '<' | '>' => self.redirect(c),
                c => self.push(c),
            }
        }
        self.end_command();
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.end_word();
        let words = std::mem::take(&mut self.words);
        self.found.extend((!words.is_empty()).then_some(words));
    }

    fn skip_line(&mut self) {
        while self.rest.next_if(|c| *c != '\n').is_some() {}
    }

    fn quote(&mut self) {
        self.word.get_or_insert_default();
        while let Some(c) = self.rest.next().filter(|c| *c != '\'') {
            self.push(c);
        }
    }

    fn double_quote(&mut self) {
        self.word.get_or_insert_default();
        while let Some(c) = self.rest.next().filter(|c| *c != '"') {
            match c {
                '\\' => {
                    let next = self.rest.next();
                    next.into_iter().for_each(|next| self.push(next));
                }
                '`' => self.substitute('`'),
                '$' if self.rest.next_if_eq(&'(').is_some() => self.substitute(')'),
                c => self.push(c),
            }
        }
    }

    /// Keeps the text of a substitution for a look of its own. Its result is unknown: it stands as one character.
    fn substitute(&mut self, end: char) {
        let (mut text, mut depth) = (String::new(), 0);
        for c in self.rest.by_ref() {
            match c {
                '(' if end == ')' => depth += 1,
                ')' if end == ')' && depth > 0 => depth -= 1,
                c if c == end => break,
                _ => {}
            }
            text.push(c);
        }
        self.inner.push(text);
        self.push('$');
    }

    /// Leaves out a redirection with its target, and remembers the end of a here-document.
    fn redirect(&mut self, c: char) {
        // The number of a descriptor stands before it.
        if self.word.as_ref().is_some_and(|word| word.chars().all(|c| c.is_ascii_digit())) {
            self.word = None;
        }
        self.end_word();
        let is_double = self.rest.next_if_eq(&c).is_some();
        if c == '<' && is_double && self.rest.next_if_eq(&'<').is_none() {
            self.rest.next_if_eq(&'-');
            let end = self.target();
            self.heredocs.push(end);
            return;
        }
        if self.rest.next_if_eq(&'(').is_some() {
            return self.substitute(')');
        }
        self.rest.next_if(|next| "&|<>".contains(*next));
        self.target();
    }

    /// The word after a redirection, without its quotes.
    fn target(&mut self) -> String {
        while self.rest.next_if(|c| *c == ' ' || *c == '\t').is_some() {}
        let mut target = String::new();
        while let Some(c) = self.rest.next_if(|c| !c.is_whitespace() && !";&|()<>".contains(*c)) {
            target.extend((!"'\"\\".contains(c)).then_some(c));
        }
        target
    }

    fn skip_heredocs(&mut self) {
        for end in std::mem::take(&mut self.heredocs) {
            loop {
                let mut line = String::new();
                while let Some(c) = self.rest.next_if(|c| *c != '\n') {
                    line.push(c);
                }
                let is_last = self.rest.next().is_none();
                if is_last || line.trim_start_matches('\t') == end {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushes(text: &str) -> bool {
        commands(text).iter().any(|words| begins_with(words, "git push"))
    }

    #[test]
    fn a_push_is_found_where_a_shell_would_run_it() {
        for text in [
            "git push",
            "cd site && git push origin main",
            "git -C /srv/site -c user.name=x push --force",
            "/usr/bin/git push",
            "GIT_SSH_COMMAND='ssh -i k' git push origin HEAD:main",
            "sudo -u www git push",
            "bash -lc 'git add . && git push'",
            "sh -c \"cd x; git push\"",
            "echo $(git push 2>&1)",
            "out=`git push`",
            "if true; then git push; fi",
            "(git push)",
            "true;git push",
            "timeout 30 git push",
            "git commit -m 'x' && git \\\n push",
            "cat <<EOF | sh\nhello\nEOF\ngit push",
            "eval 'git push'",
            "git push > /dev/null 2>&1 &",
            "x=\"$(git push)\"",
        ] {
            assert!(pushes(text), "{text}");
        }
    }

    #[test]
    fn text_about_a_push_is_none() {
        for text in [
            "git commit -m 'git push'",
            "echo git push",
            "git log --grep push",
            "git stash push",
            "# git push",
            "grep -r \"git push\" .",
            "cat <<'EOF' > notes\ngit push\nEOF",
            "cat > x <<-EOF\n\tgit push\n\tEOF\n",
            "fencepost publish git",
            "git pushx",
            "gitpush",
            "",
            "'",
            "$(",
            "<<",
        ] {
            assert!(!pushes(text), "{text}");
        }
    }

    #[test]
    fn the_fenced_command_pushes_the_same() {
        let words = |text: &str| commands(text).remove(0);
        assert_eq!(publish_git(&words("git push")), "fencepost publish git");
        assert_eq!(publish_git(&words("git push -u origin main")), "fencepost publish git --branch main");
        assert_eq!(
            publish_git(&words("git -C 'my site' push backup HEAD:main dev")),
            "fencepost publish git --repo 'my site' --remote backup --branch HEAD:main --branch dev"
        );
        assert_eq!(
            publish_exec(&words("npm publish --tag 'a b'"), "npm publish"),
            "fencepost publish exec --resource npm-publish -- npm publish --tag 'a b'"
        );
    }
}
