//! What holds and requests do on a connection that stands.

use super::*;

#[test]
fn a_grant_has_its_deadline_and_is_released_once() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], ttl(1000));
    assert_eq!(&*hold.tokens, [Some(17)]);
    assert_eq!(rig.s.look(hold.n).safe_until, rig.s.now + from_ms(980));
    let (mut one, mut two) = (rig.release(&hold), rig.release(&hold));
    let frame = rig.one();
    assert_eq!(frame, json!({"n": frame["n"], "do": "release", "id": *hold.id}));
    rig.answer(&frame, json!({"key": "a", "token": 17}));
    one.try_recv().unwrap().unwrap();
    two.try_recv().unwrap().unwrap();
    rig.release(&hold).try_recv().unwrap().unwrap();
    assert!(rig.sent().is_empty());
    assert!(!hold.lost.is_cancelled(), "a release is no loss");
    assert_eq!(*rig.s.look(hold.n).ended.unwrap().code(), Code::NotHeld);
}

#[test]
fn a_token_that_is_none_is_unknown_and_the_lease_is_held() {
    let mut rig = Rig::open(3000);
    for (i, bad) in ["null", "9007199254740992", "9007199254740993", "1.5", "\"17\"", "0", "-1", "[1]", "{}", "true"]
        .into_iter()
        .enumerate()
    {
        let (_, mut rx) = rig.acquire(&[&format!("k{i}")], options());
        let frame = rig.one();
        let (n, id) = (&frame["n"], &frame["id"]);
        let line = format!(
            "{{\"n\":{n},\"ok\":true,\"id\":{id},\"key\":\"k{i}\",\"token\":{bad},\"ttl\":30000,\"remaining\":30000}}\n"
        );
        rig.raw(line.as_bytes());
        let hold = rx.try_recv().unwrap().unwrap();
        assert_eq!(&*hold.tokens, [None], "{bad}");
        assert!(rig.s.look(hold.n).ended.is_none());
    }
    let (_, mut rx) = rig.acquire(&["largest"], options());
    let frame = rig.one();
    rig.grant(&frame, 9_007_199_254_740_991);
    assert_eq!(&*rx.try_recv().unwrap().unwrap().tokens, [Some(9_007_199_254_740_991)]);
}

#[test]
fn frames_may_come_byte_by_byte() {
    let mut rig = Rig::open(3000);
    let (_, mut a) = rig.acquire(&["ü€🔑"], options());
    let (_, mut b) = rig.acquire(&["b"], options());
    let mut bytes = Vec::new();
    for f in rig.sent() {
        let frame = json!({"n": f["n"], "ok": true, "id": f["id"], "key": f["key"], "token": 5, "ttl": 30000,
            "remaining": 30000});
        bytes.extend_from_slice(format!("{frame}\n").as_bytes());
    }
    for byte in bytes {
        rig.raw(&[byte]);
    }
    assert_eq!(&*a.try_recv().unwrap().unwrap().keys, ["ü€🔑"]);
    assert_eq!(&*b.try_recv().unwrap().unwrap().keys, ["b"]);
}

#[test]
fn a_cancel_is_answered_and_a_grant_that_crosses_it_is_nobodys() {
    let mut rig = Rig::open(3000);
    for crossed in [false, true] {
        let (n, mut rx) = rig.acquire(&["a"], AcquireOptions { id: Some("same".into()), ..options() });
        let request = rig.one();
        assert!(rig.abandon(n));
        let cancel = rig.one();
        assert_eq!((&cancel["do"], &cancel["id"]), (&json!("cancel"), &json!("same")));
        if crossed {
            rig.grant(&request, 3);
            assert!(pending(&mut rx));
        }
        rig.answer(&cancel, json!({}));
        assert_eq!(code(&mut rx), "cancelled");
        assert!(rig.s.by_id.is_empty() && rig.s.calls.is_empty() && rig.s.waiting.is_empty());
    }
}

#[test]
fn a_cancel_that_is_not_answered_is_an_outcome_unknown() {
    let mut rig = Rig::open(3000);
    let (n, mut rx) = rig.acquire(&["a"], options());
    rig.abandon(n);
    rig.sent();
    rig.pass(1000);
    assert_eq!(code(&mut rx), "unknown");
    assert_eq!(rig.s.calls.len(), 2, "the cancel stays on its way");
}

