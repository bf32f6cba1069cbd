//go:build !linux

package asleep

import "time"

func between() (least, most time.Duration) { return 0, 0 }

func most() time.Duration { return 0 }
