//! What happens when connections break, sessions end, and brokers talk nonsense.

use super::*;

#[test]
fn a_cancel_goes_on_after_a_resume_and_its_request_does_not() {
    let mut rig = Rig::open(3000);
    let (n, mut rx) = rig.acquire(&["a"], options());
    rig.abandon(n);
    rig.cut();
    rig.reconnect();
    rig.greet(json!({"session": "S1", "grace": 2940, "leases": []}));
    let cancel = rig.one();
    assert_eq!(cancel["do"], "cancel");
    rig.answer(&cancel, json!({}));
    assert_eq!(code(&mut rx), "cancelled");
}

#[test]
fn requests_are_sent_again_with_their_age_and_holds_are_kept() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    let wait = AcquireOptions { wait: Wait::AtMost(Duration::from_secs(60)), ..options() };
    let (_, mut rx) = rig.acquire(&["b"], wait);
    let first = rig.one();
    rig.pass(500);
    rig.cut();
    assert_eq!(*rig.troubles.lock().unwrap(), ["unavailable"]);
    rig.reconnect();
    let open = rig.greet(json!({"session": "S1", "grace": 2940, "leases": [lease(&hold)]}));
    assert_eq!(open["resume"], "S1");
    let again = rig.one();
    assert_eq!((&again["id"], &again["n"]), (&first["id"], &first["n"]));
    assert!(again["waited"].as_u64().unwrap() >= 500 && again["wait"].as_u64().unwrap() <= 59_500, "{again}");
    rig.grant(&again, 18);
    assert_eq!(&*rx.try_recv().unwrap().unwrap().tokens, [Some(18)]);
    assert!(rig.s.look(hold.n).ended.is_none());
}

#[test]
fn a_resume_tells_what_is_gone_and_releases_what_nobody_knows() {
    let mut rig = Rig::open(3000);
    let kept = rig.held(&["a", "b"], options());
    let gone = rig.held(&["c"], options());
    let (_, mut waits) = rig.acquire(&["d"], options());
    let wanted = rig.one();
    rig.cut();
    rig.reconnect();
    let open = rig.ask_open();
    let n = &open["n"];
    rig.send(json!({"n": n, "leases": [lease(&kept)]}));
    let rest = json!([
        {"id": "stranger", "keys": ["x"], "tokens": [5], "forever": true},
        {"id": wanted["id"], "keys": ["d"], "tokens": [6], "ttl": 30000, "remaining": 30000},
    ]);
    rig.answer(&open, json!({"session": "S1", "grace": 2940, "elapsed": 0, "leases": rest}));
    let frames = rig.sent();
    assert_eq!(frames.len(), 2, "{frames:?}");
    assert_eq!((&frames[0]["do"], &frames[0]["id"]), (&json!("acquire"), &wanted["id"]));
    assert_eq!((&frames[1]["do"], &frames[1]["id"]), (&json!("release"), &json!("stranger")));
    rig.grant(&frames[0], 6);
    waits.try_recv().unwrap().unwrap();
    assert_eq!(rig.loss(&gone), "forced");
    assert!(gone.lost.is_cancelled() && !kept.lost.is_cancelled());
}

#[test]
fn a_resume_with_fewer_keys_than_were_held_is_a_loss() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a", "b"], options());
    rig.cut();
    rig.reconnect();
    let entry = json!({"id": *hold.id, "keys": ["a"], "tokens": [17], "ttl": 30000, "remaining": 30000});
    rig.greet(json!({"session": "S1", "grace": 2940, "leases": [entry]}));
    assert_eq!(rig.loss(&hold), "forced");
}

#[test]
fn a_lost_session_loses_holds_and_who_waits_goes_on() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    let lasting = rig.held(&["l"], options());
    let (tx, mut detached) = oneshot::channel();
    rig.s.extend(lasting.n, Op::Detach, None, tx).unwrap();
    let frame = rig.one();
    let mut entry = lease(&lasting);
    entry["detached"] = json!(true);
    rig.answer(&frame, entry);
    detached.try_recv().unwrap().unwrap();
    let (_, mut rx) = rig.acquire(&["b"], options());
    let first = rig.one();
    rig.pass(100);
    rig.cut();
    rig.reconnect();
    let open = rig.ask_open();
    rig.fail(&open, "session_lost");
    let fresh = rig.one();
    assert!(fresh["resume"].is_null() && fresh["name"] == "rig", "{fresh}");
    assert_eq!(rig.loss(&hold), "session_lost");
    assert!(hold.lost.is_cancelled());
    rig.answer(&fresh, json!({"session": "S2", "grace": 3000}));
    let again = rig.one();
    assert_eq!(again["id"], first["id"]);
    assert!(again["waited"].as_u64().unwrap() >= 100);
    rig.grant(&again, 99);
    rx.try_recv().unwrap().unwrap();
    assert!(rig.s.look(lasting.n).ended.is_none(), "a detached hold outlives its session");
    assert_eq!(code(&mut rig.release(&hold)), "session_lost");
    assert!(rig.sent().is_empty(), "there is nothing to give back");
}

