package outboxprom_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/outbox"
	"github.com/latchkey-go/latchkey/hotcache/outbox/outboxprom"
)

// A source says what the test wants, so that every number in the text can be another one.
type source outbox.RelayStats

func (s source) Stats() outbox.RelayStats { return outbox.RelayStats(s) }

// TestText compares all that there is to see with a file: of a relay that is connected, and of one that is not, whose
// lag is not what it was.
func TestText(t *testing.T) {
	lag := outbox.Lag{Rows: 2, Age: 1500 * time.Millisecond}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(outboxprom.New("a", source{Connected: true, Lag: lag, Delivered: 3, Failed: 4, Dropped: 5, Losses: 6}))
	r.MustRegister(outboxprom.New("b", source{Lag: lag, Delivered: 7}))
	want, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	if err := testutil.GatherAndCompare(r, strings.NewReader(string(want))); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

type target struct{}

func (target) Name() string                                            { return "prices" }
func (target) Deliver(context.Context, []byte, hotcache.Version) error { return nil }

// TestRelay has a real relay, which was not begun.
func TestRelay(t *testing.T) {
	relay, err := outbox.NewRelay(outbox.RelayOptions{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, "") },
		Targets: []outbox.Target{target{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := testutil.CollectAndCount(outboxprom.New("prices", relay)); n != 5 {
		t.Errorf("%d series, want 5", n)
	}
}
