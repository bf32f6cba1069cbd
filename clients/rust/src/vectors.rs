//! Every case of the vectors that a client can play.

use std::io::Write;

use base64::decode as from_base64;
use serde_json::{json, Value};

use crate::clock::{from_ms, Micros, NEVER};
use crate::request::{encode, Fields, Op, HELLO};
use crate::sight::*;
use crate::wire::*;
use crate::{deadlines, Code, Kind};

/// The alphabet of the vectors, so that no dependency is needed for a few lines.
mod base64 {
    pub(super) fn decode(text: &str) -> Vec<u8> {
        const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let (mut out, mut bits, mut n) = (Vec::new(), 0u32, 0);
        for byte in text.bytes().filter(|&byte| byte != b'=') {
            let value = ALPHABET.iter().position(|&c| c == byte).expect("base64");
            bits = bits << 6 | value as u32;
            n += 6;
            if n >= 8 {
                n -= 8;
                out.push((bits >> n) as u8);
            }
        }
        out
    }
}

fn cases(file: &str) -> Vec<Value> {
    let path = format!("{}/../vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap()
}

fn bytes(case: &Value) -> Vec<u8> {
    match case["base64"].as_str() {
        Some(text) => from_base64(text),
        None => case["line"].as_str().unwrap().as_bytes().to_vec(),
    }
}

/// Plays the cases of a file that `play` knows how to, and prints how many these were.
fn play(file: &str, play: impl Fn(&Value) -> bool) {
    let cases = cases(file);
    let mut played = 0;
    for case in &cases {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play(case)));
        match result {
            Ok(true) => played += 1,
            Ok(false) => {}
            Err(_) => panic!("{file}, case {}", case["name"]),
        }
    }
    // Not by println, which is shown of tests that fail only.
    let _ = writeln!(std::io::stderr(), "{file}: {played} of {} cases were played", cases.len());
    assert!(played > 0);
}

#[test]
fn hello() {
    play("hello.json", |case| {
        let line = bytes(case);
        if case["from"] == "client" {
            if case["name"] != "client" {
                return false; // what only a server reads
            }
            assert_eq!(HELLO, [&line[..], b"\n"].concat());
            return true;
        }
        match case["code"].as_str() {
            Some(code) => {
                let error = decode_hello(&line).unwrap_err();
                assert_eq!(error.code().name(), code);
                assert!(error.to_string().contains(case["reason"].as_str().unwrap()), "{error}");
            }
            None => {
                let server = decode_hello(&line).unwrap();
                let means = &case["means"];
                assert_eq!(
                    json!([server.features, server.server, server.durability, server.fencing]),
                    json!([means["Features"], means["Server"], means["Durability"], means["Fencing"]])
                );
            }
        }
        true
    });
}

/// Milliseconds as the vectors have them.
fn ms(us: Micros) -> i64 {
    if us == NEVER {
        -1
    } else {
        (us / 1000) as i64
    }
}

fn grant(g: &Grant) -> Value {
    let holds: serde_json::Map<String, Value> =
        g.keys.iter().cloned().zip(g.tokens.iter().map(|token| json!(token))).collect();
    let mut out = json!({"id": g.id, "holds": holds, "ttl": ms(g.ttl), "waited": ms(g.waited)});
    if g.remaining != NEVER {
        out["remaining"] = json!(ms(g.remaining));
    }
    out
}

/// What is left of a value that says nothing: absent, empty, false.
fn plain(mut value: Value) -> Value {
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, v| !(v.is_null() || *v == json!(false) || *v == json!([])));
        for v in map.values_mut() {
            *v = plain(v.take());
        }
    }
    if let Some(list) = value.as_array_mut() {
        for v in list {
            *v = plain(v.take());
        }
    }
    value
}

fn holder(h: &Holder) -> Value {
    let ms = |d: Option<std::time::Duration>| d.map(|d| d.as_millis() as u64);
    plain(json!({
        "session": h.session, "host": h.host, "pid": h.pid, "label": h.label, "mode": h.mode, "max": h.max,
        "token": h.token, "since": ms(Some(h.since)), "ttl": ms(h.ttl), "forever": h.forever,
        "remaining": ms(h.remaining), "detached": h.detached, "broken": h.broken,
    }))
}

fn holders(list: &[Holder]) -> Value {
    Value::Array(list.iter().map(holder).collect())
}

fn waiter(w: &Waiter) -> Value {
    let ms = |d: Option<std::time::Duration>| d.map(|d| d.as_millis() as u64);
    plain(json!({
        "session": w.session, "host": w.host, "pid": w.pid, "label": w.label, "mode": w.mode, "max": w.max,
        "keys": w.keys, "age": ms(Some(w.age)), "left": ms(w.left), "broken": w.broken,
    }))
}

fn or_empty(value: &Value) -> Value {
    if value.is_null() {
        json!([])
    } else {
        value.clone()
    }
}