#[test]
fn a_notice_of_a_lost_session_while_somebody_waits() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    let (_, mut rx) = rig.acquire(&["b"], options());
    rig.sent();
    rig.send(json!({"lost": "session_lost"}));
    assert_eq!(rig.loss(&hold), "session_lost");
    rig.reconnect();
    let open = rig.greet(json!({"session": "S2", "grace": 3000}));
    assert!(open["resume"].is_null());
    let again = rig.one();
    rig.grant(&again, 18);
    rx.try_recv().unwrap().unwrap();
}

#[test]
fn a_dead_link_is_left_when_the_next_ping_is_due() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    rig.pass(999);
    rig.silence(1); // the ping
    rig.silence(999);
    assert!(rig.s.connected());
    rig.silence(21); // and the second look
    assert!(!rig.s.connected());
    assert_eq!(*rig.troubles.lock().unwrap(), ["unavailable"]);
    rig.silence(918);
    assert_eq!(rig.loss(&hold), "");
    rig.silence(2);
    assert_eq!(rig.loss(&hold), "service_gone", "at the deadline of the session");
}

#[test]
fn something_else_that_comes_keeps_a_link() {
    let mut rig = Rig::open(3000);
    rig.silence(1001);
    rig.silence(998);
    rig.send(json!({"n": 999, "event": "gap"}));
    rig.silence(30);
    assert!(rig.s.connected());
    rig.silence(3000);
    assert!(!rig.s.connected(), "but not past the grace");
}

#[test]
fn pauses_grow_to_a_second() {
    let mut rig = Rig::open(60_000);
    let mut longest = 0;
    for _ in 0..12 {
        rig.cut();
        let before = rig.s.now;
        rig.reconnect();
        longest = longest.max(rig.s.now - before);
    }
    assert!((500_000..=1_000_000).contains(&longest), "{longest}");
}

#[test]
fn a_release_that_was_carried_out_is_done() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    let mut release = rig.release(&hold);
    rig.cut();
    assert!(pending(&mut release));
    rig.reconnect();
    rig.greet(json!({"session": "S1", "grace": 2940, "leases": []}));
    let again = rig.one();
    rig.fail(&again, "not_held");
    release.try_recv().unwrap().unwrap();
    let hold = rig.held(&["b"], options());
    let mut release = rig.release(&hold);
    let frame = rig.one();
    rig.fail(&frame, "not_held");
    assert_eq!(code(&mut release), "not_held", "the first time it is told");
}

#[test]
fn a_hold_that_is_dropped_is_released_also_after_a_resume() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    rig.cut();
    rig.s.abandon_hold(hold.n);
    rig.reconnect();
    rig.greet(json!({"session": "S1", "grace": 2940, "leases": [lease(&hold)]}));
    let release = rig.one();
    assert_eq!((&release["do"], &release["id"]), (&json!("release"), &json!(*hold.id)));
    rig.answer(&release, json!({}));
    assert!(rig.s.calls.is_empty() && rig.s.holds.is_empty() && rig.s.by_id.is_empty());
}

#[test]
fn without_a_broker_calls_end_as_far_as_they_can() {
    let mut rig = Rig::open(3000);
    let mut force = rig.command(Op::Force, Fields { key: Some("a".into()), ..Fields::default() });
    rig.cut();
    let wait = AcquireOptions { wait: Wait::AtMost(Duration::from_millis(500)), ..options() };
    let (_, mut bounded) = rig.acquire(&["a"], wait);
    let (_, mut attempt) = rig.acquire(&["a"], AcquireOptions { wait: Wait::Try, ..options() });
    let (_, mut patient) = rig.acquire(&["a"], options());
    rig.silence(3000);
    assert_eq!(code(&mut bounded), "timeout");
    assert_eq!(code(&mut attempt), "unavailable");
    assert_eq!(code(&mut force), "unknown");
    assert!(pending(&mut patient));
}