#[test]
fn what_was_never_sent_needs_no_cancel() {
    let mut rig = Rig::open(3000);
    rig.cut();
    let (n, mut rx) = rig.acquire(&["a"], options());
    rig.abandon(n);
    assert_eq!(code(&mut rx), "cancelled");
    assert!(rig.s.calls.is_empty());
}

#[test]
fn notices_end_a_hold_at_once() {
    let mut rig = Rig::open(3000);
    for lost in ["expired", "forced", "not_held", "melted"] {
        let hold = rig.held(&["a"], options());
        rig.send(json!({"lost": lost, "id": *hold.id, "key": "a", "token": 16, "by": "alice: old"}));
        assert_eq!(rig.loss(&hold), "", "of an earlier hold");
        rig.send(json!({"lost": lost, "id": *hold.id, "key": "a", "token": 17, "by": "alice: stuck"}));
        let error = rig.s.loss(hold.n).unwrap();
        assert_eq!(error.code().name(), lost);
        assert!(error.is_loss() && error.to_string().contains("alice: stuck"), "{error}");
        assert!(hold.lost.is_cancelled());
        let mut release = rig.release(&hold);
        let frame = rig.one();
        rig.fail(&frame, "not_held");
        assert_eq!(code(&mut release), lost, "a release after a loss tells the loss");
    }
}

#[test]
fn holds_are_renewed_each_third_and_failures_are_told_before_the_loss() {
    let mut rig = Rig::open(60_000);
    let hold = rig.held(&["a"], ttl(3000));
    rig.pass(999);
    assert!(rig.sent().is_empty());
    rig.pass(1);
    let renew = rig.one();
    assert_eq!((&renew["do"], &renew["id"]), (&json!("renew"), &json!(*hold.id)));
    let body = json!({"id": *hold.id, "key": "a", "token": 17, "ttl": 3000, "elapsed": 0, "remaining": 3000});
    rig.answer(&renew, body);
    assert_eq!(rig.s.look(hold.n).safe_until, rig.s.now + from_ms(2940));
    rig.pass(1000);
    let mut tries = 0;
    while rig.s.loss(hold.n).is_none() {
        for frame in rig.sent() {
            tries += 1;
            rig.fail(&frame, "unavailable");
        }
        rig.pass(1);
    }
    assert!(tries > 3, "{tries} tries");
    assert_eq!(rig.troubles.lock().unwrap().len(), tries);
    assert_eq!(rig.loss(&hold), "service_gone");
    assert!(rig.s.loss(hold.n).unwrap().to_string().contains("deadline"));
}

#[test]
fn a_broker_that_grants_no_time_is_not_asked_without_a_pause() {
    let mut rig = Rig::open(60_000);
    let hold = rig.held(&["a"], ttl(3000));
    rig.pass(1000);
    let body = json!({"id": *hold.id, "key": "a", "token": 17, "ttl": 0, "elapsed": 0, "remaining": 3_000_000});
    let mut renewals = 0;
    for _ in 0..100 {
        for renew in rig.sent() {
            renewals += 1;
            rig.answer(&renew, body.clone());
        }
        rig.pass(1);
    }
    assert!((2..=11).contains(&renewals), "{renewals} renewals in 100 ms");
}

#[test]
fn a_renewal_without_an_answer_is_told_before_the_loss() {
    let mut rig = Rig::open(60_000);
    let hold = rig.held(&["a"], ttl(3000));
    rig.pass(1000);
    assert!(rig.troubles.lock().unwrap().is_empty());
    rig.pass(500);
    assert_eq!(*rig.troubles.lock().unwrap(), ["unavailable"]);
    rig.pass(1439);
    assert_eq!(rig.loss(&hold), "");
    rig.pass(1);
    assert_eq!(rig.loss(&hold), "service_gone");
}

#[test]
fn without_renewal_only_the_deadline_is_watched() {
    let mut rig = Rig::open(60_000);
    let hold = rig.held(&["a"], AcquireOptions { renew: false, ..ttl(1000) });
    rig.pass(979);
    assert!(!hold.lost.is_cancelled());
    rig.pass(1);
    assert!(hold.lost.is_cancelled() && rig.sent().is_empty());
    assert_eq!(rig.loss(&hold), "expired");
}

