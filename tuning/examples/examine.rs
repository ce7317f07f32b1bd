//! Prints what is found on this host, for the directory given or the one it runs in:
//! `cargo run -p palisade-tuning --example examine -- DIR`.

use std::path::PathBuf;
use std::process::ExitCode;

use palisade_tuning::{Options, Topology, examine, plan};

fn main() -> ExitCode {
    let dir = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let report = examine(&dir, Options::default());
    print!("{report}");
    println!("{}", report.short());
    if let Some(host) = Topology::of_host() {
        println!("placement of one executor: {}", plan(&host.cores, &host.siblings, 1, false).why);
    }
    ExitCode::from(u8::from(!report.is_fit()))
}
