// Command people shows a mutable object with methods of its own. The directory is an ordinary type with two maps and
// no lock; it could not be put behind a value that is replaced without copying both at each change. One goroutine owns
// it, and others send it the calls.
//
// For methods as short as these, a plain sync.Mutex around the directory would do, and cost less. The owner pays off where
// senders need not wait for what they told, where their order matters, where an object of a library must stay with
// one goroutine, or where a call to another owner might come back: a mutex would hang, an owner refuses.
//
//	go run ./examples/people
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/latchkey-go/latchkey/actor"
)

var errUnknown = errors.New("nobody of that name")

// directory is not safe for concurrent use, and need not be.
type directory struct {
	ages  map[string]int
	years map[int][]string // names by age, changed in place
}

func newDirectory() (*directory, error) {
	return &directory{ages: make(map[string]int), years: make(map[int][]string)}, nil
}

func (d *directory) add(name string, age int) {
	d.ages[name] = age
	d.years[age] = append(d.years[age], name)
}

func (d *directory) age(name string) (int, error) {
	age, ok := d.ages[name]
	if !ok {
		return 0, fmt.Errorf("%w: %s", errUnknown, name)
	}
	return age, nil
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "people:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	people, err := actor.New(ctx, newDirectory, actor.Options{Name: "people"})
	if err != nil {
		return err
	}
	var adding sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		adding.Go(func() {
			for n := range 100 {
				name := fmt.Sprintf("%d-%d", i, n)
				// A tell does not wait for the directory; the order of one sender is kept.
				tell := people.Tell(ctx, func(d *directory) error { d.add(name, n); return nil })
				errs[i] = errors.Join(errs[i], tell)
			}
			// So this question is answered after all that this goroutine told.
			age, err := actor.Ask(ctx, people, func(d *directory) (int, error) { return d.age(fmt.Sprintf("%d-99", i)) })
			if err != nil || age != 99 {
				errs[i] = errors.Join(errs[i], err, fmt.Errorf("the last of %d has age %d", i, age))
			}
		})
	}
	adding.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err = actor.Ask(ctx, people, func(d *directory) (int, error) { return d.age("nemo") })
	if !errors.Is(err, errUnknown) {
		return errors.Join(err, errors.New("a stranger was found"))
	}
	same, err := actor.Ask(ctx, people, func(d *directory) (int, error) { return len(d.years[7]), nil })
	if err != nil || same != 4 {
		return errors.Join(err, fmt.Errorf("%d people are 7, want 4", same))
	}
	if err := people.Close(ctx); err != nil {
		return err
	}
	fmt.Println("4 senders told of 400 people, and their questions came after what they had told")
	return nil
}
