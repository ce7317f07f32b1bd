//! `doctor`: the host under a node, and who should run on which CPU of it.

use palisade_tuning::{Options, Placement, Topology};
use serde_json::json;

use super::args::{DoctorArgs, Global};
use super::dev_dir;
use super::exit::Failure;
use super::output::Output;

/// The host should not carry a node as it is.
const NOT_FIT: u8 = 1;
/// This version runs one executor a node.
const EXECUTORS: usize = 1;

/// Examines the host and prints what it found.
pub(crate) fn run(global: &Global, args: &DoctorArgs) -> Result<u8, Failure> {
    let dir = dev_dir::locate(args.dir.clone())?;
    let options = Options { measure_disk: !args.quick, ..Options::default() };
    let report = palisade_tuning::examine(&dir, options);
    let placement =
        Topology::of_host().map(|host| palisade_tuning::plan(&host.cores, &host.siblings, EXECUTORS, false));
    let mut out = Output::new(global.json);
    out.line(
        || {
            let mut all = report.to_json();
            all["dir"] = dir.display().to_string().into();
            all["placement"] = json!(placement);
            all
        },
        || format!("{report}{}", placement.as_ref().map(cores).unwrap_or_default()),
    )?;
    out.flush()?;
    Ok(if report.is_fit() { 0 } else { NOT_FIT })
}

fn cores(placement: &Placement) -> String {
    let cores = placement.cores();
    let value = if cores.is_empty() { "cores = []".to_owned() } else { format!("cores = {cores:?}") };
    format!("placement: {value} in palisade.toml ({})", placement.why)
}
