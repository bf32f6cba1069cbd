package rounds

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/process"
)

const idleName = "idle control"

// Idle is the name of the arm that every row gets: the control.
const Idle = idleName

// idle makes the control: it sleeps a millisecond at a time and takes as its
// latency how late each sleep ended. That is what the machine alone does to a
// tail, and nobody's tail can be blamed for less. The servers of the row count
// as its processes, so that their idle CPU time is seen as well.
func idle(arms []Arm) Arm {
	return Arm{
		Name:    idleName,
		Setting: "sleeps of 1 ms; the latency is how late each ends",
		PIDs:    allPIDs(arms),
		Run: func(ctx context.Context, d time.Duration) (Sample, error) {
			const step = time.Millisecond
			late := make([]time.Duration, 0, int(d/step)+1)
			start := time.Now()
			for time.Since(start) < d {
				if err := ctx.Err(); err != nil {
					return Sample{}, err
				}
				before := time.Now()
				time.Sleep(step)
				late = append(late, time.Since(before)-step)
			}
			return Sample{Ops: len(late), Elapsed: time.Since(start), Latency: late}, nil
		},
		Check: func(_ context.Context, s *Sample) error {
			for _, l := range s.Latency {
				if l < 0 {
					return Wrong("a sleep ended %v early", -l)
				}
			}
			return nil
		},
	}
}

// machineReading is a reading of the machine's clocks of work and of all time.
type machineReading struct{ busy, all time.Duration }

func machineTime() machineReading {
	busy, all := process.MachineTime()
	return machineReading{busy, all}
}

// others is the share of the machine's time since a reading that neither this
// process nor the arms' processes used: what disturbed the measurement.
func others(before machineReading, own time.Duration, pids []int) float64 {
	now := machineTime()
	all := now.all - before.all
	if all <= 0 {
		return 0
	}
	ours := selfTime() + spent(pids) - own
	return max(0, float64(now.busy-before.busy-ours)/float64(all))
}

func selfTime() time.Duration { return process.CPUTime(0) }

// spent sums the CPU time of processes.
func spent(pids []int) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		sum += process.CPUTime(pid)
	}
	return sum
}
