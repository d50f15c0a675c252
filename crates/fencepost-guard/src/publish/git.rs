//! A git remote: the job's fence is a ref beside the branches, and moves with them in one atomic push.
//!
//! The publisher reads and judges the fence, and then pushes it together with the commits on the condition that it is
//! still the one that was judged. The server compares under the lock under which it writes: a run that slept between
//! the check and the push lands nothing. The fence's ref is created alone, before the first push: a server that hides
//! it would otherwise refuse the fence and take the branch.

mod cli;
pub mod hook;

mod message;
mod push;
mod rebase;
mod remote;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use fencepost_core::fence::Fence;
use fencepost_core::name::{Job, Key};
use fencepost_store::redacted_text;

use super::{PublishError, Receipt, Remembered, WriteRequest, WriteTarget, Written, digest};
use cli::LocalClone;
pub use cli::PUSHING;
pub use message::Tip;
pub use push::Push;
use push::PushOutcome;
use rebase::Rebased;
use remote::{PushRemote, RemoteRefs};

/// The default time limit of one call of git, including the hooks and credential helpers that it runs.
pub const CALL_LIMIT: Duration = Duration::from_secs(600);

/// How often a push is tried while others move the fence. Each time another write has landed.
const ATTEMPTS_MAX: u32 = 12;
/// How often a push is tried again after a lost connection.
const LOST_MAX: u32 = 2;
/// How often a push is tried again if git reports that the fence moved and it did not.
const SAME_MAX: u32 = 3;
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The user's request, as typed.
#[derive(Clone, Debug)]
pub struct Wish<'a> {
    pub remote: &'a str,
    /// Branches, as `NAME` or `COMMIT:NAME`; none means the current one.
    pub branches: &'a [String],
    /// The fence's ref, if it is not the default.
    pub fence_ref: Option<&'a str>,
    /// Rebase onto another push that landed first.
    pub rebase: bool,
    /// The time limit of one call of git.
    pub limit: Duration,
}

impl Default for Wish<'_> {
    fn default() -> Self {
        Self { remote: "origin", branches: &[], fence_ref: None, rebase: false, limit: CALL_LIMIT }
    }
}

/// Commits on their way to a remote. They are resolved once, so the fence's digest names exactly the pushed commits.
#[derive(Clone, Debug)]
pub struct Outgoing {
    git: LocalClone,
    remote: PushRemote,
    fence_ref: String,
    /// Commits, and the refs of the remote that they go to; sorted.
    branches: Vec<(String, String)>,
    /// The local branches that the commits came from, by the refs of the remote.
    locals: BTreeMap<String, String>,
    rebase: bool,
}

impl Outgoing {
    pub fn find(repository: &Path, wish: &Wish<'_>, job: &Job) -> Result<Self, PublishError> {
        let git = LocalClone::open(repository, wish.limit)?;
        let remote = PushRemote::find(&git, wish.remote)?;
        let fence_ref = fence_ref(&git, wish.fence_ref, job)?;
        let (branches, locals) = branches(&git, wish.branches)?;
        if branches.iter().any(|(_, to)| *to == fence_ref) {
            return Err(PublishError::Usage(format!("{fence_ref} cannot be the fence and a branch at once.")));
        }
        Ok(Self { git, remote, fence_ref, branches, locals, rebase: wish.rebase })
    }

    /// Returns the resource's name in `status`.
    pub fn resource(&self) -> String {
        let names: Vec<&str> = self.branches.iter().map(|(_, to)| to.trim_start_matches("refs/heads/")).collect();
        format!("{} {}", self.remote.shown, names.join(","))
    }

    /// Returns the push that replaces one fence by another, with the commits.
    pub fn push(&self, expected: &str, fence: &str) -> Push {
        Push {
            remote: self.remote.name.clone(),
            fence_ref: self.fence_ref.clone(),
            expected: expected.to_string(),
            fence: fence.to_string(),
            branches: self.branches.clone(),
        }
    }

