//! Why a fence: a writer that has lost its lock without noticing writes all the same, and the resource
//! refuses it. Here an operator takes the lock away; a pause longer than the lease does the same.
//!
//!     cargo run --example protected_writer -p palisade-client

use std::sync::{Mutex, PoisonError};

use palisade_client::blocking::{Client, Guard, Session};
use palisade_client::{ClientConfig, Epoch, Fence, Floor, Refused};

type Error = Box<dyn std::error::Error>;

const ACCOUNT: &str = "accounts/7";

fn main() -> Result<(), Error> {
    let endpoints = std::env::var("PALISADE_ENDPOINTS")
        .unwrap_or_else(|_| "127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403".to_owned());
    let client = Client::connect(ClientConfig::new(endpoints.split(',')))?;
    let account = Account::default();
    let late = meet(&client, &account)?;
    println!("the late write: {late}");
    println!("the balance: {}", account.balance());
    Ok(())
}

/// The resource: a balance beside its floor. Checking, raising and writing are one step, under the mutex
/// here; in a database they would be one transaction.
#[derive(Default)]
pub(crate) struct Account(Mutex<(Floor, i64)>);

impl Account {
    /// Writes for whoever holds this fence, unless somebody newer has acted.
    pub(crate) fn set(&self, fence: &Fence, balance: i64) -> Result<(), Refused> {
        let mut account = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let floor = account.0.admit(fence)?;
        *account = (floor, balance);
        Ok(())
    }

    pub(crate) fn balance(&self) -> i64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// Two writers in a row, of which the first does not notice that it was replaced. Returns the refusal of its
/// late write.
pub(crate) fn meet(client: &Client, account: &Account) -> Result<Refused, Error> {
    let (first, second) = (writer(client, "first")?, writer(client, "second")?);
    let lock = |session: &Session| session.fenced(ACCOUNT, "accounts-db").acquire();
    let held: Guard = lock(&first)?;
    account.set(held.fence(), 100)?;
    // It has read 100 and is about to write 100 + 50. Meanwhile somebody takes its lock away.
    let (read, epoch): (i64, Epoch) = (account.balance(), held.fence().epoch());
    client.wait_for(async |client| {
        client.operator("example")?.force_release(ACCOUNT, epoch, "it takes too long").await
    })?;
    let taken = lock(&second)?;
    account.set(taken.fence(), account.balance() - 30)?;
    // The first goes on where it was. A fence is shown with every write, so nothing depends on whether it
    // has heard of its loss by now.
    let Err(refused) = account.set(held.fence(), read + 50) else {
        return Err("a write was lost: the resource has not looked at the fence".into());
    };
    taken.release()?;
    Ok(refused)
}

fn writer(client: &Client, name: &str) -> Result<Session, Error> {
    Ok(client.session().owner(name).open()?)
}
