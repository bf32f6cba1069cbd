package actor_test

import (
	"context"
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/actor"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type counter struct{ n int }

func newCounter() (*counter, error) { return new(counter), nil }

// counting starts an owner that is closed at the end of the test.
func counting(t testing.TB, o actor.Options) *actor.Object[counter] {
	t.Helper()
	obj, err := actor.New(context.Background(), newCounter, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, obj) })
	return obj
}

func closed(t testing.TB, o interface{ Close(context.Context) error }) {
	t.Helper()
	if err := o.Close(context.Background()); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// hold keeps the owner busy with a message until the returned function is called.
func hold(t testing.TB, o *actor.Object[counter]) (release func()) {
	t.Helper()
	inside, over := make(chan struct{}), make(chan struct{})
	must(t, o.Tell(context.Background(), func(*counter) error {
		close(inside)
		<-over
		return nil
	}))
	<-inside
	return func() { close(over) }
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// value reads the counter, after all messages that were sent before.
func value(t testing.TB, o *actor.Object[counter]) int {
	t.Helper()
	n, err := actor.Ask(context.Background(), o, func(c *counter) (int, error) { return c.n, nil })
	must(t, err)
	return n
}

func add(c *counter) error {
	c.n++
	return nil
}
