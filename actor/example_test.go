package actor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/latchkey-go/latchkey/actor"
)

// People is an ordinary type, not made for more than one goroutine.
type People struct {
	ages map[string]int
}

func NewPeople() (*People, error) { return &People{ages: make(map[string]int)}, nil }

func (p *People) Add(name string, age int) error {
	if age < 0 {
		return fmt.Errorf("%s is not born yet", name)
	}
	p.ages[name] = age
	return nil
}

func (p *People) Age(name string) (int, error) {
	age, ok := p.ages[name]
	if !ok {
		return 0, fmt.Errorf("nobody is called %s", name)
	}
	return age, nil
}

// A mutable object with methods of its own, shared by goroutines.
func ExampleObject() {
	ctx := context.Background()
	people, err := actor.New(ctx, NewPeople, actor.Options{
		OnError: func(err error) { fmt.Println("a tell failed:", err) },
		Name:    "people",
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	// Work that is sent, and not waited for.
	_ = people.Tell(ctx, func(p *People) error { return p.Add("ada", 36) })
	_ = people.Tell(ctx, func(p *People) error { return p.Add("bob", -1) })

	// A question, which comes after the work of the same goroutine.
	age, err := actor.Ask(ctx, people, func(p *People) (int, error) { return p.Age("ada") })
	fmt.Println(age, err)
	_, err = actor.Ask(ctx, people, func(p *People) (int, error) { return p.Age("bob") })
	fmt.Println(err)

	err = people.Close(ctx)
	fmt.Println("closed:", err)
	// Output:
	// a tell failed: people: bob is not born yet
	// 36 <nil>
	// nobody is called bob
	// closed: <nil>
}

// A log that three workers append to in place.
func ExampleMap() {
	ctx := context.Background()
	m, err := actor.NewMap[string, []string](nil, actor.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close(ctx)
	var wg sync.WaitGroup
	for _, worker := range []string{"a", "b", "c"} {
		wg.Go(func() {
			_ = m.Tell(ctx, func(s map[string][]string) error {
				s["log"] = append(s["log"], "line of "+worker)
				return nil
			})
		})
	}
	wg.Wait()

	// What leaves the owner is a copy.
	lines, err := actor.Ask(ctx, m, func(s map[string][]string) ([]string, error) { return slices.Clone(s["log"]), nil })
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, ", "), err)
	// Output: line of a, line of b, line of c <nil>
}

// Answers that are waited for later, when all questions are under way.
func ExampleSend() {
	ctx := context.Background()
	m, err := actor.NewMap(map[string]int{"a": 1, "b": 2}, actor.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close(ctx)
	var answers []*actor.Future[int]
	for _, key := range []string{"a", "b"} {
		f, err := actor.Send(ctx, m, func(s map[string]int) (int, error) { return s[key] * 10, nil })
		if err != nil {
			fmt.Println(err)
			return
		}
		answers = append(answers, f)
	}
	for _, f := range answers {
		n, err := f.Wait(ctx)
		fmt.Println(n, err)
	}
	// Output:
	// 10 <nil>
	// 20 <nil>
}

// An ask inside a message of the same owner would wait for itself.
func ExampleAsk_refused() {
	ctx := context.Background()
	people, err := actor.New(ctx, NewPeople, actor.Options{Name: "people"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer people.Close(ctx)
	err = people.Do(ctx, func(*People) error {
		return people.Do(ctx, func(p *People) error { return p.Add("ada", 36) })
	})
	fmt.Println(errors.Is(err, actor.ErrNested))
	fmt.Println(err)
	// Output:
	// true
	// an ask of people inside of a message of an actor is refused: it is the owner of this message, which would wait for itself: call the method directly
}
