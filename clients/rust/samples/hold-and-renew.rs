//! hold-and-renew: a lease with a short ttl is kept for several times as long.

use std::time::Duration;

use latchkey::{AcquireOptions, Client, Code, ConnectOptions, Wait};

fn claim(what: &str, holds: bool) {
    assert!(holds, "this should be so, and is not: {what}");
    println!("{what}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> latchkey::Result<()> {
    let client = Client::connect(ConnectOptions { name: "hold-and-renew".into(), ..Default::default() }).await?;
    let key = "sample-renew/leader";
    let short = AcquireOptions { ttl: Duration::from_secs(1).into(), ..Default::default() };
    let hold = client.acquire(key, short).await?;
    let first = hold.safe_until();
    let lost = hold.lost();
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(2500)) => {}
        () = lost.cancelled() => {}
    }
    claim("held for more than two ttls", hold.is_safe());
    claim("renewals have moved the deadline ahead", hold.safe_until() > first);
    let again = || client.acquire(key, AcquireOptions { wait: Wait::Try, ..Default::default() });
    let busy = again().await.is_err_and(|e| *e.code() == Code::Busy);
    claim("meanwhile it is busy for everyone else", busy);
    hold.release().await?;
    let next = again().await?;
    claim("after the release the next one has a higher token", next.token()? > hold.token()?);
    next.release().await?;
    client.close().await;
    Ok(())
}
