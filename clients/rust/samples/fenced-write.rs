//! fenced-write: a holder that was overtaken without noticing is shut out by its token.

use latchkey::{AcquireOptions, Client, ConnectOptions, ForceOptions};

fn claim(what: &str, holds: bool) {
    assert!(holds, "this should be so, and is not: {what}");
    println!("{what}");
}

/// What the lease protects. With SQL: UPDATE … SET value = $1, token = $2 WHERE id = $3 AND token <= $2.
#[derive(Default)]
struct Ledger {
    value: String,
    highest: u64,
}

impl Ledger {
    /// Whether the write was let through: false means that a later holder was here.
    fn write(&mut self, value: &str, token: u64) -> bool {
        if token < self.highest {
            return false;
        }
        self.highest = token;
        self.value = value.to_owned();
        true
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> latchkey::Result<()> {
    let client = Client::connect(ConnectOptions { name: "fenced-write".into(), ..Default::default() }).await?;
    let key = "sample-fence/ledger";
    let mut ledger = Ledger::default();
    let early = client.acquire(key, AcquireOptions::default()).await?;
    let token = early.token()?; // what a holder that is frozen in the middle of a write has in its hands
    claim("the first holder writes", ledger.write("early", token));

    let why = ForceOptions { by: Some("fenced-write".into()), reason: Some("it hangs".into()), ..Default::default() };
    client.force(key, why).await?;
    let late = client.acquire(key, AcquireOptions::default()).await?;
    claim("the later holder has a higher token", late.token()? > token);
    claim("the later holder writes", ledger.write("late", late.token()?));
    claim("the early holder, thawed, is refused", !ledger.write("early again", token));
    claim("nothing was overwritten", ledger.value == "late");
    late.release().await?;
    client.close().await;
    Ok(())
}
