package redisfeed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// ErrInvalid: the URL of a server is none, or the server is of a kind whose messages and data are not in one order.
var ErrInvalid = errors.New("invalid")

// DialOptions are those of [Dial].
type DialOptions struct {
	// Timeout is how long connecting may take, if the context does not end before, and a write later.
	Timeout time.Duration
	// TLS says which certificates are trusted and shown; nil trusts those of the system. It needs a rediss:// URL.
	TLS *tls.Config
	// Later makes a client of a server that is [Away] too: it connects when it is asked for something, and [Greet] has to
	// be called before it is relied on.
	Later bool
}

// Dial makes a client that a [Hub] can stand on: one pipelined connection by RESP3, without a cache and without retries
// of its own, to a server that is no Redis Cluster. It returns the number of the database that the client selects. The
// client is the caller's to close. An error wraps [ErrInvalid] when the URL or the kind of server is wrong, and never
// shows a password; any other means that the server did not answer, or let nobody in. With Later there can be a client
// beside an error: the server is away.
func Dial(ctx context.Context, address string, o DialOptions) (client rueidis.Client, database int, err error) {
	option, err := parse(address)
	if err != nil {
		return nil, 0, err
	}
	if o.TLS != nil {
		if option.TLSConfig == nil {
			return nil, 0, fmt.Errorf("%w: a TLS configuration with a URL that is not rediss://", ErrInvalid)
		}
		name := option.TLSConfig.ServerName
		if option.TLSConfig = o.TLS.Clone(); option.TLSConfig.ServerName == "" {
			option.TLSConfig.ServerName = name
		}
	}
	wait := o.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	option.Dialer.Timeout = max(wait, time.Millisecond)
	option.ConnWriteTimeout = o.Timeout
	option.DisableCache = true // its own caching is of no use here, and would cost memory for each connection
	option.DisableRetry = true // who calls decides
	option.PipelineMultiplex = -1
	option.ForceSingleClient = true
	if client, err = rueidis.NewClient(option); err == nil {
		err = Greet(ctx, client)
	}
	if err == nil {
		return client, option.SelectDB, nil
	}
	err = fmt.Errorf("%s: %w", strings.Join(option.InitAddress, ", "), err)
	if o.Later && client != nil && Away(err) {
		return client, option.SelectDB, err
	}
	if client != nil {
		client.Close()
	}
	return nil, 0, err
}

// A greeter is a client, or one connection of it.
type greeter interface {
	B() rueidis.Builder
	Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult
}

// Greet refuses a server on which no hub can stand.
func Greet(ctx context.Context, client greeter) error {
	says, err := client.Do(ctx, client.B().Hello().Build()).AsMap()
	if err != nil {
		return err
	}
	mode := says["mode"]
	if text, _ := mode.ToString(); text == "cluster" {
		return errCluster
	}
	return nil
}

var errCluster = fmt.Errorf("%w: it is a Redis Cluster, where what is published and what is stored are not in one order; "+
	"use a server of its own", ErrInvalid)

// Check refuses a client on which no hub can stand.
func Check(client rueidis.Client) error {
	if client == nil {
		return fmt.Errorf("%w: the client is nil", ErrInvalid)
	}
	if client.Mode() == rueidis.ClientModeCluster {
		return fmt.Errorf("the client: %w", errCluster)
	}
	return nil
}

// parse reads the URL of a server. Its errors do not show the password.
func parse(address string) (rueidis.ClientOption, error) {
	bad := func(why string) (rueidis.ClientOption, error) {
		return rueidis.ClientOption{}, fmt.Errorf("%w: the URL of the server %s; it looks like "+
			"redis://user:password@host:port/0, rediss://host:port or unix:///path, with %%2F for / and %%40 for @ and so on "+
			"in the password", ErrInvalid, why)
	}
	u, err := url.Parse(address)
	if err != nil {
		// What a parser says quotes from the URL, and with a password that is not escaped that can be a part of it.
		return bad("is none")
	}
	switch {
	case u.Scheme == "unix" && u.Path == "":
		return bad("has no path")
	case u.Scheme != "unix" && u.Scheme != "redis" && u.Scheme != "rediss":
		return bad("has another scheme")
	case u.Query().Get("protocol") == "2":
		return bad("asks for protocol 2, and messages come by protocol 3")
	}
	option, err := rueidis.ParseURL(address)
	if err != nil {
		return bad("has a part that is not understood, such as the number of the database")
	}
	if option.TLSConfig != nil {
		option.TLSConfig.MinVersion = tls.VersionTLS12
	}
	return option, nil
}
