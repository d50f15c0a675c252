//! The verbs below `serve`, `publish`, `lease` and `store`.

use super::{INSIDE, PLAIN, SEE, SET_UP, VerbHelp};

pub const VERBS: &[VerbHelp] = &[
    VerbHelp {
        verb: "serve token",
        group: SEE,
        page: "docs/SERVE.md",
        other_words: &["password", "login"],
        examples: &[
            (
                "A token for a laptop; it is printed once",
                "fencepost serve token laptop --token-file /etc/fencepost/tokens",
            ),
            ("One for a browser", "fencepost serve token browser --token-file ~/.config/fencepost/tokens"),
        ],
        notes: "The file holds a digest of each token. Remove a line to revoke its token: the server reads the file again.",
        ..PLAIN
    },
    VerbHelp {
        verb: "publish file",
        group: INSIDE,
        page: "docs/publish/file.md",
        other_words: &["cp", "copy"],
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
        ..PLAIN
    },
    VerbHelp {
        verb: "publish tree",
        group: INSIDE,
        page: "docs/publish/tree.md",
        other_words: &["dir", "directory", "folder", "site", "rsync", "sync"],
        examples: &[
            (
                "Inside a run: switch a site to its new version in one step",
                "fencepost publish tree build /srv/www/site",
            ),
            ("Keep five old versions", "fencepost publish tree build /srv/www/site --keep 5"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "publish git",
        group: INSIDE,
        page: "docs/publish/git.md",
        other_words: &["branch"],
        examples: &[
            ("Inside a run: push the current branch to origin", "fencepost publish git"),
            ("Rebase first if another push came in between", "fencepost publish git --branch main --rebase"),
            ("Refuse a bare git push from inside a run", "fencepost publish git --hook"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "publish sql",
        group: INSIDE,
        page: "docs/publish/sql.md",
        other_words: &["postgres", "postgresql", "sqlite", "db", "database", "table"],
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
        ..PLAIN
    },
    VerbHelp {
        verb: "publish redis",
        group: INSIDE,
        page: "docs/publish/redis.md",
        other_words: &["key", "set", "cache"],
        examples: &[
            ("Inside a run: set a key", "./prices.sh | fencepost publish redis prices --url redis://127.0.0.1:6379"),
            ("Keep it for an hour", "fencepost publish redis prices --from prices.json --url redis://127.0.0.1:6379"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "publish s3",
        group: INSIDE,
        page: "docs/publish/s3.md",
        other_words: &["bucket", "object", "upload", "r2", "minio"],
        examples: &[
            (
                "Inside a run: write an object",
                "./prices.sh | fencepost publish s3 's3://my-bucket/prices.json?region=eu-west-1' --content-type application/json",
            ),
            (
                "From a file, which readers may keep for a minute",
                "fencepost publish s3 's3://my-bucket/prices.json?region=eu-west-1' --from prices.json --cache-control max-age=60",
            ),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "publish http",
        group: INSIDE,
        page: "docs/publish/http.md",
        other_words: &["https", "post", "curl", "webhook", "api"],
        examples: &[
            (
                "Inside a run: send a file",
                "fencepost publish http https://api.example.org/prices --from prices.json --content-type application/json",
            ),
            (
                "Send it by POST, with a token from a file",
                "fencepost publish http https://api.example.org/prices --from prices.json --method post --bearer-file api-token",
            ),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "publish exec",
        group: INSIDE,
        page: "docs/publish/exec.md",
        other_words: &["run", "command", "cmd"],
        examples: &[
            (
                "Inside a run: upload with a tool that knows no tokens, one upload at a time",
                "fencepost publish exec --resource site -- rsync -a build/ web.example.org:site/",
            ),
            (
                "Wait up to ten minutes until another command on it has ended",
                "fencepost publish exec --resource site --wait 10m -- ./deploy.sh",
            ),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "lease acquire",
        group: INSIDE,
        page: "docs/COMMANDS.md",
        other_words: &["lock", "take", "get", "claim", "grab"],
        examples: &[
            ("Take a lease for ten minutes and keep its token", "token=$(fencepost lease acquire deploy --ttl 10m)"),
            ("Wait up to a minute for it", "fencepost lease acquire deploy --wait 1m"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "lease renew",
        group: INSIDE,
        page: "docs/COMMANDS.md",
        other_words: &["extend", "refresh", "keepalive", "heartbeat", "touch"],
        examples: &[
            ("Start the time-to-live anew", "fencepost lease renew deploy --token \"$token\""),
            ("As JSON, with the time until which it lasts", "fencepost lease renew deploy --token \"$token\" --json"),
        ],
        ..PLAIN
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
        examples: &[
            ("Stop (kill) the run that is going, wherever it runs", "fencepost lease release nightly --force"),
            ("Unlock: give back a lease that you took", "fencepost lease release deploy --token \"$token\""),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "lease show",
        group: INSIDE,
        page: "docs/COMMANDS.md",
        other_words: &["holder", "who", "owner", "view", "status", "locked"],
        examples: &[
            ("Who holds a lease, and how long it still lasts", "fencepost lease show nightly"),
            ("The same for programs", "fencepost lease show nightly --json"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "lease hold",
        group: INSIDE,
        page: "docs/COMMANDS.md",
        other_words: &["keep"],
        examples: &[
            ("For a program: hold a lease as long as the pipe is open", "./work.sh | fencepost lease hold deploy"),
            ("Wait up to a minute for it", "./work.sh | fencepost lease hold deploy --wait 1m"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "store check",
        group: SET_UP,
        page: "docs/stores/README.md",
        other_words: &["test", "verify", "prove", "doctor"],
        examples: &[
            ("The store in use", "fencepost store check"),
            ("Another one, before you use it", "fencepost store check postgres://fencepost@db.example.org/jobs"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "store use",
        group: SET_UP,
        page: "docs/tasks/two-machines.md",
        other_words: &["set", "default", "switch", "select", "connect"],
        examples: &[
            ("Keep the leases on a git host", "fencepost store use git+ssh://git@git.example.org/team/leases.git"),
            (
                "Write it into one configuration",
                "fencepost store use dir:/mnt/shared/fencepost --config /srv/jobs/fencepost.toml",
            ),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "store accept",
        group: SET_UP,
        page: "docs/tasks/when-the-store-is-lost.md",
        other_words: &["trust", "reset"],
        examples: &[
            ("After a Redis was set up anew on purpose", "fencepost store accept redis://cache.example.org:6379"),
            ("The same for a file", "fencepost store accept sqlite:/srv/jobs/store.db"),
        ],
        notes: "This host remembers the id of every store it has used, and refuses (125) a store that is missing or has \
                another id. Restore the lost store if you can. A new store knows no lease, no finished slot and no token \
                of the old one.",
        ..PLAIN
    },
    VerbHelp {
        verb: "store move",
        group: SET_UP,
        page: "docs/stores/README.md",
        other_words: &["migrate", "mv", "transfer", "rename"],
        examples: &[
            (
                "See what would be moved",
                "fencepost store move sqlite:/srv/jobs/store.db redis://127.0.0.1:6379 --dry-run",
            ),
            ("Move, and seal the old store", "fencepost store move sqlite:/srv/jobs/store.db redis://127.0.0.1:6379"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "store export",
        group: SET_UP,
        page: "docs/tasks/when-the-store-is-lost.md",
        other_words: &["backup", "dump", "save"],
        examples: &[
            ("Back up the store in use", "fencepost store export /backup/fencepost.jsonl"),
            ("Compress it on the way", "fencepost store export --store redis://127.0.0.1:6379 | zstd > backup.zst"),
        ],
        ..PLAIN
    },
    VerbHelp {
        verb: "store import",
        group: SET_UP,
        page: "docs/tasks/when-the-store-is-lost.md",
        other_words: &["restore", "load"],
        examples: &[
            ("Fill a new store", "fencepost store import /backup/fencepost.jsonl --store sqlite:/srv/copy.db"),
            ("Replace the store that was lost", "fencepost store import /backup/fencepost.jsonl --replace-lost"),
        ],
        notes: "The store must be empty. A damaged backup is refused before anything is written. Without --replace-lost \
                the store has an id of its own: targets that were written under the old store refuse its tokens until \
                they are adopted.",
        ..PLAIN
    },
    VerbHelp {
        verb: "store recover",
        group: SET_UP,
        page: "docs/tasks/when-the-store-is-lost.md",
        other_words: &["repair", "fix", "raise"],
        examples: &[
            ("Above the fence of a published file", "fencepost store recover report --fence /srv/www/report.html"),
            ("Above a token that a target named", "fencepost store recover report --above 1763442000000"),
        ],
        ..PLAIN
    },
];
