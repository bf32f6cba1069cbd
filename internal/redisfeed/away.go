package redisfeed

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net"
	"strings"

	"github.com/redis/rueidis"
)

// passing are the beginnings of what a server answers for a while only: it reads its data, is about to become another
// one's replica or to be the primary, or has too much to do.
var passing = [...]string{"LOADING ", "READONLY ", "MASTERDOWN ", "BUSY ", "OOM ", "MISCONF ", "NOREPLICAS ",
	"ERR max number of clients"}

// Away tells whether an error means that a server is away, which may pass without anybody's doing; as opposed to one that
// refuses whoever asks, and to a mistake in the address or the certificates.
func Away(err error) bool {
	if err == nil || errors.Is(err, ErrInvalid) || errors.Is(err, context.Canceled) || errors.Is(err, fs.ErrPermission) {
		return false
	}
	if reply := (*rueidis.RedisError)(nil); errors.As(err, &reply) {
		for _, word := range passing {
			if strings.HasPrefix(reply.Error(), word) {
				return true
			}
		}
		return false
	}
	certificate, record, remote := (*tls.CertificateVerificationError)(nil), tls.RecordHeaderError{}, (*net.OpError)(nil)
	return !errors.As(err, &certificate) && !errors.As(err, &record) &&
		!(errors.As(err, &remote) && remote.Op == "remote error") // what the other end of TLS does not like
}