#[test]
fn a_renewal_changes_the_ttl_and_one_that_finds_nothing_is_a_loss() {
    let mut rig = Rig::open(60_000);
    let hold = rig.held(&["a"], ttl(3000));
    let (tx, mut rx) = oneshot::channel();
    rig.s.extend(hold.n, Op::Renew, Some(Ttl::Time(Duration::from_secs(9))), tx).unwrap();
    let frame = rig.one();
    assert_eq!(frame["ttl"], 9000);
    rig.answer(&frame, json!({"id": *hold.id, "key": "a", "token": 17, "ttl": 9000, "elapsed": 0, "remaining": 9000}));
    rx.try_recv().unwrap().unwrap();
    assert_eq!(rig.s.look(hold.n).ttl, from_ms(9000));
    let (tx, _rx) = oneshot::channel();
    let error = rig.s.extend(hold.n, Op::Renew, Some(Ttl::Time(Duration::from_millis(99))), tx).unwrap_err();
    assert_eq!(*error.code(), Code::Refused);
    let (tx, mut rx) = oneshot::channel();
    rig.s.extend(hold.n, Op::Renew, None, tx).unwrap();
    let frame = rig.one();
    rig.fail(&frame, "not_held");
    assert_eq!(code(&mut rx), "expired");
    assert_eq!(rig.loss(&hold), "expired");
}

#[test]
fn a_frozen_process_sees_by_the_clock_before_any_alarm() {
    let mut rig = Rig::open(3000);
    let (a, b) = (rig.held(&["a"], options()), rig.held(&["b"], options()));
    rig.s.now += from_ms(2939);
    assert!(rig.s.look(a.n).ended.is_none());
    rig.s.now += from_ms(1);
    assert!(rig.s.look(a.n).ended.unwrap().is_loss());
    // Nor do answers from before the freeze make the other one safe again.
    rig.s.now += from_ms(60_000);
    let (tx, mut rx) = oneshot::channel();
    assert!(rig.s.extend(b.n, Op::Renew, None, tx).is_err());
    assert!(rx.try_recv().is_err());
    assert!(rig.s.look(b.n).ended.unwrap().is_loss());
}

#[test]
fn no_answer_from_before_a_freeze_prolongs() {
    let mut rig = Rig::open(3000);
    let hold = rig.held(&["a"], ttl(3000));
    rig.pass(999);
    rig.s.now += from_ms(1);
    rig.s.tick();
    let frames = rig.sent(); // a ping and a renewal
    assert_eq!(frames.len(), 2);
    rig.s.now += from_ms(10_000);
    for frame in frames {
        let body = json!({"id": *hold.id, "key": "a", "token": 17, "ttl": 3000, "elapsed": 0, "remaining": 30_000});
        rig.answer(&frame, body);
    }
    assert!(rig.s.loss(hold.n).is_some());
    assert!(rig.s.look(hold.n).ended.is_some());
}

#[test]
fn a_grant_that_comes_too_late_is_given_back() {
    let mut rig = Rig::open(60_000);
    let (_, mut rx) = rig.acquire(&["a"], ttl(1000));
    let frame = rig.one();
    rig.pass(981);
    rig.grant(&frame, 3);
    assert_eq!(code(&mut rx), "expired");
    let release = rig.one();
    assert_eq!((&release["do"], &release["id"]), (&json!("release"), &frame["id"]));
}

