//! The table of options: each is declared here and nowhere else.

use std::ffi::OsStr;
use std::time::Duration;

use fencepost_core::plan::{CatchUpMode, CatchUpOrder};
use fencepost_core::run::Overlap;
use fencepost_core::slot::OnLost;
use fencepost_core::spelling::Spelled;
use serde_json::{Value, json};

use super::{
    Flag, Given, LEASE, Length, ONCE, OneOf, OptionSet, PLAN, PathText, RUN, SharedTable, Table, Text, Texts,
    ValueKind, Whole, options, utf8,
};
use crate::config::{
    CommandLine, ConfigNeed, Item, JobEnvironment, Located, Mistake, Notice, OnSkips, Produces, Recipient, Section,
    WebUrl,
};
use crate::duration;

/// The most retries of a slot.
const RETRIES_MAX: u64 = 1000;

/// For numbers without an upper bound of their own.
const UNBOUNDED: u64 = u64::MAX;

options! {
    /// What a job is: its keys in the configuration, and its options on the command line.
    pub struct JobOptions {
        /// Where the configuration names the job.
        at: Located<()>
    }

    "What runs" {
        /// The command, after -- on the command line
        command: CommandLine, shared: SharedTable::Nowhere, otherwise: "the one after --",
            detail: "On the command line -c STRING takes a string for the shell.";
        /// A command to run first, under the lease: for example a git pull
        prepare: CommandLine, flag: "prepare", value: "STRING",
            detail: "If it fails, the command does not start. On the command line it is a string for the shell.";
        /// The directory that the job runs in
        working_directory: PathText, otherwise: "the directory of the configuration";
        /// Variables for the job's environment
        environment: JobEnvironment = Default::default(),
            detail: "The tables of [defaults] and of the job are added together. FENCEPOST_… is reserved.";
        /// Whether `up` and installed triggers start the job
        enabled: Flag = true, detail: "`fencepost run` starts a disabled job by name.";
    }

    "When it runs" {
        /// When the job is due, in cron's notation or as "every 45m": the run is for the slot that is due, once
        schedule: Text, flag: "schedule", value: "CRON", verbs: RUN | PLAN, conflicts: &["every", "slot"],
            shared: SharedTable::Nowhere,
            detail: "Not together with `every`. If no slot is due, the run exits 0 or with --skip-exit.";
        /// The job is due this often
        every: Length<true>, flag: "every", value: "D", conflicts: &["slot"], shared: SharedTable::Nowhere,
            detail: "Not together with `schedule`.";
        /// The time zone of the schedule and of the days that count, by its IANA name
        timezone: Text, flag: "tz", value: "ZONE", verbs: RUN | PLAN,
            otherwise: "the configuration's, or UTC", detail: "The machine's own zone never counts.";
        /// For a job without a schedule: the slot is this day, hour or minute, and a slot that is done is not done again
        slot: WrittenSlot, flag: "slot", value: "day|hour|minute|T", shared: SharedTable::Nowhere,
            detail: "Triggers of several machines that fire seconds apart have the same slot. The command line also takes an \
                     instant or a local time.";
        /// How late a trigger may come and be on time; a trigger this much early waits for its slot
        slack: Length = Duration::from_secs(60), flag: "slack", value: "D", verbs: RUN | PLAN,
            detail: "An early trigger waits at most a quarter of the period.";
    }

    "Retries and catch-up" {
        /// How many attempts a slot has after its first, over all triggers and machines
        retries: Whole<u32, 0, RETRIES_MAX> = 0, flag: "retries", value: "N",
            detail: "A run that failed or timed out is tried again for the same slot. When the attempts are used up, triggers \
                     for the slot exit with the code of the failure.";
        /// How long to wait before the first retry; twice as long before each next
        retry_backoff: Length = Duration::from_secs(10), flag: "retry-backoff", value: "D",
            detail: "At most an hour.";
        /// What to do about a slot whose run died
        on_lost: OneOf<OnLost> = OnLost::Rerun, flag: "on-lost", value: "WHAT";
        /// After a gap, run at most this many of the newest slots, the current one included
        catch_up: Whole<u32, 0, UNBOUNDED> = 1, flag: "catch-up", value: "N", verbs: RUN | PLAN,
            detail: "They run one after the other; the exit code is the first that is not 0. Older slots are recorded as \
                     missed. At most 1000, or any number with `collapse`. 0: no late slot runs.";
        /// No slot older than this is caught up
        catch_up_within: Length, flag: "catch-up-within", value: "D", verbs: RUN | PLAN,
            otherwise: "as many periods as catch_up";
        /// Whether each missed slot runs, or one run covers the gap
        catch_up_mode: OneOf<CatchUpMode> = CatchUpMode::Each, flag: "catch-up-mode", value: "MODE", verbs: RUN | PLAN,
            detail: "A run that covers a gap finds it in FENCEPOST_SLOT_FROM, _TO and _COUNT.";
        /// Which missed slot runs first
        catch_up_order: OneOf<CatchUpOrder> = CatchUpOrder::OldestFirst, flag: "catch-up-order", value: "ORDER";
        /// How long to wait between the starts of two missed slots
        catch_up_spacing: Length = Duration::ZERO, flag: "catch-up-spacing", value: "D";
    }

    "Inputs and outputs" {
        /// Run only if this upstream job is good: NAME[@RULE][,artifact=PATH], with the rule last-due, same-day,
        /// same-slot, within=6h or any; may be given several times
        needs: Vec<ConfigNeed>, flag: "needs", value: "SPEC", shared: SharedTable::Nowhere,
            detail: "In the configuration an array: [\"reference@same-day\"], or [{ job = \"reference\", when = \"last-due\", \
                     artifact = \"data/reference.md\", on_empty = \"skip\" }].";
        /// How long to wait for upstreams that are not good yet
        needs_wait: Length = Duration::ZERO, flag: "needs-wait", value: "D",
            detail: "The lease is renewed meanwhile.";
        /// A file or pattern that the command writes: PATH[,min-bytes=N]; may be given several times
        produces: Vec<Produces>, flag: "produces", value: "PATH", shared: SharedTable::Nowhere,
            detail: "If a file is missing, untouched or too small, the run ends as an error (exit 118).";
        /// The exit code by which the command says that there was nothing to do
        empty_exit: Whole<u8, 1, 255>, flag: "empty-exit", value: "N",
            detail: "The run ends as `empty`, exit 0. 0 itself always means done.";
        /// Warn when this many good runs in a row have left the same bytes
        stuck_after: Whole<u32, 2, UNBOUNDED>, flag: "stuck-after", value: "N";
    }

    "Guarding" {
        /// How long the lease lasts without a renewal; it is renewed every third of it
        ttl: Length, flag: "ttl", value: "D", verbs: RUN | ONCE | LEASE,
            otherwise: "5m, or as long as the store needs", detail: "From 1 s to 31 days.";
        /// How long the command has between TERM and KILL
        grace: Length, flag: "grace", value: "D", verbs: RUN | ONCE, otherwise: "10s, or a third of a shorter ttl",
            detail: "At most a third of the ttl.";
        /// Stop the command if it runs longer: TERM, after the grace KILL, exit 124
        timeout: Length<true>, flag: "timeout", value: "D", verbs: RUN | ONCE;
        /// How long to wait for the lease if another run holds it
        wait: Length, flag: "wait", short: Some('w'), value: "D", verbs: RUN | ONCE | LEASE, otherwise: "not at all";
        /// The exit code of a run that is skipped
        skip_exit: Whole<u8, 0, 255> = 0, flag: "skip-exit", short: Some('E'), value: "N";
        /// What to do while another run of the job holds the lease
        overlap: OneOf<Overlap> = Overlap::Skip, flag: "overlap", value: "WHAT",
            detail: "A run that is replaced ends with 112. On this host it notices at once, on another at its next renewal.";
        /// The job is each host's own: only runs on this host exclude each other
        per_host: Flag = false, flag: "per-host", verbs: RUN | PLAN;
        /// What to do if the store cannot be reached
        on_store_error: OneOf<OnStoreError> = OnStoreError::Fail, flag: "on-store-error", value: "WHAT",
            detail: "A run without a lease has no FENCEPOST_RUN, _KEY, _STORE_ID and _OUTCOME. A store that is corrupt or not \
                     fencepost's is refused in either case.";
        /// Leave processes alone that the command leaves running
        leave_children: Flag = false, flag: "leave-children";
        /// Keep a Mac awake while the command runs
        awake: Flag = false,
            detail: "macOS does not go to sleep by itself then; closing the lid still sends it to sleep. Other systems accept \
                     the key and ignore it.";
        /// Decide and record everything, but skip, halt and stop nothing
        observe: Flag = false, flag: "observe",
            detail: "A note, an event and the counters say what would have been done. This holds if the store, the barrier, \
                     `prepare`, the keeper or the wrapper fails. Left-over processes are left alone, and output is not kept. \
                     Only a mistake in the options or the configuration still stops the job (125).";
    }

    "Agents" {
        /// A run that exits 0 without `fencepost record` ends as an error; the hook sends an agent back that forgot it
        must_record: Flag = false, flag: "must-record",
            detail: "Exit 118. --empty-exit counts as a report.";
        /// Tools that write, besides the agent's own, or with ! before it one that does not
        write_tools: Texts,
            detail: "For `fencepost hook`: [\"Deploy\", \"!mcp__docs__*\"]; * stands for any characters. The last one that fits a \
                     tool counts. The tools of an agent that write are its shell, its edits and its MCP tools.";
        /// Commands that the hook refuses, with the fenced command to use instead
        guard_commands: Texts, otherwise: "[\"git push\"]",
            detail: "The words that such a command begins with: [\"git push\", \"npm publish\"]. An empty list refuses none.";
        /// What the hook does about a tool call that it cannot understand
        on_unknown_input: OneOf<OnUnknownInput> = OnUnknownInput::Block;
    }

    "Output" {
        /// Hold the command's output back, and print it only if it fails
        output_on_failure: Flag = false, flag: "output-on-failure";
        /// What is kept of the job's output
        logs: Logs, shared: SharedTable::Logs, otherwise: "as [logs] says";
    }

    "Notifications" {
        /// Who is told when a run ended in an error, was lost or fenced off, or could not begin
        on_error: Notice, shared: SharedTable::Notify, inside: "notify",
            detail: "One message per failure streak; see `remind`.";
        /// Who is told when a run was halted, because an input is missing
        on_halt: Notice, shared: SharedTable::Notify, inside: "notify";
        /// Who is told when a job works again, and how long it was down
        on_recovered: Notice, shared: SharedTable::Notify, inside: "notify";
        /// Who is told when slots passed without a run and are recorded as missed
        on_missed: Notice, shared: SharedTable::Notify, inside: "notify";
        /// Who is told when a job drifts from its definition or its past, once for each difference
        on_drift: Notice, shared: SharedTable::Notify, inside: "notify",
            detail: "After each run the job is compared as by `validate --drift`; failures are told by `on_error`.";
        /// After how long a failure streak that still lasts is told again; "0s": never
        remind: Length = Duration::from_secs(24 * 3600), shared: SharedTable::Notify, inside: "notify";
        /// What to call after so many skips in a row
        on_skips: OnSkips, shared: SharedTable::Notify, inside: "notify",
            detail: "A number alone calls what `on_error` names.";
        /// A URL to call at the start, at success and at failure, as Healthchecks expects it
        ping: WebUrl, shared: SharedTable::Nowhere, inside: "notify";
    }
}

