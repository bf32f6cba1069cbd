//! lost-lease: an administrator takes the lease away, and the work that is under way is stopped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use latchkey::{AcquireOptions, Client, Code, ConnectOptions, ForceOptions};

fn claim(what: &str, holds: bool) {
    assert!(holds, "this should be so, and is not: {what}");
    println!("{what}");
}

/// Notes that the work was stopped before its end.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> latchkey::Result<()> {
    let client = Client::connect(ConnectOptions { name: "lost-lease".into(), ..Default::default() }).await?;
    let admin = Client::connect(ConnectOptions { name: "admin".into(), ..Default::default() }).await?;
    let stopped = AtomicBool::new(false);
    let (stop, admins) = (&stopped, &admin);
    let work = client.run("sample-lost/report", AcquireOptions::default(), |hold| async move {
        let _stopped = Stopped(stop);
        let why =
            ForceOptions { by: Some("alice".into()), reason: Some("stuck since Monday".into()), ..Default::default() };
        admins.force(hold.key(), why).await?;
        tokio::time::sleep(Duration::from_secs(60)).await; // any work; it is dropped where it waits
        Ok::<(), latchkey::Error>(())
    });
    let Err(error) = work.await else { panic!("the lease was not lost") };
    claim("the work was stopped when the lease was lost", stopped.load(Ordering::Relaxed));
    claim("run fails with the loss", error.is_loss() && *error.code() == Code::Forced);
    claim("the reason names who did it", error.to_string().contains("alice"));
    client.close().await;
    admin.close().await;
    Ok(())
}
