//! The recipe for a message to somebody who knows no fences: `net/fence/recipes/message.md`. The gate keeps zombies
//! from sending; the operation id, which the other side takes as the key of its memory, keeps a retry from counting twice.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use palisade_fence::{Failed, Fence, FenceGate, OperationId, RedbLedger};
use ureq::Agent;

use crate::fence;

/// A payment service that does each `Idempotency-Key` once and answers a repeat as the first time. It loses its first answer.
struct Payments {
    address: String,
    done: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Payments {
    fn start() -> Payments {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let done = Arc::new(Mutex::new(BTreeMap::new()));
        let of_server = Arc::clone(&done);
        std::thread::spawn(move || {
            for (n, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                Payments::serve(stream, &of_server, n > 0);
            }
        });
        Payments { address, done }
    }

    fn serve(stream: TcpStream, done: &Mutex<BTreeMap<String, String>>, answers: bool) {
        let mut request = BufReader::new(stream);
        let (mut key, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            request.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim().split_once(": ") else {
                if line.trim().is_empty() {
                    break;
                }
                continue;
            };
            match name.to_ascii_lowercase().as_str() {
                "idempotency-key" => key = value.to_owned(),
                "content-length" => length = value.parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        request.read_exact(&mut body).unwrap();
        done.lock().unwrap().entry(key).or_insert_with(|| String::from_utf8(body).unwrap());
        if answers {
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            request.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    }

    /// Pays, under a fence, as often as is needed to get an answer.
    fn pay(
        &self,
        gate: &FenceGate<RedbLedger>,
        fence: &Fence,
        order: &OperationId,
        sum: &str,
    ) -> Result<bool, Failed<palisade_fence::LedgerError>> {
        gate.protect(fence, || {
            let agent = Agent::new_with_defaults();
            agent.post(&self.address).header("Idempotency-Key", order.as_str()).send(sum).is_ok()
        })
    }
}

#[test]
fn a_message_counts_once_whoever_repeats_it_and_a_zombie_sends_none() {
    let dir = tempfile::tempdir().unwrap();
    let gate = FenceGate::of_many(RedbLedger::open(&dir.path().join("ledger")).unwrap());
    let payments = Payments::start();
    let order = OperationId::new("order 17").unwrap();
    assert!(!payments.pay(&gate, &fence(1), &order, "100").unwrap(), "its answer was lost");
    // The successor cannot know whether the first was heard, and need not.
    assert!(payments.pay(&gate, &fence(2), &order, "100").unwrap());
    let zombie = payments.pay(&gate, &fence(1), &OperationId::new("order 18").unwrap(), "100");
    assert!(matches!(zombie, Err(Failed::Refused(refused)) if refused.floor == 2));
    let done = payments.done.lock().unwrap();
    assert_eq!(done.iter().collect::<Vec<_>>(), [(&"order 17".to_owned(), &"100".to_owned())]);
}