options! {
    /// The keys of the configuration that stand outside every table.
    pub struct TopOptions {}

    "Top level" {
        /// The time zone of all jobs' schedules and days, such as "Asia/Tokyo"
        timezone: Text, otherwise: "UTC";
        /// The URL of the store, such as "sqlite:state/store.db"
        store: StoreUrl, otherwise: "the embedded store",
            detail: "--store and FENCEPOST_STORE take precedence. A relative path starts from the directory of this file.";
        /// A file that holds the store's password
        store_password_file: PathText,
            detail: "The file of a configuration that was found by search must lie beside it.";
    }
}

options! {
    /// `[up]`: how this machine schedules.
    pub struct UpTableOptions {}

    "[up]" {
        /// How many jobs run at once
        max_parallel: Whole<u32, 1, 10_000> = 64;
        /// How long `up` waits for running jobs when it is asked to end
        stop_within: Length, otherwise: "as long as they take";
        /// Over how long the jobs of one minute are spread
        spread: Length = Duration::ZERO;
    }
}

options! {
    /// What is kept of a job's output, and for how long.
    pub struct Logs {}

    "[logs]" {
        /// Whether output is kept
        enabled: Flag, otherwise: "true, except on a terminal; with [logs] or the job's `logs` also there";
        /// The directory that holds the logs
        directory: PathText, otherwise: "logs in the state directory";
        /// How many bytes are kept of one run
        max_bytes: Whole<u64, 1, UNBOUNDED> = 10 * 1024 * 1024;
        /// How many bytes are kept of one job; the newest run is kept in any case
        max_job_bytes: Whole<u64, 1, UNBOUNDED> = 50 * 1024 * 1024,
            detail: "Checked after a long log and after every sixteenth run or so: it can be exceeded for a while.";
        /// How long a log is kept
        max_age: Length<true> = Duration::from_secs(30 * 24 * 3600);
        /// How many runs' output is kept of one job
        keep: Whole<u32, 1, 1_000_000> = 100;
    }
}

