package report

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/bench/internal/process"
)

// Machine says what the figures were taken on, and with what.
type Machine struct {
	CPU        string
	Cores      int
	Memory     string
	System     string
	Go         string
	Filesystem string // of the folder for data
	Commit     string
	Redis      string
	Libraries  map[string]string // of the peers, with their versions
	LoadBefore string            // load average over 1, 5 and 15 minutes
	LoadAfter  string
}

// LookAt describes this machine. What cannot be found out is left empty.
func LookAt(ctx context.Context, dataDir, redis string) Machine {
	m := Machine{
		CPU:        field("/proc/cpuinfo", "model name"),
		Cores:      runtime.NumCPU(),
		Memory:     field("/proc/meminfo", "MemTotal"),
		System:     runtime.GOOS + "/" + runtime.GOARCH,
		Go:         runtime.Version(),
		Filesystem: process.Filesystem(dataDir),
		Commit:     commit(ctx),
		Redis:      redis,
		LoadBefore: load(),
		Libraries:  make(map[string]string),
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += " " + strings.TrimSpace(string(release))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "github.com/redis/rueidis", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/client/v3",
				"github.com/anacrolix/stm", "github.com/orcaman/concurrent-map/v2", "github.com/puzpuzpuz/xsync/v4":
				m.Libraries[d.Path] = d.Version
			}
		}
	}
	return m
}

// field finds a "name : value" line in one of the kernel's files.
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		if k, v, ok := bytes.Cut(line, []byte(":")); ok && string(bytes.TrimSpace(k)) == name {
			return string(bytes.TrimSpace(v))
		}
	}
	return ""
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	f := strings.Fields(string(text))
	return strings.Join(f[:min(3, len(f))], " ")
}

// commit names the tree that was measured, and says when it has changes.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return ""
	}
	id := strings.TrimSpace(string(out))
	status, err := exec.CommandContext(ctx, "git", "status", "--porcelain").Output()
	if err == nil && len(status) > 0 {
		id += " with changes"
	}
	return id
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// lines describes the machine, one property a line.
func (m Machine) lines() []string {
	var libraries []string
	for _, k := range sortedKeys(m.Libraries) {
		libraries = append(libraries, k+" "+m.Libraries[k])
	}
	return []string{
		fmt.Sprintf("%d cores of %s, %s of memory", m.Cores, m.CPU, m.Memory),
		fmt.Sprintf("%s, data on %s", m.System, m.Filesystem),
		fmt.Sprintf("%s; Redis %s; %s", m.Go, m.Redis, strings.Join(libraries, ", ")),
		fmt.Sprintf("load average %s before the run, %s after it", m.LoadBefore, m.LoadAfter),
		fmt.Sprintf("commit %s", m.Commit),
	}
}