#[test]
fn a_closing_broker_sends_back_what_waits() {
    let mut rig = Rig::open(3000);
    let (_, mut rx) = rig.acquire(&["a"], options());
    let frame = rig.one();
    rig.fail(&frame, "closed");
    rig.send(json!({"ok": false, "code": "closed", "reason": "the server is shutting down"}));
    assert!(pending(&mut rx) && !rig.s.connected());
    rig.reconnect();
    rig.greet(json!({"session": "S1", "grace": 2940, "leases": []}));
    let again = rig.one();
    rig.grant(&again, 4);
    rx.try_recv().unwrap().unwrap();
}

#[test]
fn another_connection_that_resumed_the_session_keeps_it() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    let (_, mut waits) = rig.acquire(&["b"], options());
    rig.send(json!({"ok": false, "code": "session_lost", "reason": "resumed elsewhere"}));
    assert_eq!(rig.loss(&hold), "session_lost");
    assert_eq!(code(&mut waits), "session_lost");
    rig.reconnect();
    let open = rig.greet(json!({"session": "S2", "grace": 3000}));
    assert!(open["resume"].is_null());
}

const TAKEN: &str = "{\"ok\":false,\"code\":\"session_lost\",\"reason\":\"resumed elsewhere\"}\n";

#[test]
fn a_resume_of_its_own_that_the_broker_comes_to_late_excuses_one_takeover() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    let (_, mut waits) = rig.acquire(&["b"], options());
    rig.cut();
    rig.reconnect();
    assert_eq!(rig.ask_open()["resume"], "S1");
    rig.cut(); // and that is not answered
    let resumed = json!({"session": "S1", "grace": 2940, "leases": [lease(&hold)]});
    rig.reconnect();
    rig.greet(resumed.clone());
    rig.raw(TAKEN.as_bytes());
    rig.reconnect();
    assert_eq!(rig.greet(resumed)["resume"], "S1");
    assert!(pending(&mut waits) && !hold.lost.is_cancelled());
    rig.raw(TAKEN.as_bytes()); // this one is somebody else's
    assert_eq!(rig.loss(&hold), "session_lost");
    assert_eq!(code(&mut waits), "session_lost");
    rig.reconnect();
    assert!(rig.ask_open()["resume"].is_null());
}

#[test]
fn a_takeover_in_place_of_the_answer_to_a_resume_is_one() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    rig.cut();
    rig.reconnect();
    assert_eq!(rig.ask_open()["resume"], "S1");
    rig.raw(TAKEN.as_bytes());
    assert_eq!(rig.loss(&hold), "session_lost");
    rig.reconnect();
    assert!(rig.ask_open()["resume"].is_null());
}

#[test]
fn what_a_resume_finds_past_its_deadline_is_lost_and_given_back() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    rig.cut();
    rig.reconnect();
    let open = rig.ask_open();
    rig.s.now += from_ms(10_000); // stopped while the broker answered
    rig.answer(&open, json!({"session": "S1", "grace": 2940, "leases": [lease(&hold)]}));
    assert!(hold.lost.is_cancelled());
    let frame = rig.one();
    assert_eq!((&frame["do"], &frame["id"]), (&json!("release"), &json!(*hold.id)));
}

#[test]
fn without_grace_the_session_ends_with_its_connection() {
    let mut rig = Rig::open(0);
    let hold = rig.held(&["a"], AcquireOptions { ttl: Ttl::Forever, ..options() });
    assert_eq!(rig.s.look(hold.n).safe_until, NEVER);
    rig.cut();
    assert_eq!(rig.loss(&hold), "session_lost");
}

#[test]
fn what_is_no_broker_is_told_so() {
    let long = [b'x'; 1 << 20 | 1];
    for (line, want) in [
        (&b"HTTP/1.1 400 Bad Request\n"[..], "not JSON"),
        (b"+OK\n", "not JSON"),
        (b"{}\n", "no broker"),
        (b"{\"latchkey\":2}\n", "version 2"),
        (b"\xff\xfe\n", "UTF-8"),
        (&long, "too long"),
    ] {
        let mut rig = Rig::new(3000);
        let (_, generation) = rig.s.link();
        rig.s.link_up(generation);
        rig.raw(line);
        let error = rig.opened.try_recv().unwrap().unwrap_err();
        assert_eq!(*error.code(), Code::Protocol, "{error}");
        assert!(error.to_string().contains(want), "{error}");
        assert!(rig.s.finished);
    }
    let mut rig = Rig::new(3000);
    rig.silence(3000);
    let error = rig.opened.try_recv().unwrap().unwrap_err();
    assert_eq!(*error.code(), Code::Unavailable, "{error}");
}

