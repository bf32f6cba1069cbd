package rmapredis

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/rmap"
)

const place = "0123456789abcdef 7 fedcba9876543210"

func TestHeader(t *testing.T) {
	h, err := parseHeader("1 "+place+" 3 1500 1 1700000000000 1", format)
	if err != nil || h.Revision != (rmap.Revision{Generation: 0x0123456789abcdef, Number: 7, Nonce: 0xfedcba9876543210}) ||
		h.Cleared != 3 || h.Lifetime.TTL.Milliseconds() != 1500 || !h.Lifetime.Sliding || h.Expires != 1700000000000 {
		t.Fatalf("%+v, %v", h, err)
	}
	for _, bad := range []string{"", "1", "x " + place + " 3 0 0 0 0", "1 " + place + " 3 0 0 0", "1 " + place + " 3 0 0 0 0 ", "1 " + place + " 3 0 0 0 2",
		"1 " + place + " 8 0 0 0 0", "1 " + place + " 3 0 2 0 0", "1 " + place + " -3 0 0 0 0", "1 " + place + " 03 0 0 0 0",
		"1 0000000000000000 7 fedcba9876543210 3 0 0 0 0", "1 0123456789abcdef 0 fedcba9876543210 0 0 0 0 0",
		"1 0123456789abcde 7 fedcba9876543210 3 0 0 0 0", "0 " + place + " 3 0 0 0 0", "-1 " + place + " 3 0 0 0 0",
		"1 " + place + " 3 99999999999999999 0 0 0", "99999999999 " + place + " 3 0 0 0 0"} {
		if _, err := parseHeader(bad, format); err == nil || errors.Is(err, rmap.ErrFormat) {
			t.Errorf("%q: %v, want an error that is not ErrFormat", bad, err)
		}
	}
	for _, newer := range []string{"2 " + place + " 3 0 0 0 0", "2 whatever it is", "17 ", "2"} {
		if _, err := parseHeader(newer, format); !errors.Is(err, rmap.ErrFormat) {
			t.Errorf("%q: %v, want ErrFormat", newer, err)
		}
	}
}

func TestEntry(t *testing.T) {
	e, err := parseEntry("k", "7.fedcba9876543210:1700000000000:p\x00:\n")
	if err != nil || e.Number != 7 || e.Nonce != 0xfedcba9876543210 || e.Deadline != 1700000000000 ||
		e.Value != plain("\x00:\n") || e.Key != "k" {
		t.Fatalf("%+v, %v", e, err)
	}
	if e, err := parseEntry("k", "7.fedcba9876543210::l"); err != nil || e.Value != (rmap.Value{Kind: rmap.List}) || e.Deadline != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	for _, bad := range []string{"", "hello", "7.fedcba9876543210::", "7.fedcba9876543210::qx", "7.fedcba9876543210:0:px",
		"7.fedcba987654321::px", "0.fedcba9876543210::px", "7.0000000000000000::px", "7.fedcba9876543210:px",
		"7.fedcba9876543210::p" + strings.Repeat("x", rmap.MaxValue+1)} {
		if _, err := parseEntry("k", bad); err == nil {
			t.Errorf("%.40q was read", bad)
		}
	}
	if _, err := parseEntry("", "7.fedcba9876543210::px"); err == nil {
		t.Error("an entry without a key was read")
	}
}

const messageHead = "1 " + place + " 1111111111111111 1700000000000 0\n"

