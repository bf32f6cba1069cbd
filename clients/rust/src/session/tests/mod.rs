//! Orders that a real broker rarely takes, on a clock that stands still until it is moved.

mod leases;
mod links;

use std::sync::Mutex;
use std::time::Duration;

use serde_json::{json, Value};
use tokio::sync::oneshot::Receiver;

use super::*;
use crate::clock::from_ms;
use crate::error::Code;
use crate::options::AcquireOptions;
use crate::request::{Mode, Ttl, Wait};
use crate::sight::WatchEvent;

type Told<T> = Receiver<Result<T>>;

/// A session with its broker in hand.
struct Rig {
    s: Session,
    opened: Told<()>,
    troubles: Arc<Mutex<Vec<String>>>,
    logged: Arc<Mutex<Vec<String>>>,
}

fn options() -> AcquireOptions {
    AcquireOptions::default()
}

impl Rig {
    fn new(grace: u64) -> Rig {
        let (troubles, logged) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let (t, l) = (troubles.clone(), logged.clone());
        let setup = Setup {
            address: "broker".into(),
            name: Some("rig".into()),
            host: None,
            pid: Some(7),
            grace: from_ms(grace),
            connect_timeout: from_ms(3000),
            logger: Some(Arc::new(move |_, text| l.lock().unwrap().push(text.to_owned()))),
            on_troubled: Some(Arc::new(move |trouble| {
                t.lock().unwrap().push(trouble.error.code().name().to_owned());
            })),
        };
        let (s, opened) = Session::new(setup, from_ms(1_000_000));
        Rig { s, opened, troubles, logged }
    }

    /// With an open session.
    fn open(grace: u64) -> Rig {
        let mut rig = Rig::new(grace);
        rig.greet(json!({"session": "S1", "grace": grace}));
        rig.opened.try_recv().unwrap().unwrap();
        rig
    }

    /// Accepts the connection that is made, answers its open so, and says what that asked.
    fn greet(&mut self, answer: Value) -> Value {
        let open = self.ask_open();
        self.answer(&open, answer);
        open
    }

    fn ask_open(&mut self) -> Value {
        let (link, generation) = self.s.link();
        assert_eq!(link, Link::Dialing);
        self.s.link_up(generation);
        let frames = self.sent();
        assert_eq!(frames[0], json!({"latchkey": 1, "features": []}));
        self.send(json!({"latchkey": 1, "server": "rig"}));
        frames[1].clone()
    }

    fn effects(&mut self) {
        for effect in std::mem::take(&mut self.s.effects) {
            match effect {
                Effect::Lost(token) => token.cancel(),
                Effect::Wake(waker) => waker.wake(),
                Effect::Queued(f, queued) => f(queued),
                Effect::Acquired(tx, told) => drop(tx.send(told)),
                Effect::Line(tx, told) => drop(tx.send(told)),
                Effect::Done(tx, told) => drop(tx.send(told)),
                Effect::Watching(tx, told) => drop(tx.send(told)),
                Effect::Discard(asks) => drop(asks),
                Effect::Troubled(f, trouble) => f(&trouble),
                Effect::Log(f, level, text) => f(level, &text),
            }
        }
    }

