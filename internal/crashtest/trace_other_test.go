//go:build linux && !amd64

package crashtest

import "errors"

// canTrace says why a program cannot be shown another wall clock here, nothing when it can.
const canTrace = "showing a program another wall clock is written for amd64 only"

func traceMain(string) (int, error) { return 1, errors.New(canTrace) }
