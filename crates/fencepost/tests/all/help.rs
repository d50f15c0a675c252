//! Help as people ask for it: by option, by verb, by another word, and by typing the bare name.

use fencepost_testkit::terminal::Shell;

use crate::common::{Site, lines};

#[test]
fn help_is_an_option_and_a_verb_and_the_option_h_is_shorter() {
    let site = Site::new();
    for verb in [&["run"][..], &["publish", "git"], &["store"]] {
        let by_verb = site.say(&[&["help"], verb].concat());
        let by_option = site.say(&[verb, &["--help"]].concat());
        assert_eq!((by_verb.code, by_verb.stderr.as_str()), (0, ""), "{verb:?}");
        assert_eq!(by_verb, by_option);
        let short = site.say(&[verb, &["-h"]].concat());
        assert!(short.code == 0 && short.stdout.len() < by_verb.stdout.len(), "{verb:?}: {short:?}");
        for part in ["Usage: fencepost ", "\nExamples:\n", "\nDocumentation: docs/"] {
            assert!(by_verb.stdout.contains(part) && short.stdout.contains(part), "{verb:?}: {part}");
        }
    }
    let whole = site.say(&["--store", "run", "run", "j", "--ttl", "5m", "--help"]).stdout;
    assert_eq!(whole, site.say(&["run", "--help"]).stdout);
    assert!(site.say(&["run", "-h"]).stdout.contains("All 3"));
    assert_eq!(site.say(&["help"]).stdout, site.say(&["--help"]).stdout);
    assert!(!site.state().exists());
}

#[test]
fn another_word_for_a_task_names_the_verb_and_runs_nothing() {
    let site = Site::new();
    for (words, verbs) in [
        ("lock", &["lease acquire"][..]),
        ("unlock", &["lease release deploy"]),
        ("kill", &["lease release nightly --force"]),
        ("cron", &["up", "install"]),
        ("schedule", &["up", "install", "plan"]),
        ("daemon", &["up"]),
        ("list", &["status"]),
        ("ls", &["status"]),
        ("ps", &["status"]),
        ("start", &["run", "up"]),
        ("stop", &["pause", "lease release"]),
        ("history", &["runs"]),
        ("tail", &["logs"]),
        ("explain", &["why"]),
        ("backup", &["store export"]),
        ("acquire", &["lease acquire"]),
        ("LIST", &["status"]),
        ("statsu", &["status"]),
        ("validte", &["validate"]),
        ("lease lock", &["lease acquire"]),
        ("publish rsync", &["publish tree"]),
        ("store migrate", &["store move"]),
        ("help lock", &["lease acquire"]),
    ] {
        let said = site.say(&words.split(' ').collect::<Vec<_>>());
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{words}");
        for verb in verbs {
            assert!(said.stderr.contains(&format!("fencepost {verb}")), "{words}: {verb}: {}", said.stderr);
        }
        assert!(said.stderr.contains("Nothing was run."), "{words}: {}", said.stderr);
    }
    let said = site.say(&["kill", "nightly", "--json"]);
    let shown = lines(&said.stdout);
    assert_eq!((said.code, shown.len(), &shown[0]["error"]["code"]), (2, 1, &2.into()), "{said:?}");
    assert_eq!(shown[0]["error"]["reason"], "usage");
    assert!(shown[0]["error"]["message"].as_str().unwrap().contains("fencepost lease release"), "{said:?}");
    let said = site.say(&["xyzzy"]);
    assert!(said.code == 2 && said.stderr.contains("fencepost help") && !said.stderr.contains("Did you"), "{said:?}");
    assert!(!site.state().exists());
}

#[test]
fn a_job_typed_as_a_verb_is_told_how_to_run() {
    let site = Site::new();
    let config = site.path("fencepost.toml");
    std::fs::write(&config, "[job.hello]\nevery = '1h'\ncommand = 'touch ran'\n").unwrap();
    let said = site.command(&["hello"]).env("FENCEPOST_CONFIG", &config).output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.code() == Some(2) && text.contains("fencepost run hello --now"), "{text}");
    assert!(!site.path("ran").exists() && !site.state().exists());
}

#[test]
fn a_verb_that_needs_another_shows_them_and_so_does_the_bare_name_off_a_terminal() {
    let site = Site::new();
    for (typed, part) in [(&[][..], "\nSee what happened:\n"), (&["lease"], "  acquire  "), (&["-v"], "Run jobs")] {
        let said = site.say(typed);
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{typed:?}");
        assert!(said.stderr.contains(part), "{typed:?}: {}", said.stderr);
    }
    assert_eq!(lines(&site.say(&["--json"]).stdout)[0]["error"]["code"], 2);
    assert!(!site.state().exists());
}

