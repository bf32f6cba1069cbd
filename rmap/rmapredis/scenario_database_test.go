package rmapredis_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// Maps of one name in two databases of a server are two maps: neither hears of the other, although channels are shared.
func TestDatabasesAreApart(t *testing.T) {
	w := newWorld(t)
	r := w.joinOver(w.Addr()+"/0", rmapredis.Options{}, deaf())
	other := w.joinOver(w.Addr()+"/1", rmapredis.Options{}, deaf())
	r.set("k", "v")
	for range 100 {
		other.set("k", "other")
	}
	r.sync()
	r.shows(map[string]string{"k": "v"})
	if s := r.Stats(); s.Strange != 1 { // the first change of its own map
		t.Errorf("%d strange changes, want 1", s.Strange)
	}
	other.sync()
	other.shows(map[string]string{"k": "other"})
}
