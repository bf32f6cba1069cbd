// Package redistext has the words of which texts in a Redis are made: numbers as they are written and read, and what else
// both stores of this module say and hear in the same way. What a text means is the business of its users.
package redistext

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// A Fields reads words from the beginning of a text, and remembers when one was not as it must be.
type Fields struct {
	Rest string // what is not read yet
	Bad  bool
}

// Until cuts off what is before the next sep.
func (f *Fields) Until(sep byte) string {
	i := strings.IndexByte(f.Rest, sep)
	if i < 0 {
		f.Bad = true
		return ""
	}
	word := f.Rest[:i]
	f.Rest = f.Rest[i+1:]
	return word
}

// Hex reads what Hex16 wrote. Nearly every text has some, and [strconv.ParseUint] takes four times as long.
func (f *Fields) Hex(word string) uint64 {
	if len(word) != 16 {
		f.Bad = true
		return 0
	}
	var n uint64
	for i := range len(word) {
		switch c := word[i]; {
		case '0' <= c && c <= '9':
			n = n<<4 | uint64(c-'0')
		case 'a' <= c && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default: // capitals are not what Hex16 writes
			f.Bad = true
		}
	}
	return n
}

// Number reads one in decimal that is not negative, without sign or leading zeros.
func (f *Fields) Number(word string) int64 {
	n, err := strconv.ParseUint(word, 10, 63)
	f.Bad = f.Bad || err != nil || len(word) > 1 && word[0] == '0'
	return int64(n)
}

// Hex16 writes a number in 16 hexadecimal digits.
func Hex16(n uint64) string {
	text := strconv.FormatUint(n, 16)
	const zeros = "0000000000000000"
	return zeros[len(text):] + text
}

// Random returns a random number that is not zero: zero stands for the absence of one.
func Random() uint64 {
	for {
		if n := rand.Uint64(); n != 0 {
			return n
		}
	}
}

// Quoted names a key in an error, shortened: it may be as long as keys may be.
func Quoted(key string) string {
	const most = 64
	if len(key) > most {
		return strconv.Quote(key[:most]) + "..."
	}
	return strconv.Quote(key)
}

// Limited gives a context a time limit if it has none.
func Limited(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, limit)
}

// Micros reads the answer to TIME, in microseconds.
func Micros(answer rueidis.RedisResult) (int64, error) {
	parts, err := answer.AsStrSlice()
	if err != nil {
		return 0, err
	}
	if len(parts) != 2 {
		return 0, errNoTime
	}
	seconds, err1 := strconv.ParseInt(parts[0], 10, 40)
	micros, err2 := strconv.ParseInt(parts[1], 10, 40)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("%w: %w", errNoTime, err)
	}
	return seconds*1e6 + micros, nil
}

var errNoTime = errors.New("the clock of the server: malformed")
