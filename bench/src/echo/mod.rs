//! `echo`: the generator against a server that only answers. It says what sockets cost on this
//! machine, below which no server can get, and that the generator is not what is measured.

mod client;
mod server;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::error::BenchError;
use crate::host::{Sampler, Usage};
use crate::observer::{self, Observer, Watch};
use crate::options::seconds;
use crate::pace::{Clock, Meter, Pacer};
use crate::poller::Poller;
use crate::work::Measured;
use crate::{hello, sys};

use client::Callers;

/// The server of our own, as [`EchoOptions::server`] names it.
const OWN_SERVER: &str = "epoll";

/// What `echo` does.
#[derive(Args, Clone, Debug)]
pub(crate) struct EchoOptions {
    /// `epoll`, a server of our own in another process, or the address of a running one that answers
    /// every request frame with a reply frame of the same id.
    #[arg(long, default_value = OWN_SERVER)]
    server: String,
    /// Begin every connection with a hello and wait for the server's; with an address only.
    #[arg(long)]
    hello: bool,
    /// The processes of that server, to account for their CPU time.
    #[arg(long, value_delimiter = ',')]
    pids: Vec<u32>,
    /// Sessions, spread over the connections; each has one message under way.
    #[arg(long, default_value_t = 1000)]
    sessions: u32,
    /// Connections.
    #[arg(long, default_value_t = 4)]
    connections: u32,
    /// Messages a second, all sessions together [default: as fast as the answers come].
    #[arg(long)]
    rate: Option<u64>,
    /// Microseconds between looks at what is due, with --rate.
    #[arg(long, default_value_t = 200)]
    tick_us: u64,
    /// Seconds before anything is counted.
    #[arg(long, default_value = "1", value_parser = seconds)]
    warmup: Duration,
    /// Seconds that are counted.
    #[arg(long, default_value = "5", value_parser = seconds)]
    duration: Duration,
    /// Prints one line of JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Be the server: how `echo` starts its own.
    #[arg(long, hide = true)]
    serve: bool,
}

/// What an echo run found.
pub(crate) struct EchoReport {
    options: EchoOptions,
    measured: Measured,
    usage: Usage,
}

/// Runs it; `None` when it was to be the server.
pub(crate) fn run(options: &EchoOptions) -> Result<Option<EchoReport>, BenchError> {
    if options.sessions < options.connections || options.connections == 0 {
        return Err(BenchError::Usage("there must be connections, and no fewer sessions".to_owned()));
    }
    if options.rate == Some(0) || options.tick_us == 0 || options.duration.is_zero() {
        return Err(BenchError::Usage("rate, tick and duration must be above 0".to_owned()));
    }
    if options.serve {
        return server::run(options.connections).map(|()| None);
    }
    if options.server == OWN_SERVER {
        let (mut child, address) = spawn_server(options.connections)?;
        let measured = measure(options, &address, &[child.id()]);
        // It ends by itself when its connections do; not so if they never came about.
        let _ = child.kill();
        let _ = child.wait();
        return measured.map(Some);
    }
    measure(options, &options.server, &options.pids).map(Some)
}

fn spawn_server(connections: u32) -> Result<(Child, String), BenchError> {
    let own = std::env::current_exe().map_err(|e| BenchError::io("this executable", e))?;
    let fail = |e| BenchError::io("the echo server", e);
    let mut command = Command::new(own);
    let count = connections.to_string();
    command.args(["echo", "--serve", "--connections", &count, "--sessions", &count]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    sys::stop_with_parent(&mut command);
    let mut child = command.spawn().map_err(fail)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(fail)?;
    }
    Ok((child, line.trim().to_owned()))
}

fn connect(options: &EchoOptions, address: &str, clock: Clock) -> Result<Poller, BenchError> {
    let mut poller = Poller::new(clock)?;
    for _ in 0..options.connections {
        let (stream, rest) = if options.hello { hello::greeted(address)? } else { hello::plain(address)? };
        poller.add(stream, rest)?;
    }
    Ok(poller)
}

