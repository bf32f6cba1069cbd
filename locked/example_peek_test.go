package locked_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/locked"
)

// Peek and Load differ while an update is in flight: Peek returns what was stored before, and Load waits for its end.
func ExampleVar_Peek() {
	v := locked.NewVar("old")
	inside, finish, over := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		defer close(over)
		if _, err := v.Update(func(string) (string, error) {
			close(inside)
			<-finish
			return "new", nil
		}); err != nil {
			fmt.Println(err)
		}
	}()
	<-inside
	fmt.Println(v.Peek())
	impatient, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := v.LoadContext(impatient)
	fmt.Println(errors.Is(err, context.Canceled))
	close(finish)
	fmt.Println(v.Load())
	<-over
	// Output:
	// old
	// true
	// new
}

// The function is told whether there is a value, so that a key is claimed once.
func ExampleKeyMap_Update() {
	jobs := locked.NewKeyMap[int, string](nil)
	claim := func(job int, who string) {
		owner, err := jobs.Update(job, func(old string, ok bool) (string, error) {
			if ok {
				return old, nil
			}
			return who, nil
		})
		fmt.Println(job, "is", owner+"'s", err)
	}
	claim(1, "ann")
	claim(2, "ben")
	claim(1, "cho")
	// Output:
	// 1 is ann's <nil>
	// 2 is ben's <nil>
	// 1 is ann's <nil>
}
