package tcpserve

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// A cut connection keeps its session for the grace: a resume within it finds the
// leases, the request sent again finds its place, and a repeat its grant.
func TestCutAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		s := newServer(t, svc, Options{})
		a, b := pipe(t, s), pipe(t, s)
		a.open("")
		a.send(`{"n":2,"do":"acquire","id":"held","key":"k","ttl":60000}`)
		a.want(`{"n":2,"ok":true,*}`)
		id := b.open("")
		b.send(`{"n":2,"do":"acquire","id":"mine","keys":["x","y"],"ttl":10000}`)
		b.want(`{"n":2,"ok":true,"id":"mine","keys":["x","y"],"tokens":[*],"ttl":10000,*}`)
		b.send(`{"n":3,"do":"acquire","id":"waits","key":"k"}`)
		b.want(`{"n":3,"queued":true,*}`)
		b.nc.Close()
		time.Sleep(2 * time.Second)
		c := pipe(t, s).greet()
		c.send(`{"n":1,"do":"open","resume":"` + id + `"}`)
		c.want(`{"n":1,"ok":true,"session":"` + id + `",*"elapsed":0,"leases":[{"id":"mine","keys":["x","y"],"tokens":[*],"ttl":10000,"remaining":8000,"waited":0}]}`)
		c.send(`{"n":2,"do":"acquire","id":"mine","keys":["y","x"],"ttl":10000}`)
		c.want(`{"n":2,"ok":true,"id":"mine","keys":["x","y"],"tokens":[*],"ttl":10000,"elapsed":0,"remaining":8000,"waited":0}`)
		c.send(`{"n":3,"do":"acquire","id":"waits","key":"k","waited":2000}`)
		c.want(`{"n":3,"queued":true,*}`)
		a.send(`{"n":3,"do":"ping"}`)
		a.want(`{"n":3,"ok":true}`)
		a.send(`{"n":4,"do":"release","id":"held"}`)
		a.want(`{"n":4,"ok":true,*}`)
		c.want(`{"n":3,"ok":true,"id":"waits","key":"k","token":*,"waited":2000}`)
	})
}

// A session that nobody resumes ends one grace after its last frame, one without
// grace with its connection, and one that says goodbye at once.
func TestSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		s := newServer(t, svc, Options{})
		hold := func(open string) *peer {
			p := pipe(t, s)
			p.open(open)
			p.send(`{"n":2,"do":"acquire","key":"k","forever":true,"try":true}`)
			p.want(`{"n":2,"ok":true,*}`)
			return p
		}
		free := func() bool { synctest.Wait(); return state(t, svc) == "" }

		p := hold(`,"grace":5000`)
		p.nc.Close()
		time.Sleep(5*time.Second - time.Millisecond)
		if free() {
			t.Error("the session ended before its grace")
		}
		time.Sleep(2 * time.Millisecond)
		if !free() {
			t.Error("the session outlived its grace")
		}
		p = hold(`,"grace":0`)
		p.nc.Close()
		if !free() {
			t.Error("a session without grace outlived its connection")
		}
		p = hold(`,"grace":5000`)
		p.send(`{"n":3,"do":"close"}`, `{"n":4,"do":"ping"}`)
		p.want(`{"n":3,"ok":true}`)
		p.end()
		if !free() {
			t.Error("the goodbye left something")
		}
	})
}

// A client that is frozen, its connection open, loses its session after the
// grace, is told when it wakes, and can begin another on the same connection.
func TestFrozenClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		s := newServer(t, svc, Options{})
		frozen, next := pipe(t, s), pipe(t, s)
		frozen.open("")
		frozen.send(`{"n":2,"do":"acquire","id":"i","key":"k","ttl":600000}`)
		frozen.want(`{"n":2,"ok":true,*}`)
		next.open(`,"grace":600000`)
		next.send(`{"n":2,"do":"acquire","key":"k"}`)
		next.want(`{"n":2,"queued":true,*}`)
		start := time.Now()
		next.want(`{"n":2,"ok":true,*"waited":3000}`)
		if d := time.Since(start); d != lease.DefaultGrace {
			t.Errorf("granted after %v, want the grace", d)
		}
		frozen.want(`{"lost":"session_lost","id":"i","key":"k","token":*}`, `{"lost":"session_lost"}`)
		frozen.send(`{"n":3,"do":"renew","id":"i"}`)
		frozen.failure(3, lease.ErrSessionLost, "")
		frozen.send(`{"n":4,"do":"open","name":"again"}`)
		frozen.want(`{"n":4,"ok":true,"session":"*","grace":3000,"elapsed":0}`)
		frozen.send(`{"n":5,"do":"acquire","key":"k","try":true}`)
		frozen.failure(5, lease.ErrBusy, "unnamed session")
	})
}

// A session that another connection resumes is lost to the first one, which is
// told and closed; the session and its holds go on.
func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		s := newServer(t, svc, Options{})
		old := pipe(t, s)
		id := old.open("")
		old.send(`{"n":2,"do":"acquire","id":"i","key":"k"}`)
		old.want(`{"n":2,"ok":true,*}`)
		p := pipe(t, s).greet()
		p.send(`{"n":1,"do":"open","resume":"` + id + `"}`)
		p.want(`{"n":1,"ok":true,*"leases":[{"id":"i",*}]}`)
		old.failure(0, lease.ErrSessionLost, "another connection")
		old.end()
		synctest.Wait()
		p.send(`{"n":2,"do":"release","id":"i"}`)
		p.want(`{"n":2,"ok":true,*}`)
	})
}

// More leases than fit a frame come in parts, and more than may be queued for a
// connection come as fast as the client reads.
func TestResumeInParts(t *testing.T) {
	for _, many := range []int{40, 2 * lease.MaxUnsent / (lease.MaxKeys * lease.MaxKeyLength)} {
		resumeInParts(t, many)
	}
}

func resumeInParts(t *testing.T, many int) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newService(t), Options{})
		p := pipe(t, s)
		id := p.open("")
		for i := range many {
			var keys strings.Builder
			for j := range lease.MaxKeys {
				fmt.Fprintf(&keys, `,"%0*d"`, lease.MaxKeyLength, 100*i+j)
			}
			p.send(`{"n":2,"do":"acquire","keys":[` + keys.String()[1:] + `]}`)
			p.want(`{"n":2,"ok":true,*}`)
		}
		p.nc.Close()
		p = pipe(t, s).greet()
		p.send(`{"n":1,"do":"open","resume":"` + id + `"}`)
		leases, parts := 0, 0
		for {
			line := p.line()
			leases += strings.Count(line, `"id":`)
			if strings.HasPrefix(line, `{"n":1,"ok":true`) {
				break
			}
			parts++
		}
		if leases != many || parts == 0 {
			t.Errorf("%d leases in %d parts and the answer, want %d", leases, parts, many)
		}
	})
}
