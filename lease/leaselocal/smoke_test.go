package leaselocal

import (
	"context"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

type res struct {
	l lease.Lease
	e error
	q []lease.Queued
	c chan struct{}
}

func (r *res) Queued(q lease.Queued)         { r.q = append(r.q, q) }
func (r *res) Done(l lease.Lease, err error) { r.l, r.e = l, err; close(r.c) }

func TestSmoke(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s, err := Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		sess, err := s.Open(context.Background(), lease.SessionOptions{Name: "x"})
		if err != nil {
			t.Fatal(err)
		}
		a := &res{c: make(chan struct{})}
		sess.Acquire(lease.Request{ID: "a", Keys: []string{"k"}}, a)
		<-a.c
		b := &res{c: make(chan struct{})}
		sess.Acquire(lease.Request{ID: "b", Keys: []string{"k"}}, b)
		sess.Do(lease.Command{Verb: lease.Release, ID: "a"}, nil)
		<-b.c
		t.Log(a.l, a.e, b.l, b.e, b.q)
		if b.l.Token() <= a.l.Token() {
			t.Fatal("token")
		}
		st, _ := s.Stats(context.Background())
		t.Logf("%+v", st)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if dir != "" {
			s, err := Open(Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			l, _ := s.List(context.Background(), lease.Query{})
			t.Logf("%+v", l)
			time.Sleep(0)
			s.Close()
		}
	}
}
func BenchmarkPair(b *testing.B) {
	s, _ := Open(Options{})
	sess, _ := s.Open(context.Background(), lease.SessionOptions{Name: "x"})
	b.ReportAllocs()
	for b.Loop() {
		a := &res{c: make(chan struct{})}
		sess.Acquire(lease.Request{ID: "a" + time.Duration(b.N).String(), Keys: []string{"k"}}, a)
		<-a.c
		sess.Do(lease.Command{Verb: lease.Release, Token: a.l.Token()}, nil)
	}
}
