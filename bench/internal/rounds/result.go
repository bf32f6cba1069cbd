package rounds

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Digest is what remains of a Sample: one arm in one round. Times are in
// microseconds.
type Digest struct {
	Ops           int
	Rate          float64 // operations a second
	P50, P99, Max float64
	ClientCPU     time.Duration // of this process
	ServerCPU     time.Duration // of the arm's other processes
	Facts         map[string]float64

	wall time.Duration
}

// Spread is a distribution in five numbers.
type Spread struct {
	Least, Low, Median, High, Most float64 // Low and High are the quartiles
}

// ArmResult is one arm over all rounds of a row.
type ArmResult struct {
	Name    string
	Setting string
	Ops     int
	Value   Spread // of the row's unit
	P50     Spread // microseconds, as all that follow
	P99     Spread
	Max     Spread

	ClientCPU float64 // microseconds an operation, of this process
	ServerCPU float64 // the same of the servers
	Busy      float64 // share of one core that the servers used

	Facts map[string]Spread
}

// PairResult is how two arms stood to each other, round by round.
type PairResult struct {
	Pair
	Ratio   Spread  // ours / peer, of the row's value
	Worse   float64 // the quartile of Ratio that is worse for us
	More    Spread  // our value less the peer's
	Longest Spread  // our longest time less the peer's, in microseconds
}

// Result is a row that has been run.
type Result struct {
	Rounds  int
	Unit    string
	Arms    []ArmResult // the last one is the idle control
	Ours    string
	Peer    string
	Ratio   Spread  // ours / peer, of each round; zero without a peer
	Worse   float64 // the quartile of Ratio that is worse for us
	Tail    Spread  // our p99 less the control's p99 of the same round
	Longest Spread  // our longest less the control's longest of the same round
	Pairs   []PairResult
	Others  float64 // share of the machine that went to other processes
}

// Pair returns the result of a further pair by its arms, or nil.
func (r *Result) Pair(ours, peer string) *PairResult {
	for i := range r.Pairs {
		if r.Pairs[i].Pair == (Pair{ours, peer}) {
			return &r.Pairs[i]
		}
	}
	return nil
}

// Arm returns the result of an arm by name, or nil.
func (r *Result) Arm(name string) *ArmResult {
	for i := range r.Arms {
		if r.Arms[i].Name == name {
			return &r.Arms[i]
		}
	}
	return nil
}

func digest(s Sample) Digest {
	d := Digest{Ops: s.Ops, Facts: s.Facts}
	if s.Elapsed > 0 {
		d.Rate = float64(s.Ops) / s.Elapsed.Seconds()
	}
	if len(s.Latency) > 0 {
		slices.Sort(s.Latency)
		d.P50 = micros(Quantile(s.Latency, 0.5))
		d.P99 = micros(Quantile(s.Latency, 0.99))
		d.Max = micros(s.Latency[len(s.Latency)-1])
	}
	return d
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Quantile returns the value at share q of a sorted slice: the smallest one that
// at least that share of the entries do not exceed.
func Quantile[T cmp.Ordered](sorted []T, q float64) T {
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// SpreadOf reduces values, which it does not change, to five numbers.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	v := slices.Sorted(slices.Values(values))
	return Spread{v[0], Quantile(v, 0.25), Quantile(v, 0.5), Quantile(v, 0.75), v[len(v)-1]}
}

func reduce(row Row, arms []Arm, record [][]Digest) *Result {
	res := &Result{Unit: row.Unit, Ours: row.Ours, Peer: row.Peer}
	by := make(map[string][]Digest)
	for i, a := range arms {
		res.Arms = append(res.Arms, reduceArm(a, record[i], row.Value))
		res.Rounds = len(record[i])
		by[a.Name] = record[i]
	}
	ours, control := by[row.Ours], record[len(record)-1]
	var tails, longest []float64
	for i := range ours {
		tails = append(tails, ours[i].P99-control[i].P99)
		longest = append(longest, ours[i].Max-control[i].Max)
	}
	res.Tail, res.Longest = SpreadOf(tails), SpreadOf(longest)
	first := compare(row, Pair{row.Ours, row.Peer}, by)
	res.Ratio, res.Worse = first.Ratio, first.Worse
	for _, p := range row.Pairs {
		res.Pairs = append(res.Pairs, compare(row, p, by))
	}
	return res
}

// compare reduces a pair. Without a peer there is nothing to say.
func compare(row Row, p Pair, by map[string][]Digest) PairResult {
	out := PairResult{Pair: p}
	ours, peer := by[p.Ours], by[p.Peer]
	var ratios, more, longest []float64
	for i := range peer {
		a, b := row.Value(ours[i]), row.Value(peer[i])
		if b > 0 {
			ratios = append(ratios, a/b)
		}
		more, longest = append(more, a-b), append(longest, ours[i].Max-peer[i].Max)
	}
	out.Ratio, out.More, out.Longest = SpreadOf(ratios), SpreadOf(more), SpreadOf(longest)
	out.Worse = out.Ratio.Low
	if row.Smaller {
		out.Worse = out.Ratio.High
	}
	return out
}

func reduceArm(a Arm, record []Digest, value func(Digest) float64) ArmResult {
	r := ArmResult{Name: a.Name, Setting: a.Setting}
	pick := func(f func(Digest) float64) Spread {
		var v []float64
		for _, d := range record {
			v = append(v, f(d))
		}
		return SpreadOf(v)
	}
	r.Value = pick(value)
	r.P50 = pick(func(d Digest) float64 { return d.P50 })
	r.P99 = pick(func(d Digest) float64 { return d.P99 })
	r.Max = pick(func(d Digest) float64 { return d.Max })
	var client, server, wall time.Duration
	facts := make(map[string][]float64)
	for _, d := range record {
		r.Ops += d.Ops
		client += d.ClientCPU
		server += d.ServerCPU
		wall += d.wall
		for k, v := range d.Facts {
			facts[k] = append(facts[k], v)
		}
	}
	if r.Ops > 0 {
		r.ClientCPU = micros(client) / float64(r.Ops)
		r.ServerCPU = micros(server) / float64(r.Ops)
	}
	if wall > 0 {
		r.Busy = float64(server) / float64(wall)
	}
	for k, v := range facts {
		if r.Facts == nil {
			r.Facts = make(map[string]Spread)
		}
		r.Facts[k] = SpreadOf(v)
	}
	return r
}
