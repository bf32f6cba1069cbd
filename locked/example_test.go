package locked_test

import (
	"errors"
	"fmt"
	"sync"

	"github.com/latchkey-go/latchkey/locked"
)

// Four race to take the deploy lock. Each function runs exactly once, so exactly one of them
// knows that it won.
func ExampleVar() {
	var holder locked.Var[string]
	var wins locked.Var[int]
	var wg sync.WaitGroup
	for _, name := range []string{"ann", "ben", "cho", "dee"} {
		wg.Go(func() {
			won := false
			holder.Update(func(now string) (string, error) {
				if now != "" {
					return now, nil
				}
				won = true
				return name, nil
			})
			if won {
				locked.Add(&wins, 1)
			}
		})
	}
	wg.Wait()
	fmt.Println(wins.Load(), "of four has the lock")
	// Output: 1 of four has the lock
}

// A session store maps each token to its user, and each user to the tokens, so that all of a
// user's can be revoked at once.
func ExampleMap() {
	sessions := locked.NewMap[string, []string](nil)
	login := func(token, user string) error {
		return sessions.Synchronize(func(s *locked.Section[string, []string]) error {
			tokens, _ := s.Load(user)
			s.Store(token, []string{user})
			s.Store(user, append(tokens[:len(tokens):len(tokens)], token)) // a copy: readers may have the old one
			return nil
		})
	}
	logoutEverywhere := func(user string) error {
		return sessions.Synchronize(func(s *locked.Section[string, []string]) error {
			tokens, ok := s.Delete(user)
			if !ok {
				return errors.New("nobody of that name")
			}
			for _, t := range tokens {
				s.Delete(t)
			}
			return nil
		})
	}
	login("t1", "ann")
	login("t2", "ann")
	login("t3", "ben")
	fmt.Println(logoutEverywhere("ann"), logoutEverywhere("ann"))
	fmt.Println(sessions)
	// Output:
	// <nil> nobody of that name
	// map[ben:[t3] t3:[ben]]
}

// Four hundred fetches of ten pages render each page once.
func ExampleKeyMap_GetOrCreate() {
	pages := locked.NewKeyMap[int, string](nil)
	var renders locked.Var[int]
	render := func(page int) (string, error) { return fmt.Sprintf("<p>page %d</p>", page), nil }
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 100 {
				mine := false
				pages.GetOrCreate(i%10, func() (string, error) {
					mine = true
					return render(i % 10)
				})
				if mine { // inside of the function a second lock would be refused
					locked.Add(&renders, 1)
				}
			}
		})
	}
	wg.Wait()
	page, _ := pages.Load(7)
	fmt.Println(renders.Load(), "renders,", page)
	// Output: 10 renders, <p>page 7</p>
}

// A second lock inside of the first is refused, by name.
func ExampleNestedError() {
	from, to := locked.NewVar(100), locked.NewVar(0)
	_, err := from.Update(func(n int) (int, error) {
		if _, err := to.Update(func(m int) (int, error) { return m + 10, nil }); err != nil {
			return 0, err
		}
		return n - 10, nil
	})
	fmt.Println(err)
	fmt.Println(errors.Is(err, locked.ErrNested), from.Load(), to.Load())
	// Output:
	// Update of a locked.Var inside of an update of a locked.Var is refused: values that change together belong into stm.Vars, or into one locked.Map; one that is only looked at may be read with Peek
	// true 100 0
}

// A sweep takes out what is of no use any more, and nothing that is of use again by then.
func ExampleKeyMap_DeleteIf() {
	open := locked.NewKeyMap(map[string]int{"ann": 2, "ben": 0, "cho": 0})
	for name := range open.All() {
		open.DeleteIf(name, func(windows int) bool { return windows == 0 })
	}
	fmt.Println(open)
	// Output: map[ann:2]
}

// Numbers of keys are counted without a function.
func ExampleAddTo() {
	hits := locked.NewKeyMap[string, int](nil)
	for _, word := range []string{"a", "b", "a"} {
		locked.AddTo(hits, word, 1)
	}
	fmt.Println(hits)
	old, had := hits.Delete("a")
	fmt.Println(old, had, hits.Contains("a"))
	// Output:
	// map[a:2 b:1]
	// 2 true false
}
