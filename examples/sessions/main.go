// Command sessions shows a session store in which "log out everywhere" leaves no gap. One map has each token with its
// user, and each user with their tokens. A login writes two keys and a log-out many, each in one section, so that who
// copies the map meanwhile never finds a token without its place in the index, or the other way round.
//
//	go run ./examples/sessions
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/locked"
)

// A key is a user or a token. They are told apart by the field, so nobody is called like somebody's token.
type key struct{ user, token string }

// A row is what a key has: a token its user, a user their tokens, which are replaced and not appended to in place.
type row struct {
	user   string
	tokens []string
}

type store struct{ rows *locked.Map[key, row] }

func (s store) login(user, token string) error {
	return s.rows.Synchronize(func(rows *locked.Section[key, row]) error {
		r, _ := rows.Load(key{user: user})
		rows.Store(key{user: user}, row{tokens: append(slices.Clone(r.tokens), token)})
		rows.Store(key{token: token}, row{user: user})
		return nil
	})
}

func (s store) logoutEverywhere(user string) error {
	return s.rows.Synchronize(func(rows *locked.Section[key, row]) error {
		r, _ := rows.Delete(key{user: user})
		for _, token := range r.tokens {
			rows.Delete(key{token: token})
		}
		return nil
	})
}

// gaps counts tokens that are not in the index, and those of the index that are not there, in one moment's copy.
func (s store) gaps() (n int) {
	all := s.rows.Copy()
	for k, r := range all {
		if r.user != "" && !slices.Contains(all[key{user: r.user}].tokens, k.token) {
			n++
		}
		if slices.ContainsFunc(r.tokens, func(token string) bool { return all[key{token: token}].user != k.user }) {
			n++
		}
	}
	return n
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sessions:", err)
		os.Exit(1)
	}
}

func run() error {
	s := store{locked.NewMap[key, row](nil)}
	var trouble atomic.Int64 // failures, and copies with gaps
	var busy sync.WaitGroup
	for _, user := range []string{"ann", "ben"} {
		busy.Go(func() {
			for i := range 50 {
				err := s.login(user, fmt.Sprintf("token-%s-%d", user, i))
				if i%10 == 9 && user == "ann" {
					err = errors.Join(err, s.logoutEverywhere(user))
				}
				if err != nil || s.gaps() > 0 {
					trouble.Add(1)
				}
			}
		})
	}
	busy.Wait()
	if keys := len(s.rows.Keys()); trouble.Load() != 0 || keys != 51 { // ben and 50 tokens
		return fmt.Errorf("%d failures and copies with gaps, %d keys", trouble.Load(), keys)
	}
	fmt.Println("ann is logged out everywhere, ben has 50 sessions; 100 audits found no gap")
	return nil
}
