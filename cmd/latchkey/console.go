package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// console is standard error as several goroutines write to it: whole lines, and
// on a terminal one line that is replaced in place.
type console struct {
	out   io.Writer
	width int // of the terminal; zero when it is none

	mu      sync.Mutex // guards what follows, and the writing
	current string     // the line that is replaced in place
}

// line prints one line for people.
func (c *console) line(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	current := c.current
	c.drawLocked("")
	fmt.Fprintf(c.out, "latchkey: %s\n", oneLine(fmt.Sprintf(format, args...)))
	c.drawLocked(current)
}

// replace shows a line in place of the one before; "" takes it away. What is too
// long loses the end of its first part, so that what changes is always seen.
func (c *console) replace(line, end string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	line = cut(oneLine(line), max(c.width-1-displayWidth(end), 1)) + end
	c.drawLocked(cut(line, c.width-1))
}

// drawLocked needs nothing of the terminal but to go back to its left edge.
func (c *console) drawLocked(line string) {
	if line == "" && c.current == "" {
		return
	}
	blanks := strings.Repeat(" ", max(displayWidth(c.current)-displayWidth(line), 0))
	fmt.Fprintf(c.out, "\r%s%s", line, blanks)
	if line == "" {
		fmt.Fprint(c.out, "\r")
	}
	c.current = line
}

// lines is a slog handler that prints what the client of the broker has to say
// as lines for people: its message and its error.
type lines struct{ *console }

// Enabled leaves out what is for debugging.
func (l lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle prints the message, and the error if there is one.
func (l lines) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			text += ": " + a.Value.String()
		}
		return true
	})
	l.line("%s", text)
	return nil
}

// WithAttrs and WithGroup add nothing that would be printed.
func (l lines) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup returns the handler as it is.
func (l lines) WithGroup(string) slog.Handler { return l }
