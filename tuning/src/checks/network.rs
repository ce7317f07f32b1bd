//! Network cards, their interrupts, and the settings of TCP that matter.

use std::collections::BTreeSet;

use crate::check::Check;
use crate::parse;
use crate::root::{Root, Unread};

/// The backlog the server asks for; the kernel cuts it to `net.core.somaxconn` without a word.
const BACKLOG: u64 = 4_096;
/// 10,000 clients on one host, and the same again while closed connections linger.
const PORTS_WANTED: u32 = 20_000;
/// Above the ports of a node as shipped, 7400 and following, those of administration included.
const PORTS_FROM: u16 = 7_600;

const CLASS: &str = "/sys/class/net";

/// A network card.
#[derive(Debug)]
struct Card {
    name: String,
    receive_queues: usize,
    interrupts: Vec<u32>,
    /// The CPUs that serve them; empty when none could be read.
    cpus: BTreeSet<usize>,
}

/// All checks of the network, for a host with so many CPUs.
pub(super) fn checks(root: &Root, cpus: usize) -> Vec<Check> {
    let cards = cards(root);
    vec![
        queues(&cards, cpus),
        interrupts(&cards, cpus),
        somaxconn(root),
        client_ports(root),
        idle_restart(root, &cards),
    ]
}

/// The interfaces with hardware below them, real or virtual.
fn cards(root: &Root) -> Result<Vec<Card>, Unread> {
    let table = root.read("/proc/interrupts").unwrap_or_default();
    let rows = parse::interrupts(&table);
    let hardware = |name: &String| name != "lo" && root.has(&format!("{CLASS}/{name}/device"));
    let names = root.names(CLASS)?.into_iter().filter(hardware);
    Ok(names.map(|name| card(root, name, &rows)).collect())
}

fn card(root: &Root, name: String, rows: &[(u32, &str)]) -> Card {
    let queues = root.names(&format!("{CLASS}/{name}/queues")).unwrap_or_default();
    // A driver names its interrupts after the interface, or after the device below it.
    let device = root.link_name(&format!("{CLASS}/{name}/device")).unwrap_or_else(|| name.clone());
    let own = |row: &&(u32, &str)| parse::mentions(row.1, &name) || parse::mentions(row.1, &device);
    let interrupts: Vec<u32> = rows.iter().filter(own).map(|row| row.0).collect();
    let affinity = |number: &u32| {
        let read = |file| root.parse(&format!("/proc/irq/{number}/{file}"), parse::cpu_list);
        read("effective_affinity_list").or_else(|_| read("smp_affinity_list")).unwrap_or_default()
    };
    Card {
        receive_queues: queues.iter().filter(|q| q.starts_with("rx-")).count(),
        cpus: interrupts.iter().flat_map(affinity).collect(),
        interrupts,
        name,
    }
}

/// Nothing to say where there is no card, or no list of them.
fn without_cards(name: &'static str, cards: &Result<Vec<Card>, Unread>, why: &str) -> Option<Check> {
    match cards {
        Err(error) => Some(Check::unread(name, error, why)),
        Ok(cards) if cards.is_empty() => {
            Some(Check::not_applicable(name, "no card", "only loopback, or interfaces without hardware"))
        }
        Ok(_) => None,
    }
}

fn queues(cards: &Result<Vec<Card>, Unread>, cpus: usize) -> Check {
    const NAME: &str = "nic queues";
    let why = "with one receive queue one CPU takes in all packets; up to two CPUs that is as good as any";
    if let Some(check) = without_cards(NAME, cards, why) {
        return check;
    }
    let cards = cards.as_deref().unwrap_or_default();
    let each: Vec<String> =
        cards.iter().map(|c| format!("{}: {} receive", c.name, c.receive_queues)).collect();
    let found = each.join(", ");
    match cards.iter().find(|c| c.receive_queues <= 1 && cpus > 2) {
        None => Check::good(NAME, found, why),
        Some(card) => Check::advice(NAME, found, why).remedy(
            format!(
                "ethtool -l {0} says how many there can be, ethtool -L {0} combined N sets them; if only \
                 one: echo a mask of CPUs > {CLASS}/{0}/queues/rx-0/rps_cpus",
                card.name
            ),
            format!("ethtool -L {0} combined 1; echo 0 > {CLASS}/{0}/queues/rx-0/rps_cpus", card.name),
        ),
    }
}

