//! Every state of an upstream under every rule, by `gate` and by `run --needs`.

use fencepost_core::time::Wall;
use serde_json::Value;

use crate::common::contains;
use crate::desk::{DAY, Desk, HOUR, at, noon, now};

/// The rules of freshness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    LastDue,
    LastDueOfSchedule,
    SameDay,
    SameSlot,
    Within,
    Any,
}

impl Rule {
    const ALL: [Self; 6] =
        [Self::LastDue, Self::LastDueOfSchedule, Self::SameDay, Self::SameSlot, Self::Within, Self::Any];

    fn need(self) -> &'static str {
        match self {
            Self::LastDue | Self::LastDueOfSchedule => "up,artifact=data",
            Self::SameDay => "up@same-day,artifact=data",
            Self::SameSlot => "up@same-slot,artifact=data",
            Self::Within => "up@within=6h,artifact=data",
            Self::Any => "up@any,artifact=data",
        }
    }

    /// The slot that counts for the asking slot, and one before it that does not.
    fn slots(self, asker: Wall) -> (Wall, Wall) {
        let year: i32 = at(asker)[..4].parse().unwrap();
        let new_year = |year| fencepost_core::zone::Zone::utc().parse_time(&format!("{year}-01-01")).unwrap();
        let right = match self {
            Self::LastDueOfSchedule => return (new_year(year), new_year(year - 1)),
            Self::SameSlot => asker,
            Self::Any => Wall(asker.0 - 30 * DAY),
            _ => Wall(asker.0 - HOUR),
        };
        (right, Wall(right.0 - DAY))
    }

    fn desk(self) -> Desk {
        match self {
            Self::LastDueOfSchedule => Desk::configured("[job.up]\nschedule = \"0 0 1 1 *\"\n"),
            _ => Desk::new(),
        }
    }
}

struct Cell {
    rule: Rule,
    desk: Desk,
    asker: Wall,
    /// The slot that counts, and the one before it.
    right: Wall,
    before: Wall,
}

impl Cell {
    /// An upstream whose slot before was good, and whose file of then is still there.
    fn new(rule: Rule) -> Self {
        let asker = now();
        let (right, before) = rule.slots(asker);
        let cell = Self { rule, desk: rule.desk(), asker, right, before };
        cell.desk.write("data", "yesterday's");
        cell.recorded("ok", cell.before, &["--artifact", "data"]);
        cell
    }

    fn recorded(&self, word: &str, slot: Wall, more: &[&str]) {
        self.desk.done(&[&["record", "up", word, "--slot", &at(slot)], more].concat());
    }

    fn good(&self) {
        self.desk.write("data", "today's");
        self.recorded("ok", self.right, &["--artifact", "data"]);
    }

    /// What a gate says, and that a run decides the same.
    #[track_caller]
    fn decides(&self, decision: &str, status: Option<&str>) -> String {
        let rule = self.rule;
        let (code, json) = self.desk.gate(&[self.rule.need(), "--slot", &at(self.asker), "--tz", &noon()]);
        let expected_code = ["proceed", "skip", "halt"].iter().position(|known| *known == decision).unwrap();
        assert_eq!(code, [0, 14, 15][expected_code], "{rule:?}: {json}");
        let upstream = &json["upstreams"][0];
        assert_eq!(
            (&json["decision"], &upstream["decision"]),
            (&decision.into(), &decision.into()),
            "{rule:?}: {json}"
        );
        assert_eq!(upstream["status"].as_str(), status, "{rule:?}: {json}");
        assert_eq!((&json["v"], &upstream["job"]), (&1.into(), &"up".into()), "{json}");
        assert_eq!(json["reason"], upstream["reason"], "{json}");
        if status.is_some() {
            let slot = fencepost_core::zone::Zone::utc().parse_time(upstream["slot"].as_str().unwrap());
            assert_eq!(slot, Ok(self.right), "{rule:?}: {json}");
        }
        self.runs(decision, &json);
        json["reason"].as_str().unwrap().to_string()
    }