/// What the hook of an agent does about input that it cannot understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknownInput {
    Block,
    Pass,
}

impl Spelled for OnUnknownInput {
    const WORDS: &'static [(Self, &'static str, &'static str)] =
        &[(Self::Block, "block", "It is refused, if it may be a tool that writes"), (Self::Pass, "pass", "It passes")];
}

/// What happens to a run whose store cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStoreError {
    Fail,
    Run,
}

impl Spelled for OnStoreError {
    const WORDS: &'static [(Self, &'static str, &'static str)] =
        &[(Self::Fail, "fail", "Exit 125"), (Self::Run, "run", "Run without a lease and without a token")];
}

/// The width of a slot that no schedule gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotUnit {
    Day,
    Hour,
    Minute,
}

impl Spelled for SlotUnit {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Day, "day", "The civil day in the job's zone"),
        (Self::Hour, "hour", "The hour"),
        (Self::Minute, "minute", "The minute"),
    ];
}

/// The slot of a job without a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrittenSlot {
    Unit(SlotUnit),
    /// An instant or a local time, as it was typed.
    At(String),
}

impl ValueKind for WrittenSlot {
    type Value = Self;

    fn expected() -> String {
        OneOf::<SlotUnit>::expected()
    }

    fn read(item: Item<'_>) -> Option<Self> {
        OneOf::<SlotUnit>::read(item).map(Self::Unit)
    }

