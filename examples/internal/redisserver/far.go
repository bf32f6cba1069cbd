package redisserver

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/redis/rueidis"
)

// Dial connects to the server at a URL. Whatever comes from it arrives late by away, as if the server were far.
func Dial(url string, away time.Duration) (rueidis.Client, error) {
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	dial := option.DialCtxFn // of a unix socket
	if dial == nil {
		dial = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
			if config != nil {
				return (&tls.Dialer{NetDialer: d, Config: config}).DialContext(ctx, "tcp", addr)
			}
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		conn, err := dial(ctx, addr, d, config)
		if err != nil {
			return nil, err
		}
		return late{conn, away}, nil
	}
	return rueidis.NewClient(option)
}

type late struct {
	net.Conn
	by time.Duration
}

func (l late) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	time.Sleep(l.by)
	return n, err
}