    /// A run asks for the slot that is now, so that the same one counts for it.
    #[track_caller]
    fn runs(&self, decision: &str, json: &Value) {
        let script = r#"echo ran; cat "$FENCEPOST_IN_UP""#;
        let (slot, zone) = (at(self.asker), noon());
        let slot: &[&str] = if self.rule == Rule::SameSlot { &["--slot", &slot, "--again"] } else { &[] };
        let arguments = ["run", "down", "--needs", self.rule.need(), "--tz", &zone, "-E", "99", "-c", script];
        let said = self.desk.say(&[&arguments[..], slot].concat());
        let reason = json["reason"].as_str().unwrap();
        let (code, stdout, words) = match decision {
            "proceed" => (0, format!("ran\n{}", self.desk.read("data")), String::new()),
            "skip" => (99, String::new(), String::new()),
            _ => (
                115,
                String::new(),
                format!("fencepost: down was halted, nothing was run: {reason} Details: fencepost why down\n"),
            ),
        };
        // A run reads the copy that it makes, a gate the file itself.
        let stderr = said.stderr.replace("it cannot be copied: ", "");
        // It asks a little later, which shows where the rule says how long ago.
        let same_words = stderr == words || (self.rule == Rule::Within && decision == "halt");
        assert_eq!((said.code, &said.stdout), (code, &stdout), "{:?}", self.rule);
        assert!(same_words, "{:?}: {stderr:?} and not {words:?}", self.rule);
        let status = self.desk.last("down").status.as_str();
        assert_eq!(status, ["ok", "skipped_barrier", "halted"][[0, 99, 115].iter().position(|&c| c == code).unwrap()]);
        assert_eq!(self.desk.pins(), [""; 0].map(std::path::PathBuf::from));
    }
}

#[test]
fn not_run_since_yesterday() {
    for rule in Rule::ALL {
        let mut cell = Cell::new(rule);
        if rule == Rule::Any {
            cell.right = cell.before;
            cell.decides("proceed", Some("ok"));
        } else {
            contains(&cell.decides("halt", None), &["up has no record for", "it did not run", "last good run was for"]);
        }
    }
}

#[test]
fn never_run() {
    for rule in Rule::ALL {
        let asker = now();
        let cell = Cell { rule, desk: rule.desk(), asker, right: asker, before: asker };
        contains(&cell.decides("halt", None), &["up has never run on this store."]);
    }
}

#[test]
fn running() {
    for rule in Rule::ALL {
        let cell = Cell::new(rule);
        let holder = cell.desk.running("up", cell.right);
        contains(&cell.decides("halt", Some("running")), &["up is still running for", "since"]);
        assert_eq!(holder.finish().code, 0);
        // It ended well meanwhile, but has no such artifact.
        contains(&cell.decides("halt", Some("ok")), &["recorded no artifact data", "--produces data"]);
    }
}

/// A second attempt that is going makes an earlier success of the same slot void.
#[test]
fn running_again_after_a_success() {
    for rule in Rule::ALL {
        let cell = Cell::new(rule);
        cell.good();
        let holder = cell.desk.running("up", cell.right);
        cell.decides("halt", Some("running"));
        holder.finish();
    }
}

#[test]
fn lost() {
    for rule in Rule::ALL {
        let cell = Cell::new(rule);
        cell.good();
        cell.desk.running("up", cell.right).kill();
        contains(&cell.decides("halt", Some("lost")), &["up began its run for", "died without a record"]);
    }
}

/// The next run of the upstream writes the lost one down, which stays what became of that slot.
#[test]
fn lost_and_written_down() {
    for rule in [Rule::LastDueOfSchedule, Rule::SameSlot] {
        let cell = Cell::new(rule);
        cell.desk.running("up", cell.right).kill();
        cell.recorded("ok", Wall(cell.right.0 + 1000), &["--artifact", "data"]);
        contains(&cell.decides("halt", Some("lost")), &["up died or lost its lease"]);
    }
}

#[test]
fn error() {
    for rule in Rule::ALL {
        let cell = Cell::new(rule);
        cell.recorded("error", cell.right, &["--note", "no connection"]);
        contains(&cell.decides("halt", Some("error")), &["up failed for", "no connection"]);
    }
}

#[test]
fn an_error_after_a_success_of_the_same_slot() {
    for rule in Rule::ALL {
        let cell = Cell::new(rule);
        cell.good();
        cell.recorded("error", cell.right, &[]);
        cell.decides("halt", Some("error"));
        // And the other way round: the newest attempt counts.
        cell.good();
        cell.decides("proceed", Some("ok"));
    }
}

#[test]
fn empty() {
    for rule in Rule::ALL {
        let cell = Cell::new(rule);
        cell.recorded("empty", cell.right, &["--note", "a holiday"]);
        contains(&cell.decides("skip", Some("empty")), &["up had nothing for", "a holiday"]);
    }
}

