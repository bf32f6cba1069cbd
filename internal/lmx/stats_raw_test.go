package lmx_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
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
