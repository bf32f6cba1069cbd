package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"time"
)

// An op is one read or write that somebody wants.
type op struct {
	at     time.Duration // since the work began
	key    int
	server int
	write  bool
}

// work is a row of ops, in the order of their times. A row that ends returns false. It is the same for every policy:
// what it draws comes from a source of its own.
type work interface {
	next() (op, bool, error)
}

// keys gives numbers to the names of keys.
type keys struct {
	names []string
	byKey map[string]int // of a trace
}

func newKeys(n int) *keys {
	k := &keys{names: make([]string, n)}
	for i := range k.names {
		k.names[i] = fmt.Sprint("key", i+1)
	}
	return k
}

// zipf draws ranks whose chance falls as rank^-skew, for any skew; that of the standard library wants one above 1.
type zipf struct {
	r   *rand.Rand
	sum []float64
}

func newZipf(r *rand.Rand, skew float64, n int) *zipf {
	z := &zipf{r: r, sum: make([]float64, n)}
	total := 0.0
	for i := range z.sum {
		total += math.Pow(float64(i+1), -skew)
		z.sum[i] = total
	}
	return z
}

func (z *zipf) draw() int {
	x := z.r.Float64() * z.sum[len(z.sum)-1]
	return min(sort.SearchFloat64s(z.sum, x), len(z.sum)-1)
}

// drawn is work made up from a skew and rates.
type drawn struct {
	cfg    *Config
	r      *rand.Rand
	zipf   *zipf
	at     time.Duration // of the next read
	writes time.Duration // of the next write that comes at a rate
	reads  int
	owed   bool // a write, for the reads before it
}

func newDrawn(cfg *Config) *drawn {
	r := rand.New(rand.NewPCG(cfg.Seed, 1))
	d := &drawn{cfg: cfg, r: r, zipf: newZipf(r, cfg.Skew, cfg.Keys), writes: math.MaxInt64}
	d.at = d.gap(cfg.Rate)
	if cfg.WriteRate > 0 {
		d.writes = d.gap(cfg.WriteRate)
	}
	return d
}

func (d *drawn) gap(rate float64) time.Duration {
	return time.Duration(d.r.ExpFloat64() / rate * float64(time.Second))
}

func (d *drawn) next() (op, bool, error) {
	switch {
	case d.owed:
		d.owed = false
		return op{d.at, d.zipf.draw(), d.r.IntN(d.cfg.Servers), true}, true, nil
	case d.reads == d.cfg.Reads:
		return op{}, false, nil
	case d.writes < d.at:
		o := op{d.writes, d.zipf.draw(), d.r.IntN(d.cfg.Servers), true}
		d.writes += d.gap(d.cfg.WriteRate)
		return o, true, nil
	}
	o := op{at: d.at, key: d.zipf.draw(), server: d.r.IntN(d.cfg.Servers)}
	d.reads++
	d.owed = d.cfg.WriteEvery > 0 && d.reads%d.cfg.WriteEvery == 0
	if !d.owed {
		d.at += d.gap(d.cfg.Rate)
	} else {
		d.at = o.at + d.gap(d.cfg.Rate)/2 // half-way to the next read
	}
	return o, true, nil
}

// id returns the number of a key that was drawn or traced.
func (w *world) id(name string) int {
	if id, ok := w.keys.byKey[name]; ok {
		return id
	}
	n := 0
	for _, digit := range name[len("key"):] {
		n = 10*n + int(digit-'0')
	}
	return n - 1
}
