package rmapprom_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
	"github.com/latchkey-go/latchkey/rmap/rmapprom"
)

func Example() {
	store := rmaplocal.New(rmaplocal.Options{})
	defer store.Close()
	flags, err := rmap.Join(context.Background(), store, "flags", rmap.Options[string, bool]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer flags.Close()

	maps := rmapprom.New()
	registry := prometheus.NewRegistry()
	registry.MustRegister(maps)
	if err := maps.Add(flags); err != nil {
		fmt.Println(err)
		return
	}

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() == "latchkey_map_state" {
			for _, m := range f.GetMetric() {
				if m.GetGauge().GetValue() == 1 {
					fmt.Println(m.GetLabel()[0].GetValue(), "is", m.GetLabel()[1].GetValue())
				}
			}
		}
	}
	// Output: flags is live
}
