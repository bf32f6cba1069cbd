package httpserve

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

const (
	watchBuffer = 1024             // events kept for a watcher that is slow for a moment
	keepAlive   = 15 * time.Second // between signs of life of a stream, below the idle limit of proxies
)

// event is what happened to a key, as shown to a watcher.
type event struct {
	Event   lease.EventKind `json:"event"`
	Key     string          `json:"key,omitempty"`
	Who     string          `json:"who,omitempty"`
	Session string          `json:"session,omitempty"`
	Host    string          `json:"host,omitempty"`
	PID     int             `json:"pid,omitempty"`
	Label   string          `json:"label,omitempty"`
	Mode    string          `json:"mode,omitempty"`
	Max     int             `json:"max,omitempty"`
	Token   lease.Token     `json:"fencingToken,omitempty"`
	After   *int64          `json:"after,omitempty"` // ms
	Code    lease.Code      `json:"code,omitempty"`
}

func shown(e lease.Event) event {
	if e.Kind == lease.EventGap {
		return event{Event: e.Kind}
	}
	return event{
		Event: e.Kind, Key: e.Key, Who: e.Who(), Session: e.Session, Host: e.Host, PID: e.PID, Label: e.Label,
		Mode: e.Mode.String(), Max: e.Limit, Token: e.Token, After: ms(e.After), Code: e.Code,
	}
}

// queue hands events from the service's loop, which must not wait, to the
// goroutine of a watcher. One that falls behind loses the rest and gets a gap.
type queue struct {
	events chan lease.Event
	lost   chan struct{} // has an element when events were dropped
}

func newQueue() *queue {
	return &queue{make(chan lease.Event, watchBuffer), make(chan struct{}, 1)}
}

func (q *queue) put(e lease.Event) {
	select {
	case q.events <- e:
	default:
		select {
		case q.lost <- struct{}{}:
		default:
		}
	}
}

// watch answers GET /v1/watch with server-sent events, each named for its kind.
// A client that comes back after a cut, as browsers do, is told of the gap first.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	q, err := selection(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	events := newQueue()
	stop, err := s.svc.Watch(r.Context(), q, events.put)
	if err != nil {
		s.fail(w, err)
		return
	}
	defer stop()
	out := openStream(w)
	if r.Header.Get("Last-Event-ID") != "" {
		events.put(lease.Event{Kind: lease.EventGap})
	}
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for out.err == nil {
		select {
		case e := <-events.events:
			out.event(e)
			// Whatever is there goes out with one write.
			for n := len(events.events); n > 0; n-- {
				out.event(<-events.events)
			}
			// A gap is told behind what was kept, all of which is older.
			select {
			case <-events.lost:
				out.event(lease.Event{Kind: lease.EventGap})
			default:
			}
			out.flush()
		case <-tick.C:
			out.comment()
		case <-r.Context().Done():
			return
		case <-s.closing:
			return
		}
	}
}

// sse writes a stream of server-sent events (WHATWG HTML, section 9.2). After
// the first error it writes nothing more.
type sse struct {
	w      http.ResponseWriter
	flow   *http.ResponseController
	buf    []byte
	number int // of the last event, so that a client that comes back can say so
	err    error
}

func openStream(w http.ResponseWriter) *sse {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	out := &sse{w: w, flow: http.NewResponseController(w)}
	out.buf = append(out.buf, "retry: 1000\n\n"...)
	out.flush()
	return out
}

func (o *sse) event(e lease.Event) {
	text, err := json.Marshal(shown(e))
	if err != nil {
		o.err = err
		return
	}
	o.number++
	o.buf = strconv.AppendInt(append(o.buf, "id: "...), int64(o.number), 10)
	o.named(string(e.Kind), text)
}

// named adds one event. The text may have several lines.
func (o *sse) named(name string, text []byte) {
	o.buf = append(append(append(o.buf, "\nevent: "...), name...), "\ndata: "...)
	for _, b := range text {
		switch b {
		case '\n':
			o.buf = append(o.buf, "\ndata: "...)
		case '\r': // would end the line as well
		default:
			o.buf = append(o.buf, b)
		}
	}
	o.buf = append(o.buf, "\n\n"...)
}

func (o *sse) comment() {
	o.buf = append(o.buf, ": still here\n\n"...)
	o.flush()
}

func (o *sse) flush() {
	if o.err != nil {
		return
	}
	_ = o.flow.SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder has none
	if _, o.err = o.w.Write(o.buf); o.err == nil {
		o.err = o.flow.Flush()
	}
	o.buf = o.buf[:0]
}
