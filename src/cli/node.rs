//! `format` and `serve`: thin fronts of the server.

use std::collections::BTreeMap;

use palisade::format::FormatSpec;
use palisade::server::ServeOptions;
use palisade_types::{Name, NodeId};
use serde_json::json;

use super::advice;
use super::args::{FormatArgs, Global, ServeArgs};
use super::dev_dir::format_failure;
use super::exit::Failure;
use super::output::Output;

/// Makes the directory of one node.
pub(crate) fn format(global: &Global, args: &FormatArgs) -> Result<u8, Failure> {
    let cluster = Name::new(&args.cluster).map_err(|e| Failure::usage(format!("--cluster: {e}")))?;
    let peers = peers(&args.peers).map_err(|e| Failure::usage(format!("--peers: {e}")))?;
    if let Some(remark) = advice::even(peers.len()) {
        eprintln!("palisade: {remark}");
    }
    let mut spec = FormatSpec::new(cluster, NodeId(args.node), peers);
    spec.shards = args.shards;
    spec.listen = args.listen;
    spec.insecure = args.insecure;
    let identity = palisade::format::format(&args.dir, &spec).map_err(|e| format_failure(&e))?;
    let mut out = Output::new(global.json);
    out.line(
        || {
            json!({
                "dir": args.dir.display().to_string(),
                "node": identity.node.0,
                "cluster": identity.cluster.to_string(),
                "name": identity.cluster_name.as_str(),
                "incarnation": identity.incarnation.to_string(),
            })
        },
        || {
            format!(
                "{}: node {} of {} (cluster {}, incarnation {})",
                args.dir.display(),
                identity.node,
                identity.cluster_name,
                identity.cluster,
                identity.incarnation
            )
        },
    )?;
    out.flush()?;
    Ok(0)
}

/// Reads `1=HOST:PORT,2=HOST:PORT`.
fn peers(text: &str) -> Result<BTreeMap<NodeId, String>, String> {
    let mut peers = BTreeMap::new();
    for part in text.split(',') {
        let (id, address) =
            part.split_once('=').ok_or_else(|| format!("{part:?} does not read ID=HOST:PORT"))?;
        let id: u32 = id.trim().parse().map_err(|_| format!("{id:?} is no node id"))?;
        if peers.insert(NodeId(id), address.trim().to_owned()).is_some() {
            return Err(format!("node {id} is named twice"));
        }
    }
    Ok(peers)
}

/// Runs one node until a signal ends it.
pub(crate) fn serve(global: &Global, args: &ServeArgs) -> Result<u8, Failure> {
    let options = ServeOptions { log: global.log.clone() };
    palisade::server::serve(&args.dir, &options)
        .map(|()| 0)
        .map_err(|e| Failure::new(e.exit_code(), e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_read_as_a_list() {
        let read = peers("1=a:1, 2=b:2").unwrap();
        assert_eq!(read.get(&NodeId(2)).map(String::as_str), Some("b:2"));
        for bad in ["", "1", "x=a:1", "1=a:1,1=b:2"] {
            assert!(peers(bad).is_err(), "{bad}");
        }
    }
}
