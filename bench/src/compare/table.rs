//! The tables at the end of a comparison.

use std::fmt::Write as _;

use super::results::{Figure, PALISADE, Row, Spread, Standing};
use super::works;

/// What the numbers mean.
const LEGEND: &str = "
A round counts if nothing else used more than 0.2 cores. Latency is from acquire to grant. CPU is per
operation: of all servers together, and of the load generator, which shares the machine. Ratios are
Palisade's figure by the peer's: higher is better for the rate, lower for the others. Redis is one node:
no quorum, no fence. A ZooKeeper read is a sync and a get.";

/// A table for each work, and below it the ratios.
pub(crate) fn render(rows: &[Row]) -> String {
    let mut out = String::new();
    for preset in works::all() {
        let standing = Standing::of(preset.name, rows);
        if standing.entrants().is_empty() {
            continue;
        }
        let line = format!(
            "\n{}: {:?}, {} sessions over {} connections; median (min-max)",
            preset.name, preset.mix, preset.sessions, preset.connections
        );
        out.push_str(&line.to_lowercase());
        out.push('\n');
        table(&standing, &mut out);
        ratios(&standing, &mut out);
    }
    out.push_str(LEGEND);
    out
}

fn table(standing: &Standing<'_>, out: &mut String) {
    let _ = writeln!(
        out,
        "  {:<22} {:>6}  {:>21}  {:>21}  {:>21}  {:>16}  {:>16}",
        "", "rounds", "operations/s", "p50 us", "p99 us", "server CPU us", "generator CPU us"
    );
    for entrant in standing.entrants() {
        let (counted, all) = standing.rounds(entrant);
        let cell = |figure| standing.spread(entrant, figure).map_or("-".to_owned(), show);
        let _ = writeln!(
            out,
            "  {:<22} {:>6}  {:>21}  {:>21}  {:>21}  {:>16}  {:>16}",
            format!("{} ({})", entrant.0, entrant.1.name()),
            format!("{counted}/{all}"),
            cell(Figure::Rate),
            cell(Figure::P50),
            cell(Figure::P99),
            cell(Figure::ServerCpu),
            cell(Figure::OwnCpu),
        );
    }
}

fn ratios(standing: &Standing<'_>, out: &mut String) {
    const FIGURES: [(&str, Figure); 3] =
        [("operations/s", Figure::Rate), ("p50", Figure::P50), ("server CPU", Figure::ServerCpu)];
    for peer in standing.peers() {
        for (name, figure) in FIGURES {
            let ratios = standing.ratios(peer, figure);
            let Some(spread) = Spread::of(ratios.iter().map(|(_, ratio)| *ratio)) else { continue };
            let each: Vec<_> = ratios.iter().map(|(round, ratio)| format!("{round}: {ratio:.2}")).collect();
            let _ = writeln!(
                out,
                "  {PALISADE} / {} ({}), {name}: {:.2} (by round {})",
                peer.0,
                peer.1.name(),
                spread.median,
                each.join(", ")
            );
        }
    }
}

fn show(spread: Spread) -> String {
    format!("{:.0} ({:.0}-{:.0})", spread.median, spread.min, spread.max)
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::row;
    use super::super::works::Arrangement::Leader;
    use super::*;

    #[test]
    fn a_table_has_medians_and_ratios_and_says_what_did_not_count() {
        let rows = [
            row(PALISADE, Leader, 1, 100.0, 0.0),
            row(PALISADE, Leader, 2, 120.0, 0.0),
            row("etcd", Leader, 1, 50.0, 0.0),
            row("etcd", Leader, 2, 40.0, 0.3),
        ];
        let text = render(&rows);
        assert!(text.contains("solo: cycle, 1 sessions over 1 connections"), "{text}");
        assert!(text.contains("110 (100-120)"), "{text}");
        assert!(text.contains("1/2") && text.contains("50 (50-50)"), "{text}");
        assert!(text.contains("Palisade / etcd (leader), operations/s: 2.00 (by round 1: 2.00)"), "{text}");
    }
}
