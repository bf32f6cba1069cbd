package tcpserve

import (
	"testing"
	"testing/synctest"
)

// One client acquires, renews and releases; another waits for it meanwhile.
func TestAcquireWaitRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		s := newServer(t, svc, Options{Version: "v1"})
		a, b := pipe(t, s), pipe(t, s)
		a.open(`,"name":"a"`)
		b.open(`,"name":"b"`)
		a.send(`{"n":2,"do":"acquire","id":"x","key":"k","ttl":1000}`)
		a.want(`{"n":2,"ok":true,"id":"x","key":"k","token":*,"ttl":1000,"elapsed":0,"remaining":1000,"waited":0}`)
		b.send(`{"n":2,"do":"acquire","id":"y","key":"k","ttl":1000,"wait":5000}`)
		b.want(`{"n":2,"queued":true,"id":"y","key":"k","position":0,"ahead":[{"session":"a","mode":"exclusive",*}]}`)
		a.send(`{"n":3,"do":"renew","id":"x","ttl":2000}`)
		a.want(`{"n":3,"ok":true,"id":"x","key":"k","token":*,"ttl":2000,"elapsed":0,"remaining":2000,"waited":0}`)
		a.send(`{"n":4,"do":"release","id":"x"}`)
		a.want(`{"n":4,"ok":true,"id":"x","key":"k","token":*}`)
		b.want(`{"n":2,"ok":true,"id":"y","key":"k","token":*,"ttl":1000,"elapsed":0,"remaining":1000,"waited":0}`)
		a.send(`{"n":5,"do":"ping"}`, `{"n":6,"do":"acquire","key":"k","try":true}`)
		a.want(`{"n":5,"ok":true}`, `{"n":6,"ok":false,"code":"busy","op":"acquire","key":"k",*"holders":[{"session":"b",*}]}`)
		a.send(`{"n":7,"do":"close"}`)
		a.want(`{"n":7,"ok":true}`)
		a.end()
	})
}
