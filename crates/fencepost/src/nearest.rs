//! The word that was probably meant.

/// The known word nearest to the typed one, if it is near enough to have been meant.
pub fn nearest<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = folded(typed);
    let far = typed.chars().count() / LETTERS_PER_MISTAKE + 1;
    let apart = |word: &str| {
        let word = folded(word);
        let begins_alike = typed.len() >= LETTERS_PER_MISTAKE && word.starts_with(&typed);
        if begins_alike { 1 } else { strsim::osa_distance(&typed, &word) }
    };
    let ranked = known.into_iter().map(|word| (apart(word), word));
    ranked.min_by_key(|(apart, _)| *apart).filter(|&(apart, _)| apart < far).map(|(_, word)| word)
}

/// `Did you mean "…"?`, where there is such a word.
pub fn did_you_mean<'a>(typed: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(typed, known).map(|word| format!("Did you mean {word:?}?"))
}

/// How many letters a word needs for each one of them that may be wrong.
const LETTERS_PER_MISTAKE: usize = 3;

/// Nobody remembers whether it was a dash or an underscore.
fn folded(word: &str) -> String {
    word.to_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_another_word_is_not() {
        let known = ["schedule", "catch_up", "ttl", "needs", "a"];
        for (typed, meant) in [
            ("shedule", Some("schedule")),
            ("schdeule", Some("schedule")),
            ("sched", Some("schedule")),
            ("catch-up", Some("catch_up")),
            ("TTL", Some("ttl")),
            ("tll", Some("ttl")),
            ("need", Some("needs")),
            ("b", None),
            ("cron", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known), meant, "{typed}");
        }
    }
}
