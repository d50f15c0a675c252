//! `fencepost completions`, `fencepost man` and the hidden verb that the completions call.

use std::path::Path;

use crate::args::operate::{CompleteOptions, Shell};
use crate::exit::{Code, Failure};
use crate::help::{complete, grammar, man};
use crate::show;

/// Prints the script that a shell loads.
pub fn script(shell: Shell) -> Result<Code, Failure> {
    show::text(match shell {
        Shell::Bash => include_str!("../help/scripts/fencepost.bash"),
        Shell::Zsh => include_str!("../help/scripts/fencepost.zsh"),
        Shell::Fish => include_str!("../help/scripts/fencepost.fish"),
        Shell::Powershell => include_str!("../help/scripts/fencepost.ps1"),
    });
    Ok(Code::DONE)
}

/// Prints what can follow the typed words, a line each: the word, a tab, its meaning.
pub fn complete(options: &CompleteOptions) -> Result<Code, Failure> {
    let mut words: Vec<String> = options.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if options.new_word {
        words.push(String::new());
    }
    for candidate in complete::candidates(&words) {
        let (word, about) = (show::flat(&candidate.word), show::flat(&candidate.about));
        show::line(format!("{word}\t{about}").trim_end());
    }
    Ok(Code::DONE)
}

/// Prints the main page, or writes every page into a directory.
pub fn manual(directory: Option<&Path>) -> Result<Code, Failure> {
    let root = grammar();
    let Some(directory) = directory else {
        show::text(&man::main_page(&root).text);
        return Ok(Code::DONE);
    };
    let failed = |path: &Path, error: std::io::Error| {
        Failure::Other(format!("Cannot write {}: {error}. Pages that are there already were written.", path.display()))
    };
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    for page in man::pages(&root) {
        let path = directory.join(&page.file);
        std::fs::write(&path, page.text).map_err(|error| failed(&path, error))?;
    }
    Ok(Code::DONE)
}
