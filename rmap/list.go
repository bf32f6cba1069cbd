package rmap

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// EncodeList returns items as the data of a [List]: each with its length in decimal and a colon before it, one after
// the other, so that any store can add and remove items without knowing what they mean.
func EncodeList(items []string) string {
	var b strings.Builder
	for _, item := range items {
		b.WriteString(strconv.Itoa(len(item)))
		b.WriteByte(':')
		b.WriteString(item)
	}
	return b.String()
}

// DecodeList returns the items of a [List].
func DecodeList(data string) ([]string, error) {
	var items []string
	for at := 0; at < len(data); {
		colon := strings.IndexByte(data[at:], ':')
		if colon < 1 || colon > len("1048576") {
			return nil, badList(at)
		}
		n, err := strconv.ParseUint(data[at:at+colon], 10, 31)
		at += colon + 1
		if err != nil || n > uint64(len(data)-at) {
			return nil, badList(at)
		}
		items = append(items, data[at:at+int(n)])
		at += int(n)
	}
	return items, nil
}

func badList(at int) error {
	return fmt.Errorf("%w: not a list: no item begins before byte %d", ErrDecode, at)
}

// ChangeList returns what a list becomes by one of the list actions, for stores and for those who know a list before
// an operation and want it after. It leaves the lists that it is given alone.
func ChangeList(do Action, list, items []string) []string {
	if do == DoRemove {
		return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(items, s) })
	}
	out := slices.Clip(list)
	for _, item := range items {
		if do == DoAppendUnique && slices.Contains(out, item) {
			continue
		}
		out = append(out, item)
	}
	return out
}
