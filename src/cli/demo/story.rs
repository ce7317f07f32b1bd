//! The plot of the demo: the same pause twice, with the fence and without it.

use std::path::Path;

use palisade_fence::{Fence, sql};
use serde_json::json;

use super::super::exit::{self, Failure};
use super::actor::{Actor, Role};
use super::books::{Books, Entry, START, Verdict};
use super::judge::Case;
use super::tell::{Teller, Tone};
use super::worker::{KEY, Order, Said, TTL};

/// By how much the worker that is paused changes the balance, and the one that comes meanwhile.
const A: i64 = 50;
const B: i64 = -30;

/// Whether the write of this part is one with the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    WithFence,
    WithoutFence,
}

impl Part {
    pub(super) fn name(self) -> &'static str {
        match self {
            Part::WithFence => "with the fence",
            Part::WithoutFence => "without the fence",
        }
    }

    fn introduction(self) -> String {
        let right = START + A + B;
        match self {
            Part::WithFence => format!(
                "An account in a SQLite file holds {START}. A is to add {A}, B to take {}: {right} will be right. \
                 Whoever works on it takes the lock {KEY} first, and shows the fence KEY@EPOCH/BARRIER of its \
                 grant in the transaction of its write:",
                -B
            ),
            Part::WithoutFence => format!(
                "A new file, again with {START}. The same lock, the same pause, the same workers, and only that \
                 one statement is left out.",
            ),
        }
    }
}

/// Tells a part of the story, and returns what is to be judged of it.
pub(super) async fn tell(
    teller: &mut Teller,
    part: Part,
    dir: &Path,
    endpoints: &[String],
) -> Result<Case, Failure> {
    let fenced = part == Part::WithFence;
    teller.part(Some(part.name()));
    teller.say(Tone::Plain, "")?;
    teller.say(Tone::Heading, &part.name().to_uppercase())?;
    teller.say(Tone::Plain, &part.introduction())?;
    if fenced {
        teller.statement(sql::SQLITE_ADMIT.trim())?;
        teller.say(
            Tone::Plain,
            "with key (1), barrier (2) and epoch (3). When it changes no row, somebody newer has written, and the \
             transaction is rolled back.",
        )?;
    }
    let path = dir.join(if fenced { "fenced.db" } else { "bare.db" });
    let books = Books::create(&path).map_err(|e| database(&e))?;
    let role = |name, amount| Role { name, amount, fenced, books: &path, endpoints };

    let mut a = Actor::start(&role("A", A))?;
    let stale = lock(teller, &mut a).await?;
    let seen = read(teller, &mut a).await?;
    a.pause().await?;
    let text = "is PAUSED (SIGSTOP) before it writes, and does not notice.";
    teller.step("A", ("paused", json!({})), Tone::Plain, text)?;

    let mut b = Actor::start(&role("B", B))?;
    let newer = lock(teller, &mut b).await?;
    let later = read(teller, &mut b).await?;
    write(teller, &mut b, (&newer, fenced), later, B).await?;
    b.dismiss().await?;

    // It finds this order when it wakes up.
    a.order(Order::Write)?;
    a.resume()?;
    let text = "is CONTINUED (SIGCONT), and goes on where it was.";
    teller.step("A", ("continued", json!({})), Tone::Plain, text)?;
    let told = written(teller, &mut a, (&stale, fenced), seen, A).await?;
    if told != Verdict::Written {
        let text = "stops, as who is refused must, and begins anew:";
        teller.step("A", ("anew", json!({})), Tone::Plain, text)?;
        let fence = lock(teller, &mut a).await?;
        let seen = read(teller, &mut a).await?;
        write(teller, &mut a, (&fence, fenced), seen, A).await?;
    }
    a.dismiss().await?;

    let page = books.page(KEY).map_err(|e| database(&e))?;
    let case = Case { stale: stale.epoch().0, newer: newer.epoch().0, told, page };
    conclude(teller, &case)?;
    teller.part(None);
    Ok(case)
}

