//! `fencepost notify --test`: sends a test message to every recipient of a job.

use fencepost_view::answer::{
    AnswerVersion, NotificationAnswer, NotificationEvent, NotifiedRun, NotifyAnswer, RecipientResult,
};

use crate::args::Global;
use crate::args::operate::NotifyOptions;
use crate::calendar;
use crate::config::host_only;
use crate::deliver::{Way, ping};
use crate::exit::{Code, Failure};
use crate::notify::Brief;
use crate::place::Place;
use crate::show;

/// Exit code if a recipient did not take the message, or if there is none.
const NOT_SENT: Code = Code(1);

pub fn run(global: &Global, options: &NotifyOptions) -> Result<Code, Failure> {
    let place = Place::find(global)?;
    let name = &options.job;
    let Some(config) = &place.config else {
        let message = "There is no configuration, and only a configuration names recipients. Write one: fencepost init";
        return Err(Failure::Usage(message.to_string()));
    };
    if !config.jobs.contains_key(name) {
        let near = config.near(name).map(|near| format!(" Did you mean {near:?}?")).unwrap_or_default();
        return Err(Failure::Usage(format!("{} has no job {name}.{near}", config.path.display())));
    }
    let keys = config.job(name);
    let job = super::job(name, keys.per_host(), &place)?;
    let zone = calendar::zone(None, place.config.as_ref(), name)?;
    let brief = Brief::of(&place, keys, &zone, &job, super::mint_run(), global.verbose);
    let answer = NotifyAnswer { v: AnswerVersion, job: job.to_string(), recipients: send(&brief) };
    match global.json {
        true => show::json(&answer),
        false => print(&answer, &config.path.display().to_string()),
    }
    let is_sent = !answer.recipients.is_empty() && answer.recipients.iter().all(|recipient| recipient.sent);
    Ok(if is_sent { Code::DONE } else { NOT_SENT })
}

/// Sends a message to each recipient once, at the same time.
fn send(brief: &Brief) -> Vec<RecipientResult> {
    let message = &message(brief);
    std::thread::scope(|scope| {
        let recipients = recipients(brief).into_iter();
        let sent: Vec<_> = recipients.map(|(to, keys)| scope.spawn(move || to.send(brief, message, keys))).collect();
        sent.into_iter().filter_map(|sent| sent.join().ok()).collect()
    })
}

enum Recipient {
    Way(Way),
    Ping(String),
}

impl Recipient {
    fn send(&self, brief: &Brief, message: &NotificationAnswer, keys: Vec<String>) -> RecipientResult {
        let (recipient, sent) = match self {
            Self::Way(way) => (way.shown(), way.deliver(brief, message)),
            // Monitors keep the text and do not count it as a success or a failure.
            Self::Ping(url) => (format!("ping {}", host_only(url)), ping(url, "/log", &message.text)),
        };
        let error = sent.err().map(|error| show::flat(&error));
        RecipientResult { recipient, keys, sent: error.is_none(), error }
    }
}

/// Each recipient once, with the keys that name it.
fn recipients(brief: &Brief) -> Vec<(Recipient, Vec<String>)> {
    let mut all: Vec<(Way, Vec<String>)> = Vec::new();
    for (key, ways) in brief.ways() {
        for way in ways {
            match all.iter_mut().find(|(known, _)| known == way) {
                Some((_, keys)) => keys.push(key.to_string()),
                None => all.push((way.clone(), vec![key.to_string()])),
            }
        }
    }
    let ping = brief.ping.iter().map(|url| (Recipient::Ping(url.clone()), vec!["ping".to_string()]));
    all.into_iter().map(|(way, keys)| (Recipient::Way(way), keys)).chain(ping).collect()
}

fn message(brief: &Brief) -> NotificationAnswer {
    let text = format!("Test message of fencepost for {} from {}. Nothing is wrong.", brief.job, brief.host);
    brief.notification(NotificationEvent::Test, text, NotifiedRun::Unrecorded(brief.unrecorded_run(brief.run, None)))
}

fn print(answer: &NotifyAnswer, config: &str) {
    for recipient in &answer.recipients {
        let keys = recipient.keys.join(", ");
        match &recipient.error {
            None => show::line(&format!("sent    {} ({keys})", recipient.recipient)),
            Some(error) => show::line(&format!("FAILED  {} ({keys}): {error}", recipient.recipient)),
        }
    }
    if answer.recipients.is_empty() {
        show::line(&format!(
            "{} has no recipients. Add on_error = … to [notify] or to the job in {config}",
            answer.job
        ));
    }
}
