//! The line-by-line difference between two texts.

/// Shows one hunk of removed and added lines, without the equal lines before and after it.
pub fn unified(name: &str, old: Option<&str>, new: Option<&str>) -> String {
    let mark = |text: Option<&str>| if text.is_some() { name.to_string() } else { "/dev/null".to_string() };
    let mut out = format!("--- {}\n+++ {}\n", mark(old), mark(new));
    let old: Vec<&str> = old.unwrap_or_default().lines().collect();
    let new: Vec<&str> = new.unwrap_or_default().lines().collect();
    let start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let (old_rest, new_rest) = (&old[start..], &new[start..]);
    let end = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old_rest[..old_rest.len() - end], &new_rest[..new_rest.len() - end]);
    out.push_str(&format!("@@ -{},{} +{},{} @@\n", start + 1, old.len(), start + 1, new.len()));
    for (sign, line) in changes(old, new) {
        out.push_str(&format!("{sign}{line}\n"));
    }
    out
}

/// Keeps the longest common subsequence of lines. For texts that are too long, removes and adds every line.
fn changes<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<(char, &'t str)> {
    if old.len().saturating_mul(new.len()) > 4_000_000 {
        return old.iter().map(|line| ('-', *line)).chain(new.iter().map(|line| ('+', *line))).collect();
    }
    let width = new.len() + 1;
    let mut longest = vec![0_u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            longest[i * width + j] = if old[i] == new[j] {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            out.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && longest[(i + 1) * width + j] >= longest[i * width + j + 1]) {
            out.push(('-', old[i]));
            i += 1;
        } else {
            out.push(('+', new[j]));
            j += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        let diff = unified("x", Some("a\nb\nc\nd\n"), Some("a\nB\nc\ne\nd\n"));
        assert_eq!(diff, "--- x\n+++ x\n@@ -2,2 +2,3 @@\n-b\n+B\n c\n+e\n");
        assert_eq!(unified("x", None, Some("a\n")), "--- /dev/null\n+++ x\n@@ -1,0 +1,1 @@\n+a\n");
        assert_eq!(unified("x", Some("a\n"), None), "--- x\n+++ /dev/null\n@@ -1,1 +1,0 @@\n-a\n");
    }
}
