//! Tells the recipients of `on_drift` how a job differs from what it was.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use fencepost_core::name::Job;
use fencepost_guard::clock;
use fencepost_view::answer::{NotificationAnswer, NotificationEvent, NotifiedRun};
use fencepost_view::drift::{DriftDifference, DriftLayer, DriftedJob};
use fencepost_view::notice::{Telling, UnrecordedTrouble};
use fencepost_view::text;

use super::Notifier;
use crate::file;
use crate::notify::{Brief, log};

/// Tells differences that were not told before. `layers` are those that were compared: a difference of another one is neither
/// told nor over.
pub fn tell_drift(brief: Brief, differences: &[DriftDifference], layers: &[DriftLayer]) {
    Notifier { brief }.drifted(differences, layers);
}

/// Lets the notifiers of one job take turns: two of them would tell the same difference.
fn turn(notes: &Path) -> Option<File> {
    let made = notes.parent().map(|directory| DirBuilder::new().recursive(true).mode(0o700).create(directory));
    made?.ok()?;
    let lock = File::options().create(true).append(true).mode(0o600).open(notes.with_extension("lock")).ok()?;
    lock.lock().ok()?;
    Some(lock)
}

impl Notifier {
    /// Compares the job with its definition and its past, after a run.
    pub(super) fn look_for_drift(&self) {
        let Some(terms) = self.brief.drift.as_ref().filter(|_| !self.brief.on_drift.is_empty()) else { return };
        let (Some(known), Ok(job)) = (self.known(), Job::parse(&self.brief.job)) else { return };
        let zone = text::zone(&self.brief.zone);
        let drifted = DriftedJob { job: job.name.as_str(), zone: &zone };
        let answer = terms.compare(&drifted, &known.record, &self.brief.host, clock::now().wall);
        self.drifted(&answer.differences, &answer.compared(&[DriftLayer::Definition, DriftLayer::Runs]));
    }

    /// Tells each difference once while it lasts, and reminds of it. This host keeps what was told.
    fn drifted(&self, differences: &[DriftDifference], layers: &[DriftLayer]) {
        let path = self.brief.drift_path();
        let _turn = turn(&path);
        let text = std::fs::read_to_string(&path).ok();
        let known: BTreeMap<String, UnrecordedTrouble> =
            text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let (now, remind) = (clock::now().wall, Some(self.brief.remind));
        let is_compared = |id: &str| layers.iter().any(|layer| id.starts_with(&format!("{}\n", layer.as_str())));
        let mut kept: BTreeMap<String, UnrecordedTrouble> =
            known.iter().filter(|(id, _)| !is_compared(id)).map(|(id, told)| (id.clone(), *told)).collect();
        let (mut first, mut lasting) = (Vec::new(), Vec::new());
        // `on_error` and `on_halt` tell failures.
        for difference in differences.iter().filter(|difference| difference.kind != "failing") {
            let (telling, told) = UnrecordedTrouble::next(known.get(&difference.id()).copied(), now, remind);
            match telling {
                Telling::First => first.push(difference.clone()),
                Telling::Reminder(_) => lasting.push(difference.clone()),
                Telling::Silent => {}
            }
            kept.insert(difference.id(), told);
        }
        if kept != known && file::keep_note(&path, &kept).is_err() {
            log(&self.brief, &format!("{}: what was told of its drift could not be noted", self.brief.job));
        }
        self.tell_differences(first, lasting);
    }

    fn tell_differences(&self, first: Vec<DriftDifference>, lasting: Vec<DriftDifference>) {
        let is_reminder = first.is_empty();
        let told = [first, lasting].concat();
        if told.is_empty() {
            return;
        }
        let sentences: Vec<String> = told.iter().map(DriftDifference::sentence).collect();
        let text = format!("{} All differences: fencepost validate --drift", sentences.join(" "));
        let run = NotifiedRun::Unrecorded(self.brief.unrecorded_run(self.brief.run, None));
        let notification = NotificationAnswer {
            reminder: is_reminder,
            since: told.iter().map(|difference| &difference.since).min_by_key(|since| since.at).cloned(),
            drift: told,
            ..self.brief.notification(NotificationEvent::Drift, text, run)
        };
        self.deliver(&self.brief.on_drift, &notification);
    }
}
