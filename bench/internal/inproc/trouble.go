package inproc

import "sync/atomic"

// trouble is the first error that an operation of a thing returned.
type trouble struct{ first atomic.Pointer[error] }

func (t *trouble) note(err error) {
	if err != nil {
		first := err // its own variable, so that no memory is allocated for a nil
		t.first.CompareAndSwap(nil, &first)
	}
}

func (t *trouble) err() error {
	if e := t.first.Load(); e != nil {
		return *e
	}
	return nil
}
