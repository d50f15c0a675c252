//! The blocks of a page, with what their info strings say.

use super::Page;

#[derive(Debug)]
pub struct Block {
    /// The line of the opening fence, counted from 1.
    pub line: usize,
    pub language: String,
    attributes: Vec<(String, String)>,
    pub lines: Vec<String>,
}

const ATTRIBUTES: [&str; 5] = ["file", "host", "at", "exit", "no-test"];

impl Block {
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn is_run(&self) -> bool {
        self.is_commands() && self.attribute("no-test").is_none() && self.attribute("file").is_none()
    }

    fn is_commands(&self) -> bool {
        matches!(self.language.as_str(), "sh" | "bash" | "shell" | "console")
    }

    /// What is wrong with how the block says that it is run.
    pub fn mistake(&self) -> Option<String> {
        let unknown = self.attributes.iter().find(|(name, _)| !ATTRIBUTES.contains(&name.as_str()));
        if let Some((name, _)) = unknown {
            return Some(format!("there is no attribute {name:?}"));
        }
        let is_prompt = |line: &String| line.starts_with("$ ");
        match self.language.as_str() {
            "" if self.lines.iter().any(is_prompt) => Some("commands in a block without a language".into()),
            "bash" | "shell" => Some("write sh or console".into()),
            "console" if !self.lines.first().is_some_and(is_prompt) => Some("a console begins with \"$ \"".into()),
            _ if self.attribute("no-test").is_some_and(|reason| reason.len() < 8) => {
                Some("no-test needs a reason".into())
            }
            _ => None,
        }
    }
}

/// The fenced blocks of a page.
pub fn blocks(page: &Page) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in page.text.lines().enumerate() {
        let fence = line.strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(info)) => open = Some(block(index + 1, info)),
            (Some(_), Some("")) => blocks.extend(open.take()),
            (Some(block), _) => block.lines.push(line.to_string()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: a block is not closed", page.name);
    blocks
}

fn block(line: usize, info: &str) -> Block {
    let mut words = words(info).into_iter();
    let language = words.next().unwrap_or_default();
    let attribute = |word: String| match word.split_once('=') {
        Some((name, value)) => (name.to_string(), value.to_string()),
        None => (word, String::new()),
    };
    Block { line, language, attributes: words.map(attribute).collect(), lines: Vec::new() }
}

/// Words of an info string. Quotes keep spaces together.
fn words(info: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for character in info.trim().chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
