package rmapredis

import (
	"strconv"

	"github.com/latchkey-go/latchkey/rmap"
)

// WithVersion makes a store act as that of a process which knows the format up to a version, and writes that one.
func (o Options) WithVersion(version int) Options {
	o.version = version
	return o
}

// Command is a write as the store would send it, but announced on another channel if one is given. So a test can commit
// a change that no copy is told of, or have it done in the middle of a transaction.
func (s *Store) Command(name, channel string, w rmap.Write) []string {
	set := settings{lifetime: w.Lifetime, maxEntries: w.MaxEntries}
	keys, args := s.words(name, set, nil, arguments(&w))
	if channel != "" {
		args[0] = channel
	}
	words := []string{"EVAL", source("", writeBody), strconv.Itoa(len(keys))}
	return append(append(words, keys...), args...)
}