    /// Creates a fence commit on top of another, in this clone only.
    pub fn fence_commit(&self, tip: &Tip, parent: Option<&str>) -> Result<String, PublishError> {
        let tree = self.git.ask(&["mktree"], "")?;
        let message = tip.message();
        let mut arguments = vec!["-c", "i18n.commitEncoding=UTF-8", "commit-tree", &tree];
        arguments.extend(parent.iter().flat_map(|parent| ["-p", parent]));
        let made = self.git.run(&arguments, &message)?;
        if made.ok {
            return Ok(made.text().trim().to_string());
        }
        // A machine account may have no name. A configured one is used, because servers have rules about committers.
        let nameless = ["-c", "user.name=fencepost", "-c", "user.email=fencepost@localhost"];
        self.git.ask(&[&nameless, arguments.as_slice()].concat(), &message)
    }

    /// Returns one digest of all pushed commits and refs.
    fn digest(&self) -> String {
        let list: String = self.branches.iter().map(|(commit, to)| format!("{to} {commit}\n")).collect();
        digest::of(list.as_bytes())
    }

    fn look(&self) -> Result<RemoteRefs, PublishError> {
        let refs: Vec<&str> = self.branches.iter().map(|(_, to)| to.as_str()).collect();
        self.remote.look(&self.git, &self.fence_ref, &refs)
    }

    /// Whether the branches are at these commits or past them, as far as this clone can tell. A server that lost power
    /// between the refs of one push may have the fence without the branch.
    fn has_arrived(&self, seen: &RemoteRefs) -> Result<bool, PublishError> {
        for (commit, to) in &self.branches {
            match seen.refs.get(to) {
                None => return Ok(false),
                Some(there) if there != commit && self.is_ancestor(there, commit)? => return Ok(false),
                Some(_) => {}
            }
        }
        Ok(true)
    }

    fn is_ancestor(&self, older: &str, newer: &str) -> Result<bool, PublishError> {
        Ok(self.git.run(&["merge-base", "--is-ancestor", older, newer], "")?.ok)
    }

    fn send(&self, push: &Push) -> Result<(PushOutcome, String), PublishError> {
        let arguments = push.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let answer = self.git.call(&arguments, "")?;
        Ok((push.outcome(&answer), answer.words()))
    }

    /// Makes the error for a push that the server, or git, refused.
    fn failed(&self, outcome: &PushOutcome, words: &str) -> PublishError {
        let Self { remote: PushRemote { shown, name, .. }, fence_ref, .. } = self;
        let name = redacted_text(name);
        PublishError::Failed(match outcome {
            PushOutcome::Behind(branch) => format!(
                "{branch} on {shown} has commits that are not in ours, and they are not overwritten; nothing was pushed. \
                 Publish with --rebase, or get them (git pull --rebase {name} {branch}) and publish again."
            ),
            PushOutcome::Hidden => format!(
                "{shown} does not allow to write {fence_ref} (it hides that namespace); nothing was pushed. Keep the \
                 fence in a branch: --fence-ref refs/heads/fencepost/NAME"
            ),
            PushOutcome::NoAtomic => format!(
                "{shown} does not offer atomic pushes, so that a check and a push cannot be one step there; nothing was \
                 pushed. Let the server advertise them (git config receive.advertiseAtomic true), or publish to a host \
                 that has them."
            ),
            PushOutcome::Declined(reason) => format!(
                "{shown} declined the push ({reason}; {words}); nothing was pushed. If it does not allow the fence's ref, \
                 give it another: --fence-ref refs/heads/fencepost/NAME"
            ),
            PushOutcome::NotSent => format!(
                "git pushed nothing to {shown} ({words}). A pre-push hook that ends with an error does that: see what it \
                 says (git push --dry-run {name})"
            ),
            PushOutcome::Landed | PushOutcome::Moved | PushOutcome::Unknown | PushOutcome::TimedOut => format!(
                "The push to {shown} was not accepted ({words}), and the fence there is not ours. Publish again."
            ),
        })
    }
}

/// Pushes the commits, if the fence on the remote allows that.
pub fn publish(request: &WriteRequest, commits: &Outgoing) -> Result<Receipt, PublishError> {
    super::publish(request, Pushes { dry_run: request.dry_run, ..Pushes::of(commits.clone()) })
}

