//! Drives the client for the check across languages: commands as JSON lines on stdin, what happened as
//! JSON lines on stdout. It is no part of the package. In the end it sees that no task is left.

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use latchkey::{
    AcquireOptions, CancellationToken, Client, Code, ConnectOptions, Error, Hold, Mode, Ttl, Wait, WatchOptions,
};
use serde::Deserialize;
use serde_json::{json, Value};

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
struct Command {
    r#do: String,
    r#ref: String,
    addr: Option<String>,
    name: String,
    grace: Option<u64>,
    keys: Vec<String>,
    key: String,
    prefix: Option<String>,
    mode: String,
    max: u32,
    ttl: u64,
    wait: u64,
    r#try: bool,
    label: String,
    renew: Option<bool>,
    forever: bool,
    detach: bool,
    id: String,
    in_flight: u64,
    ms: Option<u64>,
}

#[derive(Default)]
struct Agent {
    client: Mutex<Option<Client>>,
    holds: Mutex<HashMap<String, (Arc<Hold>, CancellationToken)>>,
    pending: Mutex<HashMap<String, CancellationToken>>,
}

fn say(event: Value) {
    println!("{event}");
}

fn failed(name: &str, error: &Error) {
    say(json!({"event": "failed", "ref": name, "code": error.code().name(), "text": error.to_string()}));
}

/// What is left, as the check reads it: an integer, and -1 for without end.
fn left(hold: &Hold) -> i64 {
    hold.safe_for().map_or(-1, |left| i64::try_from(left.as_millis()).unwrap_or(i64::MAX))
}

fn options(c: &Command, cancel: CancellationToken) -> AcquireOptions {
    let name = c.r#ref.clone();
    AcquireOptions {
        mode: match &*c.mode {
            "shared" => Mode::Shared,
            "counted" => Mode::Counted(c.max),
            _ => Mode::Exclusive,
        },
        ttl: match (c.forever, c.ttl) {
            (true, _) => Ttl::Forever,
            (false, 0) => Ttl::default(),
            (false, ms) => Duration::from_millis(ms).into(),
        },
        wait: match (c.r#try, c.wait) {
            (true, _) => Wait::Try,
            (false, 0) => Wait::Unbounded,
            (false, ms) => Wait::AtMost(Duration::from_millis(ms)),
        },
        label: c.label.clone(),
        renew: c.renew.unwrap_or(true),
        detach: c.detach,
        id: Some(c.id.clone()).filter(|id| !id.is_empty()),
        cancel: Some(cancel),
        on_queued: Some(Box::new(move |q| {
            say(json!({"event": "queued", "ref": name, "position": q.position, "key": q.key}));
        })),
        ..AcquireOptions::default()
    }
}

impl Agent {
    fn client(&self) -> Result<Client, String> {
        self.client.lock().unwrap().clone().ok_or_else(|| "not connected".to_owned())
    }

    fn hold(&self, name: &str) -> Result<Arc<Hold>, String> {
        let holds = self.holds.lock().unwrap();
        holds.get(name).map(|(hold, _)| hold.clone()).ok_or_else(|| format!("no hold has the ref {name}"))
    }

    async fn connect(&self, c: Command) -> Result<(), String> {
        let options = ConnectOptions {
            address: c.addr,
            name: c.name,
            grace: c.grace.map_or(ConnectOptions::default().grace, Duration::from_millis),
            ..ConnectOptions::default()
        };
        let client = Client::connect(options).await.map_err(|e| e.to_string())?;
        *self.client.lock().unwrap() = Some(client);
        say(json!({"event": "connected"}));
        Ok(())
    }

