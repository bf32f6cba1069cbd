package process

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns the CPU time that a process has used, threads that ended
// included, to the nanosecond; zero when there is no such process. Process 0 is
// this one. It reads the process's CPU clock (clock_getcpuclockid(3)), because
// getrusage counts children only once they have ended.
func CPUTime(pid int) time.Duration {
	const schedClock = 2 // CPUCLOCK_SCHED of the kernel's posix-timers
	id := int32(unix.CLOCK_PROCESS_CPUTIME_ID)
	if pid != 0 {
		id = int32(^pid)<<3 | schedClock
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// MachineTime returns how long the machine's cores have worked, and how long
// they have existed, by /proc/stat with its grain of 10 ms.
func MachineTime() (busy, all time.Duration) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	const tick = 10 * time.Millisecond
	for i, f := range strings.Fields(string(line)) {
		if i == 0 || i > 8 { // the name; guest times, which user time contains
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, 0
		}
		all += time.Duration(n) * tick
		if i != 4 && i != 5 { // idle, and idle while the disk works
			busy += time.Duration(n) * tick
		}
	}
	return busy, all
}

// Resident returns the bytes of memory that a process has in RAM.
func Resident(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text))
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// Filesystem names the kind of file system that holds a folder.
func Filesystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	}
	return "type 0x" + strconv.FormatInt(int64(st.Type), 16)
}

// Allocated returns the bytes of disk that a file occupies, written or not.
func Allocated(path string) int64 {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0
	}
	return st.Blocks * 512 // the unit of st_blocks, whatever the file system's
}

// DieWithParent makes the kernel end the child when this process dies, however
// it dies. A group of its own keeps an interrupt of the terminal from it: we stop
// it ourselves, in order.
func DieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