/// The attempts at one write.
struct Pushes {
    /// The commits to push. A rebase replaces them.
    target: Outgoing,
    dry_run: bool,
    attempts: u32,
    /// The refs of the remote, and the fence, as last read.
    seen: RemoteRefs,
    known: Option<Fence>,
    rebased: Vec<Rebased>,
    /// The fences that were sent, which identify a push that landed after all.
    sent: Vec<(String, Fence)>,
    /// How many connections were lost.
    lost: u32,
    /// Whether a push was killed because it did not end in time.
    timed_out: bool,
    /// The fence that git reported as moved.
    moved_from: Option<String>,
    /// How many pushes were refused although the fence had not changed since it was read.
    same: u32,
    /// The last message of git.
    words: String,
    /// Whether this write has created the fence's ref.
    created: bool,
    remarks: Vec<String>,
}

impl WriteTarget for Pushes {
    const REPLACES: bool = true;

    fn digest(&self) -> String {
        self.target.digest()
    }

    fn remembered(&mut self) -> Result<Remembered, PublishError> {
        if self.attempts == ATTEMPTS_MAX {
            return Err(self.gave_up());
        }
        if self.attempts > 0 {
            sleep(pause());
        }
        self.attempts += 1;
        let Outgoing { git, remote, fence_ref, .. } = &self.target;
        let read = self.target.look().and_then(|seen| {
            let remembered = remote.remembered(git, fence_ref, &seen, self.dry_run)?;
            Ok((seen, remembered))
        });
        let (seen, remembered) = read.map_err(|error| self.unread(error))?;
        self.seen = seen;
        if let Some(fence) = self.landed()? {
            self.follow();
            return Ok(Remembered::Landed(fence));
        }
        if self.moved_from.take().is_some_and(|from| self.seen.commit == Some(from)) {
            self.same += 1;
        }
        if self.timed_out || self.lost > LOST_MAX || self.same > SAME_MAX {
            return Err(self.gave_up());
        }
        self.known = match &remembered {
            Remembered::Fence(fence) => Some(fence.clone()),
            _ => None,
        };
        Ok(remembered)
    }

    fn has_arrived(&mut self, _fence: &Fence) -> Result<bool, PublishError> {
        self.target.has_arrived(&self.seen)
    }

    fn write(&mut self, fence: Fence) -> Result<Written, PublishError> {
        let Some(expected) = self.seen.commit.clone() else { return self.create().map(|()| Written::Moved) };
        // A write that arrived incompletely is pushed under another fence.
        let is_repeated = self.known.as_ref() == Some(&fence);
        self.push(&expected, if is_repeated { Fence { seq: fence.seq + 1, ..fence } } else { fence })
    }

    fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }
}

impl Pushes {
    fn of(target: Outgoing) -> Self {
        Self {
            target,
            dry_run: false,
            attempts: 0,
            seen: RemoteRefs::default(),
            known: None,
            rebased: Vec::new(),
            sent: Vec::new(),
            lost: 0,
            timed_out: false,
            moved_from: None,
            same: 0,
            words: String::new(),
            created: false,
            remarks: Vec::new(),
        }
    }

    /// Creates the fence's ref, alone.
    fn create(&mut self) -> Result<(), PublishError> {
        let Outgoing { remote, fence_ref, .. } = &self.target;
        if self.created {
            return Err(PublishError::Failed(format!(
                "{fence_ref} was made on {}, but cannot be read there; nothing else was pushed. Keep the fence in a branch: \
                 --fence-ref refs/heads/fencepost/NAME",
                remote.shown
            )));
        }
        let fence = self.target.fence_commit(&Tip::Unwritten, None)?;
        let push = Push { branches: Vec::new(), ..self.target.push("", &fence) };
        let (outcome, words) = self.target.send(&push)?;
        self.words = words;
        match outcome {
            PushOutcome::Landed => self.created = true,
            PushOutcome::Moved => {}
            PushOutcome::Unknown => self.lost += 1,
            PushOutcome::TimedOut => self.timed_out = true,
            outcome => return Err(self.target.failed(&outcome, &self.words)),
        }
        Ok(())
    }

