//! In which order jobs are listed, and where they run.

use std::collections::BTreeMap;

use super::{JobStatus, StatusAnswer};
use crate::attention::Attention;

impl StatusAnswer {
    /// The jobs that need attention first, the most urgent of them at the top.
    pub fn by_urgency(&self) -> Vec<&JobStatus> {
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, attention) in self.attention.iter().enumerate() {
            if let Some(job) = &attention.job {
                places.entry(job).or_insert(place);
            }
        }
        let mut jobs: Vec<_> = self.jobs.iter().collect();
        jobs.sort_by_key(|job| places.get(job.job.as_str()).copied().unwrap_or(usize::MAX));
        jobs
    }

    /// What needs attention, by job, the most urgent first. What is about the store stands alone.
    pub fn attention_by_job(&self) -> Vec<(Option<&str>, Vec<&Attention>)> {
        let mut groups: Vec<(Option<&str>, Vec<&Attention>)> = Vec::new();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for attention in &self.attention {
            let job = attention.job.as_deref();
            match job.and_then(|job| places.get(job)) {
                Some(place) => groups[*place].1.push(attention),
                None => {
                    places.extend(job.map(|job| (job, groups.len())));
                    groups.push((job, vec![attention]));
                }
            }
        }
        groups
    }
}

impl JobStatus {
    /// Where it runs, or ran last.
    pub fn host(&self) -> Option<&str> {
        let holder = self.holder.as_ref().map(|holder| holder.host.as_str());
        holder.or_else(|| self.recent.last().map(|last| last.host.as_str()))
    }
}
