package lmx_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/lease"
)

// The statistics are the same over a connection and over HTTP, keys that are held
// and not waited for included.
func TestStatsAreThoseOfHTTP(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b := r.Client(), r.Client()
		r.Hold(a, "held <&>", frame{"max": 3})
		r.Hold(a, "wanted", nil)
		r.Queue(b, "wanted", nil)
		many(r, a, nil, "m", "n")
		reads := r.ID()
		a.Send(frame{"type": "increment-readers", "uuid": reads, "key": "rw"})
		a.Expect(reads)
		a.Send(frame{"type": "system-stats-request", "uuid": "1"})
		got, _ := a.Expect("1")["stats"].(map[string]any)

		w := httptest.NewRecorder()
		r.http.ServeHTTP(w, httptest.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://127.0.0.1/v1/stats", nil))
		var want frame
		d := json.NewDecoder(w.Body)
		d.UseNumber()
		if err := d.Decode(&want); err != nil {
			t.Fatal(err)
		}
		if keys, _ := want["topKeys"].([]any); len(keys) != 4 || want.Int("totalReaders") != 1 {
			t.Fatalf("over HTTP: %v", want)
		}
		for name, v := range got {
			if name != "memoryUsage" && !reflect.DeepEqual(v, want[name]) {
				t.Errorf("%s is %v, and over HTTP %v", name, v, want[name])
			}
		}
		if len(got) != 17 {
			t.Errorf("got %d fields, want 17: %v", len(got), got)
		}
	})
}

// A list of keys is cut to what fits a frame, and says so, however long the keys
// are when they are written as JSON.
func TestListFitsItsFrame(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		long := strings.Repeat("\x01", lease.MaxKeyLength-4)
		const keys = lease.MaxUnsent / 4 / (6 * lease.MaxKeyLength) * 11 / 10
		for i := range keys {
			r.Hold(c, fmt.Sprintf("%04d", i)+long, nil)
		}
		c.Send(frame{"type": "ls", "uuid": "1"})
		f := c.Expect("1")
		if n := len(f.Texts("ls_result")); n < keys*8/10 || n >= keys || f.Text("warning") == "" {
			t.Errorf("%d keys of %d are listed, the warning is %q", n, keys, f.Text("warning"))
		}
	})
}
