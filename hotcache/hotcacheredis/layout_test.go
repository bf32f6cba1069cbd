package hotcacheredis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
)

const place = "0123456789abcdef 7 fedcba9876543210"

func TestHeader(t *testing.T) {
	rest := " 1700000000000000 1700000000000001 3 60000000 0123456789abcdef.fedcba9876543210"
	p, err := parseHeader("1 "+place+rest, format)
	if err != nil || p != (hotcache.Position{Generation: 0x0123456789abcdef, Number: 7, Nonce: 0xfedcba9876543210}) {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "1", "x " + place + rest, "1 " + place, "1 " + place + rest + " ", "0 " + place + rest, "-1 " + place + rest,
		"1 0000000000000000 7 fedcba9876543210" + rest, "1 0123456789abcdef 7 0000000000000000" + rest, "1 0123456789abcde 7 fedcba9876543210" + rest,
		"1 0123456789ABCDEF 7 fedcba9876543210" + rest, "1 " + place + " 1 2 03 4 x", "1 " + place + " 1 -2 3 4 x", "99999999999 " + place + rest} {
		if _, err := parseHeader(bad, format); !errors.Is(err, errMalformed) {
			t.Errorf("%q: %v, want malformed", bad, err)
		}
	}
	for _, newer := range []string{"2 " + place, "2 whatever it is", "17 ", "2"} {
		if _, err := parseHeader(newer, format); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v, want ErrFormat", newer, err)
		}
	}
}

const recordHead = "1 0123456789abcdef 0000000000000007 00000000000000ff 0 1700000000000001 1700000000000002 1700000000000003 "

