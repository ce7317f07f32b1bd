//! `palisade gate` as a process that is killed.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::process::Signal;

use super::support::{PATIENCE, Process, finish, free_ports, palisade, until};

/// A resource that tells of each request it has got, and answers when it is let.
pub(super) struct Resource {
    pub(super) port: u16,
    pub(super) came: Receiver<String>,
    pub(super) go: Sender<()>,
}

impl Resource {
    pub(super) fn start() -> Resource {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, came) = channel();
        let (go, let_go) = channel::<()>();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut request = BufReader::new(stream);
                let body = read_request(&mut request);
                let _ = tell.send(body);
                let _ = let_go.recv_timeout(PATIENCE);
                let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = request.get_mut().write_all(answer.as_bytes());
            }
        });
        Resource { port, came, go }
    }
}

fn read_request(request: &mut BufReader<TcpStream>) -> String {
    let mut length = 0;
    loop {
        let mut line = String::new();
        request.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    request.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

/// Sends a write on its way.
fn send(gate: u16, fence: &str, body: &str) -> TcpStream {
    send_with(gate, &format!("Palisade-Fence: {fence}\r\n"), body)
}

/// The same with these headers.
pub(super) fn send_with(gate: u16, headers: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", gate)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    write!(
        stream,
        "PUT /r HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

pub(super) fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn start(dir: &Path, gate: u16, resource: u16, upstream_max: &str) -> Process {
    start_with(dir, gate, resource, upstream_max, &[])
}

/// Starts a gate with these arguments beside.
pub(super) fn start_with(dir: &Path, gate: u16, resource: u16, upstream_max: &str, more: &[&str]) -> Process {
    let mut command = palisade();
    command.arg("gate").arg("--dir").arg(dir);
    command.args(["--listen", &format!("127.0.0.1:{gate}")]);
    command.args(["--upstream", &format!("http://127.0.0.1:{resource}")]);
    command.args(["--answer-within", upstream_max, "--upstream-max", upstream_max]);
    command.args(more);
    let mut process = Process::start(&mut command);
    assert!(process.line().starts_with("ready:"));
    process
}

#[test]
fn a_killed_gate_forgets_no_floor_and_holds_back_what_may_overtake_a_write_on_its_way() {
    let dir = tempfile::tempdir().unwrap();
    let resource = Resource::start();
    let port = free_ports();
    let mut gate = start(dir.path(), port, resource.port, "60s");
    // Epoch 7 is on its way when the gate is killed.
    let first = send(port, "k@7/7", "seven");
    assert_eq!(resource.came.recv_timeout(PATIENCE).unwrap(), "seven");
    gate.signal(Signal::KILL);
    gate.wait();
    drop(first);
    resource.go.send(()).unwrap();

    let mut gate = start(dir.path(), port, resource.port, "60s");
    let stale = answer(send(port, "k@6/6", "six"));
    assert!(stale.starts_with("HTTP/1.1 412") && stale.contains("do not retry"), "{stale}");
    resource.go.send(()).unwrap();
    let same = answer(send(port, "k@7/7", "seven again"));
    assert!(same.starts_with("HTTP/1.1 200"), "{same}");
    assert_eq!(resource.came.recv_timeout(PATIENCE).unwrap(), "seven again");
    let newer = answer(send(port, "k@8/8", "eight"));
    assert!(newer.starts_with("HTTP/1.1 503") && newer.contains("unknown outcome"), "{newer}");

    // With an end of that time in sight, the newer one passes in the end.
    gate.signal(Signal::TERM);
    assert!(gate.wait().success());
    let _gate = start(dir.path(), port, resource.port, "2s");
    resource.go.send(()).unwrap();
    until("epoch 8 passes", || {
        answer(send(port, "k@8/8", "eight")).starts_with("HTTP/1.1 200").then_some(())
    });
    assert_eq!(resource.came.recv_timeout(PATIENCE).unwrap(), "eight");
    let stale = answer(send(port, "k@7/7", "seven"));
    assert!(stale.starts_with("HTTP/1.1 412"), "{stale}");
    assert!(resource.came.recv_timeout(Duration::ZERO).is_err(), "nothing else was forwarded");
}

#[test]
fn a_second_gate_on_the_same_ledger_and_one_beyond_loopback_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (port, other) = (free_ports(), free_ports());
    let _gate = start(dir.path(), port, 9, "60s");
    let mut second = palisade();
    second.arg("gate").arg("--dir").arg(dir.path());
    second.args(["--upstream", "http://127.0.0.1:9", "--listen", &format!("127.0.0.1:{other}")]);
    let refused = finish(&mut second);
    assert_eq!(refused.code, Some(78), "{}", refused.stderr);
    assert!(refused.stderr.contains("ledger"), "{}", refused.stderr);
    let mut open = palisade();
    open.arg("gate").arg("--dir").arg(dir.path());
    open.args(["--upstream", "http://127.0.0.1:9", "--listen", &format!("0.0.0.0:{other}")]);
    let refused = finish(&mut open);
    assert_eq!(refused.code, Some(78), "{}", refused.stderr);
    assert!(refused.stderr.contains("--insecure"), "{}", refused.stderr);
}