    fn parse(typed: &OsStr) -> Result<Self, String> {
        let text = utf8(typed)?;
        Ok(SlotUnit::of_word(text).map_or_else(|| Self::At(text.to_string()), Self::Unit))
    }

    fn json(value: &Self) -> Value {
        match value {
            Self::Unit(unit) => json!(unit.word()),
            Self::At(text) => json!(text),
        }
    }
}

/// The URL of a store. A relative path in it starts from the configuration's directory.
#[derive(Debug)]
pub struct StoreUrl;

impl ValueKind for StoreUrl {
    type Value = String;

    fn expected() -> String {
        Text::expected()
    }

    fn read(item: Item<'_>) -> Option<String> {
        let Some(written) = item.value.get_ref().as_str() else { return Text::read(item) };
        let url = fencepost_store::absolute(written, &item.reader.directory);
        match fencepost_store::must_name_a_store(&url) {
            Ok(()) => Some(url),
            Err(error) => item.mistake(format!("\"store\": {error}"), None),
        }
    }

    fn json(value: &String) -> Value {
        json!(fencepost_store::redacted(value))
    }
}

impl ValueKind for Logs {
    type Value = Self;

    fn expected() -> String {
        "true, false, or a table such as { keep = 10 }".to_string()
    }

    fn read(item: Item<'_>) -> Option<Self> {
        if let Some(table) = item.table() {
            return Some(Self::of_section(Section::new(item.reader, table, "logs")));
        }
        let enabled = item.value.get_ref().as_bool().or_else(|| item.unexpected::<Self, _>(None))?;
        Some(Self { enabled: Some(item.at().with(enabled)), ..Self::default() })
    }

