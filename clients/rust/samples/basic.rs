//! basic: one lease, exclusive, released when the closure is done.

use std::time::Duration;

use latchkey::{AcquireOptions, Client, ConnectOptions, ListOptions};

fn claim(what: &str, holds: bool) {
    assert!(holds, "this should be so, and is not: {what}");
    println!("{what}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> latchkey::Result<()> {
    let client = Client::connect(ConnectOptions { name: "basic".into(), ..Default::default() }).await?;
    let options =
        AcquireOptions { ttl: Duration::from_secs(10).into(), label: "invoices".into(), ..Default::default() };
    let invoiced = client
        .run("sample-basic/invoices", options, |hold| async move {
            claim("the lease is held", hold.is_safe());
            claim("its token is a number above 0", hold.token().is_ok_and(|token| token > 0));
            // Here goes what only one process may do at a time.
            42
        })
        .await?;
    claim("the closure's result comes back", invoiced == 42);
    let listing = client.list(ListOptions { key: Some("sample-basic/invoices".into()), ..Default::default() }).await?;
    claim("nobody holds the key any more", listing.keys.is_empty());
    client.close().await;
    Ok(())
}
