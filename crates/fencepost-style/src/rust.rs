//! As much of Rust's grammar as the rules need: comments, literals, functions and types.

/// One character of a source, and what it belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Literal,
    Comment,
}

/// The source with comments and the content of literals blanked, line by line as it was.
pub fn code(text: &str) -> String {
    keep(text, |part| part == Part::Code)
}

/// The comments and literals of a source, with all else blanked.
pub fn prose(text: &str) -> String {
    keep(text, |part| part != Part::Code)
}

fn keep(text: &str, is_kept: impl Fn(Part) -> bool) -> String {
    let show = |(part, c): (Part, char)| if is_kept(part) || c == '\n' { c } else { ' ' };
    parts(text).into_iter().map(show).collect()
}

/// Tells for every character what it belongs to.
fn parts(text: &str) -> Vec<(Part, char)> {
    let all: Vec<char> = text.chars().collect();
    let mut parts = Vec::with_capacity(all.len());
    let mut at = 0;
    while at < all.len() {
        let is_in_word = at > 0 && (all[at - 1].is_alphanumeric() || all[at - 1] == '_');
        let (part, end) = match &all[at..] {
            ['/', '/', ..] => (Part::Comment, line_end(&all, at)),
            ['/', '*', ..] => (Part::Comment, block_end(&all, at)),
            ['"', ..] => (Part::Literal, text_end(&all, at)),
            ['r', '"' | '#', ..] if !is_in_word => raw_end(&all, at + 1).map_or((Part::Code, at + 1), literal),
            ['b' | 'c', 'r', '"' | '#', ..] if !is_in_word => {
                raw_end(&all, at + 2).map_or((Part::Code, at + 1), literal)
            }
            ['\'', '\\', ..] => (Part::Literal, quote_end(&all, at)),
            ['\'', _, '\'', ..] => (Part::Literal, at + 3),
            _ => (Part::Code, at + 1),
        };
        parts.extend(all[at..end].iter().map(|c| (part, *c)));
        at = end;
    }
    parts
}

fn literal(end: usize) -> (Part, usize) {
    (Part::Literal, end)
}

fn line_end(all: &[char], at: usize) -> usize {
    all[at..].iter().position(|c| *c == '\n').map_or(all.len(), |length| at + length)
}

fn block_end(all: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < all.len() {
        match &all[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The end of a text in double quotes that begins here.
fn text_end(all: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < all.len() && all[at] != '"' {
        at += if all[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(all.len())
}

/// The end of a raw text whose hashes or quote begin here.
fn raw_end(all: &[char], start: usize) -> Option<usize> {
    let hashes = all[start..].iter().take_while(|c| **c == '#').count();
    let open = start + hashes;
    (all.get(open) == Some(&'"')).then(|| {
        let closes = |at: &usize| all[*at] == '"' && all[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
        (open + 1..all.len()).find(closes).map_or(all.len(), |at| at + 1 + hashes)
    })
}

/// The end of a character that is escaped.
fn quote_end(all: &[char], start: usize) -> usize {
    let end = all[start + 3..].iter().position(|c| *c == '\'');
    end.map_or(all.len(), |length| start + 4 + length)
}

/// The functions with their lengths in lines, from `fn` to the last brace. Code without comments and literals.
pub fn functions(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, name) in named(code, &["fn"]) {
        // Until the body there are parameters, whose types may have braces only in constants.
        let Some(end) = code[at..].find(['{', ';']) else { continue };
        if code.as_bytes()[at + end] == b';' {
            continue;
        }
        let mut depth = 0;
        let closes = |c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0
        };
        let length = code[at + end..].find(closes).unwrap_or(code.len() - at - end);
        found.push((name, code[at..=at + end + length].lines().count()));
    }
    found
}

/// The types that the code defines for others to see.
pub fn public_types(code: &str) -> Vec<String> {
    let is_public = |at: usize| {
        let before = code[..at].trim_end();
        before.ends_with("pub")
            || (before.ends_with(')')
                && before
                    .rfind("pub(")
                    .is_some_and(|pub_at| before[pub_at..].chars().filter(|c| *c == ')').count() == 1))
    };
    let types = named(code, &["struct", "enum", "trait", "type", "union"]);
    types.into_iter().filter(|(at, _)| is_public(*at)).map(|(_, name)| name).collect()
}

/// Where one of these keywords stands, and the name after it.
fn named(code: &str, keywords: &[&str]) -> Vec<(usize, String)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for keyword in keywords {
        for (at, _) in code.match_indices(keyword) {
            let rest = &code[at + keyword.len()..];
            let name: String = rest.trim_start().chars().take_while(|c| is_part(*c)).collect();
            let is_word = !code[..at].ends_with(is_part) && rest.starts_with(char::is_whitespace);
            if is_word && !name.is_empty() {
                found.push((at, name));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_told_from_code() {
        let text = "a // b {\nc \"d \\\" {\" r#\"e \" {\"# '{' '\\'' 'life /* f /* g */ { */ h";
        let code = code(text);
        assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "c", "'life", "h"]);
        assert_eq!(code.lines().count(), text.lines().count());
        let prose = prose(text);
        assert!(prose.contains("// b {") && prose.contains("e \" {") && !prose.contains("life"), "{prose}");
    }

    #[test]
    fn functions_are_measured_to_their_last_brace() {
        let text = "trait T { fn none(&self); }\nfn one() {}\nfn three(\n) -> u8 {\n    if x { y } }\n";
        assert_eq!(functions(text), [("one".to_string(), 1), ("three".to_string(), 3)]);
    }

    #[test]
    fn public_types_are_those_with_a_visibility() {
        let text = "pub struct A; struct B; pub(crate) enum C {} fn f(x: u8) {} pub(in a::b) trait D {}\n(e) struct E;";
        assert_eq!(public_types(text), ["A", "C", "D"]);
    }
}
