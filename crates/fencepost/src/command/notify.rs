//! `fencepost notify --test`: sends a test message to every recipient of a job.

use fencepost_view::answer::{
    AnswerVersion, NotificationAnswer, NotificationEvent, NotifiedRun, NotifyAnswer, RecipientResult,
};

use crate::args::Global;
use crate::args::operate::NotifyOptions;
use crate::calendar;
use crate::config::{Recipient, Service, host_only};
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
    config.refuse_broken(name)?;
    if !config.jobs.contains_key(name) {
        return Err(config.unknown(name));
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
        let sent: Vec<_> = named(brief).into_iter().map(|to| scope.spawn(move || to.send(brief, message))).collect();
        sent.into_iter().filter_map(|sent| sent.join().ok()).collect()
    })
}

/// A recipient, and the keys of the configuration that name it.
struct NamedRecipient {
    recipient: Recipient,
    shown: String,
    keys: Vec<String>,
}

impl NamedRecipient {
    fn send(self, brief: &Brief, message: &NotificationAnswer) -> RecipientResult {
        let error = self.recipient.deliver(brief, message).err().map(|error| show::flat(&error));
        RecipientResult { recipient: self.shown, keys: self.keys, sent: error.is_none(), error }
    }
}

/// Each recipient once. `ping` speaks the protocol of Healthchecks: its test message is a log, no success and no failure.
fn named(brief: &Brief) -> Vec<NamedRecipient> {
    let mut all: Vec<NamedRecipient> = Vec::new();
    for (key, recipients) in brief.recipients() {
        for recipient in recipients {
            match all.iter_mut().find(|known| known.recipient == *recipient) {
                Some(known) => known.keys.push(key.to_string()),
                None => all.push(NamedRecipient {
                    shown: recipient.shown(),
                    recipient: recipient.clone(),
                    keys: vec![key.to_string()],
                }),
            }
        }
    }
    let ping = brief.ping.iter().map(|url| NamedRecipient {
        recipient: Recipient::Service(Service::Healthchecks, url.clone()),
        shown: format!("ping {}", host_only(url)),
        keys: vec!["ping".to_string()],
    });
    all.into_iter().chain(ping).collect()
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