#[test]
fn a_request_that_breaks_every_connection_is_given_up() {
    let mut rig = Rig::open(60_000);
    let (_, mut rx) = rig.acquire(&["a"], options());
    for i in 0..3 {
        assert!(pending(&mut rx), "{i}");
        let frame = rig.one();
        // Without an end, which must not be taken for none.
        rig.answer(&frame, json!({"id": frame["id"], "key": "a", "token": 1}));
        rig.reconnect();
        rig.greet(json!({"session": "S1", "grace": 60_000, "leases": []}));
    }
    let error = rx.try_recv().unwrap().unwrap_err();
    assert_eq!(*error.code(), Code::Unknown);
    assert!(error.to_string().contains("no ttl or no remaining"), "{error}");
    assert_eq!(rig.one()["do"], "cancel");
}

#[test]
fn unknown_fields_are_ignored_and_unknown_codes_keep_their_name() {
    let mut rig = Rig::open(3000);
    let (_, mut rx) = rig.acquire(&["a"], options());
    let frame = rig.one();
    rig.answer(
        &frame,
        json!({"ok": false, "code": "preempted", "zones": [1, 2.5, null], "holders": [{"session": "w", "x": {}}]}),
    );
    let error = rx.try_recv().unwrap().unwrap_err();
    assert_eq!(*error.code(), Code::Other("preempted".into()));
    assert_eq!(error.kind(), crate::Kind::Defect);
    assert_eq!(error.holders()[0].session.as_deref(), Some("w"));
    rig.send(json!({"n": 4711, "ok": true, "note": null}));
    assert!(rig.s.connected());
}

#[test]
fn a_watch_is_begun_again_with_a_gap_and_bounded() {
    let mut rig = Rig::open(3000);
    let buffer = Arc::new(Buffer::new(3));
    let (tx, mut rx) = oneshot::channel();
    let n = rig.s.watch(Fields { prefix: Some("a".into()), ..Fields::default() }, buffer.clone(), tx).unwrap();
    let watch = rig.one();
    rig.answer(&watch, json!({}));
    rx.try_recv().unwrap().unwrap();
    let events = |buffer: &Buffer| -> Vec<String> {
        let mut cx = std::task::Context::from_waker(Waker::noop());
        std::iter::from_fn(|| match buffer.poll(&mut cx) {
            std::task::Poll::Ready(Some(event)) => Some(event.map_or_else(|e| e.to_string(), |e: WatchEvent| e.event)),
            _ => None,
        })
        .collect()
    };
    rig.send(json!({"n": n, "event": "granted", "key": "a", "token": 3, "after": 2, "mode": "shared"}));
    assert_eq!(events(&buffer), ["granted"]);
    rig.cut();
    rig.reconnect();
    rig.greet(json!({"session": "S1", "grace": 2940, "leases": []}));
    let again = rig.one();
    assert_eq!((&again["n"], &again["prefix"]), (&json!(n), &json!("a")));
    rig.answer(&again, json!({}));
    rig.send(json!({"n": n, "event": "released", "key": "a"}));
    assert_eq!(events(&buffer), ["gap", "released"]);
    for _ in 0..10 {
        rig.send(json!({"n": n, "event": "queued", "key": "a"}));
    }
    let kept = events(&buffer);
    assert!(kept.len() <= 3 && kept[0] == "gap", "{kept:?}");
    rig.s.unwatch(n);
    assert_eq!(rig.one()["watch"], n);
}

