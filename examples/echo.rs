//! A node that answers everything at once, without consensus and disk: the limit that benches hold
//! results against.
//!
//! ```sh
//! cargo run --release --example echo -- 127.0.0.1:7999
//! cargo run --release -p palisade-bench -- load --endpoints 127.0.0.1:7999
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1).and_then(|a| a.parse().ok()) else {
        eprintln!("usage: echo ADDRESS:PORT");
        return ExitCode::from(64);
    };
    match palisade::server::echo::echo(address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