    async fn acquire(&self, client: Client, c: Command, cancel: CancellationToken) -> Result<(), String> {
        let name = &c.r#ref;
        let keys = if c.keys.is_empty() { vec![c.key.clone()] } else { c.keys.clone() };
        let result = client.acquire(keys, options(&c, cancel)).await;
        self.pending.lock().unwrap().remove(name);
        let hold = match result {
            Ok(hold) => Arc::new(hold),
            Err(error) => {
                failed(name, &error);
                return Ok(());
            }
        };
        let over = CancellationToken::new();
        self.holds.lock().unwrap().insert(name.clone(), (hold.clone(), over.clone()));
        let tokens = hold.tokens().map_err(|e| e.to_string())?;
        say(json!({"event": "granted", "ref": name, "tokens": tokens, "safe_ms": left(&hold)}));
        let lost = hold.lost();
        tokio::select! {
            () = over.cancelled() => return Ok(()),
            () = lost.cancelled() => {}
        }
        let Some(loss) = hold.loss().filter(|loss| *loss.code() != Code::Closed) else { return Ok(()) };
        let late = hold.safe_until().map_or(Duration::ZERO, |until| Instant::now().saturating_duration_since(until));
        let late_ms = u64::try_from(late.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        let safe = hold.is_safe();
        say(json!({"event": "lost", "ref": name, "code": loss.code().name(), "late_ms": late_ms, "safe": safe}));
        Ok(())
    }

    async fn release(&self, c: Command) -> Result<(), String> {
        let hold = self.hold(&c.r#ref)?;
        let result = hold.release().await;
        // What was given up cannot be lost any more, whether the broker has heard it or not.
        if hold.loss().is_none() {
            if let Some((_, over)) = self.holds.lock().unwrap().remove(&c.r#ref) {
                over.cancel();
            }
        }
        match result {
            Ok(()) => say(json!({"event": "released", "ref": c.r#ref})),
            Err(error) => failed(&c.r#ref, &error),
        }
        Ok(())
    }

    async fn renew(&self, c: Command) -> Result<(), String> {
        let hold = self.hold(&c.r#ref)?;
        let ttl = Some(c.ttl).filter(|&ttl| ttl > 0).map(|ms| Duration::from_millis(ms).into());
        match hold.renew(ttl).await {
            Ok(()) => say(json!({"event": "renewed", "ref": c.r#ref, "safe_ms": left(&hold)})),
            Err(error) => failed(&c.r#ref, &error),
        }
        Ok(())
    }

    async fn watch(&self, c: Command) -> Result<(), String> {
        let options = WatchOptions { prefix: c.prefix, ..WatchOptions::default() };
        let mut watch = self.client()?.watch(options).await.map_err(|e| e.to_string())?;
        say(json!({"event": "watching"}));
        while let Some(event) = watch.next().await {
            match event {
                Ok(e) => {
                    let mut seen = json!({"event": "seen", "kind": e.event, "key": e.key});
                    if let Some(token) = e.token {
                        seen["token"] = token.into();
                    }
                    say(seen);
                }
                Err(error) if *error.code() == Code::Closed => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    async fn bench(&self, c: Command) -> Result<(), String> {
        let start = Instant::now();
        let until = start + Duration::from_millis(c.ms.unwrap_or(250));
        let name = if c.key.is_empty() { "bench" } else { &c.key };
        let mut loops = Vec::new();
        for i in 0..c.in_flight.max(1) {
            let (client, key) = (self.client()?, format!("{name}-{i}"));
            loops.push(tokio::spawn(async move {
                let (mut pairs, mut errors) = (0u64, 0u64);
                while Instant::now() < until {
                    let options = AcquireOptions { renew: false, ..AcquireOptions::default() };
                    match client.acquire(&key, options).await {
                        Ok(hold) if hold.release().await.is_ok() => pairs += 1,
                        _ => errors += 1,
                    }
                }
                (pairs, errors)
            }));
        }
        let (mut pairs, mut errors) = (0, 0);
        for one in loops {
            let (p, e) = one.await.map_err(|e| e.to_string())?;
            pairs += p;
            errors += e;
        }
        let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        say(json!({"event": "bench", "pairs": pairs, "ms": ms, "errors": errors}));
        Ok(())
    }

    async fn run(&self, c: Command) -> Result<(), String> {
        match &*c.r#do {
            "release" => self.release(c).await,
            "renew" => self.renew(c).await,
            "check" => {
                let safe = self.hold(&c.r#ref)?.is_safe();
                say(json!({"event": "checked", "ref": c.r#ref, "safe": safe}));
                Ok(())
            }
            "watch" => self.watch(c).await,
            "bench" => self.bench(c).await,
            other => Err(format!("{other} is not a command")),
        }
    }
}

/// Starts what a command says, in the order of the commands.
fn begin(runtime: &tokio::runtime::Runtime, agent: &Arc<Agent>, c: Command) -> Result<(), String> {
    let me = agent.clone();
    match &*c.r#do {
        "connect" => return runtime.block_on(agent.connect(c)),
        "cancel" => {
            if let Some(cancel) = agent.pending.lock().unwrap().get(&c.r#ref) {
                cancel.cancel();
            }
        }
        "acquire" => {
            let client = agent.client()?;
            let cancel = CancellationToken::new();
            agent.pending.lock().unwrap().insert(c.r#ref.clone(), cancel.clone());
            runtime.spawn(async move { me.acquire(client, c, cancel).await.unwrap_or_else(fault) });
        }
        _ => {
            runtime.spawn(async move { me.run(c).await.unwrap_or_else(fault) });
        }
    }
    Ok(())
}

fn fault(text: String) {
    say(json!({"event": "error", "text": text}));
}

fn main() -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    let agent = Arc::new(Agent::default());
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        match serde_json::from_str::<Command>(&line) {
            Err(error) => fault(error.to_string()),
            Ok(c) if c.r#do == "close" => break,
            Ok(c) => begin(&runtime, &agent, c).unwrap_or_else(fault),
        }
    }
    let client = agent.client.lock().unwrap().take();
    if let Some(client) = client {
        runtime.block_on(client.close());
    }
    // Each ends by itself once the client is closed.
    let patience = Instant::now() + Duration::from_secs(5);
    while runtime.metrics().num_alive_tasks() > 0 && Instant::now() < patience {
        std::thread::yield_now();
    }
    if runtime.metrics().num_alive_tasks() > 0 {
        return Err(format!("{} tasks are left after close", runtime.metrics().num_alive_tasks()));
    }
    say(json!({"event": "closed"}));
    Ok(())
}
