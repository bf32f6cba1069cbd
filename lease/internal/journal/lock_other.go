//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package journal

import (
	"errors"
	"fmt"
	"io"
	"runtime"
)

// lockFile refuses: two writers in one directory would destroy it.
func lockFile(path string) (io.Closer, error) {
	return nil, fmt.Errorf("locking %s on %s: %w", path, runtime.GOOS, errors.ErrUnsupported)
}