    fn push(&mut self, expected: &str, fence: Fence) -> Result<Written, PublishError> {
        let commit = self.target.fence_commit(&Tip::Written(Box::new(fence.clone())), Some(expected))?;
        self.sent.push((commit.clone(), fence.clone()));
        let (outcome, words) = self.target.send(&self.target.push(expected, &commit))?;
        self.words = words;
        match outcome {
            PushOutcome::Landed => {
                self.target.remote.remember(&self.target.git, &self.target.fence_ref, &commit);
                self.follow();
                return Ok(Written::Done(fence));
            }
            PushOutcome::Moved => self.moved_from = Some(expected.to_string()),
            PushOutcome::Unknown => self.lost += 1,
            PushOutcome::TimedOut => self.timed_out = true,
            outcome => self.declined(&outcome, expected)?,
        }
        Ok(Written::Moved)
    }

    /// Handles a push that the server refused. If this writer is stale, the next read of the fence shows it.
    fn declined(&mut self, outcome: &PushOutcome, expected: &str) -> Result<(), PublishError> {
        let seen = self.target.look()?;
        if seen.commit.as_deref() != Some(expected) {
            return Ok(());
        }
        if let PushOutcome::Behind(branch) = outcome
            && self.target.rebase
            && let (to, Some(onto)) = (format!("refs/heads/{branch}"), seen.refs.get(&format!("refs/heads/{branch}")))
        {
            let rebased = self.target.rebase(&to, onto)?;
            if self.rebased.iter().all(|earlier| earlier.to != to) {
                self.rebased.push(rebased);
            }
            return Ok(());
        }
        Err(self.target.failed(outcome, &self.words))
    }

    /// Moves the rebased local branches after everything landed.
    fn follow(&mut self) {
        self.remarks = self.rebased.iter().filter_map(|rebased| self.target.follow(rebased)).collect();
    }

    /// Returns the sent fence that is the remote's or an ancestor of it: then the push landed, regardless of its
    /// answer.
    fn landed(&self) -> Result<Option<Fence>, PublishError> {
        let Some(there) = &self.seen.commit else { return Ok(None) };
        for (commit, fence) in &self.sent {
            if commit == there || self.target.is_ancestor(commit, there)? {
                return Ok(Some(fence.clone()));
            }
        }
        Ok(None)
    }

    /// Makes the error for a fence that cannot be read, which differs once a push may have landed.
    fn unread(&self, error: PublishError) -> PublishError {
        match error {
            PublishError::Failed(why) if self.lost > 0 || self.timed_out => PublishError::Failed(format!(
                "The push to {} got no answer ({}), and whether it landed is not known, because the \
                 fence cannot be read back: {why} Publish again: what landed is recognised and not repeated.",
                self.target.remote.shown, self.words
            )),
            error => error,
        }
    }

    fn gave_up(&self) -> PublishError {
        let Outgoing { remote, fence_ref, .. } = &self.target;
        let PushRemote { shown, .. } = remote;
        PublishError::Failed(if self.timed_out {
            format!(
                "The push to {shown} did not end in time ({}). The fence there is not ours, so nothing has landed so far; \
                 whether it lands later is not known. See what it waits for: a hook, a credential helper or the server. \
                 Then publish again, with more time if it is needed (--timeout): what landed is recognised and not \
                 repeated.",
                self.words
            )
        } else if self.lost > LOST_MAX {
            format!(
                "The connection to {shown} was lost during the push, {} times ({}). The fence there is not ours, so that \
                 nothing has landed so far; the last push may yet. Publish again: what landed is recognised and not \
                 repeated.",
                self.lost, self.words
            )
        } else {
            format!(
                "The push to {shown} was refused again and again, because {fence_ref} was not what had been read there \
                 ({}); nothing was pushed. Either others push all the time, or the server hides that ref from pushes: \
                 then keep the fence in a branch, --fence-ref refs/heads/fencepost/NAME",
                self.words
            )
        })
    }
}

