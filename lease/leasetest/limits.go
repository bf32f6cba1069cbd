package leasetest

import (
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// limits checks that what breaks a rule or a limit is refused by name, and that
// nothing changes.
func limits() []test {
	return []test{
		{"BadRequests", badRequests},
		{"GoodEdges", goodEdges},
		{"WaitersPerKey", waitersPerKey},
		{"SharedHolders", sharedHoldersLimit},
		{"KeysAreBytes", keysAreBytes},
	}
}

// badInput are requests that no service may grant, and what the refusal names.
func badInput() map[string]struct {
	r    lease.Request
	name string
} {
	type bad = struct {
		r    lease.Request
		name string
	}
	var keys []string
	for i := range lease.MaxKeys + 1 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	with := func(change func(*lease.Request)) lease.Request {
		r := exclusive("k")
		change(&r)
		return r
	}
	long := strings.Repeat("x", lease.MaxKeyLength+1)
	return map[string]bad{
		"no key":         {lease.Request{}, "key"},
		"65 keys":        {exclusive(keys...), "MaxKeys"},
		"duplicate key":  {exclusive("a", "b", "a"), "twice"},
		"empty key":      {exclusive(""), "empty"},
		"empty in set":   {exclusive("a", "", "b"), "empty"},
		"long key":       {exclusive(long), "MaxKeyLength"},
		"key not text":   {exclusive("a\xffb"), "UTF-8"},
		"negative ttl":   {lasting(-time.Second, exclusive("k")), "ttl"},
		"century ttl":    {lasting(100*366*24*time.Hour, exclusive("k")), "MaxTTL"},
		"max 0":          {counted(0, "k"), "max"},
		"max -3":         {counted(-3, "k"), "max"},
		"max 1001":       {counted(lease.MaxHolders+1, "k"), "MaxHolders"},
		"limit of other": {with(func(r *lease.Request) { r.Limit = 2 }), "limit"},
		"mode 9":         {with(func(r *lease.Request) { r.Mode = 9 }), "mode"},
		"long label":     {with(func(r *lease.Request) { r.Label = strings.Repeat("l", lease.MaxLabelLength+1) }), "MaxLabelLength"},
		"label not text": {with(func(r *lease.Request) { r.Label = "\xc3" }), "label"},
		"long id":        {named(strings.Repeat("i", lease.MaxIDLength+1), exclusive("k")), "MaxIDLength"},
		"id not text":    {named("\xff", exclusive("k")), "id"},
		"negative wait":  {with(func(r *lease.Request) { r.Wait = -1 }), "wait"},
		"long wait":      {with(func(r *lease.Request) { r.Wait = lease.MaxWait + 1 }), "MaxWait"},
		"try that waits": {with(func(r *lease.Request) { r.Try, r.Wait = true, time.Second }), "try"},
		"negative age":   {with(func(r *lease.Request) { r.Waited = -1 }), "waited"},
		"negative hold":  {with(func(r *lease.Request) { r.MaxHold = -1 }), "hold"},
		"negative delay": {with(func(r *lease.Request) { r.LockDelay = -1 }), "delay"},
		"long delay":     {with(func(r *lease.Request) { r.LockDelay = lease.MaxLockDelay + 1 }), "MaxLockDelay"},
		"writer prefers": {with(func(r *lease.Request) { r.PreferReaders = true }), "readers"},
		"many declared":  {with(func(r *lease.Request) { r.Declared = keys }), "MaxDeclared"},
		"empty declared": {with(func(r *lease.Request) { r.Declared = []string{""} }), "declared"},
		"long declared":  {with(func(r *lease.Request) { r.Declared = []string{strings.Repeat("i", lease.MaxIDLength+1)} }), "MaxIDLength"},
	}
}

// Each is refused, waiting or trying, with a reason that names what is wrong.
func badRequests(e *env) {
	a := e.join("a")
	before := e.stats().LastToken
	for what, bad := range badInput() {
		err := a.ask(bad.r).failed(lease.ErrRefused)
		if !strings.Contains(err.Error(), bad.name) {
			e.Errorf("%s: %q does not name %q", what, err, bad.name)
		}
	}
	e.empty()
	if s := e.stats(); s.LastToken != before || s.Granted+s.Queued != 0 {
		e.Errorf("bad requests changed something: %+v", s)
	}
	a.hold("k")
}

// What is just allowed works, to the last byte.
func goodEdges(e *env) {
	a := e.join("a")
	r := lasting(lease.MaxTTL, counted(lease.MaxHolders, strings.Repeat("ü", lease.MaxKeyLength/2)))
	r.Label = strings.Repeat("l", lease.MaxLabelLength)
	r.Wait, r.MaxHold, r.LockDelay = lease.MaxWait, lease.MaxTTL, lease.MaxLockDelay
	for i := range lease.MaxDeclared {
		r.Declared = append(r.Declared, fmt.Sprint("id", i))
	}
	l := a.get(r)
	h := e.show(r.Keys[0]).Holders[0]
	if l.TTL != lease.MaxTTL || h.Label != r.Label || h.Limit != lease.MaxHolders {
		e.Fatalf("granted %+v, shown %+v", l, h)
	}
}

// waitersPerKey fills a queue to its limit; one more is refused by name, and the
// first in the queue still gets its turn.
func waitersPerKey(e *env) {
	var parties []*party
	for range 4 {
		parties = append(parties, e.join("a"))
	}
	l := parties[0].hold("k")
	first := parties[0].want("k")
	for i := 1; i < lease.MaxWaitersPerKey; i++ {
		parties[i%4].s.Acquire(exclusive("k"), &call{e: e})
	}
	synctest.Wait()
	if n := e.show("k").Waiting; n != lease.MaxWaitersPerKey {
		e.Fatalf("%d waiters, want %d", n, lease.MaxWaitersPerKey)
	}
	err := parties[1].ask(exclusive("k")).failed(lease.ErrRefused)
	if !strings.Contains(err.Error(), "MaxWaitersPerKey") {
		e.Errorf("%q does not name MaxWaitersPerKey", err)
	}
	parties[2].hold("other")
	parties[0].release(l)
	first.granted()
}

func sharedHoldersLimit(e *env) {
	var parties []*party
	for range 4 {
		parties = append(parties, e.join("a"))
	}
	l := parties[0].get(shared("k"))
	for i := 1; i < lease.MaxSharedHolders; i++ {
		parties[i%4].s.Acquire(shared("k"), &call{e: e})
	}
	synctest.Wait()
	err := parties[1].ask(shared("k")).failed(lease.ErrRefused)
	if !strings.Contains(err.Error(), "MaxSharedHolders") {
		e.Errorf("%q does not name MaxSharedHolders", err)
	}
	parties[0].release(l)
	parties[1].get(shared("k"))
}

// Any non-empty text is a key, taken byte by byte and given back as it came.
func keysAreBytes(e *env) {
	a := e.join("a")
	keys := []string{" ", "\x00", "\n", "a,b", `"quoted"`, "é", "e\u0301", "<b>&amp;", "{}", "\u2028", "K", "k", "../x"}
	for _, k := range keys {
		a.hold(k)
	}
	if l := e.list(lease.Query{}); len(l.Keys) != len(keys) {
		e.Fatalf("%d keys, want %d", len(l.Keys), len(keys))
	}
	for _, k := range keys {
		if len(e.show(k).Holders) != 1 {
			e.Errorf("key %q is not held", k)
		}
	}
}
