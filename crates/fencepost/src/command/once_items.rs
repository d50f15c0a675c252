//! `fencepost once list`, `once show KEY` and `once forget KEY`.

use std::time::Duration;

use fencepost_core::name::{Job, Name};
use fencepost_guard::transact::look;
use fencepost_view::answer::{AnswerVersion, ForgetAnswer, OnceState};
use fencepost_view::items::OnceItem;
use fencepost_view::text::{flat, length};

use super::forget::Forgettable;
use crate::args::{Global, ItemVerb, OnceOptions};
use crate::calendar;
use crate::exit::{Code, Failure};
use crate::place::Place;
use crate::report::Voice;
use crate::show;

pub fn run(global: &Global, verb: ItemVerb, options: &OnceOptions) -> Result<Code, Failure> {
    match (verb, &options.item) {
        (ItemVerb::List, None) => list(global),
        (ItemVerb::Show, Some(key)) => one(global, key),
        (ItemVerb::Forget, Some(key)) => forget(global, key, options.yes),
        (ItemVerb::List, Some(key)) => {
            Err(Failure::Usage(format!("`once list` takes no key. One item: fencepost once show {key}")))
        }
        (_, None) => Err(Failure::Usage(format!(
            "Which item? Its key follows, as in: fencepost once {} invoices/2026-11/alice. To run a command under the key \
             {:?}, write it after --.",
            options.key,
            options.key.as_str()
        ))),
    }
}

fn list(global: &Global) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let store = place.open_to_read()?;
    let zone = calendar::zone_of_all(None, place.config.as_ref())?;
    let answer = place.ask(store.as_ref(), |view| view.once_items(&zone))?;
    if global.json {
        show::json(&answer);
    } else {
        let rows: Vec<Vec<String>> = answer.items.iter().map(row).collect();
        match rows.is_empty() {
            true => show::line("No item of work is recorded on this store. Try: fencepost once hello -- echo hello"),
            false => show::table(&["KEY", "STATE", "AGE", "EXIT", "HOLDER"], &rows),
        }
    }
    Ok(super::report_unread(global, &answer.errors, Code::DONE))
}

/// The word of the JSON as people read it.
fn in_words(state: OnceState) -> String {
    state.as_str().replace('_', " ")
}

fn row(item: &OnceItem) -> Vec<String> {
    let dash = || "-".to_string();
    vec![
        item.key.clone(),
        in_words(item.state),
        item.age_ms.map_or_else(dash, |age| length(Duration::from_millis(age))),
        item.exit_code.map_or_else(dash, |code| code.to_string()),
        item.holder.as_ref().map_or_else(dash, |holder| flat(&holder.host)),
    ]
}

fn one(global: &Global, key: &Name) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let store = place.open_to_read()?;
    let zone = calendar::zone_of_all(None, place.config.as_ref())?;
    let answer = place.ask(store.as_ref(), |view| view.once_item(key, &zone))?;
    let Some(answer) = answer else { return Err(none(&place, key)) };
    if global.json {
        show::json(&answer);
        return Ok(Code::DONE);
    }
    let item = &answer.item;
    let say = |what: &str, text: &str| show::line(&format!("  {what:8} {}", flat(text)));
    show::line(&item.key);
    say("state", &in_words(item.state));
    for (what, time) in [("started", &item.started), ("finished", &item.finished)] {
        if let Some(time) = time {
            say(what, &show::second_in(time.at, &time.zone));
        }
    }
    if let Some(age) = item.age_ms {
        say("age", &length(Duration::from_millis(age)));
    }
    if let Some(code) = item.exit_code {
        say("exit", &code.to_string());
    }
    if let Some(holder) = &item.holder {
        let pid = holder.pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
        say("holder", &format!("{}{pid}, run {}", holder.host, holder.run));
    }
    say("token", &item.token.to_string());
    say("attempts", &item.attempts.to_string());
    for (what, text) in [("note", &item.note), ("params", &item.params)] {
        if let Some(text) = text {
            say(what, text);
        }
    }
    Ok(Code::DONE)
}

fn forget(global: &Global, key: &Name, is_certain: bool) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let store = place.open_to_read()?;
    // One that is hidden already may have a history left, from a process that died.
    let job = Job::once(key.clone());
    if look(store.as_ref(), &job)?.0.is_none() {
        return Err(none(&place, key));
    }
    let question = format!(
        "Forget {key}? The next `once {key}` does its work again: its effect, such as a charge or a mail, may happen a second \
         time."
    );
    let known = Forgettable { global, place: &place, job: &job, name: key.to_string() };
    let Some((code, history)) = known.forget(is_certain, &question)? else { return Ok(Code::DONE) };
    if code != Code::DONE {
        return Ok(code);
    }
    if global.json {
        show::json(&ForgetAnswer { v: AnswerVersion, job: None, key: Some(key.to_string()), forgotten: true, history });
    }
    Voice::of(global).tell(&format!("{key} is forgotten: the next `once {key}` does its work again."));
    Ok(Code::DONE)
}

fn none(place: &Place, key: &Name) -> Failure {
    let store = place.shown_store();
    Failure::Usage(format!("Nothing is recorded of {key} on {store}. See what there is: fencepost once list"))
}