/// Returns a random pause, so that two publishers do not collide again.
fn pause() -> Duration {
    let random = uuid::Uuid::now_v7().as_u128() as u16;
    PAUSE_MAX.mul_f64(f64::from(random) / f64::from(u16::MAX))
}

/// Returns the ref of the job's fence. Two jobs may push to one branch, and their tokens are not comparable.
fn fence_ref(git: &LocalClone, given: Option<&str>, job: &Job) -> Result<String, PublishError> {
    let Some(name) = given else {
        let key = Key::job(job);
        return Ok(format!("refs/fencepost/fence/{}", key.as_str().trim_start_matches("job/")));
    };
    let usage = |why: &str| PublishError::Usage(format!("{name:?} cannot be the fence's ref: {why}."));
    if !name.starts_with("refs/") || !git.run(&["check-ref-format", name], "")?.ok {
        return Err(usage("it is not a full name such as refs/heads/fencepost/NAME"));
    }
    // Refuses the name of a branch, given by mistake: a fence must not go on top of it.
    if !name.split('/').any(|part| part == "fencepost") {
        return Err(usage("one part of it must be \"fencepost\", as in refs/heads/fencepost/NAME"));
    }
    Ok(name.to_string())
}

/// Commits with the refs that they go to, and the local branches that they came from.
type Branches = (Vec<(String, String)>, BTreeMap<String, String>);

fn branches(git: &LocalClone, given: &[String]) -> Result<Branches, PublishError> {
    let current = || -> Result<Vec<String>, PublishError> {
        let head = git.run(&["symbolic-ref", "--quiet", "--short", "HEAD"], "")?;
        if head.ok {
            return Ok(vec![head.text().trim().to_string()]);
        }
        Err(PublishError::Usage("No branch is checked out here. Say what to push: --branch HEAD:main".to_string()))
    };
    let names = if given.is_empty() { current()? } else { given.to_vec() };
    let mut branches: Vec<(String, String)> = Vec::new();
    let mut locals = BTreeMap::new();
    for name in &names {
        let (commit, to, local) = branch(git, name)?;
        if branches.iter().any(|(_, other)| *other == to) {
            return Err(PublishError::Usage(format!("{to} was given twice.")));
        }
        locals.extend(local.map(|local| (to.clone(), local)));
        branches.push((commit, to));
    }
    branches.sort_by(|a, b| a.1.cmp(&b.1));
    Ok((branches, locals))
}

/// Resolves `NAME` or `COMMIT:NAME` to a commit, the branch it goes to, and the local branch that ends with it.
fn branch(git: &LocalClone, given: &str) -> Result<(String, String, Option<String>), PublishError> {
    let usage = |why: String| PublishError::Usage(format!("Cannot push {given:?}: {why}"));
    let (from, to) = given.split_once(':').unwrap_or((given, given));
    let to = to.strip_prefix("refs/heads/").unwrap_or(to);
    let from = from.strip_prefix("refs/heads/").unwrap_or(from);
    // Git creates no branch of such a name, and a command would take it for an option.
    if to.starts_with('-') {
        return Err(usage("the name of a branch does not begin with a dash.".to_string()));
    }
    let to = format!("refs/heads/{to}");
    if from.starts_with('+') {
        return Err(usage("a push that forces cannot be fenced.".to_string()));
    }
    if from.is_empty() || from.starts_with('-') || !git.run(&["check-ref-format", &to], "")?.ok {
        return Err(usage("a branch is given as NAME, or as COMMIT:NAME.".to_string()));
    }
    let head = git.run(&["symbolic-ref", "--quiet", "HEAD"], "")?;
    let head = (from == "HEAD" && head.ok).then(|| head.text().trim().to_string());
    let mut candidates = vec![(format!("refs/heads/{from}^{{commit}}"), Some(format!("refs/heads/{from}")))];
    if given.contains(':') {
        candidates.push((format!("{from}^{{commit}}"), head));
    }
    for (candidate, local) in candidates {
        let found = git.run(&["rev-parse", "--verify", "--quiet", &candidate], "")?;
        if found.ok {
            return Ok((found.text().trim().to_string(), to, local));
        }
    }
    Err(usage(format!("{} has no commit {from}.", git.directory().display())))
}
