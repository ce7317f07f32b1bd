//! The `palisade` command: server, supervisor of a development cluster, and client in one binary.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
