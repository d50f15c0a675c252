//! `fencepost publish sql`: statements in a fenced transaction, and the schema that lets others fence theirs.

use fencepost_guard::publish::PublishError;
use fencepost_guard::publish::sql::install::{Action, Installation};
use fencepost_guard::publish::sql::{self, Database, STATEMENTS_BYTES_MAX};

use super::{Desk, exposed, read_payload, target_url};
use crate::args::Global;
use crate::args::publish::SqlOptions;
use crate::exit::{Code, Failure};
use crate::report::Voice;
use crate::show;

const VARIABLE: &str = "FENCEPOST_SQL_URL";

pub fn run(global: &Global, options: &SqlOptions) -> Result<Code, Failure> {
    let url = target_url(options.url.as_ref(), VARIABLE, "postgres://user@host/database or sqlite:PATH")?;
    let database = Database::parse(&url).map_err(failure)?.with_limit(options.timeout);
    match (options.install, options.uninstall) {
        (false, false) => write(global, options, &database),
        (true, _) => install(global, options, &database, Action::Install),
        (_, true) => install(global, options, &database, Action::Uninstall),
    }
}

fn write(global: &Global, options: &SqlOptions, database: &Database) -> Result<Code, Failure> {
    if !options.protect.is_empty() {
        return Err(Failure::Usage("--protect goes with --install or --uninstall.".to_string()));
    }
    let resource = options.common.resource.as_deref();
    Desk::open(global, &options.common)?.publish("sql", database.resource(), |request| {
        let statements = read_payload(&options.payload, STATEMENTS_BYTES_MAX)?;
        let mut receipt = sql::publish(request, database, resource, &statements)?;
        receipt.remarks.extend(exposed(options.url.as_ref(), VARIABLE));
        Ok(receipt)
    })
}

fn install(global: &Global, options: &SqlOptions, database: &Database, action: Action) -> Result<Code, Failure> {
    let installation =
        Installation { resource: options.common.resource.clone(), protect: options.protect.clone(), action };
    if options.common.dry_run {
        show::text(&installation.statements(database).map_err(failure)?.to_string());
        return Ok(Code::DONE);
    }
    installation.perform(database).map_err(failure)?;
    let voice = Voice::of(global);
    voice.tell(match action {
        Action::Install => "Installed. Doing it again changes nothing; --install --dry-run shows what there is.",
        Action::Uninstall => {
            "Uninstalled. The table fencepost_fences stays: without it a stale run would be a first one."
        }
    });
    Ok(Code::DONE)
}

fn failure(error: PublishError) -> Failure {
    match error {
        PublishError::Usage(message) => Failure::Usage(message),
        other => Failure::Other(other.to_string()),
    }
}