#[test]
fn the_bare_name_on_a_terminal_shows_this_machine_and_the_next_commands() {
    let site = Site::new();
    let mut shell = Shell::start(site.program("setsid", &[]));
    let mut start = |options: &str| {
        shell.say(&format!("$BINARY {options}; echo code-\"$?\"\n"));
        shell.expect("code-0")
    };
    let screen = start("");
    for part in ["This machine", "configuration  none", "not there yet", "fencepost demo", "fencepost help"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert!(!site.state().exists(), "it creates nothing");
    let config = site.path("fencepost.toml");
    std::fs::write(&config, "[job.hello]\nevery = '1h'\ncommand = 'exit 3'\n").unwrap();
    let options = format!("--config {}", config.display());
    let screen = start(&options);
    assert!(screen.contains("(1 job)") && screen.contains("fencepost run hello --now"), "{screen}");
    assert_eq!(site.say(&["run", "hello", "--now", "--config", &config.display().to_string()]).code, 3);
    let screen = start(&options);
    assert!(screen.contains("attention      hello failed") && screen.contains("fencepost why hello"), "{screen}");
    // A store that is lost, a store that does not answer and a wrong configuration are shown, and fail nothing.
    std::fs::remove_file(site.database()).unwrap();
    assert!(start(&options).contains("fencepost store accept"), "{screen}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(start(&format!("--store redis://127.0.0.1:{port}")).contains("does not answer"));
    std::fs::write(&config, "nonsense = 1\n").unwrap();
    assert!(start(&options).contains("nonsense"));
    assert!(!site.database().exists());
}

#[test]
fn help_of_a_verb_is_printed_with_an_argument_of_it_behind() {
    let site = Site::new();
    for words in [&["help", "once", "forget"][..], &["help", "lease", "show", "nightly"]] {
        let said = site.say(words);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{words:?}: {said:?}");
        assert!(said.stdout.contains(&format!("Usage: fencepost {}", words[1])), "{words:?}: {said:?}");
    }
    assert_eq!(site.say(&["help", "lease", "nosuch"]).code, 2);
}

#[test]
fn a_command_in_place_of_a_verb_is_told_how_to_run_it() {
    let site = Site::new();
    for (words, next) in [
        (&["hlep"][..], "fencepost help:"),
        (&["watch"], "fencepost status:"),
        (&["./backup.sh"], "fencepost run NAME -- ./backup.sh"),
        (&["report", "--", "./x.sh", "a"], "fencepost run report -- ./x.sh a"),
        (&["exec", "report", "--", "./x.sh"], "fencepost run report -- ./x.sh"),
        (&["pause"], "fencepost pause --all"),
        (&["resume"], "fencepost resume --all"),
    ] {
        let said = site.say(words);
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{words:?}: {said:?}");
        assert!(said.stderr.contains(next), "{words:?}: {said:?}");
    }
}

#[test]
fn a_first_run_that_is_not_due_says_when_it_is_and_how_to_run_it_at_once() {
    let site = Site::new();
    let config = site.path("fencepost.toml");
    let said = site.say(&["init", "-o", &config.display().to_string()]);
    assert_eq!(said.code, 0, "{said:?}");
    let next = format!("fencepost run hello --now --config {}", config.display());
    assert!(said.stdout.contains(&next) && said.stdout.contains("fencepost validate"), "{said:?}");
    let mut shell = Shell::start(site.program("setsid", &[]));
    shell.say(&format!("$BINARY run hello --config {}; echo code-\"$?\"\n", config.display()));
    let screen = shell.expect("code-0");
    for part in [
        "hello: nothing was run: nothing is due, because no slot came",
        "The next slot is 20",
        "07:00:00Z",
        "fencepost run hello --now",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    // Off a terminal cron would mail it.
    let silent = site.say(&["run", "hello", "--config", &config.display().to_string()]);
    assert_eq!((silent.code, silent.stdout.as_str(), silent.stderr.as_str()), (0, "", ""));
    let said = site.shell(&next.replacen("fencepost", "\"$BINARY\"", 1));
    assert_eq!((said.code, said.stdout.as_str()), (0, "hello\n"), "{said:?}");
}

#[test]
fn a_job_that_is_not_known_is_a_mistake_with_the_nearest_name() {
    let site = Site::new();
    assert_eq!(site.say(&["run", "nightly", "-c", "true"]).code, 0);
    for verb in ["status", "runs", "why", "logs", "logs --list", "plan", "advise", "pause", "resume", "forget --yes"] {
        let words: Vec<&str> = verb.split(' ').collect();
        let said = site.say(&[&words[..], &["nighty"]].concat());
        assert_eq!((said.code, said.stdout.as_str()), (2, ""), "{verb}: {said:?}");
        assert!(said.stderr.contains("nightly") && said.stderr.contains("known"), "{verb}: {said:?}");
        let said = site.say(&[&words[..], &["nosuch", "--json"]].concat());
        assert_eq!((said.code, &lines(&said.stdout)[0]["error"]["code"]), (2, &2.into()), "{verb}: {said:?}");
    }
    let config = site.path("fencepost.toml");
    std::fs::write(&config, "[job.later]\nevery = '1h'\ncommand = 'true'\n").unwrap();
    let config = config.display().to_string();
    let said = site.say(&["runs", "later", "--config", &config]);
    assert!(said.code == 0 && said.stdout.contains("No runs."), "{said:?}");
    let said = site.say(&["status", "later", "--config", &config]);
    assert!(said.code == 0 && said.stdout.contains("later"), "{said:?}");
    let said = site.say(&["advise", "later", "--config", &config]);
    assert!(said.code == 0 && said.stdout.contains("later has never run on sqlite:"), "{said:?}");
    assert_eq!(site.say(&["logs", "later", "--list", "--config", &config]).code, 0);
    assert_eq!(site.say(&["logs", "later", "--config", &config]).code, 125);
    assert_eq!(site.say(&["why", "later", "--config", &config]).code, 0);
}