#[test]
fn close_answers_everybody_and_says_goodbye() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    let (_, mut waits) = rig.acquire(&["b"], options());
    let (_, mut lasting) = rig.acquire(&["c"], AcquireOptions { detach: true, ..options() });
    let mut stats = rig.command(Op::Stats, Fields::default());
    rig.sent();
    rig.s.close();
    rig.effects();
    assert!(hold.lost.is_cancelled());
    assert_eq!(rig.loss(&hold), "closed");
    assert_eq!((code(&mut waits), code(&mut stats)), ("closed".into(), "closed".into()));
    assert_eq!(code(&mut lasting), "unknown", "its grant would last");
    let goodbye = rig.one();
    assert_eq!(goodbye["do"], "close");
    rig.s.close();
    assert!(!rig.s.finished);
    rig.answer(&goodbye, json!({}));
    assert!(rig.s.finished && rig.s.alarms.next() == NEVER);
    let (fields, asks, _) = options().split("a".into()).unwrap();
    let (tx, _rx) = oneshot::channel();
    assert_eq!(*rig.s.acquire(fields, asks, tx).unwrap_err().code(), Code::Closed);

    let mut rig = Rig::open(3000);
    rig.s.close();
    rig.silence(999);
    assert!(!rig.s.finished);
    rig.silence(1);
    assert!(rig.s.finished, "without an answer after a second");
    assert!(rig.logged.lock().unwrap().iter().any(|text| text.contains("goodbye")));
}

#[test]
fn close_without_a_connection_says_goodbye_on_the_next_one() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    rig.cut();
    rig.s.close();
    rig.effects();
    assert!(!rig.s.finished);
    rig.reconnect();
    rig.cut();
    rig.reconnect();
    let open = rig.greet(json!({"session": "S1", "grace": 2940, "leases": [lease(&hold)]}));
    assert_eq!(open["resume"], "S1");
    let goodbye = rig.sent().into_iter().find(|frame| frame["do"] == "close").unwrap();
    rig.answer(&goodbye, json!({}));
    assert!(rig.s.finished && rig.s.alarms.next() == NEVER);

    // There is nobody to say it to.
    let mut rig = Rig::open(3000);
    rig.cut();
    rig.s.close();
    rig.reconnect();
    let open = rig.ask_open();
    rig.fail(&open, "session_lost");
    assert!(rig.s.finished && rig.sent().is_empty());

    let mut rig = Rig::open(3000);
    rig.cut();
    rig.s.close();
    rig.silence(1000);
    assert!(rig.s.finished, "when none comes for a second");
}

/// Whatever a broker says, every call is answered by the end, and nothing panics.
#[test]
fn nothing_breaks_whatever_the_broker_says() {
    for seed in 1..=300u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut draw = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let mut rig = Rig::open(3000);
        let mut waiting = Vec::new();
        let mut holds: Vec<Granted> = Vec::new();
        let mut frames: Vec<Value> = Vec::new();
        for _ in 0..200 {
            match draw(12) {
                0 | 1 => waiting.push(rig.acquire(&["a"], ttl(100 + draw(3000)))),
                2 if !waiting.is_empty() => {
                    let i = draw(waiting.len() as u64) as usize;
                    rig.abandon(waiting[i].0);
                }
                3 if !holds.is_empty() => {
                    let hold = holds.swap_remove(draw(holds.len() as u64) as usize);
                    drop(rig.release(&hold));
                    if draw(2) == 0 {
                        rig.s.abandon_hold(hold.n);
                    }
                }
                4 => rig.pass(draw(1500)),
                5 => rig.silence(draw(1500)),
                6 => rig.cut(),
                7 => rig.raw([&b"nonsense\n"[..], b"{\"n\":1}\n", b"{\"lost\":\"session_lost\"}\n"][draw(3) as usize]),
                8 if !frames.is_empty() => {
                    let frame = frames.swap_remove(draw(frames.len() as u64) as usize);
                    let codes = ["unavailable", "not_held", "session_lost", "over", "closed", "busy", "strange"];
                    rig.fail(&frame, codes[draw(7) as usize]);
                }
                _ if !frames.is_empty() => {
                    let frame = frames.swap_remove(draw(frames.len() as u64) as usize);
                    match frame["do"].as_str() {
                        Some("acquire") => rig.grant(&frame, 1 + draw(100)),
                        Some("renew") => rig.answer(
                            &frame,
                            json!({"id": frame["id"], "key": "a", "token": 1, "ttl": 1000, "remaining": 1000}),
                        ),
                        _ => rig.answer(&frame, json!({})),
                    }
                }
                _ => {}
            }
            if rig.s.link().0 == Link::Down && draw(2) == 0 {
                rig.reconnect();
            }
            if rig.s.link().0 == Link::Dialing {
                let open = rig.ask_open();
                frames.clear();
                if draw(3) == 0 {
                    rig.fail(&open, "session_lost");
                    if !open["resume"].is_null() {
                        let fresh = rig.one();
                        rig.answer(&fresh, json!({"session": "S2", "grace": 3000}));
                    }
                } else {
                    rig.answer(&open, json!({"session": "S1", "grace": 3000, "leases": []}));
                }
            }
            frames.extend(rig.sent());
            waiting.retain_mut(|(_, rx)| match rx.try_recv() {
                Ok(Ok(hold)) => {
                    holds.push(hold);
                    false
                }
                Ok(Err(_)) => false,
                Err(error) => {
                    assert_eq!(error, oneshot::error::TryRecvError::Empty, "seed {seed}");
                    true
                }
            });
            for hold in &holds {
                let view = rig.s.look(hold.n);
                assert_eq!(view.ended.is_some(), rig.s.loss(hold.n).is_some(), "seed {seed}");
                assert!(view.ended.is_some() || view.safe_until > rig.s.now, "seed {seed}");
            }
        }
        rig.s.close();
        rig.effects();
        rig.silence(2000);
        assert!(rig.s.finished, "seed {seed}");
        for (_, rx) in &mut waiting {
            assert!(rx.try_recv().is_ok(), "seed {seed}: a call has no answer");
        }
        for hold in holds {
            assert!(hold.lost.is_cancelled(), "seed {seed}");
        }
    }
}