#[test]
fn ok() {
    for rule in Rule::ALL {
        let cell = Cell::new(rule);
        cell.good();
        contains(&cell.decides("proceed", Some("ok")), &["up is ok for"]);
    }
}

#[test]
fn ok_with_other_bytes() {
    for rule in Rule::ALL {
        let cell = Cell::new(rule);
        cell.good();
        // As long as what was recorded.
        cell.desk.write("data", "tomorro");
        let words = cell.decides("halt", Some("ok"));
        contains(
            &words,
            &["data is not what up left", "7 bytes with SHA-256", "an old clone, half synced, or changed"],
        );
    }
}

#[test]
fn ok_with_the_file_missing() {
    for rule in Rule::ALL {
        let cell = Cell::new(rule);
        cell.good();
        std::fs::remove_file(cell.desk.path("data")).unwrap();
        contains(&cell.decides("halt", Some("ok")), &["there is no such file here", "pulled, or synced"]);
    }
}

#[test]
fn ok_with_something_else_in_the_place_of_the_file() {
    for rule in [Rule::LastDue, Rule::Any] {
        let cell = Cell::new(rule);
        cell.good();
        std::fs::remove_file(cell.desk.path("data")).unwrap();
        std::fs::create_dir(cell.desk.path("data")).unwrap();
        contains(&cell.decides("halt", Some("ok")), &["up is ok and left /", "/data, but it cannot be"]);
        std::fs::remove_dir(cell.desk.path("data")).unwrap();
        nix::unistd::mkfifo(&cell.desk.path("data"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        contains(&cell.decides("halt", Some("ok")), &["not a regular file"]);
    }
}

#[test]
fn ok_with_an_artifact_that_was_not_recorded() {
    for rule in Rule::ALL {
        let cell = Cell::new(rule);
        cell.recorded("ok", cell.right, &[]);
        contains(&cell.decides("halt", Some("ok")), &["recorded no artifact data", "--produces data"]);
    }
}

#[test]
fn a_ledger_that_cannot_be_read() {
    for rule in Rule::ALL {
        let cell = Cell::new(rule);
        cell.good();
        cell.desk.damage("up");
        contains(&cell.decides("halt", None), &["The ledger of up cannot be read", "nothing is known of it"]);
    }
}

#[test]
fn a_store_that_cannot_be_opened() {
    for rule in Rule::ALL {
        let cell = Cell::new(rule);
        cell.good();
        let need = cell.rule.need();
        std::fs::write(cell.desk.path("broken"), "this is not a database, although its name says so").unwrap();
        let (code, json) = cell.desk.gate(&[need, "--store", "sqlite:broken"]);
        assert_eq!((code, &json["decision"]), (15, &"halt".into()), "{json}");
        contains(json["reason"].as_str().unwrap(), &["The ledger of up cannot be read"]);
        // A run has no lease without its store, which is another failure.
        assert_eq!(
            cell.desk.say(&["run", "down", "--store", "sqlite:broken", "--needs", need, "--", "true"]).code,
            125
        );
        let without = ["--on-store-error", "run", "--needs", need, "-c", "touch ran"];
        let said =
            cell.desk.say(&[&["run", "down", "--store", "sqlite:/proc/no/such/place.db"], &without[..]].concat());
        assert_eq!((said.code, cell.desk.has("ran")), (115, false), "{said:?}");
    }
}

/// A lease by hand is not a run: what was recorded before it stands.
#[test]
fn a_lease_by_hand_says_nothing_about_a_slot() {
    let cell = Cell::new(Rule::LastDue);
    cell.good();
    cell.desk.done(&["lease", "acquire", "up", "--ttl", "60s"]);
    cell.decides("proceed", Some("ok"));
}

#[test]
fn every_other_status_halts_and_a_skip_of_its_own_skips() {
    use fencepost_core::ledger::Status;
    for status in Status::ALL {
        let cell = Cell::new(Rule::LastDue);
        cell.good();
        cell.desk.edit("up", |record| record.ledger.ring.last_mut().unwrap().status = status);
        let decision = match status {
            Status::Ok => "proceed",
            Status::Empty | Status::SkippedBarrier => "skip",
            _ => "halt",
        };
        cell.decides(decision, Some(status.as_str()));
    }
}
