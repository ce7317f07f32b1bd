//! `palisade dev`: a durable cluster on loopback.

use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use palisade::clock;

use super::advice;
use super::args::DevArgs;
use super::dev_dir::{self, Layout};
use super::exit::{self, Failure};
use super::nodes::Nodes;
use super::signals::Ends;

/// How often a port that is taken is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long ports may be taken by what is on its way out.
const PORTS_PATIENCE: Duration = Duration::from_secs(3);

/// Runs the cluster until a signal ends it.
pub(crate) async fn run(args: DevArgs) -> Result<u8, Failure> {
    let layout = Layout { dir: dev_dir::locate(args.dir)?, nodes: args.nodes, port: args.port };
    if let Some(remark) = usize::try_from(layout.nodes).ok().and_then(advice::even) {
        eprintln!("palisade dev: {remark}");
    }
    let _claim: File = dev_dir::claim(&layout.dir)?;
    if args.fresh {
        dev_dir::wipe(&layout)?;
    }
    dev_dir::prepare(&layout)?;
    ports_are_free(&layout).await?;

    let mut ends = Ends::listen()?;
    let mut nodes = Nodes::start("palisade dev", &layout, None);
    let end = tokio::select! {
        end = announce(&layout, &mut nodes) => end,
        _ = ends.next() => Ok(0),
    };
    nodes.stop().await;
    end
}

/// Another cluster on our ports would answer in place of ours. Nodes of a `dev` that was killed a
/// moment ago may still be on their way out.
async fn ports_are_free(layout: &Layout) -> Result<(), Failure> {
    let patience = clock::now() + PORTS_PATIENCE;
    for address in layout.addresses() {
        while let Err(error) = TcpListener::bind(address) {
            if clock::now() >= patience {
                let message =
                    format!("{address}: {error}: is another cluster running? Choose another --port");
                return Err(Failure::new(exit::OS, message));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
    Ok(())
}

/// Says `ready:` when the cluster is, then reports what happens to nodes, for ever.
async fn announce(layout: &Layout, nodes: &mut Nodes) -> Result<u8, Failure> {
    nodes.ready(layout).await?;
    let mut out = std::io::stdout();
    writeln!(out, "ready: {}", layout.endpoints().join(","))
        .and_then(|()| out.flush())
        .map_err(|e| Failure::new(exit::OS, format!("cannot write to stdout: {e}")))?;
    match nodes.watch().await {}
}
