package hotcachetest_test

import (
	"context"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// defects are run by the suite, and so inside a synctest bubble.
func defects() []defect { return slices.Concat(brokenReads(), brokenWrites(), brokenFeeds()) }

func brokenReads() []defect {
	return []defect{
		{name: "lets everybody load", caught: []string{"asks/OneLease", "histories/OneLoader", "model/Young"},
			answered: func(_ *broken, q hotcache.Ask, a *hotcache.Answer) {
				if a.State == core.Busy {
					a.State, a.Token, a.Min, a.Retry = core.Lease, q.Token, hotcache.Fresh, 0
				}
			}},
		{name: "grants a lease to whoever looks", caught: []string{"asks/LookGrantsNothing", "model/Young"},
			asked: func(q *hotcache.Ask) {
				if q.Token == 0 {
					q.Token = 1 << 40
				}
			}},
		{name: "has nobody refresh", caught: []string{"asks/Soft", "model/Young"},
			answered: func(_ *broken, _ hotcache.Ask, a *hotcache.Answer) {
				if a.State == core.Hit {
					a.Token, a.Min, a.Floor = 0, 0, 0
				}
			}},
		{name: "does not count time", caught: []string{"asks/TimesPass"},
			answered: func(_ *broken, _ hotcache.Ask, a *hotcache.Answer) {
				if a.State == core.Hit && a.Times.Soft > 0 {
					a.Times = hotcache.Times{Soft: time.Hour, Hard: 2 * time.Hour, Keep: 3 * time.Hour}
				}
			}},
		{name: "keeps no stale item", caught: []string{"asks/Hard", "failures/Shared", "model/Young"},
			answered: func(_ *broken, _ hotcache.Ask, a *hotcache.Answer) {
				if a.State != core.Hit {
					a.Item, a.Times = nil, hotcache.Times{}
				}
			}},
		{name: "ignores the least version", caught: []string{"asks/Min", "asks/Fresh", "model/Young"},
			asked: func(q *hotcache.Ask) { q.Min = 0 }},
		{name: "compares versions as floats", caught: []string{"asks/Min"},
			asked: func(q *hotcache.Ask) {
				if q.Min != hotcache.Fresh {
					q.Min = hotcache.Version(float64(q.Min))
				}
			}},
		{name: "is grown up at once", caught: []string{"floors/Young", "floors/TooMany", "model/Young"},
			answered: func(_ *broken, q hotcache.Ask, a *hotcache.Answer) {
				if a.Min == hotcache.Fresh && q.Min != hotcache.Fresh {
					a.Min = max(a.Floor, q.Min)
				}
			}},
		{name: "stays young", caught: []string{"floors/Raised"},
			answered: func(_ *broken, _ hotcache.Ask, a *hotcache.Answer) {
				if a.Token != 0 {
					a.Min = hotcache.Fresh
				}
			}},
		{name: "gives no stamp", caught: []string{"fills/Stamp", "model/Young"},
			answered: func(_ *broken, _ hotcache.Ask, a *hotcache.Answer) { a.Stamp.Number = 0 }},
		{name: "does not say why", caught: []string{"failures/Shared", "model/Young"},
			fail: func(_ *broken, why *string, _ *time.Duration) { *why = "" }},
		{name: "pauses for nobody", caught: []string{"failures/Shared", "failures/LetsServe", "model/Young"},
			fail: func(_ *broken, _ *string, pause *time.Duration) { *pause = 0 }},
		{name: "gives copies without their time", caught: []string{"copies/TimesPass"},
			gotCopy: func(c *hotcache.Copy) {
				c.Times = hotcache.Times{Soft: time.Hour, Hard: 2 * time.Hour, Keep: 3 * time.Hour}
			}},
		{name: "puts copies whatever is there", caught: []string{"copies/OlderDoesNotReplace", "copies/Put"},
			putCopy: func(c *hotcache.Copy) { c.Stamp.Number = 1 << 62 }},
	}
}

func brokenWrites() []defect {
	ctx := context.Background()
	return []defect{
		{name: "takes late fills", caught: []string{"leases/OfAnother", "leases/Ends", "invalidations/VoidsAnyLease", "model/Young"},
			filled: func(b *broken, f hotcache.Fill, r *hotcache.Filled) {
				if r.Refusal == core.LostLease {
					if a, _ := b.Node.Ask(ctx, hotcache.Ask{Key: f.Key, Min: hotcache.Fresh, Token: f.Token}); a.Token != 0 {
						*r, _ = b.Node.Fill(ctx, f)
					}
				}
			}},
		{name: "has no floor", caught: []string{"fills/BelowTheFloor", "model/Young"},
			filled: func(b *broken, f hotcache.Fill, r *hotcache.Filled) {
				if r.Refusal == core.Outdated {
					f.Item.Version = r.Floor
					if a, _ := b.Node.Ask(ctx, hotcache.Ask{Key: f.Key, Min: hotcache.Fresh, Token: f.Token}); a.Token != 0 {
						*r, _ = b.Node.Fill(ctx, f)
					}
				}
			}},
		{name: "forgets that there is no row", caught: []string{"asks/Absent", "model/Young"},
			fill: func(_ *broken, f *hotcache.Fill) { f.Item.Absent = false }},
		{name: "keeps for ever", caught: []string{"asks/Keep", "fills/BelowWhatIsGone"},
			fill: func(_ *broken, f *hotcache.Fill) { f.Times.Keep = max(f.Times.Keep, time.Hour) }},
		{name: "renews what is lost", caught: []string{"leases/OfAnother", "model/Young"},
			renew: func(b *broken, key string, t hotcache.Token, held *bool) { *held = true }},
		{name: "renews nothing", caught: []string{"leases/Renewed"},
			renew: func(b *broken, key string, t hotcache.Token, held *bool) {
				a, _ := b.Node.Ask(ctx, hotcache.Ask{Key: key, Token: t + 1<<50})
				*held = a.State == core.Busy
			}},
		{name: "invalidates everything that there was", caught: []string{"invalidations/RemovesWhatIsOlder", "invalidations/VoidsALeaseForLess", "model/Young"},
			invalidate: func(_ *string, v *hotcache.Version) { *v = 0 }},
		{name: "takes no version for the first", caught: []string{"invalidations/RemovesWhatIsOlder", "floors/OneWithoutAVersion", "model/Young"},
			invalidate: func(_ *string, v *hotcache.Version) { *v = max(*v, 1) }},
		{name: "mistakes the key", caught: []string{"invalidations/Numbers", "histories/NothingOlder"},
			invalidate: func(key *string, _ *hotcache.Version) { *key += "'" }},
		{name: "waits for nobody", caught: []string{"members/Beat", "members/Close"},
			invalidated: func(_ *broken, _ *hotcache.Invalidation, members *[]hotcache.Member, _ hotcache.Member) {
				*members = nil
			}},
		{name: "waits for whoever asks", caught: []string{"members/Beat"},
			invalidated: func(_ *broken, _ *hotcache.Invalidation, members *[]hotcache.Member, by hotcache.Member) {
				*members = append(*members, by)
			}},
		{name: "works for those who left", anyContext: true, caught: []string{"context/EndedBefore"}},
	}
}

func brokenFeeds() []defect {
	return []defect{
		{name: "skips a number", caught: []string{"feeds/BeatIsInOrder", "floors/TooMany"},
			told: func(_ *brokenListener, inv hotcache.Invalidation) []hotcache.Invalidation {
				if inv.Number == 3 {
					return nil
				}
				return []hotcache.Invalidation{inv}
			}},
		{name: "tells twice", caught: []string{"invalidations/Numbers", "feeds/CloseIsTheEnd"},
			told: func(_ *brokenListener, inv hotcache.Invalidation) []hotcache.Invalidation {
				return []hotcache.Invalidation{inv, inv}
			}},
		{name: "is one behind", caught: []string{"invalidations/IsHeard", "feeds/BeatOfWhatWasDone"},
			told: func(l *brokenListener, inv hotcache.Invalidation) []hotcache.Invalidation {
				out := l.held
				l.held = []hotcache.Invalidation{inv}
				return out
			}},
		{name: "names nothing before it", caught: []string{"invalidations/Numbers", "feeds/BeatIsInOrder"},
			told: func(_ *brokenListener, inv hotcache.Invalidation) []hotcache.Invalidation {
				inv.Prev = 7
				return []hotcache.Invalidation{inv}
			}},
		{name: "does not say who it was", caught: []string{"invalidations/IsHeard"}, by: func(by *hotcache.Member) { *by = "" }},
		{name: "wakes nobody", caught: []string{"leases/WakesByFill", "leases/WakesByFail"}, woken: func(*brokenListener, string) {}},
		{name: "answers a beat from memory", caught: []string{"feeds/BeatOfWhatWasDone", "invalidations/Numbers"},
			beaten: func(f *brokenFeed, p *hotcache.Position) { f.last, *p = *p, f.last }},
		{name: "believes members for ever", caught: []string{"members/Lapse"}, beat: func(trust *time.Duration) { *trust = 1000 * time.Hour }},
		{name: "believes members for a moment", caught: []string{"members/Longer"},
			beat: func(trust *time.Duration) { *trust = 1 }},
		{name: "tells everybody", caught: []string{"feeds/Tell"}, tell: func(to *hotcache.Member, _ *string) { *to = hotcache.Everybody }},
		{name: "does not stop", noClose: true, caught: []string{"feeds/CloseIsTheEnd", "members/Close"}},
	}
}
