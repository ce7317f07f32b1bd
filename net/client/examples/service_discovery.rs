//! Instances of a service announce where they listen, and whoever wants to talk to the service lists them.
//! An instance that stops takes its announcement with it; one that dies is gone when its session is.
//!
//!     cargo run --example service_discovery -p palisade-client -- serve web 1 10.0.0.7:8080
//!     cargo run --example service_discovery -p palisade-client -- list web

use std::time::Duration;

use palisade_client::blocking::{Client, Session};
use palisade_client::{CallError, ClientConfig, Refusal};

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let endpoints = std::env::var("PALISADE_ENDPOINTS")
        .unwrap_or_else(|_| "127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403".to_owned());
    let client = Client::connect(ClientConfig::new(endpoints.split(',')))?;
    match arguments[..] {
        ["serve", service, instance, address] => serve(&client, service, instance, address),
        ["list", service] => {
            for (instance, address) in instances(&client, service)? {
                println!("{instance} at {address}");
            }
            Ok(())
        }
        _ => Err("usage: service_discovery serve SERVICE INSTANCE ADDRESS | list SERVICE".into()),
    }
}

/// Serves for ever. A lost session, after an outage that outlasted its TTL, say, is no reason to stop: the
/// announcement went with it, and is made again.
fn serve(client: &Client, service: &str, instance: &str, address: &str) -> Result<(), Error> {
    loop {
        match register(client, service, instance, address) {
            Ok(session) => {
                println!("{service}/{instance} is announced at {address}");
                let reason = client.wait_for(async |_| session.lost().await);
                eprintln!("to be announced anew: {reason}");
            }
            // An outage, or an earlier life of this instance whose session has not ended yet.
            Err(error) if passes(&error) => {
                eprintln!("not announced yet: {error}");
                std::thread::sleep(Duration::from_secs(1));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn passes(error: &CallError) -> bool {
    !error.is_final() || matches!(error, CallError::Refused(Refusal::OwnedByOther { .. }))
}

/// Announces an instance. The announcement lives as long as the session: drop it, or close it, to take it
/// back.
pub(crate) fn register(
    client: &Client,
    service: &str,
    instance: &str,
    address: &str,
) -> Result<Session, CallError> {
    let session = client.session().ttl(Duration::from_secs(10)).owner(instance).open()?;
    session.put(&format!("{}{instance}", prefix(service)), address)?;
    Ok(session)
}

/// The instances of a service and their addresses, those on their way out left aside.
pub(crate) fn instances(client: &Client, service: &str) -> Result<Vec<(String, String)>, CallError> {
    let prefix = prefix(service);
    let rows = client.list(&prefix)?.into_iter().filter(|row| !row.ending);
    let instance = |key: &str| key.strip_prefix(&prefix).unwrap_or(key).to_owned();
    Ok(rows.map(|row| (instance(&row.key), String::from_utf8_lossy(&row.value).into_owned())).collect())
}

/// The slash keeps `web` and `web-admin` apart.
fn prefix(service: &str) -> String {
    format!("services/{service}/")
}
