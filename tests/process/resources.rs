//! One lock per resource: a second key for the same thing is noticed, listed, and can be withdrawn.

use serde_json::Value;

use crate::support::{Cluster, Process, finish, one_cluster, until};

fn listed(cluster: &Cluster, flags: &[&str]) -> Vec<Value> {
    let end = finish(cluster.command(["--json", "resources"]).args(flags));
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    end.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_second_key_of_a_resource_is_warned_of_the_first_listed_and_withdrawn() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let hold = |key: &str| {
        let flags = ["lock", "--resource", "billing db", "--hold", key];
        let mut holder = Process::start(&mut cluster.command(flags));
        holder.line();
        holder
    };
    let mut first = hold("orders");
    until("the first is on record", || (listed(&cluster, &[]).len() == 1).then_some(()));
    assert_eq!(listed(&cluster, &["--conflicts"]), Vec::<Value>::new());

    let mut second = hold("invoices");
    until("the second is warned", || second.stderr().contains("the key orders").then_some(()));
    assert_eq!(first.stderr(), "", "the first was alone when it asked");
    let expected = serde_json::json!({
        "resource": "billing db", "count": 2, "conflict": true, "keys": ["invoices", "orders"],
    });
    assert_eq!(listed(&cluster, &["--conflicts"]), [expected]);
    let text = finish(&mut cluster.command(["resources"])).stdout;
    assert!(text.contains("CONFLICT") && text.contains("invoices, orders"), "{text}");
    let leader = until("a leader", || (1..=3).find(|n| cluster.metric(*n, "palisade_leads") == 1));
    until("the metric says so", || {
        (cluster.metric(leader, "palisade_resource_conflicts") == 1).then_some(())
    });

    // A command that is over at once still hears it, and only once.
    let quick = ["lock", "--resource", "billing db", "payroll", "--", "true"];
    let quick = finish(&mut cluster.command(quick));
    assert_eq!((quick.code, quick.stderr.matches("warning").count()), (Some(0), 1), "{}", quick.stderr);

    second.signal(rustix::process::Signal::INT);
    assert_eq!(second.wait().code(), Some(0));
    for key in ["invoices", "payroll"] {
        let retired = finish(&mut cluster.command(["retire", key]));
        assert_eq!(retired.code, Some(0), "{}", retired.stderr);
    }
    assert_eq!(listed(&cluster, &["--conflicts"]), Vec::<Value>::new());
    assert_eq!(listed(&cluster, &[])[0]["keys"], serde_json::json!(["orders"]));
    first.signal(rustix::process::Signal::INT);
    assert_eq!(first.wait().code(), Some(0));
    assert_eq!(first.stderr(), "");
}
