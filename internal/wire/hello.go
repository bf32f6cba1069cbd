package wire

import (
	"bytes"
	"strconv"

	"github.com/latchkey-go/latchkey/lease"
)

// Hello is the first frame of either side. A client sends Version and Features;
// the server's answer has all fields.
type Hello struct {
	Version    int
	Features   []string // optional parts of the protocol that the sender knows
	Server     string   // product and version, for people
	Durability string   // see lease.Stats
	Fencing    string   // see lease.Stats
}

// ErrOtherDialect is the cause of the error for a first frame that is an object
// but no hello: what older clients of the same port's other dialect send.
const ErrOtherDialect lease.Code = "other_dialect"

// AppendHello appends a hello with its newline.
func AppendHello(b []byte, h *Hello) []byte {
	b = append(b, `{"latchkey":`...)
	b = strconv.AppendInt(b, int64(h.Version), 10)
	b = append(name(b, "features"), '[')
	for _, f := range h.Features {
		b = quote(comma(b), f)
	}
	b = append(b, ']')
	b = addText(b, "server", h.Server)
	b = addText(b, "durability", h.Durability)
	b = addText(b, "fencing", h.Fencing)
	return append(b, '}', '\n')
}

// DecodeHello reads the first frame of a client. Every error is a *lease.Error
// with lease.ErrProtocol: one error frame and a close answer it.
func DecodeHello(line []byte) (Hello, error) {
	h, other, err := decodeHello(line)
	switch {
	case err != nil:
		return h, err
	case h.Version == 0:
		return h, &lease.Error{Code: lease.ErrProtocol, Cause: ErrOtherDialect, Reason: `the first frame has no ` +
			`"latchkey" field, so it is of the live-mutex dialect, which this server does not speak; ` +
			`begin with {"latchkey":1,"features":[]}`}
	case h.Version != Version:
		return h, protocolError("version %d of the protocol is not spoken here, version %d is", h.Version, Version)
	case other != "":
		return h, protocolError("unknown field %s in the hello; it has latchkey and features", lease.QuoteKey(other))
	}
	return h, nil
}

// DecodeHelloReply reads the first frame of a server. When the server answered
// with a failure, that is the error; otherwise it has lease.ErrProtocol.
func DecodeHelloReply(line []byte) (Hello, error) {
	h, _, err := decodeHello(line)
	switch {
	case bytes.HasPrefix(line, []byte("HTTP/")):
		return h, protocolError("what answers speaks HTTP: the HTTP API of a broker has an address of its own, this must be the other one")
	case err != nil:
		return h, protocolError("what answers is no Latchkey broker: %s", reasonOf(err))
	case h.Version == Version:
		return h, nil
	case h.Version != 0:
		return h, protocolError("the server speaks version %d of the protocol, this client version %d", h.Version, Version)
	}
	var r Reply
	if err := DecodeReply(line, &r); err == nil && r.Kind == Failed {
		return h, r.Err()
	}
	return h, protocolError("the server's first frame is not a hello: is this the address of a Latchkey broker?")
}

// reasonOf is what an error of this package says behind its code.
func reasonOf(err error) string {
	if e, ok := err.(*lease.Error); ok {
		return e.Reason
	}
	return err.Error()
}

// decodeHello reads a hello of either side and names the first field that a
// client's has not.
func decodeHello(line []byte) (h Hello, other string, err error) {
	d := decoder{scanner: scanner{data: line}}
	if d.peek() != '{' {
		return h, "", notObject(line)
	}
	version := false
	d.object(func(field string) {
		switch {
		case field == "latchkey" && version:
			d.complain("latchkey appears twice")
			d.skip(1)
		case field == "latchkey":
			version = true
			h.Version = int(d.integer(1, 1<<31-1))
		case field == "features":
			h.Features = d.texts()
		case field == "server":
			h.Server, other = d.helloText(field, other)
		case field == "durability":
			h.Durability, other = d.helloText(field, other)
		case field == "fencing":
			h.Fencing, other = d.helloText(field, other)
		default:
			if other == "" {
				other = field
			}
			d.skip(1)
		}
	})
	d.finish()
	switch {
	case d.err != "":
		return h, "", protocolError("not JSON: %s at byte %d", d.err, d.at+1)
	case version && d.wrong != "":
		return h, "", protocolError("%s", d.wrong)
	}
	return h, other, nil
}

func (d *decoder) helloText(field, other string) (string, string) {
	if other == "" {
		other = field
	}
	return d.text(), other
}
