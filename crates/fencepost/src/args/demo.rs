//! The options of `demo`.

use clap::Args;

#[derive(Debug, Args)]
pub struct DemoOptions {
    /// Do not pause for reading (off a terminal there are no pauses)
    #[arg(long)]
    pub fast: bool,
    /// Only this incident: 1 overtaking, 2 two machines, 3 the zombie, 4 leftovers, 5 the half-done retry
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub incident: Option<u8>,
    /// Keep the directory with every file of the demo, and print its path
    #[arg(long)]
    pub keep: bool,
}
