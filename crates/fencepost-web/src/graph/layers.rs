//! Where the jobs of a graph are drawn: upstreams at the left of what needs them.

use std::collections::BTreeMap;

use fencepost_view::graph::GraphEdge;

/// A column and a row for each job that has an edge.
#[derive(Debug)]
pub struct Layers<'e>(BTreeMap<&'e str, (usize, usize)>);

impl<'e> Layers<'e> {
    pub fn of(edges: &'e [GraphEdge]) -> Self {
        let columns = columns(edges);
        let mut layers: Vec<Vec<&str>> = Vec::new();
        for (job, column) in &columns {
            layers.resize(layers.len().max(column + 1), Vec::new());
            layers[*column].push(job);
        }
        let mut places = BTreeMap::new();
        for (column, jobs) in layers.iter_mut().enumerate() {
            // Each job near the middle of its upstreams, so that few lines cross.
            jobs.sort_by_cached_key(|job| (middle(edges, job, &places), *job));
            places.extend(jobs.iter().enumerate().map(|(row, job)| (*job, (column, row))));
        }
        Self(places)
    }

    pub fn place(&self, job: &str) -> Option<(usize, usize)> {
        self.0.get(job).copied()
    }

    pub fn jobs(&self) -> impl Iterator<Item = &'e str> {
        self.0.keys().copied()
    }

    pub fn columns(&self) -> usize {
        self.0.values().map(|(column, _)| column + 1).max().unwrap_or(1)
    }

    pub fn rows(&self) -> usize {
        self.0.values().map(|(_, row)| row + 1).max().unwrap_or(1)
    }
}

/// The length of the longest way from a job without upstreams. A circle, which `validate` refuses, ends the search.
fn columns(edges: &[GraphEdge]) -> BTreeMap<&str, usize> {
    let mut columns: BTreeMap<&str, usize> = BTreeMap::new();
    for edge in edges {
        columns.insert(&edge.upstream, 0);
        columns.insert(&edge.job, 0);
    }
    for _ in 0..columns.len().min(100) {
        let mut has_changed = false;
        for edge in edges.iter().filter(|edge| edge.upstream != edge.job) {
            let least = columns[edge.upstream.as_str()] + 1;
            if let Some(column) = columns.get_mut(edge.job.as_str()).filter(|column| **column < least && least < 100) {
                *column = least;
                has_changed = true;
            }
        }
        if !has_changed {
            break;
        }
    }
    columns
}

/// The average row of a job's upstreams, in hundredths.
fn middle(edges: &[GraphEdge], job: &str, places: &BTreeMap<&str, (usize, usize)>) -> usize {
    let rows = edges.iter().filter(|edge| edge.job == job).filter_map(|edge| places.get(edge.upstream.as_str()));
    let (sum, count) = rows.fold((0_usize, 0), |(sum, count), (_, row)| (sum + row * 100, count + 1));
    sum.checked_div(count).unwrap_or(0)
}