#[test]
fn a_grant_of_something_else_than_was_asked_for_is_none() {
    let mut rig = Rig::open(3000);
    let (_, mut rx) = rig.acquire(&["a", "b"], options());
    for other in [json!(["a"]), json!(["a", "c"])] {
        let mut asked = rig.one();
        asked["keys"] = other;
        rig.grant(&asked, 5);
        assert!(!rig.s.connected());
        rig.reconnect();
        rig.greet(json!({"session": "S1", "grace": 2940, "leases": []}));
    }
    let mut asked = rig.one();
    asked["keys"] = json!(["b", "a"]);
    rig.grant(&asked, 6);
    assert_eq!(&*rx.try_recv().unwrap().unwrap().tokens, [Some(6), Some(7)]);
}

#[test]
fn what_is_left_of_a_grant_that_was_not_heard_is_given_back() {
    let mut rig = Rig::open(3000);
    let (_, mut rx) = rig.acquire(&["a", "b"], options());
    rig.one();
    rig.cut();
    rig.reconnect();
    rig.greet(json!({"session": "S1", "grace": 2940, "leases": []}));
    let mut again = rig.one();
    again["keys"] = json!(["b"]);
    rig.grant(&again, 5);
    assert_eq!(code(&mut rx), "forced");
    let release = rig.one();
    assert_eq!((&release["do"], &release["id"]), (&json!("release"), &again["id"]));
}

#[test]
fn another_session_than_the_one_resumed_vouches_for_nothing() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], options());
    rig.cut();
    rig.reconnect();
    rig.greet(json!({"session": "S2", "grace": 2940, "leases": [lease(&hold)]}));
    assert!(!rig.s.connected());
    rig.reconnect();
    let open = rig.greet(json!({"session": "S1", "grace": 2940, "leases": [lease(&hold)]}));
    assert_eq!(open["resume"], "S1");
    assert!(rig.s.connected() && rig.s.look(hold.n).ended.is_none());
}

#[test]
fn a_request_that_just_fits_a_frame_can_be_sent_again() {
    let mut rig = Rig::open(3000);
    let mut keys: Vec<String> = (10..52).map(|i| "\u{1}".repeat(256) + &i.to_string()).collect();
    keys.extend(["x".repeat(400), String::new()]);
    let mut fitted = 0;
    for size in 200..340 {
        keys[43] = "y".repeat(size);
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        let (fields, asks, _) = options().split(names.into()).unwrap();
        let (tx, _rx) = tokio::sync::oneshot::channel();
        if rig.s.acquire(fields, asks, tx).is_err() {
            break;
        }
        fitted += 1;
    }
    assert!(fitted > 0 && fitted < 140, "{fitted}");
    rig.cut();
    rig.s.now += from_ms(10_000_000_000);
    rig.reconnect();
    rig.greet(json!({"session": "S1", "grace": 2940, "leases": []}));
    let out = std::mem::take(&mut rig.s.out);
    assert!(out.split(|&byte| byte == b'\n').all(|line| line.len() <= 65_536));
}
