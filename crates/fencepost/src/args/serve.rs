//! Command-line grammar of `serve`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ServeOptions {
    #[command(subcommand)]
    pub verb: Option<ServeVerb>,
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7333")]
    pub listen: String,
    /// Also offer run now, pause, resume and release; each needs a token
    #[arg(long)]
    pub allow_actions: bool,
    /// A file with the clients' tokens, a line `NAME sha256:DIGEST` each (default: FENCEPOST_SERVE_TOKEN)
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    pub token_file: Option<PathBuf>,
    /// The server's certificate chain, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with_all = ["tls_self_signed", "behind_proxy"], help_heading = ACCESS)]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = ACCESS)]
    pub tls_key: Option<PathBuf>,
    /// Create a key and a certificate in the state directory once, and print their pin
    #[arg(long, conflicts_with = "behind_proxy", help_heading = ACCESS)]
    pub tls_self_signed: bool,
    /// A proxy in front of this server speaks TLS; needs --public-host
    #[arg(long, help_heading = ACCESS)]
    pub behind_proxy: bool,
    /// The name under which browsers reach this server; may be given several times
    #[arg(long, value_name = "NAME", help_heading = ACCESS)]
    pub public_host: Vec<String>,
    /// Be a store for other machines, under /v1/; each client needs a token
    #[arg(long, help_heading = SHARE)]
    pub share: bool,
    /// The database file of the shared store (default: shared.db in the state directory)
    #[arg(long, value_name = "FILE", requires = "share", help_heading = SHARE)]
    pub share_file: Option<PathBuf>,
}

const ACCESS: &str = "Access";
const SHARE: &str = "A store for other machines";

#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "VERB")]
pub enum ServeVerb {
    /// Add a client's token to a file, and print it once
    Token {
        /// The client's name: letters, digits, dots, dashes and underscores
        name: String,
        /// The file; it is created with mode 0600
        #[arg(long, value_name = "FILE")]
        token_file: PathBuf,
    },
}