#[test]
fn what_breaks_a_rule_is_refused_here() {
    let mut rig = Rig::open(3000);
    let long = "x".repeat(513);
    let many: Vec<String> = (0..65).map(|i| i.to_string()).collect();
    let cases: Vec<(&str, crate::Keys, AcquireOptions)> = vec![
        ("key is empty", "".into(), options()),
        ("MaxKeyLength", long.as_str().into(), options()),
        ("MaxKeys", many.into(), options()),
        ("keys is empty", Vec::<String>::new().into(), options()),
        ("twice", ["a", "a"].into(), options()),
        ("under 100 ms", "a".into(), ttl(99)),
        ("MaxTTL", "a".into(), ttl(367 * 24 * 3_600_000)),
        ("max is 0", "a".into(), AcquireOptions { mode: Mode::Counted(0), ..options() }),
        ("MaxHolders", "a".into(), AcquireOptions { mode: Mode::Counted(1001), ..options() }),
        ("wait is 0", "a".into(), AcquireOptions { wait: Wait::AtMost(Duration::ZERO), ..options() }),
        ("MaxLabelLength", "a".into(), AcquireOptions { label: long.clone(), ..options() }),
        ("MaxIDLength", "a".into(), AcquireOptions { id: Some(long.clone()), ..options() }),
        ("id is empty", "a".into(), AcquireOptions { id: Some(String::new()), ..options() }),
        ("prefer_readers", "a".into(), AcquireOptions { prefer_readers: true, ..options() }),
        ("MaxLockDelay", "a".into(), AcquireOptions { lock_delay: Duration::from_secs(3601), ..options() }),
        ("max_hold is 0", "a".into(), AcquireOptions { max_hold: Some(Duration::ZERO), ..options() }),
        ("MaxDeclared", "a".into(), AcquireOptions { declared: vec!["x".into(); 65], ..options() }),
    ];
    for (want, keys, o) in cases {
        let error = match o.split(keys) {
            Err(error) => error,
            Ok((fields, asks, _)) => {
                let (tx, _rx) = oneshot::channel();
                rig.s.acquire(fields, asks, tx).expect_err(want)
            }
        };
        assert_eq!(*error.code(), Code::Refused, "{error}");
        assert!(error.to_string().contains(want), "{error}, want {want}");
    }
    let keys: Vec<String> = (0..64).map(|i| format!("{i:02}{}", "\u{1}".repeat(510))).collect();
    let (fields, asks, _) = options().split(keys.into()).unwrap();
    let (tx, _rx) = oneshot::channel();
    assert!(rig.s.acquire(fields, asks, tx).unwrap_err().to_string().contains("MaxFrame"));
    let _held = rig.held(&["a"], AcquireOptions { id: Some("twice".into()), ..options() });
    let (fields, asks, _) = AcquireOptions { id: Some("twice".into()), ..options() }.split("b".into()).unwrap();
    let (tx, _rx) = oneshot::channel();
    assert!(rig.s.acquire(fields, asks, tx).unwrap_err().to_string().contains("same id"));
    assert!(rig.sent().is_empty());
}

#[test]
fn requests_and_bytes_are_bounded() {
    let mut rig = Rig::open(3000);
    let waiting: Vec<_> = (0..9984).map(|i| rig.acquire(&[&format!("k{i}")], options())).collect();
    assert_eq!(waiting.len(), 9984);
    let (fields, asks, _) = options().split("one more".into()).unwrap();
    let (tx, _rx) = oneshot::channel();
    assert!(rig.s.acquire(fields, asks, tx).unwrap_err().to_string().contains("MaxInFlight"));
    let mut rig = Rig::open(3000);
    rig.s.in_write = 17 * 1024 * 1024;
    let (tx, _rx) = oneshot::channel();
    let error = rig.s.command(Op::Stats, Fields::default(), tx).unwrap_err();
    assert!(error.to_string().contains("MaxUnsent"), "{error}");
}

#[test]
fn alarms_do_not_pile_up() {
    let mut rig = Rig::open(3000);
    for _ in 0..1000 {
        let hold = rig.held(&["a"], options());
        rig.release(&hold);
        let frame = rig.one();
        rig.answer(&frame, json!({}));
        rig.s.abandon_hold(hold.n);
    }
    let mut left = 0;
    while rig.s.alarms.pop(NEVER).is_some() {
        left += 1;
    }
    assert!(left <= 4, "{left} alarms are left");
    assert!(rig.s.holds.is_empty() && rig.s.calls.is_empty() && rig.s.waiting.is_empty());
}

#[test]
fn queued_is_told_once_and_before_the_answer() {
    let mut rig = Rig::open(3000);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let (tx, mut answer) = oneshot::channel::<Result<Granted>>();
    let o = AcquireOptions { on_queued: Some(Box::new(move |q| tell.lock().unwrap().push(q))), ..options() };
    let (fields, asks, _) = o.split("a".into()).unwrap();
    rig.s.acquire(fields, asks, tx).unwrap();
    let frame = rig.one();
    let (n, id) = (&frame["n"], &frame["id"]);
    let queued = json!({"n": n, "queued": true, "id": id, "key": "a", "position": 2, "ahead": [{"token": 4}]});
    let grant = json!({"n": n, "ok": true, "id": id, "key": "a", "token": 5, "ttl": 30000, "remaining": 30000});
    let (_, generation) = rig.s.link();
    rig.s.received(generation, format!("{queued}\n{queued}\n{grant}\n").as_bytes());
    assert!(matches!(rig.s.effects[..], [Effect::Queued(..), Effect::Acquired(..), ..]));
    rig.effects();
    answer.try_recv().unwrap().unwrap();
    let told = told.lock().unwrap();
    assert_eq!((told.len(), &*told[0].key, told[0].position, told[0].ahead[0].token), (1, "a", 2, Some(4)));
}
