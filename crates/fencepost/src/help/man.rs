//! Man pages, from the same grammar and table as the help.

use std::fmt::Write;

use clap::Command;

use super::describe;
use super::table;

/// One page: its file name, and its text in roff.
#[derive(Debug)]
pub struct ManPage {
    pub file: String,
    pub text: String,
}

/// The main page, and one page for each verb.
pub fn pages(root: &Command) -> Vec<ManPage> {
    let mut pages = vec![main_page(root)];
    let mut below: Vec<&Command> = describe::verbs(root).collect();
    while let Some(command) = below.pop() {
        pages.push(verb_page(command));
        below.extend(describe::verbs(command));
    }
    pages
}

/// `fencepost.1`: what it is, and the verbs.
pub fn main_page(root: &Command) -> ManPage {
    let mut roff = Roff::begin("fencepost", &describe::about(root));
    roff.section("SYNOPSIS");
    roff.text("\\fBfencepost\\fR \\fIVERB\\fR [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]");
    roff.section("DESCRIPTION");
    roff.paragraph(
        "fencepost guards jobs that run unattended on a clock: a job never runs twice at once, runs on one machine of many, \
         starts only on fresh input, and no stale run overwrites a newer one.",
    );
    roff.section("VERBS");
    let mut verbs: Vec<&Command> = describe::verbs(root).collect();
    verbs.sort_by_key(|verb| table::verbs().position(|entry| entry.verb == verb.get_name()));
    for verb in verbs {
        roff.item(&format!("fencepost-{}(1)", verb.get_name()), &format!("{}.", describe::about(verb)));
    }
    roff.groups("GLOBAL OPTIONS", &describe::global_sections(root));
    roff.section("EXAMPLES");
    for entry in table::verbs().take(3) {
        roff.examples(entry.examples);
    }
    roff.section("SEE ALSO");
    roff.paragraph(
        "The documentation: docs/README.md. Exit codes: docs/COMMANDS.md. Reasons: docs/reference/reasons.md.",
    );
    ManPage { file: "fencepost.1".to_string(), text: roff.text }
}

fn verb_page(command: &Command) -> ManPage {
    let verb = describe::path(command);
    let name = format!("fencepost-{}", verb.replace(' ', "-"));
    let mut roff = Roff::begin(&name, &describe::about(command));
    roff.section("SYNOPSIS");
    roff.text(&format!("\\fB{}\\fR", escaped(&describe::usage(command))));
    let help = table::find(verb);
    if let Some(help) = help.filter(|help| !help.notes.is_empty()) {
        roff.section("DESCRIPTION");
        roff.paragraph(help.notes);
    }
    let children: Vec<&Command> = describe::verbs(command).collect();
    if !children.is_empty() {
        roff.section("VERBS");
        for child in children {
            let page = describe::path(child).replace(' ', "-");
            roff.item(&format!("fencepost-{page}(1)"), &format!("{}.", describe::about(child)));
        }
    }
    roff.groups("OPTIONS", &describe::own_sections(command));
    roff.groups("GLOBAL OPTIONS", &describe::global_sections(command));
    if let Some(help) = help {
        roff.section("EXAMPLES");
        roff.examples(help.examples);
        roff.section("SEE ALSO");
        roff.paragraph(&format!("fencepost(1). The documentation: {}.", help.page));
    }
    ManPage { file: format!("{name}.1"), text: roff.text }
}

struct Roff {
    text: String,
}

impl Roff {
    fn begin(name: &str, about: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let title = name.to_uppercase().replace('-', "\\-");
        let mut roff = Self { text: String::new() };
        let _ = writeln!(roff.text, ".TH \"{title}\" \"1\" \"\" \"fencepost {version}\" \"fencepost\"");
        roff.section("NAME");
        let _ = writeln!(roff.text, "{} \\- {}", escaped(name), escaped(about));
        roff
    }

    fn section(&mut self, title: &str) {
        let _ = writeln!(self.text, ".SH \"{title}\"");
    }

    /// A line of roff.
    fn text(&mut self, line: &str) {
        let _ = writeln!(self.text, "{line}");
    }

    fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.text, "{}", escaped(text));
    }

    /// A term and its meaning.
    fn item(&mut self, term: &str, meaning: &str) {
        let _ = writeln!(self.text, ".TP\n\\fB{}\\fR\n{}", escaped(term), escaped(meaning));
    }

    fn groups(&mut self, title: &str, groups: &[describe::ArgumentGroup]) {
        if groups.is_empty() {
            return;
        }
        self.section(title);
        for group in groups {
            if groups.len() > 1 {
                let _ = writeln!(self.text, ".SS \"{}\"", escaped(&group.title));
            }
            group.arguments.iter().for_each(|arg| self.item(&arg.spelling, &format!("{}.", arg.long)));
        }
    }

    fn examples(&mut self, examples: &[(&str, &str)]) {
        for (what, example) in examples {
            // A paragraph right after a heading is a mistake in roff.
            let is_first = self.text.lines().next_back().is_some_and(|line| line.starts_with(".SH"));
            self.text.push_str(if is_first { "" } else { ".PP\n" });
            let _ = writeln!(self.text, "{}:\n.PP\n.nf\n.RS 4\n{}\n.RE\n.fi", escaped(what), escaped(example));
        }
    }
}

/// Text that roff prints as it is. A leading dot or quote would be a request.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\n', " ");
    let text = text.replace('\'', "\\(aq").replace('`', "\\(ga").replace('…', "...");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}