func TestMessage(t *testing.T) {
	entry := "7.fedcba9876543210:5:iv"
	text := messageHead + "d2:\n:" + "x1:b" + "c" + fmt.Sprintf("s3:k\x00y%d:%s", len(entry), entry) + "y"
	ch, err := parseMessage(text, format)
	if err != nil || len(ch.Steps) != 5 || ch.Prev != 0x1111111111111111 || ch.Now != 1700000000000 {
		t.Fatalf("%+v, %v", ch, err)
	}
	want := rmap.Step{Do: rmap.DoSet, Entry: rmap.Entry{Key: "k\x00y", Value: rmap.Value{Kind: rmap.Integer, Data: "v"}, Number: 7,
		Nonce: 0xfedcba9876543210, Deadline: 5}}
	if ch.Steps[0].Entry.Key != "\n:" || ch.Steps[3] != want || ch.Steps[4].Do != rmap.DoDestroy {
		t.Errorf("%+v", ch.Steps)
	}
	for _, bad := range []string{"", messageHead, messageHead + "z", messageHead + "d", messageHead + "d1", messageHead + "d1:", messageHead + "d0:", messageHead + "d9:k",
		messageHead + "d01:k", messageHead + "d-1:k", messageHead + "d99999999999999999999:k", messageHead + "s1:k", messageHead + "s1:k3:abc",
		messageHead + "s1:k23:8.fedcba9876543210:5:iv", // of another change
		"0 " + messageHead[2:] + "c", "set:0123", "hello", "1 " + place + " 0000000000000000 1 0\nc",
		"1 0123456789abcdef 1 fedcba9876543210 1111111111111111 1 0\nc"} {
		if _, err := parseMessage(bad, format); err == nil || errors.Is(err, rmap.ErrFormat) {
			t.Errorf("%q: %v, want an error that is not ErrFormat", bad, err)
		}
	}
	if _, err := parseMessage("2 what only a later version knows", format); !errors.Is(err, rmap.ErrFormat) {
		t.Errorf("a newer message: %v", err)
	}
}

func FuzzMessage(f *testing.F) {
	entry := "7.fedcba9876543210:5:iv"
	f.Add(messageHead + "c")
	f.Add(messageHead + fmt.Sprintf("d1:ks1:k%d:%s", len(entry), entry))
	f.Add("2 x")
	f.Fuzz(func(t *testing.T, text string) {
		ch, err := parseMessage(text, format)
		if err != nil {
			return
		}
		if back := message(ch); back != text {
			t.Errorf("%q was read as %+v, which is written as %q", text, ch, back)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add("1 " + place + " 3 1500 1 1700000000000")
	f.Add("2 ")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHeader(text, format)
		if err != nil {
			return
		}
		sliding := "0"
		if h.Lifetime.Sliding {
			sliding = "1"
		}
		back := fmt.Sprintf("1 %016x %d %016x %d %d %s %d", h.Revision.Generation, h.Revision.Number, h.Revision.Nonce, h.Cleared,
			h.Lifetime.TTL.Milliseconds(), sliding, h.Expires)
		if !strings.EqualFold(back, text) {
			t.Errorf("%q was read as %+v", text, h)
		}
	})
}

func FuzzEntry(f *testing.F) {
	f.Add("k", "7.fedcba9876543210:1700000000000:pdata")
	f.Fuzz(func(t *testing.T, key, text string) {
		e, err := parseEntry(key, text)
		if err == nil && written(e) != text {
			t.Errorf("%q was read as %+v", text, e)
		}
	})
}

// message and written are what the scripts write, again.
func message(ch rmap.Change) string {
	text := fmt.Sprintf("1 %016x %d %016x %016x %d %d\n", ch.Revision.Generation, ch.Revision.Number, ch.Revision.Nonce,
		ch.Prev, ch.Now, ch.Expires)
	for _, s := range ch.Steps {
		text += string(rune(s.Do))
		if key := s.Entry.Key; key != "" {
			text += strconv.Itoa(len(key)) + ":" + key
		}
		if s.Do == rmap.DoSet {
			entry := written(s.Entry)
			text += strconv.Itoa(len(entry)) + ":" + entry
		}
	}
	return text
}

func written(e rmap.Entry) string {
	deadline := ""
	if e.Deadline != 0 {
		deadline = strconv.FormatInt(e.Deadline, 10)
	}
	return fmt.Sprintf("%d.%016x:%s:%c%s", e.Number, e.Nonce, deadline, e.Value.Kind, e.Value.Data)
}

// The limits in the script are those of the contract.
func TestLimitsInLua(t *testing.T) {
	want := map[string]int64{
		"PURGE": rmap.PurgeBatch, "GRAVE": rmap.TombstoneTTL.Milliseconds(), "MAXKEY": rmap.MaxKey,
		"MAXVALUE": rmap.MaxValue, "MAXWRITE": rmap.MaxWrite,
	}
	for _, m := range regexp.MustCompile(`(?m)^local ([A-Z, ]+) = ([0-9, ]+)$`).FindAllStringSubmatch(prelude, -1) {
		names, values := strings.Split(m[1], ", "), strings.Split(m[2], ", ")
		for i, name := range names {
			if n, err := strconv.ParseInt(values[i], 10, 64); err == nil && want[name] == n {
				delete(want, name)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("lua/prelude.lua has other values of %v", want)
	}
}
