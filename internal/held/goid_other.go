//go:build !amd64 && !arm64

package held

const hasWords = false

func gword(uintptr) uint64 { return 0 }