    fn json(value: &Self) -> Value {
        value.shown()
    }

    fn none() -> Value {
        Self::default().shown()
    }

    fn merge(own: Self, below: &Self) -> Self {
        own.over(below)
    }
}

impl Logs {
    /// Reads `[logs]`, or a job's table of that name. Who writes one wants logs.
    pub fn of_section(mut section: Section<'_>) -> Self {
        let logs = Self::read_table(&mut section, Table::Job);
        section.finish(|_, _| None);
        Self { enabled: logs.enabled.or(Some(Located::typed(true))), ..logs }
    }
}

impl JobOptions {
    /// Reads a job's own keys.
    pub fn read_job(mut section: Section<'_>, at: Located<()>) -> Self {
        let job = Self { at, ..Self::read_table(&mut section, Table::Job) };
        job.check_exclusive(&section);
        section.finish(|word, is_table| match word {
            "notify" => Some("Write on_error = … in the job.".to_string()),
            _ => is_table.then(|| format!("If the job's name has a dot, quote it, as in [job.\"NAME.{word}\"].")),
        });
        job
    }

    /// Reads `[defaults]` or `[notify]`.
    pub fn read_shared(mut section: Section<'_>, table: Table) -> Self {
        let options = Self::read_table(&mut section, table);
        section.finish(|_, _| None);
        options
    }

    /// When the job runs, as it is written.
    pub fn shown_schedule(&self) -> Option<String> {
        let every = || self.every.as_ref().map(|every| format!("every {}", duration::show(every.value)));
        self.schedule.as_ref().map(|schedule| schedule.value.clone()).or_else(every)
    }

    /// What is kept of the job's output.
    pub fn logs(&self) -> Logs {
        self.logs.value().unwrap_or_default()
    }

    /// The upstreams that the job needs.
    pub fn needed(&self) -> &[ConfigNeed] {
        self.needs.as_ref().map_or(&[], |needs| &needs.value)
    }

    /// The files that the job makes.
    pub fn produced(&self) -> &[Produces] {
        self.produces.as_ref().map_or(&[], |produces| &produces.value)
    }

    /// Whether there is anything to call when a run ends.
    pub fn notifies(&self) -> bool {
        let notices = [&self.on_error, &self.on_halt, &self.on_recovered, &self.on_missed, &self.on_drift];
        notices.into_iter().any(Option::is_some) || self.on_skips.is_some() || self.ping.is_some()
    }

    /// The commands that notifications run.
    pub fn notifiers(&self) -> impl Iterator<Item = &CommandLine> {
        let notices = [&self.on_error, &self.on_halt, &self.on_recovered, &self.on_missed, &self.on_drift];
        let notices = notices.into_iter().flatten();
        let skips = self.on_skips.as_ref().and_then(|on| on.value.notify.as_ref());
        let recipients = notices.map(|notice| &notice.value).chain(skips).flat_map(|notice| &notice.0);
        recipients.filter_map(|recipient| match recipient {
            Recipient::Command(command) => Some(command),
            _ => None,
        })
    }

    fn check_exclusive(&self, section: &Section<'_>) {
        if let (Some(_), Some(every)) = (&self.schedule, &self.every) {
            let message = "\"schedule\" and \"every\" both say when the job runs: it is one or the other.";
            section.reader.note(Mistake::at(every, message, Some("Remove one of them.".to_string())));
        }
        let scheduled = self.schedule.is_some() || self.every.is_some();
        if let (true, Some(at)) = (scheduled, section.key_at("slot")) {
            let message =
                "\"slot\" is for jobs without a schedule: \"schedule\" and \"every\" give the slots themselves.";
            section.reader.note(Mistake::at(&at, message, Some("Remove it.".to_string())));
        }
    }
}
