//! `/login`: where a browser sends its token once.

use maud::html;

use crate::layout::plain_page;
use crate::path;

/// The form. `refusal` says why the last attempt failed, `next` is the page to go on to.
pub fn login(refusal: Option<&str>, next: Option<&str>) -> String {
    let content = html! {
        h1 { "Sign in" }
        @if let Some(refusal) = refusal { p.note.bad role="alert" { (refusal) } }
        form.login method="post" action=(path::LOGIN) {
            @if let Some(next) = next.filter(|next| path::is_local(next)) { input type="hidden" name=(path::NEXT_FIELD) value=(next); }
            label for="token" { "Token" }
            input #token type="password" name=(path::TOKEN_FIELD) required autocomplete="current-password" autofocus;
            button.primary { "Sign in" }
        }
        p.calm { "A token is created on the server:" }
        p { code.command { "fencepost serve token NAME --token-file FILE" } }
    };
    plain_page("Sign in", &content)
}
