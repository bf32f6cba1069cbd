package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// ownUser is the user with which this package talks to its servers. It may do
// everything, whatever the test does to the default user. It is also the name of
// the connections.
const ownUser = "redistest"

// An Error is the server's answer to a command that it refused.
type Error string

// Error is the text of the server.
func (e Error) Error() string { return string(e) }

// Do has the server do one command, over a connection of its own on the unix socket,
// and returns the reply: a string, an int64, a slice of replies, or nil. A refused
// command fails the test; see [Server.Try].
func (s *Server) Do(args ...string) any {
	s.tb.Helper()
	reply, err := s.Try(args...)
	if err != nil {
		s.tb.Fatalf("%s: %v", abridged(args), err)
	}
	return reply
}

// Try is Do that returns the error, of type [Error] when it is the server's.
func (s *Server) Try(args ...string) (any, error) {
	replies, err := s.pipe([][]string{args})
	if err != nil {
		return nil, err
	}
	if refused, ok := replies[0].(Error); ok {
		return nil, refused
	}
	return replies[0], nil
}

// Text is Do for a command that answers with a string; nothing is the empty one.
func (s *Server) Text(args ...string) string {
	s.tb.Helper()
	switch reply := s.Do(args...).(type) {
	case nil:
		return ""
	case string:
		return reply
	default:
		s.tb.Fatalf("%s: answered with %v, want a string", abridged(args), reply)
		return ""
	}
}

// Int is Do for a command that answers with a number.
func (s *Server) Int(args ...string) int64 {
	s.tb.Helper()
	reply := s.Do(args...)
	n, ok := reply.(int64)
	if !ok {
		s.tb.Fatalf("%s: answered with %v, want a number", abridged(args), reply)
	}
	return n
}

// Pipe does many commands, one after another on one connection, and returns their
// replies. One that is refused fails the test.
func (s *Server) Pipe(commands ...[]string) []any {
	s.tb.Helper()
	replies, err := s.pipe(commands)
	if err != nil {
		s.tb.Fatal(err)
	}
	for i, reply := range replies {
		if refused, ok := reply.(Error); ok {
			s.tb.Fatalf("%s: %v", abridged(commands[i]), refused)
		}
	}
	return replies
}

// Multi does the commands in one transaction and returns their replies. One that is
// refused fails the test.
func (s *Server) Multi(commands ...[]string) []any {
	s.tb.Helper()
	all := append([][]string{{"MULTI"}}, commands...)
	replies := s.Pipe(append(all, []string{"EXEC"})...)
	done, ok := replies[len(replies)-1].([]any)
	if !ok || len(done) != len(commands) {
		s.tb.Fatalf("the transaction answered with %v, want %d replies", replies[len(replies)-1], len(commands))
	}
	for i, reply := range done {
		if refused, ok := reply.(Error); ok {
			s.tb.Fatalf("%s: %v", abridged(commands[i]), refused)
		}
	}
	return done
}

// KillPubSub cuts the connections of all clients that are subscribed to something, and
// says how many there were.
func (s *Server) KillPubSub() int64 {
	s.tb.Helper()
	return s.Int(killPubSub()...)
}

// KillPubSubAnd cuts the connections of all clients that are subscribed to something
// and does the commands, all in one transaction. So nobody can be subscribed when they
// are done, and what they publish reaches nobody. It returns their replies.
func (s *Server) KillPubSubAnd(commands ...[]string) []any {
	s.tb.Helper()
	return s.Multi(append([][]string{killPubSub()}, commands...)...)[1:]
}

func killPubSub() []string { return []string{"CLIENT", "KILL", "TYPE", "pubsub"} }

// KillClient cuts the connection of the client with an id, and says whether there was
// one.
func (s *Server) KillClient(id int64) bool {
	s.tb.Helper()
	return s.Int("CLIENT", "KILL", "ID", strconv.FormatInt(id, 10)) == 1
}

// A Client is a connection as CLIENT LIST shows it.
type Client struct {
	ID   int64
	Name string
	Addr string
	// Sub is the number of channels that it is subscribed to.
	Sub int
	// Fields has all that the server says of it, by the server's names.
	Fields map[string]string
}

// Clients lists the connections to the server, without those of this package.
func (s *Server) Clients() []Client {
	s.tb.Helper()
	var out []Client
	for line := range strings.Lines(s.Text("CLIENT", "LIST")) {
		fields := make(map[string]string)
		for _, f := range strings.Fields(line) {
			name, value, _ := strings.Cut(f, "=")
			fields[name] = value
		}
		id, err := strconv.ParseInt(fields["id"], 10, 64)
		if err != nil {
			s.tb.Fatalf("a client without an id in the list: %q", line)
		}
		if fields["name"] == ownUser {
			continue
		}
		sub, _ := strconv.Atoi(fields["sub"])
		out = append(out, Client{ID: id, Name: fields["name"], Addr: fields["addr"], Sub: sub, Fields: fields})
	}
	return out
}

// pipe sends the commands over a new connection and returns the replies, refusals
// among them. A connection that is kept would be one more thing to be killed, to hang
// over a restart, and to leak.
func (s *Server) pipe(commands [][]string) ([]any, error) {
	conn, err := net.DialTimeout("unix", s.Unix(), patience)
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, fmt.Errorf("limit the time of a command: %w", err)
	}
	hello := [][]string{{"AUTH", ownUser, s.secret}, {"CLIENT", "SETNAME", ownUser}}
	out, in := bufio.NewWriter(conn), bufio.NewReader(conn)
	var replies []any
	// In portions, so that neither side waits for the other with full buffers.
	const portion = 500
	for all := append(hello, commands...); len(all) > 0; {
		some := all[:min(portion, len(all))]
		all = all[len(some):]
		for _, args := range some {
			writeCommand(out, args)
		}
		if err := out.Flush(); err != nil {
			return nil, fmt.Errorf("send to the server: %w", err)
		}
		for range some {
			reply, err := readReply(in)
			if err != nil {
				return nil, fmt.Errorf("read the server's reply: %w", err)
			}
			replies = append(replies, reply)
		}
	}
	for _, reply := range replies[:len(hello)] {
		if refused, ok := reply.(Error); ok {
			return nil, refused // such as LOADING, or too many clients
		}
	}
	return replies[len(hello):], nil
}

func writeCommand(out *bufio.Writer, args []string) {
	fmt.Fprintf(out, "*%d\r\n", len(args)) // an error stays until Flush
	for _, a := range args {
		fmt.Fprintf(out, "$%d\r\n%s\r\n", len(a), a)
	}
}

// readReply reads one reply in the second version of the protocol. A refusal is a
// reply, not an error.
func readReply(in *bufio.Reader) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("an empty line instead of a reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return Error(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil || !strings.ContainsRune(":$*", rune(kind)):
		return nil, fmt.Errorf("not a reply: %q", line)
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		text := make([]byte, n+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		return string(text[:n]), nil
	}
	list := make([]any, 0, n)
	for range n {
		item, err := readReply(in)
		if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, nil
}

// abridged shows a command in a message.
func abridged(args []string) string {
	text := strings.Join(args, " ")
	if len(text) > 100 {
		text = text[:100] + "..."
	}
	return strconv.Quote(text)
}
