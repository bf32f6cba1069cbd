// Command carry shows a request that carries the revision of its write from one process to another. One process takes
// orders, another shows them; both have a copy of the same map, and the second one is far from the Redis: everything
// arrives there 20 ms late. A user who orders and then looks would be shown the past, now and then. With the revision in a
// header of the request the second process waits until its copy shows the order, and not longer.
//
//	go run ./examples/carry
//	LATCHKEY_STORE=redis://localhost:6379 go run ./examples/carry
//
// It exits with 1 when a request with the header was shown the past, or when none without it was.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/examples/internal/process"
	"github.com/latchkey-go/latchkey/examples/internal/redisserver"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// header is the name of the header that carries a revision.
const header = "Orders-Revision"

const (
	rounds  = 25
	far     = 20 * time.Millisecond
	timeout = 30 * time.Second // of a request, on a busy machine
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*timeout)
	defer cancel()
	var err error
	if len(os.Args) == 3 {
		err = serve(ctx, os.Args[1], os.Args[2])
	} else {
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "carry:", err)
		os.Exit(1)
	}
}

// serve is one of the two processes.
func serve(ctx context.Context, role, name string) error {
	away := time.Duration(0)
	if role == "shows" {
		away = far
	}
	client, err := redisserver.Dial(os.Getenv(redisserver.Variable), away)
	if err != nil {
		return err
	}
	defer client.Close()
	store, err := rmapredis.New(client, rmapredis.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	orders, err := rmap.Join(ctx, store, name, rmap.Options[string, string]{})
	if err != nil {
		return err
	}
	defer orders.Close()
	if role == "takes" {
		defer orders.Destroy(context.WithoutCancel(ctx))
	}

	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{user}", func(w http.ResponseWriter, r *http.Request) { take(orders, w, r) })
	mux.HandleFunc("GET /orders/{user}", func(w http.ResponseWriter, r *http.Request) { show(orders, w, r) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: timeout}
	fmt.Println("http://" + listener.Addr().String())
	var serving sync.WaitGroup
	serving.Go(func() { err = server.Serve(listener) })
	needed := process.Needed()
	server.Close()
	serving.Wait()
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return needed
}

// take writes an order, and answers with the revision of the write.
func take(orders *rmap.Map[string, string], w http.ResponseWriter, r *http.Request) {
	revision, err := orders.Set(r.Context(), r.PathValue("user"), r.FormValue("order"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set(header, revision.String())
}

// show reads an order from the copy, which shows the revision that the request brought, if it brought one.
func show(orders *rmap.Map[string, string], w http.ResponseWriter, r *http.Request) {
	if text := r.Header.Get(header); text != "" {
		revision, err := rmap.ParseRevision(text)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		// When the revision is gone, the map has begun anew since: what is there now is all there is.
		if err := orders.WaitFor(r.Context(), revision); err != nil && !errors.Is(err, rmap.ErrGone) {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	order, _ := orders.Get(r.PathValue("user"))
	fmt.Fprint(w, order)
}

func run(ctx context.Context) error {
	server, err := redisserver.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	name := "example-carry-" + rand.Text()
	var sites []string
	for _, role := range []string{"takes", "shows"} {
		p, err := process.Start(ctx, []string{redisserver.Variable + "=" + server.URL}, role, name)
		if err != nil {
			return err
		}
		defer p.Stop()
		site, err := p.Line()
		if err != nil {
			return err
		}
		sites = append(sites, site)
	}

	var past [2]int
	for i := range 2 * rounds {
		order := fmt.Sprint("order-", i)
		_, revision, err := call(ctx, http.MethodPost, sites[0]+"/orders/ann?order="+order, "")
		if err != nil {
			return err
		}
		carried := i % 2
		if carried == 0 {
			revision = ""
		}
		seen, _, err := call(ctx, http.MethodGet, sites[1]+"/orders/ann", revision)
		if err != nil {
			return err
		}
		if seen != order {
			past[carried]++
		}
	}
	if past[1] != 0 || past[0] == 0 {
		return fmt.Errorf("of %d requests each, %d with the header and %d without were shown the past, want 0 and some",
			rounds, past[1], past[0])
	}
	fmt.Printf("with the revision none of %d requests was shown the past, without it some were\n", rounds)
	return nil
}

// call makes a request, which carries the revision if there is one, and returns the body and the revision of the answer.
func call(ctx context.Context, method, url, revision string) (body, made string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", "", err
	}
	if revision != "" {
		r.Header.Set(header, revision)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, text)
	}
	return string(text), answer.Header.Get(header), err
}