#[test]
fn replies() {
    play("replies.json", |case| {
        let line = bytes(case);
        let means = &case["means"];
        let reply = decode_reply(&line).unwrap();
        let kind = match reply.what {
            What::Ok => "ok",
            What::Failed => "failed",
            What::Queued => "queued",
            What::Part => "part",
            What::Event => "event",
            What::Lost => "lost",
        };
        assert_eq!(means["kind"], kind);
        assert_eq!(means["n"].as_u64().unwrap_or(0), reply.n);
        match reply.what {
            What::Failed => failure(reply.line, means),
            What::Queued => {
                let queued: Queued = decode(reply.line).unwrap();
                assert_eq!(json!([queued.key, queued.position]), json!([means["key"], means["position"]]));
                assert_eq!(holders(&queued.ahead), or_empty(&means["holders"]));
            }
            What::Event => {
                let e: WatchEvent = decode(reply.line).unwrap();
                let mut told = plain(json!({
                    "event": e.event, "key": Some(&e.key).filter(|key| !key.is_empty()), "session": e.session,
                    "host": e.host, "pid": e.pid, "label": e.label, "mode": e.mode, "max": e.max, "token": e.token,
                    "after": e.after.map(|d| d.as_millis() as u64), "code": e.code, "kind": "event", "n": reply.n,
                }));
                if e.is_gap() {
                    told.as_object_mut().unwrap().remove("mode");
                }
                assert_eq!(&told, means);
            }
            What::Lost => {
                let notice: Notice = decode(reply.line).unwrap();
                let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
                let told = plain(json!({
                    "kind": "lost", "code": notice.lost, "id": some(&notice.id), "key": some(&notice.key),
                    "token": notice.token.0, "by": some(&notice.by),
                }));
                assert_eq!(&told, means);
            }
            What::Ok | What::Part => answer(reply.line, means),
        }
        true
    });
}

fn failure(line: &str, means: &Value) {
    let e = decode_failure(line).unwrap();
    let told = json!({"code": e.code().name(), "op": e.op(), "key": e.key(), "reason": e.reason()});
    let want = json!({"code": means["code"], "op": means["op"], "key": means["key"], "reason": means["reason"]});
    assert_eq!(told, want);
    assert_eq!(holders(e.holders()), or_empty(&means["holders"]));
    let cycle: Vec<String> = e.cycle().iter().map(|w| format!("{} waits for {}", w.who, w.key)).collect();
    assert_eq!(json!(cycle), or_empty(&means["cycle"]));
}

fn answer(line: &str, means: &Value) {
    if !means["ttl"].is_null() {
        let g = decode_grant(line).unwrap();
        let mut told = grant(&g);
        told["elapsed"] = json!(ms(g.elapsed));
        told["kind"] = json!("ok");
        told["n"] = means["n"].clone();
        if g.detached {
            told["detached"] = json!(true);
        }
        assert_eq!(&told, means);
    }
    if !means["session"].is_null() || !means["leases"].is_null() {
        let opened = decode_open(line).unwrap();
        assert_eq!(opened.session, means["session"].as_str().unwrap_or(""));
        if let Some(grace) = means["grace"].as_i64() {
            assert_eq!(opened.grace, Some(from_ms(grace.max(0) as u64)));
        }
        let leases: Vec<Value> = opened
            .leases
            .iter()
            .map(|g| {
                let mut told = grant(g);
                told["detached"] = json!(g.detached);
                told
            })
            .collect();
        assert_eq!(json!(leases), or_empty(&means["leases"]));
    }
    if let Some(keys) = means["keys"].as_array() {
        let listing: Listing = decode(line).unwrap();
        assert_eq!(listing.more, means["more"] == true);
        let told: Vec<Value> = listing
            .keys
            .iter()
            .map(|k| {
                plain(json!({
                    "key": k.key, "holders": holders(&k.holders),
                    "waiters": k.waiters.iter().map(waiter).collect::<Vec<_>>(), "waiting": k.waiting,
                    "delay": k.delay.map(|d| d.as_millis() as u64),
                }))
            })
            .collect();
        assert_eq!(json!(told), plain(json!(keys)));
    }
    if !means["fence"].is_null() {
        let forced: ForcedBody = decode(line).unwrap();
        assert_eq!(json!(forced.fence.0), means["fence"]);
        let tokens: Vec<Value> = means["holds"].as_object().unwrap().values().cloned().collect();
        assert_eq!(json!(forced.known()), json!(tokens));
    }
}

