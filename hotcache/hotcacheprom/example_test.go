package hotcacheprom_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/hotcacheprom"
)

func Example() {
	load := func(_ context.Context, id int, _ hotcache.Version) (string, hotcache.Version, error) {
		return fmt.Sprint("product ", id), 1, nil
	}
	products, err := hotcache.New(load, hotcache.Options[int, string]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer products.Close()

	caches := hotcacheprom.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(caches)
	if err := caches.Add("products", products); err != nil {
		fmt.Println(err)
		return
	}

	if _, err := products.Get(context.Background(), 7); err != nil {
		fmt.Println(err)
		return
	}
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "latchkey_cache_reads_total" && m.GetCounter().GetValue() > 0 {
				fmt.Println("answers from", m.GetLabel()[1].GetValue(), m.GetCounter().GetValue())
			}
		}
	}
	// Output: answers from load 1
}