fn measure(options: &EchoOptions, address: &str, pids: &[u32]) -> Result<EchoReport, BenchError> {
    let clock = Clock::start();
    let mut poller = connect(options, address, clock)?;
    let now = clock.now();
    let begin = now + options.warmup.as_nanos() as u64;
    let end = begin + options.duration.as_nanos() as u64;
    let pacer = match options.rate {
        Some(rate) => Pacer::open(rate, options.tick_us * 1_000, options.connections, now),
        None => Pacer::closed(),
    };
    let mut meter = Meter::new();
    meter.set_window(begin, end);
    let observer = Observer::start(Watch {
        begin: clock.instant(begin),
        end: clock.instant(end),
        sampler: Sampler::new(pids),
        nodes: Vec::new(),
        operations: meter.shared(),
        progress: observer::on_a_terminal(),
    });
    let mut callers = Callers::new(options.sessions, options.connections, pacer, meter, end);
    callers.begin(now, &mut poller.out);
    poller.drive(&mut callers)?;
    let usage = observer.finish()?.usage;
    let (operations, latency) = callers.meter.into_counted();
    let seconds = options.duration.as_secs_f64();
    Ok(EchoReport { options: options.clone(), measured: Measured { operations, seconds, latency }, usage })
}

impl EchoReport {
    /// For people, or one line of JSON, as asked for.
    pub(crate) fn text(&self) -> String {
        let Measured { operations, seconds, latency } = &self.measured;
        let EchoOptions { server, sessions, connections, rate, json, .. } = &self.options;
        let per_s = (*operations as f64 / seconds).round();
        let us = |cpu: f64| (cpu * 1e9 / (*operations).max(1) as f64).round() / 1e3;
        let (server_us, client_us) = (self.usage.servers.map(us), us(self.usage.own));
        let [p50, p99] = [0.5, 0.99].map(|q| latency.value_at_quantile(q));
        if *json {
            return json!({
                "server": server,
                "sessions": sessions,
                "connections": connections,
                "rate": rate,
                "seconds": seconds,
                "messages_per_s": per_s,
                "p50_us": p50,
                "p99_us": p99,
                "max_us": latency.max(),
                "server_cpu_us_per_message": server_us,
                "client_cpu_us_per_message": client_us,
                "others_cores": self.usage.others_cores(),
                "steal_cores": self.usage.steal_cores(),
            })
            .to_string();
        }
        let server_us = server_us.map_or("unknown".to_owned(), |us| format!("{us:.3}"));
        format!(
            "{per_s} messages/s ({server}, {sessions} sessions, {connections} connections, {} B in, {} B out)\n\
             CPU us/message  server {server_us}  generator {client_us:.3}\n\
             latency us      p50 {p50}  p99 {p99}  max {}",
            client::REQUEST_BYTES,
            server::ANSWER_BYTES,
            latency.max()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// Runs the generator against the server until so many messages were answered.
    fn exchange(sessions: u32, connections: u32, messages: u64) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || server::serve(&listener, connections));
        let clock = Clock::start();
        let mut poller = Poller::new(clock).unwrap();
        for _ in 0..connections {
            let (stream, rest) = hello::plain(&address).unwrap();
            poller.add(stream, rest).unwrap();
        }
        let mut meter = Meter::new();
        meter.set_window(0, u64::MAX);
        let callers = Callers::new(sessions, connections, Pacer::closed(), meter, u64::MAX);
        let mut counted = Counted { callers, left: messages };
        counted.callers.begin(clock.now(), &mut poller.out);
        poller.drive(&mut counted).unwrap();
        drop(poller);
        server.join().unwrap().unwrap();
        let (operations, latency) = counted.callers.meter.into_counted();
        assert!(operations >= messages);
        assert_eq!(operations, latency.len());
    }

    /// Ends by count, not by the clock.
    struct Counted {
        callers: Callers,
        left: u64,
    }

    impl crate::poller::Actor for Counted {
        fn on_frame(
            &mut self,
            link: usize,
            frame: &palisade_wire::Frame<'_>,
            now: u64,
            out: &mut crate::poller::Outbox,
        ) -> Result<(), BenchError> {
            self.left = self.left.saturating_sub(1);
            self.callers.on_frame(link, frame, now, out)
        }

        fn on_turn(
            &mut self,
            now: u64,
            out: &mut crate::poller::Outbox,
        ) -> Result<crate::poller::Turn, BenchError> {
            if self.left == 0 { Ok(crate::poller::Turn::Done) } else { self.callers.on_turn(now, out) }
        }
    }

    #[test]
    fn every_message_is_answered_on_few_connections_and_on_many() {
        exchange(1, 1, 100);
        exchange(1000, 4, 20_000);
        exchange(200, 200, 2_000);
    }

    #[test]
    fn more_than_the_kernel_buffers_is_written_when_there_is_room() {
        // 12 MB of requests at once on one connection.
        exchange(200_000, 1, 200_000);
    }
}
