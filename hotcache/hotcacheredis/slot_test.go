package hotcacheredis

import (
	"strings"
	"testing"
)

// TestOneSlot: whatever one script touches has the namespace in its first braces, and so is in one slot of a cluster,
// whatever the key of the cache looks like. A cache never needs two keys of Redis that could be on different servers.
func TestOneSlot(t *testing.T) {
	k := keys{base: "latchkey:cache:{prices}"}
	for _, key := range []string{"k", "{other}", "}{", "a:b"} {
		for _, name := range []string{k.floors(), k.former(), k.members(), k.item(key), k.load(key), k.copied(key), k.feed(), k.to("me")} {
			_, rest, _ := strings.Cut(name, "{")
			if tag, _, _ := strings.Cut(rest, "}"); tag != "prices" {
				t.Errorf("%q is in the slot of %q", name, tag)
			}
		}
	}
}
