//go:build amd64 || arm64

package held

const hasWords = true

// gword reads a word of the runtime's descriptor of this goroutine.
//
//go:noescape
func gword(offset uintptr) uint64
