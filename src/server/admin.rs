//! Administration: a thread of its own with tokio and axum, which talks to the cores by message and
//! reads their counters. `/healthz`: the process lives (its executors beat). `/readyz`: it takes part
//! (the cluster is formed, a leader is known, the state is current). `/status`, `/metrics`.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use palisade_types::limits::BEHIND_MAX;

use super::inbox::{Outside, Report};
use super::metrics::{self, Metrics};
use super::watchdog::Heartbeat;

/// An executor not seen for so long is not alive.
const ALIVE_WITHIN: Duration = Duration::from_secs(2);
/// How long a core may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// What the thread can see of one core.
#[derive(Clone)]
pub(crate) struct CoreView {
    pub(crate) outside: async_channel::Sender<Outside>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) heartbeat: Arc<Heartbeat>,
}

type Cores = Arc<Vec<CoreView>>;

/// Starts the thread. It serves until the process ends: it must answer while a node is stopping.
///
/// # Errors
/// When the thread or its runtime cannot be had.
pub(crate) fn start(listener: TcpListener, cores: Vec<CoreView>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cores: Cores = Arc::new(cores);
    let serve = move || {
        let served = runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, router(cores)).await
        });
        if let Err(error) = served {
            tracing::error!(%error, "administration has ended");
        }
    };
    std::thread::Builder::new().name("admin".into()).spawn(serve).map(drop)
}

fn router(cores: Cores) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .route("/metrics", get(render_metrics))
        .with_state(cores)
}

async fn healthz(State(cores): State<Cores>) -> Response {
    match cores.iter().position(|c| c.heartbeat.age().is_none_or(|age| age > ALIVE_WITHIN)) {
        None => "ok\n".into_response(),
        Some(core) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("the executor of core {core} does not run\n"))
                .into_response()
        }
    }
}

async fn ask(core: &CoreView) -> Result<Report, (StatusCode, &'static str)> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    if core.outside.try_send(Outside::Status(reply)).is_err() {
        return Err((StatusCode::SERVICE_UNAVAILABLE, "the core has too much to do, or has ended\n"));
    }
    match tokio::time::timeout(ANSWER_WITHIN, answer).await {
        Ok(Ok(report)) => Ok(report),
        _ => Err((StatusCode::GATEWAY_TIMEOUT, "the core does not answer\n")),
    }
}

async fn readyz(State(cores): State<Cores>) -> Response {
    for core in cores.iter() {
        match ask(core).await {
            Err(refused) => return refused.into_response(),
            Ok(report) => {
                if let Some(why) = unready(&report) {
                    return (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response();
                }
            }
        }
    }
    "ready\n".into_response()
}

/// Why a node cannot take part; `None` when it can.
fn unready(report: &Report) -> Option<String> {
    let status = &report.status;
    if !report.formed {
        return Some(format!("forming: nodes {:?} have not been met", report.missing));
    }
    let Some(leader) = status.leader else { return Some("no leader is known".to_owned()) };
    if leader == status.node && !report.serving {
        return Some("elected, and not yet serving".to_owned());
    }
    if status.commit.0 == 0 || status.applied.0 + BEHIND_MAX < status.commit.0 {
        return Some(format!("applied {} of {} committed", status.applied, status.commit));
    }
    None
}

async fn status(State(cores): State<Cores>) -> Response {
    let mut all = Vec::new();
    for core in cores.iter() {
        match ask(core).await {
            Ok(report) => all.push(as_json(&report)),
            Err(refused) => return refused.into_response(),
        }
    }
    // One core has one object; several a list.
    let body = if all.len() == 1 { all.remove(0) } else { serde_json::Value::Array(all) };
    axum::Json(body).into_response()
}

fn as_json(report: &Report) -> serde_json::Value {
    let s = &report.status;
    serde_json::json!({
        "node": s.node.0,
        "role": s.role,
        "term": s.term.0,
        "leader": s.leader.map(|n| n.0),
        "last": s.last.0,
        "durable": s.durable.0,
        "commit": s.commit.0,
        "applied": s.applied.0,
        "sessions": s.sessions,
        "keys": s.keys,
        "log_bytes": s.log_bytes,
        "snapshot": s.snapshot.0,
        "boot": s.boot,
        "cluster": s.cluster.map(|c| c.to_string()),
        "formed": report.formed,
        "serving": report.serving,
        "ready": unready(report).is_none(),
        "missing": report.missing.iter().map(|n| n.0).collect::<Vec<_>>(),
        "linked": report.linked.iter().map(|n| n.0).collect::<Vec<_>>(),
    })
}

async fn render_metrics(State(cores): State<Cores>) -> Response {
    let mut out = String::new();
    let all: Vec<Arc<Metrics>> = cores.iter().map(|c| Arc::clone(&c.metrics)).collect();
    Metrics::render(&all, &mut out);
    executors(&cores, &mut out);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], out).into_response()
}

fn executors(cores: &[CoreView], out: &mut String) {
    let mut one = |name: &str, kind: &str, help: &str, value: &dyn Fn(&Heartbeat) -> f64| {
        metrics::header(out, name, kind, help);
        for (core, view) in cores.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{name}{{core=\"{core}\"}} {}", value(&view.heartbeat));
        }
    };
    one(
        "palisade_executor_rescues_total",
        "counter",
        "Times the watchdog interrupted an executor that was late.",
        &|beat| beat.rescues() as f64,
    );
    one(
        "palisade_executor_longest_stall_seconds",
        "gauge",
        "The longest delay of an executor's timer since the start.",
        &|beat| beat.longest_stall().as_secs_f64(),
    );
    one(
        "palisade_executor_heartbeat_age_seconds",
        "gauge",
        "How long ago the executor was seen alive.",
        &|beat| beat.age().map_or(f64::INFINITY, |age| age.as_secs_f64()),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::reply::NodeStatus;
    use palisade_types::{LogIndex, NodeId, Term};

    fn report() -> Report {
        Report {
            status: NodeStatus {
                node: NodeId(1),
                role: "leader".into(),
                term: Term(2),
                leader: Some(NodeId(1)),
                last: LogIndex(9),
                durable: LogIndex(9),
                commit: LogIndex(9),
                applied: LogIndex(9),
                sessions: 0,
                keys: 0,
                log_bytes: 0,
                snapshot: LogIndex(0),
                boot: 1,
                cluster: None,
            },
            missing: Vec::new(),
            formed: true,
            serving: true,
            linked: vec![NodeId(2)],
        }
    }

    #[test]
    fn ready_means_formed_with_a_leader_and_a_current_state() {
        assert_eq!(unready(&report()), None);
        let mut cases: Vec<Report> = (0..4).map(|_| report()).collect();
        cases[0].formed = false;
        cases[1].status.leader = None;
        cases[2].serving = false;
        cases[3].status.commit = LogIndex(BEHIND_MAX + 10);
        assert!(cases.iter().all(|c| unready(c).is_some()));
        let mut follower = report();
        follower.status.leader = Some(NodeId(2));
        follower.serving = false;
        assert_eq!(unready(&follower), None);
    }
}
