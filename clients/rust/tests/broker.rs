//! The client against the real broker, whose program `LATCHKEY_BINARY` names.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use latchkey::{
    AcquireOptions, CancellationToken, Client, Code, ConnectOptions, Error, ForceOptions, Hold, ListOptions, Mode, Ttl,
    Wait, WatchOptions,
};

/// A broker that ends with the test.
struct Broker {
    child: Child,
    address: String,
    args: Vec<String>,
    folder: PathBuf,
}

static FOLDERS: AtomicU32 = AtomicU32::new(0);

impl Broker {
    fn start(durable: bool) -> Broker {
        let n = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("latchkey-rust-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut args = vec!["--unix".to_owned(), folder.join("s").to_str().unwrap().to_owned()];
        if durable {
            args.extend(["--data".to_owned(), folder.join("data").to_str().unwrap().to_owned()]);
        }
        let (child, address) = Broker::launch("127.0.0.1:0", &args);
        Broker { child, address, args, folder }
    }

    fn launch(listen: &str, args: &[String]) -> (Child, String) {
        let binary =
            std::env::var("LATCHKEY_BINARY").expect("LATCHKEY_BINARY names the broker's program: use ./run test");
        let mut child = Command::new(binary)
            .args(["serve", "--http", "", "--listen", listen])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("the broker says where it listens").unwrap();
            if let Some(("tcp", address)) = line.split_once(char::is_whitespace) {
                break address.trim().to_owned();
            }
        };
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        (child, address)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again where it was.
    fn restart(&mut self) {
        self.child = Broker::launch(&self.address, &self.args).0;
    }

    fn signal(&self, name: &str) {
        let done = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    async fn client(&self, grace: u64) -> Client {
        let options = ConnectOptions {
            address: Some(self.address.clone()),
            grace: Duration::from_millis(grace),
            ..ConnectOptions::default()
        };
        within("connect", Client::connect(options)).await.unwrap()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn within<T>(what: &str, f: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), f).await.unwrap_or_else(|_| panic!("{what} takes too long"))
}

/// Waits until something is so that nobody tells.
async fn until<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    let all = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(what, all).await;
}

fn options() -> AcquireOptions {
    AcquireOptions::default()
}

fn attempt() -> AcquireOptions {
    AcquireOptions { wait: Wait::Try, ..options() }
}

fn code<T>(result: Result<T, Error>) -> Code {
    result.err().expect("it fails").code().clone()
}

async fn waiting(client: &Client, key: &str) -> u64 {
    let listing = client.list(ListOptions { key: Some(key.into()), ..Default::default() }).await.unwrap();
    listing.keys.first().map_or(0, |key| key.waiting)
}

async fn is_free(client: &Client, key: &str) -> bool {
    client.list(ListOptions { key: Some(key.into()), ..Default::default() }).await.unwrap().keys.is_empty()
}

/// Starts an acquire, and waits until the broker has queued it.
async fn queued(client: &Client, key: &str, o: AcquireOptions) -> tokio::task::JoinHandle<latchkey::Result<Hold>> {
    let (tx, rx) = tokio::sync::oneshot::channel();
    let o = AcquireOptions { on_queued: Some(Box::new(|q| drop(tx.send(q)))), ..o };
    let (client, key) = (client.clone(), key.to_owned());
    let task = tokio::spawn(async move { client.acquire(key, o).await });
    within("queued", rx).await.unwrap();
    task
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modes_many_keys_order_and_tokens() {
    let broker = Broker::start(false);
    let (a, b) = (broker.client(10_000).await, broker.client(10_000).await);
    assert!(a.server().server.contains("latchkey") && a.server().fencing == "clock");
    let shared = || AcquireOptions { mode: Mode::Shared, ..attempt() };
    let (one, two) = (a.acquire("s", shared()).await.unwrap(), b.acquire("s", shared()).await.unwrap());
    let busy = a.acquire("s", attempt()).await.unwrap_err();
    assert_eq!(*busy.code(), Code::Busy);
    assert_eq!(busy.holders().len(), 2, "{busy}");
    assert!(two.token().unwrap() > one.token().unwrap());
    let counted = || AcquireOptions { mode: Mode::Counted(2), ..attempt() };
    let c = [a.acquire("c", counted()).await.unwrap(), b.acquire("c", counted()).await.unwrap()];
    assert_eq!(code(b.acquire("c", counted()).await), Code::Busy);
    drop(c);
    let many = a.acquire(["y", "x"], options()).await.unwrap();
    assert_eq!(many.keys(), ["x", "y"]);
    assert_eq!(many.tokens().unwrap().len(), 2);
    assert!(many.token().is_err());
    let bounded = AcquireOptions { wait: Wait::AtMost(Duration::from_millis(20)), ..options() };
    assert_eq!(code(b.acquire("y", bounded).await), Code::Timeout);
    let first = queued(&b, "x", options()).await;
    let second = queued(&a, "x", options()).await;
    many.release().await.unwrap();
    let first = within("the first", first).await.unwrap().unwrap();
    assert!(!second.is_finished());
    first.release().await.unwrap();
    let second = within("the second", second).await.unwrap().unwrap();
    assert!(second.token().unwrap() > first.token().unwrap());
    assert!(a.stats().await.unwrap()["granted"].as_u64().unwrap() >= 6);
    let page = a.list(ListOptions { prefix: Some("s".into()), limit: Some(1), ..Default::default() }).await.unwrap();
    assert_eq!((page.keys[0].holders.len(), page.more), (2, false));
    a.close().await;
    b.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_dropped_or_cancelled_leaves_nothing() {
    let broker = Broker::start(false);
    let (a, b) = (broker.client(10_000).await, broker.client(10_000).await);
    let hold = a.acquire("k", options()).await.unwrap();
    let task = queued(&b, "k", options()).await;
    assert_eq!(waiting(&a, "k").await, 1);
    task.abort();
    until("the dropped request is gone", || async { waiting(&a, "k").await == 0 }).await;
    let cancel = CancellationToken::new();
    let task = queued(&b, "k", AcquireOptions { cancel: Some(cancel.clone()), ..options() }).await;
    cancel.cancel();
    assert_eq!(code(within("cancelled", task).await.unwrap()), Code::Cancelled);
    assert_eq!(waiting(&a, "k").await, 0);
    assert_eq!(code(b.acquire("k", AcquireOptions { cancel: Some(cancel), ..options() }).await), Code::Cancelled);
    drop(hold);
    until("the dropped hold is released", || async { is_free(&a, "k").await }).await;
    // Polled once, so that the grant may be on its way or here when it is dropped.
    for i in 0..200 {
        let acquiring = a.acquire("crossing", options());
        tokio::select! {
            biased;
            hold = acquiring => drop(hold.unwrap()),
            () = tokio::time::sleep(Duration::from_micros(i * 10)) => {}
        }
    }
    until("nothing is left of all", || async { is_free(&b, "crossing").await }).await;
    let body = a.run("k", options(), |_| std::future::pending::<()>());
    assert!(tokio::time::timeout(Duration::from_millis(50), body).await.is_err());
    until("a dropped run is released", || async { is_free(&a, "k").await }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_returns_and_releases_or_tells_the_loss() {
    let broker = Broker::start(false);
    let a = broker.client(10_000).await;
    assert_eq!(a.run("k", options(), |hold| async move { hold.key().len() }).await.unwrap(), 1);
    assert!(is_free(&a, "k").await);
    let (client, key) = (a.clone(), "k");
    let panics = tokio::spawn(async move { client.run(key, options(), |_| async { panic!("on purpose") }).await });
    assert!(panics.await.unwrap_err().is_panic());
    until("released after a panic", || async { is_free(&a, "k").await }).await;
    let (tx, rx) = tokio::sync::oneshot::channel();
    let admin = a.clone();
    let forcing = tokio::spawn(async move {
        let token: u64 = rx.await.unwrap();
        let why = ForceOptions { by: Some("alice".into()), ..Default::default() };
        (token, admin.force("k", why).await.unwrap())
    });
    let lost = a.run("k", options(), |hold| async move {
        tx.send(hold.token().unwrap()).unwrap();
        std::future::pending::<()>().await;
    });
    let error = within("the loss", lost).await.unwrap_err();
    assert_eq!(*error.code(), Code::Forced);
    assert!(error.is_loss() && error.to_string().contains("alice"), "{error}");
    let (token, forced) = forcing.await.unwrap();
    assert!(forced.fence().unwrap() > token);
    assert_eq!(forced.tokens(), [token]);
    assert_eq!(code(a.force("k", ForceOptions::default()).await), Code::NotHeld);
}

#[tokio::test]
async fn deadlocks_of_declared_holds_name_the_cycle() {
    let broker = Broker::start(false);
    let (a, b) = (broker.client(10_000).await, broker.client(10_000).await);
    let (x, y) = (a.acquire("x", options()).await.unwrap(), b.acquire("y", options()).await.unwrap());
    let waits = queued(&a, "y", AcquireOptions { declared: vec![x.id().into()], ..options() }).await;
    let error = b.acquire("x", AcquireOptions { declared: vec![y.id().into()], ..options() }).await.unwrap_err();
    assert_eq!(*error.code(), Code::Deadlock);
    assert_eq!(error.cycle().len(), 2, "{error}");
    drop(y);
    drop(waits.await.unwrap().unwrap());
    // A run in a run on the same key would wait for itself.
    let error = a
        .run("k", options(), |outer| {
            let (a, b) = (a.clone(), b.clone());
            async move {
                let other =
                    b.run("l", options(), |_| async { a.run("k", options(), |_| async {}).await }).await.unwrap();
                // What was released does not count, nor does what is begun in another task.
                let (spawned, taken) = (b.clone(), a.clone());
                let waits = tokio::spawn(async move { spawned.acquire("k", options()).await });
                until("it waits", || async { waiting(&taken, "k").await == 1 }).await;
                outer.release().await.unwrap();
                drop(waits.await.unwrap().unwrap());
                taken.run("k", options(), |_| async {}).await.unwrap();
                other
            }
        })
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(*error.code(), Code::Deadlock);
    assert!(error.to_string().contains("you already hold this key: \"k\""), "{error}");
}

#[tokio::test]
async fn whatever_ends_a_hold_while_it_is_held_is_a_loss() {
    let broker = Broker::start(false);
    let (a, b) = (broker.client(10_000).await, broker.client(10_000).await);
    let twice = AcquireOptions { wait: Wait::Try, ..options() };
    let hold = a.acquire("busy", options()).await.unwrap();
    let error = b.acquire("busy", twice).await.unwrap_err();
    assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
    assert!(!error.is_loss());
    hold.release().await.unwrap();
    assert!(!hold.check().unwrap_err().is_loss(), "a release is none");
    let closed = b.run("k", options(), |_| async {
        b.close().await;
        std::future::pending::<()>().await;
    });
    let error = within("the loss", closed).await.unwrap_err();
    assert!(*error.code() == Code::Closed && error.is_loss(), "{error}");
    assert!(!b.acquire("k", options()).await.unwrap_err().is_loss());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_durable_broker_that_is_killed_is_resumed() {
    let mut broker = Broker::start(true);
    let (a, b) = (broker.client(60_000).await, broker.client(60_000).await);
    let hold = a.acquire("k", options()).await.unwrap();
    let waits = queued(&b, "k", options()).await;
    broker.kill();
    until("the break is seen", || async { !a.is_connected() }).await;
    broker.restart();
    until("connected again", || async { a.is_connected() && b.is_connected() }).await;
    assert!(hold.is_safe() && hold.loss().is_none());
    until("the place is kept", || async { waiting(&a, "k").await == 1 }).await;
    hold.renew(Some(Ttl::Time(Duration::from_secs(50)))).await.unwrap();
    assert_eq!(hold.ttl(), Some(Duration::from_secs(50)));
    hold.release().await.unwrap();
    let next = within("the next", waits).await.unwrap().unwrap();
    assert!(next.token().unwrap() > hold.token().unwrap());
    a.close().await;
    b.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_forgets_is_a_loss_and_who_waits_goes_on() {
    let mut broker = Broker::start(false);
    let (a, b) = (broker.client(60_000).await, broker.client(60_000).await);
    let hold = a.acquire("k", options()).await.unwrap();
    let waits = queued(&b, "k", options()).await;
    let mut watch = a.watch(WatchOptions::default()).await.unwrap();
    broker.kill();
    broker.restart();
    within("the loss", hold.lost().cancelled()).await;
    assert_eq!(*hold.loss().unwrap().code(), Code::SessionLost);
    drop(within("the grant", waits).await.unwrap().unwrap());
    loop {
        let event = within("the gap", watch.next()).await.unwrap().unwrap();
        if event.is_gap() {
            break;
        }
    }
    assert_eq!(code(hold.release().await), Code::SessionLost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_stands_still_is_a_loss_in_time() {
    let broker = Broker::start(false);
    let a = broker.client(5000).await;
    let troubles = Arc::new(Mutex::new(Vec::new()));
    let told = troubles.clone();
    let o = AcquireOptions {
        on_troubled: Some(Arc::new(move |trouble| told.lock().unwrap().push((trouble.error.clone(), trouble.left)))),
        ..options()
    };
    let hold = a.acquire("k", o).await.unwrap();
    broker.signal("-STOP");
    let until_then = hold.safe_until().unwrap();
    within("the loss", hold.lost().cancelled()).await;
    assert!(!hold.is_safe() && hold.safe_for() == Some(Duration::ZERO));
    let loss = hold.loss().unwrap();
    assert_eq!(*loss.code(), Code::ServiceGone, "{loss}");
    // An answered ping may have moved the deadline after it was read here.
    assert!(Instant::now() >= until_then);
    assert!(!troubles.lock().unwrap().is_empty(), "trouble is told before");
    broker.signal("-CONT");
    until("connected again", || async { a.is_connected() }).await;
    a.acquire("k", options()).await.unwrap().release().await.unwrap();
    a.close().await;
}

#[tokio::test]
async fn a_watch_sees_what_happens() {
    let broker = Broker::start(false);
    let a = broker.client(10_000).await;
    let mut watch = a.watch(WatchOptions { prefix: Some("w".into()), ..Default::default() }).await.unwrap();
    let hold = a.acquire("w1", options()).await.unwrap();
    a.acquire("other", options()).await.unwrap().release().await.unwrap();
    hold.release().await.unwrap();
    for want in ["granted", "released"] {
        let event = within(want, watch.next()).await.unwrap().unwrap();
        assert_eq!((&*event.event, &*event.key, event.token), (want, "w1", hold.token().ok()));
    }
    let watched = a.stats().await.unwrap()["watches"].as_u64();
    drop(watch);
    if watched == Some(1) {
        until("the watch is gone", || async { a.stats().await.unwrap()["watches"] == 0 }).await;
    }
    let mut last = a.watch(WatchOptions::default()).await.unwrap();
    a.close().await;
    let error = last.next().await.unwrap().unwrap_err();
    assert_eq!(*error.code(), Code::Closed);
    assert!(last.next().await.is_none());
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_and_a_detached_hold() {
    let broker = Broker::start(false);
    let address = format!("unix:{}", broker.folder.join("s").display());
    let a = Client::connect(&*address).await.unwrap();
    let hold = a.acquire("k", options()).await.unwrap();
    hold.detach().await.unwrap();
    assert!(hold.is_detached());
    a.close().await;
    let b = broker.client(10_000).await;
    let busy = b.acquire("k", attempt()).await.unwrap_err();
    assert!(busy.holders()[0].detached, "{busy}");
}

#[tokio::test]
async fn nobody_listens_or_the_address_is_none() {
    for (address, want) in [
        ("127.0.0.1:1", Code::Unavailable),
        ("unix:/nowhere/at/all", Code::Unavailable),
        ("unix:", Code::Refused),
        ("nonsense", Code::Refused),
        ("a:b:1", Code::Refused),
        (":1", Code::Refused),
        ("host:0", Code::Refused),
        ("host:99999", Code::Refused),
    ] {
        let error = within(address, Client::connect(address)).await.unwrap_err();
        assert_eq!(*error.code(), want, "{address}: {error}");
    }
}

/// Tasks of this runtime besides the test itself, which is none.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[cfg(target_os = "linux")]
fn sockets_to(address: &str) -> usize {
    let port = address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    let own: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|row| row.len() > 9 && row[2].ends_with(&format!(":{port:04X}")))
        .filter(|row| own.contains(&format!("socket:[{}]", row[9])))
        .count()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn after_close_no_task_and_no_socket_is_left() {
    let broker = Broker::start(false);
    for how in ["close", "drop", "give up"] {
        for _ in 0..5 {
            let client = broker.client(10_000).await;
            assert_eq!((tasks(), sockets_to(&broker.address)), (1, 1));
            let hold = client.acquire("k", options()).await.unwrap();
            let watch = client.watch(WatchOptions::default()).await.unwrap();
            match how {
                "close" => {
                    let (other, waits) = (client.clone(), queued(&client, "k", options()).await);
                    tokio::join!(client.close(), other.close());
                    assert_eq!(*hold.loss().unwrap().code(), Code::Closed);
                    assert!(hold.lost().is_cancelled());
                    assert_eq!(code(waits.await.unwrap()), Code::Closed);
                    assert_eq!(code(client.acquire("k", options()).await), Code::Closed);
                    client.close().await;
                    assert_eq!((tasks(), sockets_to(&broker.address)), (0, 0));
                }
                "drop" => drop((client, hold, watch)),
                _ => {
                    let again = Client::connect(&*broker.address);
                    let _ = tokio::time::timeout(Duration::from_micros(200), again).await;
                    drop((hold, watch, client));
                }
            }
            until("all is gone", || async { tasks() == 0 && sockets_to(&broker.address) == 0 }).await;
        }
    }
    let look = broker.client(0).await;
    until("the broker has no lease", || async { look.list(ListOptions::default()).await.unwrap().keys.is_empty() })
        .await;
    look.close().await;
}

#[test]
fn a_runtime_that_ends_leaves_nobody_waiting() {
    let broker = Broker::start(false);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (client, hold) = first.block_on(async {
        let client = broker.client(10_000).await;
        let hold = client.acquire("k", options()).await.unwrap();
        (client, hold)
    });
    drop(first);
    assert_eq!(*hold.loss().unwrap().code(), Code::Closed);
    let ended = runtime().block_on(async { within("an answer", client.acquire("l", options())).await });
    assert_eq!(code(ended), Code::Closed);
    runtime().block_on(within("close", client.close()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_contend() {
    let broker = Broker::start(false);
    let clients = [broker.client(10_000).await, broker.client(10_000).await];
    let (inside, highest) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
    let mut all = tokio::task::JoinSet::new();
    for i in 0..16 {
        let (client, inside, highest) = (clients[i % 2].clone(), inside.clone(), highest.clone());
        all.spawn(async move {
            for _ in 0..10 {
                let hold = client.acquire("k", options()).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold at a time");
                let token = hold.token().unwrap();
                assert!(highest.swap(token, Ordering::SeqCst) < token, "tokens rise");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                hold.release().await.unwrap();
            }
        });
    }
    within("all", async {
        while let Some(result) = all.join_next().await {
            result.unwrap();
        }
    })
    .await;
}

/// Callbacks own what they like, such as the client itself, and may call it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_may_own_and_use_the_client_and_panic() {
    let broker = Broker::start(false);
    let a = broker.client(10_000).await;
    let kept = Arc::new(a.acquire("kept", options()).await.unwrap());
    let owning = |wait| {
        let (mine, other, hold) = (a.clone(), a.clone(), kept.clone());
        AcquireOptions {
            wait,
            on_queued: Some(Box::new(move |_| assert!(!mine.is_connected(), "on purpose"))),
            on_troubled: Some(Arc::new(move |_| assert!(other.is_connected() && hold.is_safe()))),
            ..options()
        }
    };
    let hold = a.acquire("k", owning(Wait::Unbounded)).await.unwrap();
    assert_eq!(code(a.acquire("k", owning(Wait::Try)).await), Code::Busy);
    assert_eq!(code(a.acquire("k", owning(Wait::AtMost(Duration::from_millis(20)))).await), Code::Timeout);
    assert_eq!(code(a.acquire("", owning(Wait::Try)).await), Code::Refused);
    let last = owning(Wait::Unbounded);
    drop(kept);
    let waits = queued(&a, "k", last).await;
    drop(hold);
    within("the grant", waits).await.unwrap().unwrap().release().await.unwrap();
    until("what a callback owned is gone with it", || async { is_free(&a, "kept").await }).await;
    a.close().await;
}
