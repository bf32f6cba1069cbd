package rmapredis

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/internal/redistext"
	"github.com/latchkey-go/latchkey/rmap"
)

// A scan asks for few entries at first, and then for as many as make a chunk of about scanBytes: the server does
// nothing else meanwhile, and both sides have a chunk in memory as a whole.
const (
	scanFirst = 32
	scanMost  = 4096
	scanBytes = 1 << 20
)

// Scan implements [rmap.Store]. While a chunk is read the next one is fetched.
func (s *Store) Scan(ctx context.Context, name string, yield func([]rmap.Entry) error) error {
	if err := s.ready(ctx, name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx) // ends what is being fetched when the scan ends early
	defer cancel()
	count, next := int64(scanFirst), s.fetch(ctx, name, 0, scanFirst)
	header, fields := false, 0
	var entries []rmap.Entry // of one chunk after the other
	var err error
	for next != nil {
		chunk := <-next
		if chunk.err != nil {
			return fmt.Errorf("rmapredis: scan of map %q: %w", name, chunk.err)
		}
		next = nil
		if chunk.Cursor != 0 {
			count = nextCount(count, chunk.Elements)
			next = s.fetch(ctx, name, chunk.Cursor, count)
		}
		if entries, err = s.entries(entries[:0], chunk.Elements); err != nil {
			return fmt.Errorf("rmapredis: scan of map %q: %w", name, err)
		}
		header, fields = header || len(entries) < len(chunk.Elements)/2, fields+len(entries)
		if len(entries) > 0 {
			if err := yield(entries); err != nil {
				return err
			}
		}
	}
	if fields > 0 && !header {
		return s.headed(ctx, name)
	}
	return nil
}

// headed refuses a hash without a header. One that began during a scan has one which the scan did not show.
func (s *Store) headed(ctx context.Context, name string) error {
	ctx, cancel := redistext.Limited(ctx, s.o.Timeout)
	defer cancel()
	err := s.client.Do(ctx, s.client.B().Hget().Key(s.hash(name)).Field("").Build()).Error()
	switch {
	case rueidis.IsRedisNil(err):
		return fmt.Errorf("rmapredis: scan of map %q: %w", name, errNoHeader)
	case err != nil:
		return fmt.Errorf("rmapredis: scan of map %q: %w", name, s.unread(err))
	}
	return nil
}

// nextCount aims at scanBytes, by what the chunk before was like, and grows by steps.
func nextCount(count int64, chunk []string) int64 {
	size := 1
	for _, text := range chunk {
		size += len(text)
	}
	return min(max(count*scanBytes/int64(size), 1), 4*count, scanMost)
}

// A fetched is a part of a hash, or why there is none.
type fetched struct {
	rueidis.ScanEntry
	err error
}

// fetch asks for a part of a hash. The answer waits until it is taken.
func (s *Store) fetch(ctx context.Context, name string, cursor uint64, count int64) <-chan fetched {
	done := make(chan fetched, 1)
	go func() {
		ctx, cancel := redistext.Limited(ctx, s.o.Timeout)
		defer cancel()
		command := s.client.B().Hscan().Key(s.hash(name)).Cursor(cursor).Count(count).Build()
		chunk, err := s.client.Do(ctx, command).AsScanEntry()
		if err != nil {
			err = s.unread(err)
		}
		done <- fetched{chunk, err}
	}()
	return done
}

// entries reads fields and values, and adds what they are to entries.
func (s *Store) entries(entries []rmap.Entry, pairs []string) ([]rmap.Entry, error) {
	entries = slices.Grow(entries, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		key, text := pairs[i], pairs[i+1]
		if key != "" {
			entries = append(entries, storedEntry(key, text))
		} else if _, err := parseHeader(text, s.o.version); err != nil {
			return nil, foreign(err)
		}
	}
	return entries, nil
}

// Since implements [rmap.Store].
func (s *Store) Since(ctx context.Context, name string, r rmap.Revision) ([]rmap.Change, error) {
	if err := s.ready(ctx, name); err != nil {
		return nil, err
	}
	if r.Generation == 0 || (r.Number == 0) != (r.Nonce == 0) { // a generation alone is its beginning
		return nil, nil
	}
	ctx, cancel := redistext.Limited(ctx, s.o.Timeout)
	defer cancel()
	from := strconv.FormatUint(r.Number+1, 10) + "-0"
	logged, err := s.client.Do(ctx, s.client.B().Xrange().Key(s.log(name)).Start(from).End("+").Build()).AsXRange()
	if _, answered := rueidis.IsRedisErr(err); answered {
		return nil, nil // the log is a convenience: whoever may not use it, or finds something else there, reads the map
	}
	if err != nil {
		return nil, fmt.Errorf("rmapredis: changes of map %q: %w", name, s.unread(err))
	}
	changes := make([]rmap.Change, 0, len(logged))
	for _, entry := range logged {
		ch, err := parseMessage(entry.FieldValues["m"], s.o.version)
		if err != nil || !follows(ch, r) {
			return nil, nil // likewise
		}
		changes = append(changes, ch)
		r = ch.Revision
	}
	return changes, nil
}

// follows tells whether a change is the one after r.
func follows(ch rmap.Change, r rmap.Revision) bool {
	return ch.Revision.Generation == r.Generation && ch.Revision.Number == r.Number+1 && ch.Prev == r.Nonce
}