/// Has a worker take the lock.
async fn lock(teller: &mut Teller, actor: &mut Actor) -> Result<Fence, Failure> {
    let mut said = actor.does(Order::Lock).await?;
    while let Said::Queued { holder } = said {
        let facts = ("queued", json!({ "holder": holder }));
        let ttl = TTL.as_secs();
        let text = format!("waits for the lock: {holder} has it, and is silent; after {ttl} s ...");
        teller.step(actor.name, facts, Tone::Plain, &text)?;
        said = actor.says().await?;
    }
    let Said::Granted { fence } = said else {
        return Err(actor.broken(&format!("it was to take the lock, and says {said:?}")));
    };
    let parsed: Fence = fence.parse().map_err(|e| actor.broken(&e))?;
    let facts =
        ("granted", json!({ "fence": fence, "epoch": parsed.epoch().0, "barrier": parsed.barrier().0 }));
    teller.step(actor.name, facts, Tone::Plain, &format!("is granted the lock. Its fence: {fence}"))?;
    Ok(parsed)
}

/// Has a worker read the balance.
async fn read(teller: &mut Teller, actor: &mut Actor) -> Result<i64, Failure> {
    match actor.does(Order::Read).await? {
        Said::Read { balance, valid } => {
            let held = if valid { "it is" } else { "it is NOT" };
            let facts = ("read", json!({ "balance": balance, "valid": valid }));
            let text = format!("reads {balance}, and asks whether its lock is valid: {held}.");
            teller.step(actor.name, facts, Tone::Plain, &text)?;
            Ok(balance)
        }
        other => Err(actor.broken(&format!("it was to read, and says {other:?}"))),
    }
}

/// Has a worker write, who must be let in.
async fn write(
    teller: &mut Teller,
    actor: &mut Actor,
    how: (&Fence, bool),
    read: i64,
    amount: i64,
) -> Result<(), Failure> {
    actor.order(Order::Write)?;
    match written(teller, actor, how, read, amount).await? {
        Verdict::Written => Ok(()),
        Verdict::Refused { floor } => {
            Err(actor.broken(&format!("it holds the lock under {}, and is refused by floor {floor}", how.0)))
        }
    }
}

/// What came of a write that was ordered.
async fn written(
    teller: &mut Teller,
    actor: &mut Actor,
    (fence, fenced): (&Fence, bool),
    read: i64,
    amount: i64,
) -> Result<Verdict, Failure> {
    let said = actor.says().await?;
    let new = read + amount;
    let attempt = match fenced {
        true => format!("writes {new}, showing {fence}"),
        false => format!("writes {new}, and its fence {fence} is shown to nobody"),
    };
    let (event, verdict, tone, outcome) = match said {
        Said::Written => ("written", Verdict::Written, Tone::Plain, "written.".to_owned()),
        Said::Refused { floor } => {
            let why = format!(
                "REFUSED. The floor is {floor}, and its epoch {}: no row changed, rolled back.",
                fence.epoch()
            );
            ("refused", Verdict::Refused { floor }, Tone::Good, why)
        }
        other => return Err(actor.broken(&format!("it was to write, and says {other:?}"))),
    };
    let floor = if let Verdict::Refused { floor } = verdict { Some(floor) } else { None };
    let shown = fenced.then(|| fence.to_string());
    let facts = json!({ "balance": new, "fence": shown, "epoch": fence.epoch().0, "floor": floor });
    teller.step(actor.name, (event, facts), tone, &format!("{attempt}: {outcome}"))?;
    Ok(verdict)
}

/// What is in the file, and what should be.
fn conclude(teller: &mut Teller, case: &Case) -> Result<(), Failure> {
    let page = &case.page;
    let (is, right) = (page.balance, page.should_be());
    let changes: Vec<String> = page.entries.iter().map(|entry| format!("{:+}", entry.amount)).collect();
    let sum = format!("{START} {}", changes.join(" "));
    let (tone, text) = match is == right {
        true => (Tone::Good, format!("In the file: {is}. By its entries {sum} = {right}: CORRECT.")),
        false => {
            let text = format!(
                "In the file: {is}. By its entries {sum} = {right}: CORRUPTED. The update of B is lost, and \
                 nobody was told."
            );
            (Tone::Bad, text)
        }
    };
    let entry = |e: &Entry| json!({ "worker": e.worker, "epoch": e.epoch, "amount": e.amount });
    let entries: Vec<_> = page.entries.iter().map(entry).collect();
    let facts = json!({ "balance": is, "should_be": right, "correct": is == right, "entries": entries });
    teller.step("", ("found", facts), tone, &text)
}

fn database(error: &rusqlite::Error) -> Failure {
    Failure::new(exit::OS, format!("the demo's database: {error}"))
}
