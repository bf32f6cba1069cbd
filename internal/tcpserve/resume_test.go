package tcpserve

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// A resume on a connection that has ended by the time it is read does not take
// the session away from a connection that lives. With none it is as ever.
func TestResumeOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		s := newServer(t, svc, Options{})
		p := pipe(t, s)
		id := p.open("")
		p.send(`{"n":2,"do":"acquire","id":"i","key":"k"}`)
		p.want(`{"n":2,"ok":true,*}`)
		for range 3 {
			stale := pipe(t, s).greet()
			stale.send(`{"n":1,"do":"open","resume":"` + id + `"}`)
			stale.nc.Close()
			synctest.Wait()
		}
		p.send(`{"n":3,"do":"renew","id":"i"}`)
		p.want(`{"n":3,"ok":true,*}`)

		// One that lives takes it.
		next := pipe(t, s).greet()
		next.send(`{"n":1,"do":"open","resume":"`+id+`"}`, `{"n":2,"do":"ping"}`)
		p.failure(0, lease.ErrSessionLost, "another connection")
		p.end()
		next.want(`{"n":1,"ok":true,*"leases":[{"id":"i",*}]}`, `{"n":2,"ok":true}`)
		next.nc.Close()
		synctest.Wait()
		stale := pipe(t, s).greet()
		stale.send(`{"n":1,"do":"open","resume":"` + id + `"}`)
		stale.want(`{"n":1,"ok":true,*"leases":[{"id":"i",*}]}`)
		if n := len(s.turns); n != 0 {
			t.Errorf("%d turns are left behind", n)
		}
	})
}

// slowOpen is a service whose first answer to a resume is late.
type slowOpen struct {
	lease.Service
	opened, release chan struct{}
}

func (v *slowOpen) Open(ctx context.Context, o lease.SessionOptions) (lease.Session, error) {
	sess, err := v.Service.Open(ctx, o)
	select {
	case v.opened <- struct{}{}:
		<-v.release
	default:
	}
	return sess, err
}

// Two connections that resume a session at once have it one after the other, for
// the service and the server alike: the later one can use it.
func TestResumesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := &slowOpen{newService(t), make(chan struct{}), make(chan struct{})}
		s := newServer(t, svc, Options{})
		p := pipe(t, s)
		resume := `{"n":1,"do":"open","resume":"` + p.open("") + `"}`
		first, second := pipe(t, s).greet(), pipe(t, s).greet()
		first.send(resume)
		<-svc.opened
		second.send(resume)
		time.Sleep(time.Second) // it would be through by now
		close(svc.release)
		p.failure(0, lease.ErrSessionLost, "another connection")
		first.want(`{"n":1,"ok":true,*}`)
		first.failure(0, lease.ErrSessionLost, "another connection")
		second.want(`{"n":1,"ok":true,*}`)
		second.send(`{"n":2,"do":"acquire","key":"k"}`)
		second.want(`{"n":2,"ok":true,*}`)
	})
}