fn interrupts(cards: &Result<Vec<Card>, Unread>, cpus: usize) -> Check {
    const NAME: &str = "nic interrupts";
    let why = "several queues help only if different CPUs serve them, best those of the executors' node";
    if let Some(check) = without_cards(NAME, cards, why) {
        return check;
    }
    let cards = cards.as_deref().unwrap_or_default();
    let shown = |card: &Card| {
        let cpus: Vec<usize> = card.cpus.iter().copied().collect();
        let on = if cpus.is_empty() { "unknown".to_owned() } else { parse::ranges(&cpus) };
        format!("{}: {} interrupts on CPUs {on}", card.name, card.interrupts.len())
    };
    let found = cards.iter().map(shown).collect::<Vec<_>>().join(", ");
    if cards.iter().all(|card| card.cpus.is_empty()) {
        return Check::not_applicable(NAME, found, "the kernel does not say which interrupts are the card's");
    }
    match cards.iter().find(|card| cpus > 1 && card.receive_queues > 1 && card.cpus.len() == 1) {
        None => Check::good(NAME, found, why),
        Some(card) => {
            let numbers: Vec<String> = card.interrupts.iter().map(u32::to_string).collect();
            let on = card.cpus.first().copied().unwrap_or_default();
            Check::advice(NAME, found, why).remedy(
                format!(
                    "run irqbalance, or echo a CPU > /proc/irq/N/smp_affinity_list for N of {}",
                    numbers.join(" ")
                ),
                format!("stop irqbalance; echo {on} > /proc/irq/N/smp_affinity_list"),
            )
        }
    }
}

fn somaxconn(root: &Root) -> Check {
    const NAME: &str = "listen backlog";
    let why = "the server asks for 4,096 connections that may wait to be accepted; the kernel cuts that to \
               net.core.somaxconn, and who finds no place tries again after a second";
    match root.parse("/proc/sys/net/core/somaxconn", |text| text.parse::<u64>().ok()) {
        Ok(most) if most >= BACKLOG => Check::good(NAME, most.to_string(), why),
        Ok(most) => Check::advice(NAME, most.to_string(), why).remedy(
            format!("sysctl -w net.core.somaxconn={BACKLOG}, and start the server again"),
            format!("sysctl -w net.core.somaxconn={most}"),
        ),
        Err(error) => Check::unread(NAME, &error, why),
    }
}

fn client_ports(root: &Root) -> Check {
    const NAME: &str = "client ports";
    let why = "each connection from this host to one node takes a port of this range; a range that holds \
               the ports of a node (7400 and following) may take them before the node can listen";
    match root.parse("/proc/sys/net/ipv4/ip_local_port_range", parse::port_range) {
        Ok((low, high)) => {
            let count = u32::from(high) - u32::from(low) + 1;
            let found = format!("{low} to {high}, {count} ports");
            if count >= PORTS_WANTED && low >= PORTS_FROM {
                return Check::good(NAME, found, why);
            }
            Check::advice(NAME, found, why).remedy(
                "sysctl -w net.ipv4.ip_local_port_range=\"16384 60999\"",
                format!("sysctl -w net.ipv4.ip_local_port_range=\"{low} {high}\""),
            )
        }
        Err(error) => Check::unread(NAME, &error, why),
    }
}

