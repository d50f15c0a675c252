//! What the help of each verb says besides its arguments: declared here, once per verb.
//!
//! Feeds `--help`, the answer to a mistyped verb, the reference page, the man pages and the completions. A test fails if a
//! verb has no entry, an example does not parse or a page does not exist.

/// The help of one verb.
#[derive(Debug)]
pub struct VerbHelp {
    /// The words after `fencepost` that name the verb.
    pub verb: &'static str,
    /// The heading that `fencepost --help` lists it under.
    pub group: &'static str,
    /// The page of the documentation, as a path in the repository.
    pub page: &'static str,
    /// Words by which a newcomer may look for the verb. They are answered with its name, and never run it.
    pub other_words: &'static [&'static str],
    /// The options that `-h` shows; if empty, it shows all.
    pub common: &'static [&'static str],
    /// What an example does, and the example.
    pub examples: &'static [(&'static str, &'static str)],
    /// A paragraph for `--help`.
    pub notes: &'static str,
}

const RUN: &str = "Run jobs";
const SEE: &str = "See what happened";
const STEER: &str = "Steer jobs";
const INSIDE: &str = "Inside a job or a script";
const SET_UP: &str = "Set up";
const ABOUT: &str = "About fencepost";

/// Every verb, in the order of `fencepost --help`.
pub const VERBS: &[VerbHelp] = &[
    VerbHelp {
        verb: "run",
        group: RUN,
        page: "docs/tasks/guard-a-cron-job.md",
        other_words: &[
            "start", "exec", "execute", "trigger", "launch", "guard", "wrap", "flock", "call", "now", "retry", "rerun",
        ],
        common: &[
            "job",
            "argv",
            "shell",
            "schedule",
            "slot",
            "now",
            "timeout",
            "retries",
            "needs",
            "produces",
            "wait",
            "skip_exit",
            "dry_run",
        ],
        examples: &[
            ("Skip this run if one is still going, here or on another machine", "fencepost run nightly -- ./backup.sh"),
            ("Run a job of fencepost.toml at once, whether or not it is due", "fencepost run hello --now"),
            (
                "Run once a day on fresh input, and fail if report.html was not written",
                "fencepost run report --slot day --needs refresh --produces report.html -- ./report.sh",
            ),
        ],
        notes: "A skipped run exits 0 (or with --skip-exit), so cron stays quiet. Otherwise the exit code is the \
                command's own, or one above 100 if fencepost ended the run.",
    },
    VerbHelp {
        verb: "up",
        group: RUN,
        page: "docs/tasks/schedule-with-up.md",
        other_words: &["daemon", "schedule", "scheduler", "cron", "supervise", "start", "service"],
        common: &[],
        examples: &[
            ("Start every job of fencepost.toml when it is due, until ctrl-C", "fencepost up"),
            ("Run what is due now, and end", "fencepost up --once"),
            ("Start only these two jobs", "fencepost up refresh report"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "install",
        group: RUN,
        page: "docs/INSTALL.md",
        other_words: &["cron", "crontab", "systemd", "launchd", "timer", "enable", "uninstall", "schedule"],
        common: &[],
        examples: &[
            ("Show the crontab lines that would be written", "fencepost install crontab --dry-run"),
            ("Have systemd keep `fencepost up` running", "fencepost install systemd --write"),
            ("Take the launchd agents away again", "fencepost install launchd --remove"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "once",
        group: RUN,
        page: "docs/ONCE.md",
        other_words: &["idempotent", "idempotency", "dedupe", "dedup", "exactly-once"],
        common: &[],
        examples: &[
            (
                "Charge a customer once, however often the job is repeated",
                "fencepost once invoices/2026-11/alice -- ./charge.sh alice",
            ),
            (
                "If an attempt died half-way, ask a script whether its effect is there",
                "fencepost once mail/42 --on-unknown verify=./was-sent.sh -- ./send.sh 42",
            ),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "status",
        group: SEE,
        page: "docs/LEDGER.md",
        other_words: &[
            "list", "ls", "ps", "jobs", "show", "st", "stat", "state", "overview", "health", "top", "metrics",
        ],
        common: &[],
        examples: &[
            ("All jobs, those that need attention first", "fencepost status"),
            ("Everything about one job", "fencepost status nightly"),
            ("In cron or monitoring: exit 1 if anything needs attention", "fencepost status --check"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "why",
        group: SEE,
        page: "docs/LEDGER.md",
        other_words: &["explain", "reason", "debug", "diagnose", "inspect", "doctor"],
        common: &[],
        examples: &[
            ("What became of the newest slot", "fencepost why nightly"),
            ("Why a job did not run on a certain morning", "fencepost why nightly --at 2026-11-18T07:00"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "runs",
        group: SEE,
        page: "docs/LEDGER.md",
        other_words: &["history", "ledger", "outcomes", "past", "results", "last"],
        common: &[],
        examples: &[
            ("The last 10 runs of a job", "fencepost runs nightly -n 10"),
            ("Failed runs of all jobs since a day", "fencepost runs --status error --since 2026-11-01"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "logs",
        group: SEE,
        page: "docs/COMMANDS.md",
        other_words: &["log", "tail", "output", "cat", "journal", "stdout"],
        common: &[],
        examples: &[
            ("What the newest run printed", "fencepost logs nightly"),
            ("Follow the run that is going", "fencepost logs nightly -f"),
            ("Which runs' output is kept", "fencepost logs nightly --list"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "plan",
        group: SEE,
        page: "docs/SCHEDULES.md",
        other_words: &["next", "preview", "due", "when", "slots", "forecast", "schedule", "simulate"],
        common: &[],
        examples: &[
            ("What would run now, and when the next slot is", "fencepost plan nightly"),
            ("The same for all jobs", "fencepost plan"),
            ("Try a schedule before using it", "fencepost plan nightly --schedule '0 7 * * 1-5' --tz Asia/Tokyo"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "overdue",
        group: SEE,
        page: "docs/INSTALL.md",
        other_words: &["late", "missed", "missing", "monitor", "alert"],
        common: &[],
        examples: &[
            ("Print jobs whose slot passed without a run", "fencepost overdue"),
            ("Allow each slot to be an hour late", "fencepost overdue --grace 1h"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "advise",
        group: SEE,
        page: "docs/LEDGER.md",
        other_words: &["advice", "stats", "statistics", "tune", "durations", "analyze", "recommend"],
        common: &[],
        examples: &[
            ("Durations and a fitting time-to-live of every job", "fencepost advise"),
            ("The same for one job", "fencepost advise nightly"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "pause",
        group: STEER,
        page: "docs/COMMANDS.md",
        other_words: &["stop", "disable", "suspend", "skip", "mute", "freeze", "hold"],
        common: &[],
        examples: &[
            ("Keep a job from starting on every machine", "fencepost pause nightly"),
            ("For two hours, and say why", "fencepost pause nightly --for 2h --note 'the disk is being replaced'"),
            ("Keep all jobs from starting", "fencepost pause --all"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "resume",
        group: STEER,
        page: "docs/COMMANDS.md",
        other_words: &["unpause", "continue", "enable", "unsuspend", "unfreeze", "cont"],
        common: &[],
        examples: &[
            ("Let a paused job start again", "fencepost resume nightly"),
            ("Let all jobs start again", "fencepost resume --all"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "record",
        group: INSIDE,
        page: "docs/LEDGER.md",
        other_words: &["report", "mark", "complete", "done", "ok", "empty", "fail", "success", "finish"],
        common: &[],
        examples: &[
            ("Inside a run: there was nothing to do today", "fencepost record empty --note 'no news'"),
            ("For a job that runs without fencepost", "fencepost record refresh ok --artifact data/reference.md"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "gate",
        group: INSIDE,
        page: "docs/tasks/depend-on-another-job.md",
        other_words: &["needs", "depends", "depend", "dependency", "require", "upstream", "barrier", "await", "after"],
        common: &[],
        examples: &[
            ("Go on only if today's refresh succeeded", "fencepost gate refresh@same-day"),
            (
                "Run a command on the very file that the upstream recorded",
                "fencepost gate refresh --artifact data/reference.md -- ./report.sh",
            ),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "publish",
        group: INSIDE,
        page: "docs/tasks/fence-a-write.md",
        other_words: &["write", "push", "deploy", "save", "upload", "put", "fence", "commit"],
        common: &[],
        examples: &[
            ("Replace a file", "./report.sh | fencepost publish file /srv/www/report.html"),
            ("Push the current branch", "fencepost publish git"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "publish file",
        group: INSIDE,
        page: "docs/publish/file.md",
        other_words: &["cp", "copy"],
        common: &[],
        examples: &[
            (
                "Inside a run: replace a file by standard input",
                "./report.sh | fencepost publish file /srv/www/report.html",
            ),
            (
                "The same from a file, one write per token",
                "fencepost publish file /srv/data.csv --from new.csv --mode once",
            ),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "publish tree",
        group: INSIDE,
        page: "docs/publish/tree.md",
        other_words: &["dir", "directory", "folder", "site", "rsync", "sync"],
        common: &[],
        examples: &[
            (
                "Inside a run: switch a site to its new version in one step",
                "fencepost publish tree build /srv/www/site",
            ),
            ("Keep five old versions", "fencepost publish tree build /srv/www/site --keep 5"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "publish git",
        group: INSIDE,
        page: "docs/publish/git.md",
        other_words: &["branch"],
        common: &[],
        examples: &[
            ("Inside a run: push the current branch to origin", "fencepost publish git"),
            ("Rebase first if another push came in between", "fencepost publish git --branch main --rebase"),
            ("Refuse a bare git push from inside a run", "fencepost publish git --hook"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "publish sql",
        group: INSIDE,
        page: "docs/publish/sql.md",
        other_words: &["postgres", "postgresql", "sqlite", "db", "database", "table"],
        common: &[],
        examples: &[
            (
                "Inside a run: statements and check in one transaction",
                "fencepost publish sql --url sqlite:/srv/app.db --from update.sql",
            ),
            (
                "Refuse unfenced writes to a table from now on",
                "fencepost publish sql --url postgres://app@db.example.org/app --install --protect prices",
            ),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "publish redis",
        group: INSIDE,
        page: "docs/publish/redis.md",
        other_words: &["key", "set", "cache"],
        common: &[],
        examples: &[(
            "Inside a run: set a key",
            "./prices.sh | fencepost publish redis prices --url redis://127.0.0.1:6379",
        )],
        notes: "",
    },
    VerbHelp {
        verb: "publish http",
        group: INSIDE,
        page: "docs/publish/http.md",
        other_words: &["https", "post", "curl", "webhook", "api"],
        common: &[],
        examples: &[(
            "Inside a run: send a file",
            "fencepost publish http https://api.example.org/prices --from prices.json --content-type application/json",
        )],
        notes: "",
    },
    VerbHelp {
        verb: "publish exec",
        group: INSIDE,
        page: "docs/publish/exec.md",
        other_words: &["run", "command", "cmd"],
        common: &[],
        examples: &[(
            "Inside a run: upload with a tool that knows no tokens, one upload at a time",
            "fencepost publish exec --resource site -- rsync -a build/ web.example.org:site/",
        )],
        notes: "",
    },
    VerbHelp {
        verb: "lease",
        group: INSIDE,
        page: "docs/COMMANDS.md",
        other_words: &["mutex", "semaphore"],
        common: &[],
        examples: &[
            ("Take a lease and print its token", "token=$(fencepost lease acquire deploy --ttl 10m)"),
            ("Give it back", "fencepost lease release deploy --token \"$token\""),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "lease acquire",
        group: INSIDE,
        page: "docs/COMMANDS.md",
        other_words: &["lock", "take", "get", "claim", "grab"],
        common: &[],
        examples: &[
            ("Take a lease for ten minutes and keep its token", "token=$(fencepost lease acquire deploy --ttl 10m)"),
            ("Wait up to a minute for it", "fencepost lease acquire deploy --wait 1m"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "lease renew",
        group: INSIDE,
        page: "docs/COMMANDS.md",
        other_words: &["extend", "refresh", "keepalive", "heartbeat", "touch"],
        common: &[],
        examples: &[("Start the time-to-live anew", "fencepost lease renew deploy --token \"$token\"")],
        notes: "",
    },
    VerbHelp {
        verb: "lease release",
        group: INSIDE,
        page: "docs/COMMANDS.md",
        other_words: &[
            "unlock",
            "free",
            "drop",
            "kill",
            "stop",
            "terminate",
            "abort",
            "cancel",
            "break",
            "steal",
            "force",
        ],
        common: &[],
        examples: &[
            ("Stop (kill) the run that is going, wherever it runs", "fencepost lease release nightly --force"),
            ("Unlock: give back a lease that you took", "fencepost lease release deploy --token \"$token\""),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "lease show",
        group: INSIDE,
        page: "docs/COMMANDS.md",
        other_words: &["holder", "who", "owner", "view", "status", "locked"],
        common: &[],
        examples: &[("Who holds a lease, and how long it still lasts", "fencepost lease show nightly")],
        notes: "",
    },
    VerbHelp {
        verb: "lease hold",
        group: INSIDE,
        page: "docs/COMMANDS.md",
        other_words: &["keep"],
        common: &[],
        examples: &[(
            "For a program: hold a lease as long as the pipe is open",
            "./work.sh | fencepost lease hold deploy",
        )],
        notes: "",
    },
    VerbHelp {
        verb: "demo",
        group: SET_UP,
        page: "docs/COMMANDS.md",
        other_words: &["tutorial", "example", "examples", "tour", "try"],
        common: &[],
        examples: &[
            ("All five incidents, in under 40 seconds", "fencepost demo"),
            ("Only the zombie, without pauses", "fencepost demo --incident 3 --fast"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "init",
        group: SET_UP,
        page: "docs/INSTALL.md",
        other_words: &["new", "create", "configure", "setup", "generate", "bootstrap", "add", "config", "convert"],
        common: &[],
        examples: &[
            ("A first fencepost.toml in this directory", "fencepost init"),
            ("One with the jobs of your crontab, which stays as it is", "fencepost init --from crontab"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "validate",
        group: SET_UP,
        page: "docs/CONFIGURATION.md",
        other_words: &["check", "lint", "verify", "test", "config", "configtest"],
        common: &[],
        examples: &[
            ("Mistakes, and when each job is due", "fencepost validate"),
            ("Also compare with the installed triggers", "fencepost validate --installed"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "store",
        group: SET_UP,
        page: "docs/stores/README.md",
        other_words: &["backend", "db", "database", "storage"],
        common: &[],
        examples: &[
            ("Prove that a store's compare-and-swap is one", "fencepost store check redis://127.0.0.1:6379"),
            ("Use it from now on", "fencepost store use redis://127.0.0.1:6379"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "store check",
        group: SET_UP,
        page: "docs/stores/README.md",
        other_words: &["test", "verify", "prove", "doctor"],
        common: &[],
        examples: &[
            ("The store in use", "fencepost store check"),
            ("Another one, before you use it", "fencepost store check postgres://fencepost@db.example.org/jobs"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "store use",
        group: SET_UP,
        page: "docs/tasks/two-machines.md",
        other_words: &["set", "default", "switch", "select", "connect"],
        common: &[],
        examples: &[
            ("Keep the leases on a git host", "fencepost store use git+ssh://git@git.example.org/team/leases.git"),
            (
                "Write it into one configuration",
                "fencepost store use dir:/mnt/shared/fencepost --config /srv/jobs/fencepost.toml",
            ),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "store accept",
        group: SET_UP,
        page: "docs/tasks/when-the-store-is-lost.md",
        other_words: &["trust", "reset"],
        common: &[],
        examples: &[
            ("After a Redis was set up anew on purpose", "fencepost store accept redis://cache.example.org:6379"),
            ("The same for a file", "fencepost store accept sqlite:/srv/jobs/store.db"),
        ],
        notes: "This host remembers the id of every store it has used, and refuses (125) a store that is missing or has \
                another id. Restore the lost store if you can. A new store knows no lease, no finished slot and no token \
                of the old one.",
    },
    VerbHelp {
        verb: "store move",
        group: SET_UP,
        page: "docs/stores/README.md",
        other_words: &["migrate", "mv", "transfer", "rename"],
        common: &[],
        examples: &[
            (
                "See what would be moved",
                "fencepost store move sqlite:/srv/jobs/store.db redis://127.0.0.1:6379 --dry-run",
            ),
            ("Move, and seal the old store", "fencepost store move sqlite:/srv/jobs/store.db redis://127.0.0.1:6379"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "store export",
        group: SET_UP,
        page: "docs/tasks/when-the-store-is-lost.md",
        other_words: &["backup", "dump", "save"],
        common: &[],
        examples: &[
            ("Back up the store in use", "fencepost store export /backup/fencepost.jsonl"),
            ("Compress it on the way", "fencepost store export --store redis://127.0.0.1:6379 | zstd > backup.zst"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "store import",
        group: SET_UP,
        page: "docs/tasks/when-the-store-is-lost.md",
        other_words: &["restore", "load"],
        common: &[],
        examples: &[
            ("Fill a new store", "fencepost store import /backup/fencepost.jsonl --store sqlite:/srv/copy.db"),
            ("Replace the store that was lost", "fencepost store import /backup/fencepost.jsonl --replace-lost"),
        ],
        notes: "The store must be empty. A damaged backup is refused before anything is written. Without --replace-lost \
                the store has an id of its own: targets that were written under the old store refuse its tokens until \
                they are adopted.",
    },
    VerbHelp {
        verb: "store recover",
        group: SET_UP,
        page: "docs/tasks/when-the-store-is-lost.md",
        other_words: &["repair", "fix", "raise"],
        common: &[],
        examples: &[
            ("Above the fence of a published file", "fencepost store recover report --fence /srv/www/report.html"),
            ("Above a token that a target named", "fencepost store recover report --above 1763442000000"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "schema",
        group: ABOUT,
        page: "docs/COMMANDS.md",
        other_words: &["json", "jsonschema", "types"],
        common: &[],
        examples: &[("Write it to a file", "fencepost schema > fencepost.schema.json")],
        notes: "",
    },
    VerbHelp {
        verb: "version",
        group: ABOUT,
        page: "docs/COMMANDS.md",
        other_words: &["about", "info", "build"],
        common: &[],
        examples: &[("With commit, target and stores, for a bug report", "fencepost version --verbose")],
        notes: "",
    },
];

/// The entry of a verb.
pub fn find(verb: &str) -> Option<&'static VerbHelp> {
    VERBS.iter().find(|entry| entry.verb == verb)
}
