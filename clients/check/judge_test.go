package check

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A request is what an agent is told to acquire.
type request struct {
	Keys []string
	Mode string // "" is exclusive
	Max  int
	TTL  int64 // ms
	Wait int64
	Try  bool
}

func (r request) mode() string {
	if r.Mode == "" {
		return "exclusive"
	}
	return r.Mode
}

// A claim is a request and what is known of it.
type claim struct {
	who, ref string
	request
	floor   map[string]int64 // the highest tokens that were known when it was made
	tokens  map[string]int64 // since it was granted
	granted time.Time
	over    bool
}

func (c *claim) String() string { return fmt.Sprintf("%s/%s (%s %v)", c.who, c.ref, c.mode(), c.Keys) }

// A judge watches what agents say of the keys of one broker. It counts only what it knows: a hold is certain from the
// moment that its grant was heard until the moment that its release is about to be sent, or that its process is about to be
// killed or frozen. What it finds wrong is wrong whatever way the messages took.
type judge struct {
	mu      sync.Mutex
	changed chan struct{} // closed and made anew with each grant
	held    map[string][]*claim
	top     map[string]map[string]int64 // by key and mode, the highest token of a hold that has ended
	known   map[string]int64            // by key, the highest token
	used    map[string]map[int64]*claim // by key, who had which token
	grants  []*claim                    // in the order in which they were heard
	wrong   []string
}

func newJudge() *judge {
	return &judge{
		changed: make(chan struct{}), held: make(map[string][]*claim), top: make(map[string]map[string]int64),
		known: make(map[string]int64), used: make(map[string]map[int64]*claim),
	}
}

// asked is called before a request is sent.
func (j *judge) asked(who, ref string, r request) *claim {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := &claim{who: who, ref: ref, request: r, floor: make(map[string]int64)}
	for _, k := range r.Keys {
		c.floor[k] = j.known[k]
	}
	return c
}

func (j *judge) accuse(format string, args ...any) {
	j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
}

// grantedTo is called when a grant was heard.
func (j *judge) grantedTo(c *claim, tokens map[string]int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if c.tokens != nil {
		j.accuse("%v was granted twice", c)
		return
	}
	c.tokens, c.granted = tokens, time.Now()
	j.grants = append(j.grants, c)
	close(j.changed)
	j.changed = make(chan struct{})
	if len(tokens) != len(c.Keys) {
		j.accuse("%v was granted the tokens %v", c, tokens)
	}
	for _, k := range c.Keys {
		j.token(c, k)
		if c.over {
			continue // its process was killed or frozen before this could be said
		}
		for _, other := range j.held[k] {
			if !mayCoexist(c, other, len(j.held[k])+1) {
				j.accuse("exclusion: %v was granted %s while %v held it", c, k, other)
			}
		}
		j.held[k] = append(j.held[k], c)
	}
}

// mayCoexist says whether one of two holds of a key that has so many holders may be granted beside the other.
func mayCoexist(a, b *claim, holders int) bool {
	switch {
	case a.mode() != b.mode() || a.mode() == "exclusive":
		return false
	case a.mode() == "counted":
		return holders <= a.Max && holders <= b.Max
	}
	return true
}

// token looks at the token of one key. It must be above those of all holds that were known before the request was made, and
// above those of holds that excluded it and have ended.
func (j *judge) token(c *claim, key string) {
	token := c.tokens[key]
	if token <= 0 {
		j.accuse("tokens: %v has the token %d for %s", c, token, key)
	}
	if other := j.used[key][token]; other != nil {
		j.accuse("tokens: %v and %v both have the token %d of %s", c, other, token, key)
	}
	if token <= c.floor[key] {
		j.accuse("tokens: %v was granted %s with the token %d, though %d was granted before it was asked for", c, key, token, c.floor[key])
	}
	for mode, top := range j.top[key] {
		if (mode != c.mode() || mode == "exclusive") && token <= top {
			j.accuse("tokens: %v was granted %s with the token %d after one of %d", c, key, token, top)
		}
	}
	if j.used[key] == nil {
		j.used[key], j.top[key] = make(map[int64]*claim), make(map[string]int64)
	}
	j.used[key][token] = c
	j.known[key] = max(j.known[key], token)
}

// ends is called when a hold is not certain any more: before its release is sent, or when its loss was heard.
func (j *judge) ends(c *claim) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.endsLocked(c)
}

// forget is called before a broker ends that will not remember who holds what.
func (j *judge) forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.grants {
		j.endsLocked(c)
	}
}

func (j *judge) endsLocked(c *claim) {
	if c.over {
		return
	}
	c.over = true
	for k, token := range c.tokens {
		j.held[k] = slices.DeleteFunc(j.held[k], func(o *claim) bool { return o == c })
		if j.top[k] != nil {
			j.top[k][c.mode()] = max(j.top[k][c.mode()], token)
		}
	}
}

// grant waits for the n-th grant that was heard, from 0.
func (j *judge) grant(n int, limit time.Duration) (*claim, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		j.mu.Lock()
		changed := j.changed
		if len(j.grants) > n {
			c := j.grants[n]
			j.mu.Unlock()
			return c, nil
		}
		j.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return nil, fmt.Errorf("not within %v: grant %d", limit, n)
		}
	}
}

// count is how many grants were heard.
func (j *judge) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.grants)
}

// verdict is what was wrong.
func (j *judge) verdict() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.wrong) == 0 {
		return nil
	}
	shown := j.wrong[:min(len(j.wrong), 10)]
	return fmt.Errorf("the judge found %d things wrong:\n%s", len(j.wrong), strings.Join(shown, "\n"))
}