fn idle_restart(root: &Root, cards: &Result<Vec<Card>, Unread>) -> Check {
    const NAME: &str = "tcp after idle";
    let why = "with net.ipv4.tcp_slow_start_after_idle = 1 a connection that was silent starts slowly \
               again: a large block to a follower after a lull takes more round trips. Matters between \
               hosts, not on loopback";
    if let Some(check) = without_cards(NAME, cards, why) {
        return check;
    }
    match root.read("/proc/sys/net/ipv4/tcp_slow_start_after_idle") {
        Ok(text) if text == "0" => Check::good(NAME, "keeps its pace", why),
        Ok(_) => Check::advice(NAME, "starts slowly again", why).remedy(
            "sysctl -w net.ipv4.tcp_slow_start_after_idle=0",
            "sysctl -w net.ipv4.tcp_slow_start_after_idle=1",
        ),
        Err(error) => Check::unread(NAME, &error, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::root::Fixture;

    /// A host with loopback and one card of so many queues, each with an interrupt on the CPU given.
    fn host(cpus_of_queues: &[&str]) -> Fixture {
        let fixture = Fixture::new(&[("/sys/class/net/lo/mtu", "65536\n")]);
        let mut table = "           CPU0       CPU1\n".to_owned();
        for (n, cpu) in cpus_of_queues.iter().enumerate() {
            fixture.write("/sys/class/net/eth0/device/vendor", "0x1\n");
            fixture.write(&format!("/sys/class/net/eth0/queues/rx-{n}/rps_cpus"), "0\n");
            fixture.write(&format!("/sys/class/net/eth0/queues/tx-{n}/xps_cpus"), "0\n");
            fixture.write(&format!("/proc/irq/{n}/smp_affinity_list"), cpu);
            table.push_str(&format!(" {n}:   1   2   PCI-MSI 1-edge   eth0-TxRx-{n}\n"));
        }
        fixture.write("/proc/interrupts", &table);
        fixture
    }

    fn verdicts(fixture: &Fixture, cpus: usize) -> (Verdict, Verdict) {
        let cards = cards(&fixture.root());
        (queues(&cards, cpus).verdict, interrupts(&cards, cpus).verdict)
    }

    #[test]
    fn loopback_has_no_queues() {
        assert_eq!(verdicts(&host(&[]), 8), (Verdict::NotApplicable, Verdict::NotApplicable));
        assert_eq!(verdicts(&Fixture::new(&[]), 8), (Verdict::Advice, Verdict::Advice));
    }

    #[test]
    fn queues_and_their_interrupts() {
        assert_eq!(verdicts(&host(&["0-1"]), 2), (Verdict::Good, Verdict::Good));
        assert_eq!(verdicts(&host(&["0"]), 8), (Verdict::Advice, Verdict::Good));
        assert_eq!(verdicts(&host(&["0", "1"]), 8), (Verdict::Good, Verdict::Good));
        assert_eq!(verdicts(&host(&["1", "1"]), 8), (Verdict::Good, Verdict::Advice));
        assert_eq!(verdicts(&host(&["", ""]), 8), (Verdict::Good, Verdict::NotApplicable));
    }

    #[test]
    fn interrupts_named_after_the_device_are_found() {
        let fixture = Fixture::new(&[
            ("/proc/interrupts", " 38:   0   7   PCI-MSIX-0000:00:03.0   1-edge   virtio2-input.0\n"),
            ("/proc/irq/38/effective_affinity_list", "1\n"),
            ("/proc/irq/38/smp_affinity_list", "0-1\n"),
            ("/sys/devices/virtio2/driver", "x"),
            ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "0"),
        ]);
        fixture.link("/sys/class/net/eth0/device", "../../../devices/virtio2");
        let cards = cards(&fixture.root()).unwrap();
        assert_eq!(cards.len(), 1);
        assert_eq!(cards[0].interrupts, [38]);
        assert_eq!(cards[0].cpus, BTreeSet::from([1]), "what is in effect comes first");
    }

    #[test]
    fn settings_of_tcp() {
        let backlog = |text| {
            let fixture = Fixture::new(&[("/proc/sys/net/core/somaxconn", text)]);
            somaxconn(&fixture.root()).verdict
        };
        assert_eq!(backlog("4096\n"), Verdict::Good);
        assert_eq!(backlog("128\n"), Verdict::Advice);
        assert_eq!(backlog("strange\n"), Verdict::Advice);
        let ports = |text| {
            let fixture = Fixture::new(&[("/proc/sys/net/ipv4/ip_local_port_range", text)]);
            client_ports(&fixture.root()).verdict
        };
        assert_eq!(ports("32768\t60999\n"), Verdict::Good);
        assert_eq!(ports("1024\t65535\n"), Verdict::Advice, "holds the ports of nodes");
        assert_eq!(ports("50000\t60999\n"), Verdict::Advice, "too few");
        assert_eq!(ports("strange\n"), Verdict::Advice);
    }

    #[test]
    fn tcp_after_a_lull() {
        let path = "/proc/sys/net/ipv4/tcp_slow_start_after_idle";
        let verdict = |fixture: &Fixture| idle_restart(&fixture.root(), &cards(&fixture.root())).verdict;
        let fixture = host(&["0"]);
        assert_eq!(verdict(&fixture), Verdict::Advice, "unread");
        fixture.write(path, "0\n");
        assert_eq!(verdict(&fixture), Verdict::Good);
        fixture.write(path, "1\n");
        assert_eq!(verdict(&fixture), Verdict::Advice);
        assert_eq!(verdict(&host(&[])), Verdict::NotApplicable);
    }
}
