package sim

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"
)

// A Result is what a run counted.
type Result struct {
	Policy      string  `json:"policy"`
	Interrupted bool    `json:"interrupted,omitempty"` // the run was ended early
	Remark      string  `json:"remark,omitempty"`      // how the trace was read, where that may not be as it was meant
	Seconds     float64 `json:"seconds"`               // of virtual time, from the first read to the last

	Reads       uint64 `json:"reads"` // that were answered, or failed
	L1Hits      uint64 `json:"l1Hits"`
	NodeHits    uint64 `json:"nodeHits"` // those of copies among them
	CopyHits    uint64 `json:"copyHits"`
	DBReads     uint64 `json:"dbReads"` // one may answer many reads
	FailedReads uint64 `json:"failedReads"`
	Unanswered  uint64 `json:"unanswered"` // when the run ended
	// StaleReads got a version older than the last write that was finished when they began. OldReads got one older than
	// the row was when they got it, which nobody can promise not to happen.
	StaleReads uint64 `json:"staleReads"`
	OldReads   uint64 `json:"oldReads"`
	LeftStale  uint64 `json:"leftStale"` // keys that are older on a node than in the database, at the end

	Writes        uint64 `json:"writes"`
	UnsureWrites  uint64 `json:"unsureWrites"`  // of which the writer was told that the cache may not know
	Crashes       uint64 `json:"crashes"`       // of writers, between commit and invalidation
	Invalidations uint64 `json:"invalidations"` // commands for them
	WriteWait     Millis `json:"writeWait"`     // until a write was finished, on average
	WriteWaitMost Millis `json:"writeWaitMost"`

	RefusedFills uint64     `json:"refusedFills"`
	BlockedReads uint64     `json:"blockedReads"` // that waited for a load, their own or another's
	Blocked      Millis     `json:"blocked"`      // in all
	Bytes        uint64     `json:"bytes"`        // between servers and nodes
	LostMessages uint64     `json:"lostMessages"`
	LostHeard    uint64     `json:"lostHeard"`   // broadcasts that a server did not get
	LostNoticed  uint64     `json:"lostNoticed"` // of those, how many it knew to be missing within Trust
	HotKeys      int        `json:"hotKeys"`     // at a time, at most
	Latency      Latency    `json:"latency"`
	NodeLoad     []uint64   `json:"nodeLoad"`     // questions of reads
	NodeCommands []uint64   `json:"nodeCommands"` // all
	NodeBusy     []float64  `json:"nodeBusy"`     // share of the time
	MaxMean      float64    `json:"maxMean"`      // of NodeLoad
	Keys         int        `json:"keys"`         // that were read
	Top          []KeyReads `json:"top"`
	Bucket       Millis     `json:"bucket"` // how long one of the Series is
	Series       []Bucket   `json:"series"`
}

// Millis is a duration that is a number of milliseconds in JSON.
type Millis time.Duration

// MarshalJSON writes milliseconds, exact to the nanosecond.
func (m Millis) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(m)/1e6, 'f', -1, 64), nil
}

// String returns the duration as Go writes it, rounded to what is worth reading.
func (m Millis) String() string {
	d, unit := time.Duration(m), time.Second
	for unit > 10*time.Nanosecond && d < 100*unit {
		unit /= 10
	}
	return d.Round(unit).String()
}

// A Latency is how long reads took.
type Latency struct {
	Mean Millis `json:"mean"`
	P50  Millis `json:"p50"`
	P99  Millis `json:"p99"`
	P999 Millis `json:"p999"`
	Most Millis `json:"most"`
}

// A KeyReads is how often a key was read.
type KeyReads struct {
	Key   string `json:"key"`
	Reads uint64 `json:"reads"`
}

// A Bucket is what was counted in a part of the time.
type Bucket struct {
	Reads       uint64   `json:"reads"`
	L1Hits      uint64   `json:"l1Hits"`
	NodeHits    uint64   `json:"nodeHits"`
	DBReads     uint64   `json:"dbReads"`
	StaleReads  uint64   `json:"staleReads"`
	OldReads    uint64   `json:"oldReads"`
	FailedReads uint64   `json:"failedReads"`
	HotKeys     int      `json:"hotKeys"`
	NodeLoad    []uint64 `json:"nodeLoad"`
}

// origin is where an answer came from.
type origin uint8

