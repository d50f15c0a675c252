//! The command as people use it, as one program: what the tests share is compiled once.

mod advise;
mod attempts;
mod barrier;
mod calls;
mod common;
mod config;
mod demo;
mod dependencies;
mod desk;
mod fenced;
#[path = "../../../fencepost-guard/examples/fenced_server.rs"]
mod fenced_server;
mod foreign;
mod init;
mod install;
mod kill;
mod lease;
mod ledger;
mod logs;
mod names;
mod namespaces;
mod no_proc;
mod notify;
mod observe;
mod once;
mod originals;
mod outcome;
mod overdue;
mod pages;
mod paths;
mod process;
mod prometheus;
mod publish_exec;
mod publish_file;
mod publish_git;
mod publish_http;
mod publish_redis;
mod publish_sql;
mod publish_tree;
mod publish_trust;
mod race;
mod records;
mod run;
mod runs;
#[path = "../../../fencepost-guard/tests/servers/mod.rs"]
mod servers;
#[path = "../../../fencepost-guard/tests/signals/mod.rs"]
mod signals;
mod slots;
mod start;
mod status;
mod stop;
mod store_failure;
mod stores;
mod system;
mod terminal;
mod times;
mod triggers;
mod trust;
mod unread;
mod up;
mod upgrade;
mod validate;
mod web;
mod why;
mod why_slots;
#[path = "../../../fencepost-store/tests/worker/mod.rs"]
#[allow(dead_code, reason = "the tests of the store use the rest")]
mod worker;
