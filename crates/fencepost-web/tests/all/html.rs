//! A strict reader of the pages: every element is closed where it should be, every attribute is quoted and occurs once,
//! every id is unique, and nothing is inline that the policy forbids.

use std::collections::BTreeSet;

const VOID: [&str; 5] = ["br", "input", "link", "meta", "hr"];

/// An element as it was opened.
#[derive(Clone, Debug)]
pub struct Element {
    pub name: String,
    pub attributes: Vec<(String, String)>,
    /// The text directly in it, unescaped.
    pub text: String,
}

impl Element {
    pub fn has_class(&self, class: &str) -> bool {
        self.attribute("class").is_some_and(|classes| classes.split(' ').any(|known| known == class))
    }

    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Reads a page, or says what is wrong with it.
pub fn parse(page: &str) -> Result<Vec<Element>, String> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").ok_or("no doctype")?;
    let (mut elements, mut open): (Vec<Element>, Vec<usize>) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (text, after) = rest.split_at(rest.find('<').unwrap_or(rest.len()));
        if let Some(place) = open.last() {
            elements[*place].text.push_str(&unescaped(text)?);
        }
        if after.is_empty() {
            break;
        }
        let end = after.find('>').ok_or_else(|| format!("open tag: {}", &after[..after.len().min(60)]))?;
        let tag = &after[1..end];
        rest = &after[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let place = open.pop().ok_or_else(|| format!("</{name}> closes nothing"))?;
            if elements[place].name != name {
                return Err(format!("</{name}> closes <{}>", elements[place].name));
            }
            continue;
        }
        let element = element(tag)?;
        if !VOID.contains(&element.name.as_str()) {
            open.push(elements.len());
        }
        elements.push(element);
    }
    match open.last() {
        Some(place) => Err(format!("<{}> is not closed", elements[*place].name)),
        None => checked(elements),
    }
}

fn element(tag: &str) -> Result<Element, String> {
    let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(format!("not a tag: <{tag}>"));
    }
    let mut attributes: Vec<(String, String)> = Vec::new();
    while !rest.is_empty() {
        let end = rest.find([' ', '=']).unwrap_or(rest.len());
        let (attribute, after) = rest.split_at(end);
        let (value, after) = match after.strip_prefix("=\"") {
            Some(after) => after.split_once('"').ok_or_else(|| format!("open quote in <{tag}>"))?,
            None => ("", after),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if attribute.is_empty()
            || !attribute.bytes().all(is_name)
            || attributes.iter().any(|(known, _)| known == attribute)
        {
            return Err(format!("attribute {attribute:?} in <{tag}>"));
        }
        attributes.push((attribute.to_string(), unescaped(value)?));
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    Ok(Element { name: name.to_string(), attributes, text: String::new() })
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        let known = [("amp;", '&'), ("lt;", '<'), ("gt;", '>'), ("quot;", '"')];
        let (name, c) =
            known.into_iter().find(|(name, _)| after.starts_with(name)).ok_or(format!("bare & in {text:?}"))?;
        result.push_str(before);
        result.push(c);
        rest = &after[name.len()..];
    }
    Ok(result + rest)
}

fn checked(elements: Vec<Element>) -> Result<Vec<Element>, String> {
    let mut ids = BTreeSet::new();
    for element in &elements {
        let forbidden = |name: &str| name == "style" || name.starts_with("on");
        if let Some((name, value)) = element.attributes.iter().find(|(name, _)| forbidden(name)) {
            return Err(format!("{name}={value:?} is inline"));
        }
        if element.name == "style" || (element.name == "script" && !element.text.is_empty()) {
            return Err(format!("<{}> is inline", element.name));
        }
        if let Some(id) = element.attribute("id").filter(|id| !ids.insert(*id)) {
            return Err(format!("two elements have the id {id:?}"));
        }
        for address in ["href", "src", "action"].iter().filter_map(|name| element.attribute(name)) {
            if !address.starts_with(['/', '#']) || address.starts_with("//") {
                return Err(format!("{address:?} is elsewhere"));
            }
        }
    }
    Ok(elements)
}
