//! What the help of each verb says besides its arguments: declared here, once per verb.
//!
//! Feeds `--help`, the answer to a mistyped verb, the reference page, the man pages and the completions. A test fails if a
//! verb has no entry, an example does not parse or a page does not exist.

mod below;

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

/// An entry without what few verbs need.
const PLAIN: VerbHelp =
    VerbHelp { verb: "", group: "", page: "", other_words: &[], common: &[], examples: &[], notes: "" };

/// The verbs that stand directly after `fencepost`, in the order of its help.
const VERBS: &[VerbHelp] = &[
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
        examples: &[
            ("Start every job of fencepost.toml when it is due, until ctrl-C", "fencepost up"),
            ("Run what is due now, and end", "fencepost up --once"),
            ("Start only these two jobs", "fencepost up refresh report"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "install",
        group: RUN,
        page: "docs/INSTALL.md",
        other_words: &["cron", "crontab", "systemd", "launchd", "timer", "enable", "uninstall", "schedule"],
        examples: &[
            ("Show the crontab lines that would be written", "fencepost install crontab --dry-run"),
            ("Have systemd keep `fencepost up` running", "fencepost install systemd --write"),
            ("Have Claude Code ask fencepost before it writes", "fencepost install claude --write"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "once",
        group: RUN,
        page: "docs/ONCE.md",
        other_words: &["idempotent", "idempotency", "dedupe", "dedup", "exactly-once"],
        examples: &[
            (
                "Charge a customer once, however often the job is repeated",
                "fencepost once invoices/2026-11/alice -- ./charge.sh alice",
            ),
            (
                "If an attempt died half-way, ask a script whether its effect is there",
                "fencepost once mail/42 --on-unknown verify=./was-sent.sh -- ./send.sh 42",
            ),
            ("Which items are done, in progress, failed or unknown", "fencepost once list"),
        ],
        notes: "Without a command, `once list` lists the items, `once show KEY` shows one, and `once forget KEY` forgets one, \
                so that its effect may happen again.",
        ..PLAIN
    },
    VerbHelp {
        verb: "status",
        group: SEE,
        page: "docs/COMMANDS.md",
        other_words: &[
            "list", "ls", "ps", "jobs", "show", "st", "stat", "state", "overview", "health", "top", "metrics", "watch",
        ],
        examples: &[
            ("All jobs, those that need attention first", "fencepost status"),
            ("What happened since yesterday evening, counted for each job", "fencepost status --since 18:00"),
            ("In cron or monitoring: exit 1 if anything needs attention", "fencepost status --check"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "why",
        group: SEE,
        page: "docs/LEDGER.md",
        other_words: &["explain", "reason", "debug", "diagnose", "inspect", "doctor"],
        examples: &[
            ("What became of the newest slot", "fencepost why nightly"),
            ("Why a job did not run on a certain morning", "fencepost why nightly --at 2026-11-18T07:00"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "runs",
        group: SEE,
        page: "docs/LEDGER.md",
        other_words: &["history", "ledger", "outcomes", "past", "results", "last"],
        examples: &[
            ("The last 10 runs of a job", "fencepost runs nightly -n 10"),
            ("Failed runs of all jobs since a day", "fencepost runs --status error --since 2026-11-01"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "logs",
        group: SEE,
        page: "docs/COMMANDS.md",
        other_words: &["log", "tail", "output", "cat", "journal", "stdout"],
        examples: &[
            ("What the newest run printed", "fencepost logs nightly"),
            ("Follow the run that is going", "fencepost logs nightly -f"),
            ("Which runs' output is kept", "fencepost logs nightly --list"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "plan",
        group: SEE,
        page: "docs/SCHEDULES.md",
        other_words: &["next", "preview", "due", "when", "slots", "forecast", "schedule", "simulate"],
        examples: &[
            ("What would run now, and when the next slot is", "fencepost plan nightly"),
            ("The same for all jobs", "fencepost plan"),
            ("Try a schedule before using it", "fencepost plan nightly --schedule '0 7 * * 1-5' --tz Asia/Tokyo"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "overdue",
        group: SEE,
        page: "docs/INSTALL.md",
        other_words: &["late", "missed", "missing", "monitor", "alert"],
        examples: &[
            ("Print jobs whose slot passed without a run", "fencepost overdue"),
            ("Allow each slot to be an hour late", "fencepost overdue --grace 1h"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "notify",
        group: SEE,
        page: "docs/tasks/get-notified.md",
        other_words: &["mail", "slack", "discord", "ntfy", "message", "alerts"],
        common: &[],
        examples: &[
            ("Send a test message to every recipient of a job", "fencepost notify --test report"),
            ("The same for programs", "fencepost notify --test report --json"),
        ],
        notes: "",
    },
    VerbHelp {
        verb: "serve",
        group: SEE,
        page: "docs/SERVE.md",
        other_words: &["web", "browser", "dashboard", "ui", "http", "api", "server", "page"],
        common: &[],
        examples: &[
            ("See your jobs in the browser, on http://127.0.0.1:7333", "fencepost serve"),
            (
                "With run now, pause, resume and release; each needs a token of the file",
                "fencepost serve --allow-actions --token-file ~/.config/fencepost/tokens",
            ),
            (
                "Be the store of two laptops, on a small server",
                "fencepost serve --listen 0.0.0.0:7333 --tls-self-signed --token-file /etc/fencepost/tokens --share",
            ),
        ],
        notes: "On a loopback address reading needs no token. Any other address needs TLS and a token.",
    },
    VerbHelp {
        verb: "advise",
        group: SEE,
        page: "docs/LEDGER.md",
        other_words: &["advice", "stats", "statistics", "tune", "durations", "analyze", "recommend"],
        examples: &[
            ("Durations and a fitting time-to-live of every job", "fencepost advise"),
            ("The same for one job", "fencepost advise nightly"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "pause",
        group: STEER,
        page: "docs/COMMANDS.md",
        other_words: &["stop", "disable", "suspend", "skip", "mute", "freeze", "hold"],
        examples: &[
            ("Keep a job from starting on every machine", "fencepost pause nightly"),
            ("For two hours, and say why", "fencepost pause nightly --for 2h --note 'the disk is being replaced'"),
            ("Keep all jobs from starting", "fencepost pause --all"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "resume",
        group: STEER,
        page: "docs/COMMANDS.md",
        other_words: &["unpause", "continue", "enable", "unsuspend", "unfreeze", "cont"],
        examples: &[
            ("Let a paused job start again", "fencepost resume nightly"),
            ("Let all jobs start again", "fencepost resume --all"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "forget",
        group: STEER,
        page: "docs/COMMANDS.md",
        other_words: &["delete", "remove", "rm", "purge", "clear", "reset", "clean"],
        common: &[],
        examples: &[
            ("Remove what is recorded of a job that is gone", "fencepost forget nightly"),
            ("The same in a script", "fencepost forget nightly --yes"),
        ],
        notes: "Its token stays, and no slot runs again by it. Jobs that need it halt until it has run again.",
    },
    VerbHelp {
        verb: "init",
        group: SET_UP,
        page: "docs/INSTALL.md",
        other_words: &["new", "create", "configure", "setup", "generate", "bootstrap", "add", "config", "convert"],
        examples: &[
            ("A first fencepost.toml in this directory", "fencepost init"),
            ("One with the jobs of your crontab, which stays as it is", "fencepost init --from crontab"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "demo",
        group: SET_UP,
        page: "docs/COMMANDS.md",
        other_words: &["tutorial", "example", "examples", "tour", "try"],
        examples: &[
            ("All five incidents, in under 40 seconds", "fencepost demo"),
            ("Only the zombie, without pauses", "fencepost demo --incident 3 --fast"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "validate",
        group: SET_UP,
        page: "docs/CONFIGURATION.md",
        other_words: &["check", "lint", "verify", "test", "config", "configtest"],
        examples: &[
            ("Mistakes, and when each job is due", "fencepost validate"),
            ("Also compare with the installed triggers", "fencepost validate --installed"),
            ("What changed since jobs last ended well", "fencepost validate --drift"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "store",
        group: SET_UP,
        page: "docs/stores/README.md",
        other_words: &["backend", "db", "database", "storage"],
        examples: &[
            ("Prove that a store's compare-and-swap is one", "fencepost store check redis://127.0.0.1:6379"),
            ("Use it from now on", "fencepost store use redis://127.0.0.1:6379"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "record",
        group: INSIDE,
        page: "docs/LEDGER.md",
        other_words: &["report", "mark", "complete", "done", "ok", "empty", "fail", "success", "finish"],
        examples: &[
            ("Inside a run: there was nothing to do today", "fencepost record empty --note 'no news'"),
            ("For a job that runs without fencepost", "fencepost record refresh ok --artifact data/reference.md"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "gate",
        group: INSIDE,
        page: "docs/tasks/depend-on-another-job.md",
        other_words: &["needs", "depends", "depend", "dependency", "require", "upstream", "barrier", "await", "after"],
        examples: &[
            ("Go on only if today's refresh succeeded", "fencepost gate refresh@same-day"),
            (
                "Run a command on the very file that the upstream recorded",
                "fencepost gate refresh --artifact data/reference.md -- ./report.sh",
            ),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "publish",
        group: INSIDE,
        page: "docs/tasks/fence-a-write.md",
        other_words: &["write", "push", "deploy", "save", "upload", "put", "fence", "commit"],
        examples: &[
            ("Replace a file", "./report.sh | fencepost publish file /srv/www/report.html"),
            ("Push the current branch", "fencepost publish git"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "lease",
        group: INSIDE,
        page: "docs/COMMANDS.md",
        other_words: &["mutex", "semaphore"],
        examples: &[
            ("Take a lease and print its token", "token=$(fencepost lease acquire deploy --ttl 10m)"),
            ("Give it back", "fencepost lease release deploy --token \"$token\""),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "session",
        group: INSIDE,
        page: "docs/SESSION.md",
        other_words: &["sdk", "library", "protocol"],
        examples: &[
            (
                "What a library starts, to hold leases for a program",
                "echo '{\"id\":1,\"request\":\"hello\"}' | fencepost session",
            ),
            ("The same with the leases in a Redis", "fencepost session --store redis://127.0.0.1:6379"),
        ],
        notes: "A program starts it as a child and speaks JSON lines with it, one request and one answer per line; the libraries for \
                Python and TypeScript do. At end of input it stops renewing and does not release: the leases end by their ttl.",
        ..PLAIN
    },
    VerbHelp {
        verb: "hook",
        group: INSIDE,
        page: "docs/HOOKS.md",
        other_words: &["agent", "claude", "codex", "gemini", "antigravity", "pretooluse"],
        examples: &[
            ("Called by Claude Code before a tool, inside `fencepost run`", "fencepost hook claude"),
            (
                "Sessions that no run wraps: the first prompt that matches claims the job's slot",
                "fencepost hook claude --job nightly --match-prompt '^nightly:'",
            ),
        ],
        notes: "It reads the agent's JSON on standard input and answers in the agent's format, with exit 0. Without a run \
                around it and without --job it lets everything pass. A hook is gated: only the fence at the target is atomic.",
        ..PLAIN
    },
    VerbHelp {
        verb: "mcp",
        group: SET_UP,
        page: "docs/MCP.md",
        other_words: &["agent", "agents", "claude", "codex", "ai", "tools"],
        examples: &[
            ("What an agent starts, to ask about your jobs", "fencepost mcp"),
            ("And to start, pause and record them, too", "fencepost mcp --allow-writes"),
        ],
        notes: "An agent starts it and speaks the Model Context Protocol with it, as after: claude mcp add fencepost -- fencepost \
                mcp. Every tool is a verb, and answers as the verb does with --json.",
        ..PLAIN
    },
    VerbHelp {
        verb: "completions",
        group: ABOUT,
        page: "docs/tasks/install.md",
        other_words: &["completion", "complete", "autocomplete", "tab", "shell"],
        examples: &[
            ("bash", "fencepost completions bash > ~/.local/share/bash-completion/completions/fencepost"),
            ("zsh, into a directory of $fpath", "fencepost completions zsh > ~/.zfunc/_fencepost"),
            ("fish", "fencepost completions fish > ~/.config/fish/completions/fencepost.fish"),
        ],
        notes: "Job names come from the configuration and the store. A store that does not answer within 300 ms is left out.",
        ..PLAIN
    },
    VerbHelp {
        verb: "man",
        group: ABOUT,
        page: "docs/tasks/install.md",
        other_words: &["manual", "manpage", "docs", "doc"],
        examples: &[
            ("Read the main page", "fencepost man | man -l -"),
            ("Install a page for each verb", "fencepost man ~/.local/share/man/man1"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "schema",
        group: ABOUT,
        page: "docs/COMMANDS.md",
        other_words: &["json", "jsonschema", "types"],
        examples: &[
            ("Write it to a file", "fencepost schema > fencepost.schema.json"),
            ("List the types", "fencepost schema | jq '.\"$defs\" | keys'"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "version",
        group: ABOUT,
        page: "docs/COMMANDS.md",
        other_words: &["about", "info", "build"],
        examples: &[
            ("The number alone", "fencepost version"),
            ("With commit, target and stores, for a bug report", "fencepost version --verbose"),
        ],
        ..PLAIN
    },
];

/// Every verb.
pub fn verbs() -> impl Iterator<Item = &'static VerbHelp> {
    VERBS.iter().chain(below::VERBS)
}

/// The entry of a verb.
pub fn find(verb: &str) -> Option<&'static VerbHelp> {
    verbs().find(|entry| entry.verb == verb)
}