const (
	fromMemory origin = iota + 1
	fromNode
	fromCopy
	fromLoad
)

const (
	firstBucket = 10 * time.Millisecond
	maxBuckets  = 96
	topKeys     = 20
	overhead    = 32 // bytes of a message beside key and value
)

func keyBytes(key string) int { return len(key) + overhead }

func newResult(cfg *Config) *Result {
	return &Result{Policy: cfg.Policy, Bucket: Millis(firstBucket), NodeLoad: make([]uint64, cfg.Nodes),
		NodeCommands: make([]uint64, cfg.Nodes), NodeBusy: make([]float64, cfg.Nodes)}
}

// bucket returns the bucket of now. When there would be too many, each gets twice as long.
func (r *Result) bucket(now time.Duration) *Bucket {
	for time.Duration(r.Bucket)*maxBuckets <= now {
		half := r.Series[:0]
		for i := 0; i < len(r.Series); i += 2 {
			b := r.Series[i]
			if i+1 < len(r.Series) {
				b.add(&r.Series[i+1])
			}
			half = append(half, b)
		}
		r.Series = half
		r.Bucket *= 2
	}
	i := int(now / time.Duration(r.Bucket))
	for len(r.Series) <= i {
		b := Bucket{NodeLoad: make([]uint64, len(r.NodeLoad))}
		if n := len(r.Series); n > 0 {
			b.HotKeys = r.Series[n-1].HotKeys
		}
		r.Series = append(r.Series, b)
	}
	return &r.Series[i]
}

func (b *Bucket) add(o *Bucket) {
	b.Reads += o.Reads
	b.L1Hits += o.L1Hits
	b.NodeHits += o.NodeHits
	b.DBReads += o.DBReads
	b.StaleReads += o.StaleReads
	b.OldReads += o.OldReads
	b.FailedReads += o.FailedReads
	b.HotKeys = max(b.HotKeys, o.HotKeys)
	for i, n := range o.NodeLoad {
		b.NodeLoad[i] += n
	}
}

// hot notes how many keys a server takes for hot.
func (r *Result) hot(now time.Duration, n int) {
	r.HotKeys = max(r.HotKeys, n)
	r.bucket(now).HotKeys = n
}

func (r *Result) addUp(w *world) {
	most, sum := uint64(0), uint64(0)
	for _, n := range r.NodeLoad {
		most, sum = max(most, n), sum+n
	}
	if sum > 0 {
		r.MaxMean = float64(most) * float64(len(r.NodeLoad)) / float64(sum)
	}
	order := []int{}
	for key, n := range w.perKey {
		if n > 0 {
			order = append(order, key)
		}
	}
	r.Keys = len(order)
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(w.perKey[b], w.perKey[a]), cmp.Compare(a, b))
	})
	for _, key := range order[:min(len(order), topKeys)] {
		r.Top = append(r.Top, KeyReads{w.keys.names[key], uint64(w.perKey[key])})
	}
	h := &w.latency
	r.Latency = Latency{Millis(h.mean()), h.at(0.5), h.at(0.99), h.at(0.999), Millis(h.most)}
	r.WriteWait, r.WriteWaitMost = Millis(w.writes.mean()), Millis(w.writes.most)
}

// A histogram counts durations in steps of a twelfth.
type histogram struct {
	counts [400]uint64
	n      uint64
	sum    time.Duration
	most   time.Duration
}

const histogramStep = 1.08

func (h *histogram) add(d time.Duration) {
	i := 0
	if d > time.Microsecond {
		i = min(1+int(math.Log(float64(d)/float64(time.Microsecond))/math.Log(histogramStep)), len(h.counts)-1)
	}
	h.counts[i]++
	h.n++
	h.sum += d
	h.most = max(h.most, d)
}

func (h *histogram) mean() time.Duration {
	if h.n == 0 {
		return 0
	}
	return h.sum / time.Duration(h.n)
}

// at returns what a share of the durations does not exceed.
func (h *histogram) at(share float64) Millis {
	left := uint64(math.Ceil(share * float64(h.n)))
	for i, n := range h.counts {
		if n >= left && left > 0 {
			if i == 0 {
				return 0
			}
			d := time.Duration(math.Pow(histogramStep, float64(i)) * float64(time.Microsecond))
			return Millis(min(d.Round(time.Microsecond), h.most))
		}
		left -= n
	}
	return Millis(h.most)
}
