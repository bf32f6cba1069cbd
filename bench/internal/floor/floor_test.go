package floor

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

func TestMessages(t *testing.T) {
	for _, c := range [][2]string{{"key", "value"}, {"", ""}, {"12:a", ":b"}} {
		if k, v, err := parse(Message(c[0], c[1])); k != c[0] || v != c[1] || err != nil {
			t.Errorf("%q comes back as %q, %q, %v", c, k, v, err)
		}
	}
	for _, text := range []string{"", "3", "4:abc", "-1:abc", "x:abc"} {
		if _, _, err := parse(text); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}

func TestTwoCopies(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true, PipelineMultiplex: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	seen := make(chan string, 1)
	a, err := Join(t.Context(), client, "m", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if err := a.Fill(t.Context(), []string{"x", "y"}, []string{"1", "2"}); err != nil {
		t.Fatal(err)
	}
	b, err := Join(t.Context(), client, "m", func(key string) { seen <- key })
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if v, ok := b.Get("y"); v != "2" || !ok || b.Len() != 2 {
		t.Errorf("Get = %q, %v of %d entries", v, ok, b.Len())
	}
	if err := a.Set(t.Context(), "x", "3"); err != nil {
		t.Fatal(err)
	}
	select {
	case key := <-seen:
		if v, _ := b.Get(key); key != "x" || v != "3" {
			t.Errorf("key %q became %q", key, v)
		}
	case <-t.Context().Done():
	}
}
