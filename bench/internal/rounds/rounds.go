// Package rounds measures several ways of doing one thing against one another
// in short interleaved rounds.
//
// A machine that is shared changes its speed from second to second, so a figure
// taken alone says little, and one taken a minute after another says nothing
// about the two. Here every round runs each arm for a fraction of a second, in
// an order drawn anew, together with an idle control that only sleeps. What is
// compared is the ratio of two arms within one round; what is stated is the
// quartile of those ratios on the side that is worse for us. The method is that
// of paired, randomised blocks.
//
// After every round each arm's answers are checked. One wrong answer voids the
// whole row, so that a wrong answer cannot look fast.
//
// Nothing here is safe for concurrent use: one row runs at a time.
package rounds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// ErrWrong marks a row whose answers did not pass the check. Its figures are
// withheld.
var ErrWrong = errors.New("wrong answer")

// Wrong makes an ErrWrong that says what was wrong.
func Wrong(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrWrong}, args...)...)
}

// Sample is what one arm did in one round.
type Sample struct {
	Ops     int             // operations that were finished
	Elapsed time.Duration   // from the start of the first to the end of the last
	Latency []time.Duration // one entry an operation, in any order; may be empty
	Facts   map[string]float64
}

// Arm is one of the things compared.
type Arm struct {
	Name    string
	Setting string // connections and durability, shown in every row
	PIDs    []int  // the processes it uses besides this one, whose CPU time counts

	// Run does the work for about d.
	Run func(ctx context.Context, d time.Duration) (Sample, error)

	// Check looks at the answers of the Run just made, outside the measured
	// time. It may add facts to the sample.
	Check func(ctx context.Context, s *Sample) error
}

// Row is a set of arms and what is claimed of them.
type Row struct {
	Arms []Arm

	// Value is the figure that is compared: Rate or Median.
	Value func(Digest) float64
	Unit  string

	// Ours and Peer name the arms of the ratio ours / peer. Without a peer there
	// is no ratio, and the claims of the row are about Ours alone.
	Ours, Peer string

	// Pairs are further pairs of arms whose ratio is wanted.
	Pairs []Pair

	// Smaller says that a smaller value is better, as with times.
	Smaller bool
}

// Pair names two arms that are compared round by round.
type Pair struct{ Ours, Peer string }

// Options say how a row is run.
type Options struct {
	Rounds int           // rounds that count; one more is run first to warm up
	Length time.Duration // of one arm in one round
	Seed   uint64        // of the order within the rounds

	// Progress is called before each round. May be nil.
	Progress func(round, of int)
}

// Rate is the value of rows that compare throughput.
func Rate(d Digest) float64 { return d.Rate }

// Each is the value of rows that compare operations too short to be timed one by
// one: nanoseconds an operation.
func Each(d Digest) float64 { return 1e9 / max(d.Rate, 1e-9) }

// Busy is the value of rows that compare what servers cost while nobody asks for
// anything: the share of one core, in percent.
func Busy(d Digest) float64 { return 100 * float64(d.ServerCPU) / float64(max(d.wall, 1)) }

// Median is the value of rows that compare times: the median latency in
// microseconds.
func Median(d Digest) float64 { return d.P50 }

// Tail is the value of rows that compare tails: the latency at p99 in microseconds.
func Tail(d Digest) float64 { return d.P99 }

// Run runs all the rounds of a row and reduces them.
func Run(ctx context.Context, row Row, o Options) (*Result, error) {
	if err := check(row, o); err != nil {
		return nil, err
	}
	arms := append(slices.Clone(row.Arms), idle(row.Arms))
	record := make([][]Digest, len(arms))
	random := rand.New(rand.NewPCG(o.Seed, uint64(len(arms))))
	before := machineTime()
	own := selfTime() + spent(allPIDs(arms))
	for round := range o.Rounds + 1 {
		if o.Progress != nil {
			o.Progress(round, o.Rounds)
		}
		for _, i := range random.Perm(len(arms)) {
			d, err := measure(ctx, arms[i], o.Length)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", arms[i].Name, round, err)
			}
			if round > 0 { // the first one warms up
				record[i] = append(record[i], d)
			}
		}
	}
	res := reduce(row, arms, record)
	res.Others = others(before, own, allPIDs(arms))
	return res, nil
}

func check(row Row, o Options) error {
	if o.Rounds < 1 || o.Length <= 0 {
		return fmt.Errorf("rounds: %d rounds of %v measure nothing", o.Rounds, o.Length)
	}
	names := make(map[string]bool)
	for _, a := range row.Arms {
		if names[a.Name] || a.Name == idleName {
			return fmt.Errorf("rounds: two arms are called %q", a.Name)
		}
		names[a.Name] = true
		if a.Run == nil || a.Check == nil {
			return fmt.Errorf("rounds: arm %q does not run or is not checked", a.Name)
		}
	}
	if !names[row.Ours] || row.Peer != "" && !names[row.Peer] {
		return fmt.Errorf("rounds: there must be arms %q and %q", row.Ours, row.Peer)
	}
	for _, p := range row.Pairs {
		if !names[p.Ours] || !names[p.Peer] {
			return fmt.Errorf("rounds: there must be arms %q and %q", p.Ours, p.Peer)
		}
	}
	return nil
}

// measure runs one arm once and checks it. The collection beforehand keeps one
// arm from paying for the garbage of another.
func measure(ctx context.Context, a Arm, length time.Duration) (Digest, error) {
	runtime.GC()
	own, servers := selfTime(), spent(a.PIDs)
	start := time.Now()
	s, err := a.Run(ctx, length)
	wall := time.Since(start)
	own, servers = selfTime()-own, spent(a.PIDs)-servers
	if err != nil {
		return Digest{}, err
	}
	if s.Elapsed > wall {
		return Digest{}, Wrong("it claims to have taken %v of the %v that passed", s.Elapsed, wall)
	}
	if s.Ops < 1 {
		return Digest{}, Wrong("nothing was done in %v", wall)
	}
	if n := len(s.Latency); n > 0 && n != s.Ops {
		return Digest{}, Wrong("%d times were taken of %d operations", n, s.Ops)
	}
	if err := a.Check(ctx, &s); err != nil {
		return Digest{}, err
	}
	d := digest(s)
	d.ClientCPU, d.ServerCPU = own, servers
	d.wall = wall
	return d, nil
}

func allPIDs(arms []Arm) []int {
	var pids []int
	for _, a := range arms {
		pids = append(pids, a.PIDs...)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
