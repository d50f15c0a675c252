//! `fencepost publish sql`: runs statements in a fenced transaction, or prints the schema for fences of your own.

use fencepost_guard::publish::sql::install::{Action, Installation};
use fencepost_guard::publish::sql::{self, Database, STATEMENTS_BYTES_MAX};

use super::{PublishDesk, PublishEnd, TargetUrl, read_payload};
use crate::args::Global;
use crate::args::publish::SqlOptions;
use crate::exit::{Code, Failure};
use crate::rehearsal;
use crate::report::Voice;
use crate::show;

const EXAMPLE: &str = "postgres://user@host/database or sqlite:PATH";

fn target(options: &SqlOptions, is_typed: bool) -> Result<(TargetUrl, Database), Failure> {
    let url = TargetUrl::find(options.url.as_ref(), "FENCEPOST_SQL_URL", EXAMPLE, is_typed)?;
    let database = Database::parse(&url.url)?.with_limit(options.timeout);
    Ok((url, database))
}

pub fn write(desk: &PublishDesk<'_>, options: &SqlOptions) -> Result<PublishEnd, Failure> {
    let (url, database) = target(options, desk.is_typed())?;
    if !options.protect.is_empty() {
        return Err(Failure::Usage("--protect goes with --install or --uninstall.".to_string()));
    }
    let resource = options.common.resource.as_deref();
    desk.publish("sql", database.resource(), |request| {
        let statements = read_payload(&options.payload, STATEMENTS_BYTES_MAX)?;
        url.warn(sql::publish(request, &database, resource, &statements)?)
    })
}

/// Installs or removes the schema by which a database fences the transactions of programs.
pub fn change_schema(global: &Global, options: &SqlOptions) -> Result<Code, Failure> {
    let (_, database) = target(options, true)?;
    install(global, options, &database, if options.install { Action::Install } else { Action::Uninstall })
}

fn install(global: &Global, options: &SqlOptions, database: &Database, action: Action) -> Result<Code, Failure> {
    let installation =
        Installation { resource: options.common.resource.clone(), protect: options.protect.clone(), action };
    rehearsal::find();
    if options.common.dry_run || rehearsal::is_on() {
        show::text(&installation.statements(database)?);
        return Ok(Code::DONE);
    }
    installation.perform(database)?;
    let voice = Voice::of(global);
    voice.tell(match action {
        Action::Install => "Installed. Doing it again changes nothing; --install --dry-run shows what there is.",
        Action::Uninstall => {
            "Uninstalled. The table fencepost_fences stays: without it a stale run could write as if it were the first."
        }
    });
    Ok(Code::DONE)
}