func TestRecord(t *testing.T) {
	r, err := parseRecord(recordHead+"\x00 \n", format)
	if err != nil || r.item.Version != 0xff || r.item.Absent || string(r.item.Data) != "\x00 \n" ||
		r.stamp != (hotcache.Stamp{Generation: 0x0123456789abcdef, Number: 7}) {
		t.Fatalf("%+v, %v", r, err)
	}
	if got, want := r.times(1700000000000000), (hotcache.Times{Soft: time.Microsecond, Hard: 2 * time.Microsecond, Keep: 3 * time.Microsecond}); got != want {
		t.Errorf("times %+v, want %+v", got, want)
	}
	absent := strings.Replace(recordHead, " 0 17", " 1 17", 1)
	if r, err := parseRecord(absent, format); err != nil || !r.item.Absent || r.item.Data != nil {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{"", "1", "hello", recordHead[:len(recordHead)-1], absent + "data", strings.Replace(recordHead, " 0 17", " 2 17", 1),
		strings.Replace(recordHead, "1700000000000001", "170000000000001", 1), "0" + recordHead[1:], strings.ToUpper(recordHead),
		recordHead + strings.Repeat("x", hotcache.MaxValue+1)} {
		if _, err := parseRecord(bad, format); !errors.Is(err, errMalformed) {
			t.Errorf("%.40q: %v, want malformed", bad, err)
		}
	}
	if _, err := parseRecord("2"+recordHead[1:], format); !errors.Is(err, ErrFormat) {
		t.Errorf("a newer one: %v", err)
	}
}

const messageHead = "1 i " + place + " 1111111111111111 00000000000000ff "

func TestMessage(t *testing.T) {
	m, err := parseMessage(messageHead+"me\nk\n ", format)
	if err != nil || m.kind != 'i' || m.inv.Key != "k\n " || m.by != "me" || m.inv.Version != 0xff || m.inv.Number != 7 ||
		m.inv.Prev != 0x1111111111111111 || m.inv.Nonce != 0xfedcba9876543210 {
		t.Fatalf("%+v, %v", m, err)
	}
	if m, err := parseMessage(messageHead+"\nk", format); err != nil || m.by != "" {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := parseMessage("1 w\nkey", format); err != nil || m.kind != 'w' || m.text != "key" {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := parseMessage("1 t\n", format); err != nil || m.kind != 't' || m.text != "" {
		t.Errorf("%+v, %v", m, err)
	}
	for _, bad := range []string{"", "1", "1 ", "1 x\nk", "1 w\n", "1 w", "1 i", "1 i ", messageHead, messageHead + "me", messageHead + "me\n",
		messageHead + "a b\nk", messageHead + "?\nk", messageHead + strings.Repeat("m", maxMember+1) + "\nk", "hello",
		"1 i 0123456789abcdef 0 fedcba9876543210 1111111111111111 00000000000000ff \nk",
		"1 i " + place + " 0000000000000000 00000000000000ff \nk", "1 w\n" + strings.Repeat("k", hotcache.MaxKey+1),
		messageHead + "\n" + strings.Repeat("k", hotcache.MaxKey+1), "1 t\n" + strings.Repeat("t", MaxTell+hotcache.MaxKey)} {
		if _, err := parseMessage(bad, format); !errors.Is(err, errMalformed) {
			t.Errorf("%.80q: %v, want malformed", bad, err)
		}
	}
	if _, err := parseMessage("2 anything", format); !errors.Is(err, ErrFormat) {
		t.Errorf("a newer one: %v", err)
	}
}

func TestMember(t *testing.T) {
	for _, good := range []hotcache.Member{"a", "Z9-_", hotcache.Member(strings.Repeat("m", maxMember))} {
		if err := checkMember(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []hotcache.Member{"", "?", "a b", "a\n", "ä", hotcache.Member(strings.Repeat("m", maxMember+1))} {
		if err := checkMember(bad); !errors.Is(err, hotcache.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0", 1: "1", time.Millisecond: "1", time.Millisecond + 1: "2",
		1<<63 - 1: fmt.Sprint(longest.Milliseconds())} {
		if got := millis(d); got != want {
			t.Errorf("%v is %s ms, want %s", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0", 1500: "1", -1500: "-1", 1<<63 - 1: fmt.Sprint(longest.Microseconds()),
		-1 << 63: fmt.Sprint(-longest.Microseconds())} {
		if got := micros(d); got != want {
			t.Errorf("%v is %s us, want %s", d, got, want)
		}
	}
}

// What is read without an error has sense, and reading ends.
func FuzzMessage(f *testing.F) {
	for _, text := range []string{messageHead + "me\nkey", "1 w\nkey", "1 t\ntext", "2 x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMessage(text, format)
		if err != nil {
			return
		}
		head, key, _ := strings.Cut(text, "\n")
		switch {
		case m.kind == 'i' && (m.inv.Key != key || key == "" || m.inv.Number == 0 || m.inv.Generation == 0 || m.inv.Nonce == 0 || m.inv.Prev == 0),
			m.kind != 'i' && (m.text != key || head != "1 "+string(m.kind)):
			t.Errorf("%q was read as %+v", text, m)
		}
	})
}

func FuzzRecord(f *testing.F) {
	for _, text := range []string{recordHead, recordHead + "data", strings.Replace(recordHead, " 0 17", " 1 17", 1)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRecord(text, format)
		if err != nil {
			return
		}
		absent := 0
		if r.item.Absent {
			absent = 1
		}
		again := fmt.Sprintf("1 %016x %016x %016x %d %016d %016d %016d %s", r.stamp.Generation, r.stamp.Number, r.item.Version, absent,
			r.soft, r.hard, r.keep, r.item.Data)
		if again != text {
			t.Errorf("%q was read as %q", text, again)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add("1 " + place + " 1 2 3 4 x")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseHeader(text, format)
		if err == nil && (p.Generation == 0 || p.Nonce == 0 || !strings.HasPrefix(text, fmt.Sprintf("1 %016x %d %016x ", p.Generation, p.Number, p.Nonce))) {
			t.Errorf("%q was read as %+v", text, p)
		}
	})
}