    /// Frames that were sent since the last look.
    fn sent(&mut self) -> Vec<Value> {
        let bytes = std::mem::take(&mut self.s.out);
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The one frame that was sent.
    fn one(&mut self) -> Value {
        let mut frames = self.sent();
        assert_eq!(frames.len(), 1, "{frames:?}");
        frames.remove(0)
    }

    fn raw(&mut self, bytes: &[u8]) {
        let (_, generation) = self.s.link();
        self.s.received(generation, bytes);
        self.effects();
    }

    fn send(&mut self, frame: Value) {
        self.raw(format!("{frame}\n").as_bytes());
    }

    /// Answers a request: with `ok`, unless the fields say otherwise.
    fn answer(&mut self, request: &Value, mut fields: Value) {
        fields["n"] = request["n"].clone();
        if fields.get("ok").is_none() {
            fields["ok"] = json!(true);
        }
        self.send(fields);
    }

    fn fail(&mut self, request: &Value, code: &str) {
        self.answer(request, json!({"ok": false, "code": code, "op": request["do"]}));
    }

    fn grant(&mut self, request: &Value, token: u64) {
        let ttl = request["ttl"].clone();
        let mut frame = json!({"id": request["id"], "elapsed": 0, "waited": 0});
        match request.get("key") {
            Some(key) => {
                frame["key"] = key.clone();
                frame["token"] = json!(token);
            }
            None => {
                frame["keys"] = request["keys"].clone();
                let n = request["keys"].as_array().unwrap().len() as u64;
                frame["tokens"] = json!((token..token + n).collect::<Vec<_>>());
            }
        }
        if ttl.is_null() {
            frame["forever"] = json!(true);
        } else {
            frame["ttl"] = ttl.clone();
            frame["remaining"] = ttl;
        }
        self.answer(request, frame);
    }

    /// Moves the clock, through every alarm on the way, and answers pings.
    fn pass(&mut self, ms: u64) {
        let end = self.s.now + from_ms(ms);
        while self.s.alarms.next() <= end {
            self.s.now = self.s.alarms.next().max(self.s.now);
            self.s.tick();
            self.effects();
            if self.s.connected() {
                self.pong();
            }
        }
        self.s.now = end;
    }

    /// Answers the pings that were sent, and leaves the other frames.
    fn pong(&mut self) {
        let frames = self.sent();
        for frame in frames {
            if frame["do"] == "ping" {
                self.answer(&frame, json!({}));
            } else {
                self.s.out.extend_from_slice(format!("{frame}\n").as_bytes());
            }
        }
    }

    /// Moves the clock, through every alarm on the way, and answers nothing.
    fn silence(&mut self, ms: u64) {
        let end = self.s.now + from_ms(ms);
        while self.s.alarms.next() <= end {
            self.s.now = self.s.alarms.next().max(self.s.now);
            self.s.tick();
            self.effects();
        }
        self.s.now = end;
    }

    fn cut(&mut self) {
        let (_, generation) = self.s.link();
        self.s.broke(generation, Error::unavailable("cut"));
        self.effects();
        self.s.out.clear();
    }

    /// Lets the pause before the next connection pass.
    fn reconnect(&mut self) {
        while self.s.link().0 == Link::Down {
            self.s.now = self.s.alarms.next().max(self.s.now);
            self.s.tick();
            self.effects();
        }
    }

    fn acquire(&mut self, keys: &[&str], o: AcquireOptions) -> (u64, Told<Granted>) {
        let (fields, asks, _) = o.split(keys.into()).unwrap();
        let (tx, rx) = oneshot::channel();
        (self.s.acquire(fields, asks, tx).unwrap(), rx)
    }

    fn held(&mut self, keys: &[&str], o: AcquireOptions) -> Granted {
        let (_, mut rx) = self.acquire(keys, o);
        let frame = self.one();
        self.grant(&frame, 17);
        rx.try_recv().unwrap().unwrap()
    }

    fn loss(&self, hold: &Granted) -> String {
        self.s.loss(hold.n).map_or(String::new(), |e| e.code().name().to_owned())
    }

    fn abandon(&mut self, n: u64) -> bool {
        let there = self.s.abandon(n);
        self.effects();
        there
    }

    fn command(&mut self, op: Op, fields: Fields) -> Told<String> {
        let (tx, rx) = oneshot::channel();
        self.s.command(op, fields, tx).unwrap();
        rx
    }

    fn release(&mut self, hold: &Granted) -> Told<()> {
        let (tx, rx) = oneshot::channel();
        self.s.release(hold.n, tx);
        self.effects();
        rx
    }
}

fn code<T: std::fmt::Debug>(rx: &mut Told<T>) -> String {
    rx.try_recv().expect("there is an answer").expect_err("it failed").code().name().to_owned()
}

fn pending<T: std::fmt::Debug>(rx: &mut Told<T>) -> bool {
    matches!(rx.try_recv(), Err(oneshot::error::TryRecvError::Empty))
}

fn ttl(ms: u64) -> AcquireOptions {
    AcquireOptions { ttl: Duration::from_millis(ms).into(), ..options() }
}

fn lease(hold: &Granted) -> Value {
    let tokens: Vec<u64> = (0..hold.keys.len() as u64).map(|i| 17 + i).collect();
    json!({"id": *hold.id, "keys": *hold.keys, "tokens": tokens, "ttl": 30000, "remaining": 30000, "waited": 0})
}
