//! many-keys: two accounts at once, all or none, so that crossed requests cannot block each other.

use std::sync::Mutex;

use latchkey::{AcquireOptions, Client, ConnectOptions};

fn claim(what: &str, holds: bool) {
    assert!(holds, "this should be so, and is not: {what}");
    println!("{what}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> latchkey::Result<()> {
    let client = Client::connect(ConnectOptions { name: "many-keys".into(), ..Default::default() }).await?;
    let (a, b) = ("sample-many/account-1", "sample-many/account-2");
    let order = Mutex::new(Vec::new());
    let order = &order;
    let first = client.run([a, b], AcquireOptions::default(), |hold| async move {
        order.lock().unwrap().push("first");
        claim("two keys are held under one id", hold.keys().len() == 2);
        let tokens = hold.tokens()?;
        claim("each key has a token of its own", tokens.len() == 2 && tokens[a] != tokens[b]);
        Ok::<(), latchkey::Error>(())
    });
    let second = client.run([b, a], AcquireOptions::default(), |_hold| async move {
        order.lock().unwrap().push("second");
    });
    let (first, second) = tokio::join!(first, second);
    first??;
    second?;
    claim("crossed requests took turns", *order.lock().unwrap() == ["first", "second"]);
    client.close().await;
    Ok(())
}
