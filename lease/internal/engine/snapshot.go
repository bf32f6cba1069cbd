package engine

// Snapshot is a walk over the state, taken in pieces while the engine goes on.
// What ends or begins meanwhile is in the records written meanwhile, and replay
// applies those after the snapshot. One walk may be under way at a time.
type Snapshot struct {
	e       *Engine
	bucket  int    // of Engine.ids, the next one
	newest  uint64 // the last token granted before the walk
	ghosts  []*Session
	known   map[*Session]bool // of ghosts
	started bool
}

// Snapshot begins a walk, which goes on until Next returns false or Stop is
// called.
func (e *Engine) Snapshot() *Snapshot {
	e.ids.heads.walked = true
	return &Snapshot{e: e, newest: e.token, known: make(map[*Session]bool)}
}

// Stop ends the walk early.
func (sn *Snapshot) Stop() { sn.e.ids.heads.walked = false }

// Next calls fn with the records of about n requests, and reports whether there
// are more. It passes ten times as many that began after the walk, so that they do
// not keep it from its end. While a walk is under way the table of requests only grows, and then
// requests move to buckets that are still ahead: none is missed, and one that
// comes twice does no harm.
func (sn *Snapshot) Next(n int, fn func(rec []byte)) bool {
	emit := func(r Record) { fn(r.Append(nil)) }
	if !sn.started {
		sn.started = true
		sn.head(emit)
	}
	passed := 0
	for t := &sn.e.ids.heads; passed < 10*n && sn.bucket < t.buckets(); sn.bucket++ {
		passed++
		for h := *t.slot(sn.bucket); h != nil; h = h.next {
			for r := h; r != nil; r = following(r) {
				if sn.request(r, emit) {
					passed += 10
				}
			}
		}
	}
	if sn.bucket < sn.e.ids.heads.buckets() {
		return true
	}
	for _, s := range sn.ghosts {
		emit(Record{Kind: recSessionEnd, ID: s.id})
	}
	sn.Stop()
	return false
}

// request writes what r holds, unless the records written since the beginning say
// so: then its session may not be in the snapshot.
func (sn *Snapshot) request(r *request, emit func(Record)) bool {
	if r.live == 0 || r.newest() > sn.newest {
		return false
	}
	if r.flags&sessionEnded != 0 && !sn.known[r.sess] {
		sn.known[r.sess] = true
		sn.ghosts = append(sn.ghosts, r.sess)
		emit(r.sess.record())
	}
	emit(grantOf(r))
	return true
}

// newest is the highest token that r holds.
func (r *request) newest() (token uint64) {
	for i := range r.holds {
		token = max(token, r.holds[i].token)
	}
	return token
}

func (sn *Snapshot) head(emit func(Record)) {
	e := sn.e
	emit(Record{Kind: recMark, Token: e.mark, TTL: e.most})
	if e.quietUntil > 0 {
		emit(Record{Kind: recQuiet, TTL: e.quietUntil}) // a restart owes it anew, whole
	}
	for _, s := range e.sessions {
		if s.journaled {
			emit(s.record())
		}
	}
	for d := range e.delayEnds.all {
		emit(Record{Kind: recDelay, Key: d.key.name, TTL: max(d.until-e.now, wheelTick)})
	}
}