fn fields(means: &Value) -> Fields {
    let text = |name: &str| means[name].as_str().map(str::to_owned);
    let number = |name: &str| means[name].as_u64();
    let flag = |name: &str| means[name] == true;
    let texts = |name: &str| -> Option<Vec<String>> { serde_json::from_value(means[name].clone()).ok() };
    let mut keys = texts("keys");
    let mut key = text("key");
    if keys.as_ref().is_some_and(|keys| keys.len() == 1) {
        key = keys.take().and_then(|mut keys| keys.pop());
    }
    Fields {
        name: text("name"),
        host: text("host"),
        pid: number("pid"),
        grace: means["grace"].as_i64().map(|grace| grace.max(0) as u64),
        resume: text("resume"),
        id: text("id"),
        key,
        keys,
        prefix: text("prefix"),
        after: text("after"),
        limit: number("limit").map(|limit| limit as u32),
        contended: flag("contended"),
        brief: flag("brief"),
        mode: match means["mode"].as_str() {
            Some("shared") => Some("shared"),
            Some("counted") => Some("counted"),
            _ => None,
        },
        max: number("max").map(|max| max as u32),
        token: number("token"),
        ttl: number("ttl"),
        forever: means["ttl"] == -1,
        attempt: flag("try"),
        wait: number("wait"),
        waited: number("waited"),
        prefer_readers: flag("prefer_readers"),
        max_hold: number("max_hold"),
        lock_delay: number("lock_delay"),
        detach: flag("detach"),
        label: text("label"),
        declared: texts("declared"),
        by: text("by"),
        reason: text("reason"),
        watch: number("watch"),
    }
}

#[test]
fn requests() {
    play("requests.json", |case| {
        if case["loose"] == true {
            return false; // another form of what a client sends
        }
        let means = &case["means"];
        let op = Op::from_name(means["do"].as_str().unwrap()).unwrap();
        let mut out = Vec::new();
        encode(&mut out, means["n"].as_u64().unwrap(), op, &fields(means));
        assert_eq!(String::from_utf8(out).unwrap(), format!("{}\n", case["line"].as_str().unwrap()));
        true
    });
}

/// What a server refuses is never sent, as far as the types of this crate can say it at all.
#[test]
fn refused() {
    play("refused.json", |case| {
        let Ok(request) = serde_json::from_slice::<Value>(&bytes(case)) else { return false };
        let Some(op) = request["do"].as_str().and_then(Op::from_name) else { return false };
        let f = fields(&request);
        // Only what comes out again as it went in can be said.
        let mut out = Vec::new();
        encode(&mut out, request["n"].as_u64().unwrap_or(1), op, &f);
        if serde_json::from_slice::<Value>(&out).unwrap() != request || op == Op::Open && request["grace"].is_u64() {
            return false;
        }
        // Durations are checked where they come in, as Durations.
        if let Err(error) = crate::request::check(op, &f) {
            assert_eq!(error.code().name(), case["code"].as_str().unwrap_or("refused"));
            return true;
        }
        false
    });
}

#[test]
fn streams() {
    play("streams.json", |case| {
        let mut lines = Lines::new(case["limit"].as_u64().unwrap() as usize);
        let mut got = Vec::new();
        let mut error = String::new();
        'all: for chunk in case["chunks"].as_array().unwrap() {
            let chunk = from_base64(chunk.as_str().unwrap());
            for _ in 0..case["repeat"].as_u64().unwrap_or(1) {
                let result = lines.push(&chunk, |line| {
                    got.push(line.to_vec());
                    Ok(())
                });
                if let Err(e) = result {
                    error = e.to_string();
                    break 'all;
                }
            }
        }
        let want: Vec<Vec<u8>> =
            case["lines"].as_array().unwrap().iter().map(|line| from_base64(line.as_str().unwrap())).collect();
        assert_eq!(got, want);
        let text = case["error"].as_str().unwrap();
        assert!(error.contains(text) && error.is_empty() == text.is_empty(), "{error:?}, want {text:?}");
        true
    });
}

#[test]
fn the_deadlines() {
    play("deadlines.json", |case| {
        let g = decode_grant(case["line"].as_str().unwrap()).unwrap();
        let grace = from_ms(case["grace"].as_u64().unwrap_or(0));
        let session = deadlines::session(from_ms(case["ping_sent"].as_u64().unwrap_or(0)), grace);
        let lease = deadlines::lease(from_ms(case["sent"].as_u64().unwrap()), &g);
        let until = deadlines::safe_until(lease, session, g.detached);
        assert_eq!(until, case["safe_until"].as_u64().map_or(NEVER, from_ms));
        true
    });
}

#[test]
fn codes() {
    play("codes.json", |case| {
        let name = case["code"].as_str().unwrap();
        let code = Code::from_name(name);
        assert!(!matches!(code, Code::Other(_)));
        assert_eq!(code.name(), name);
        let kind = match code.kind() {
            Kind::Outcome => "outcome",
            Kind::Mistake => "mistake",
            Kind::Loss => "loss",
            Kind::Retry => "retry",
            Kind::Unknown => "unknown",
            Kind::Defect => "defect",
        };
        assert_eq!(case["kind"], kind);
        true
    });
    let strange = Code::from_name("preempted");
    assert_eq!((strange.name(), strange.kind()), ("preempted", Kind::Defect));
}
