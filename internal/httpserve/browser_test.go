//go:build linux

package httpserve

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// browser is a real headless Chromium, driven over a pair of pipes with the
// DevTools protocol: JSON messages, each ended by a zero byte.
type browser struct {
	t       *testing.T
	out     *os.File
	session string // of the one page

	mu      sync.Mutex // guards the rest
	next    int
	replies map[int]chan message
	events  []message
}

type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("chromium is needed: %v", err)
		}
		t.Skip("chromium is not installed, so the page was not seen by a browser")
	}
	childIn, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, childOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile := t.TempDir()
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+profile,
		"--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{childIn, childOut}        // its descriptors 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its end of the pipes tells it when this process dies
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	childIn.Close()
	childOut.Close()
	b := &browser{t: t, out: out, replies: make(map[int]chan message)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(in)
	}()
	t.Cleanup(func() {
		// The whole group is ours: the browser and its helpers.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		out.Close()
		<-read
		in.Close()
	})
	b.openPage()
	return b
}

func (b *browser) read(in *os.File) {
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, 64<<20)
	scan.Split(func(data []byte, end bool) (int, []byte, error) {
		if i := strings.IndexByte(string(data), 0); i >= 0 {
			return i + 1, data[:i], nil
		}
		return 0, nil, nil
	})
	for scan.Scan() {
		var m message
		if json.Unmarshal(scan.Bytes(), &m) != nil {
			continue
		}
		b.mu.Lock()
		if reply := b.replies[m.ID]; reply != nil {
			reply <- m
			delete(b.replies, m.ID)
		} else {
			b.events = append(b.events, m)
		}
		b.mu.Unlock()
	}
}

// call sends one command and decodes its result.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.mu.Lock()
	b.next++
	m := message{ID: b.next, Session: b.session, Method: method, Params: params}
	reply := make(chan message, 1)
	b.replies[m.ID] = reply
	b.mu.Unlock()
	text, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.out.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	select {
	case m := <-reply:
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v: %s", method, err, m.Result)
			}
		}
	case <-time.After(60 * time.Second):
		b.t.Fatalf("%s: chromium did not answer", method)
	}
}

func (b *browser) openPage() {
	b.t.Helper()
	var target struct{ TargetID string }
	b.call("Target.createTarget", object{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", object{}, nil)
	}
}

// visit opens an address in a window of a width and a colour scheme.
func (b *browser) visit(address string, width int, scheme string) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", object{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
	b.call("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	b.call("Page.navigate", object{"url": address}, nil)
}

// eval evaluates an expression in the page.
func (b *browser) eval(expression string) any {
	b.t.Helper()
	var got struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", object{"expression": expression, "returnByValue": true}, &got)
	if got.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, got.ExceptionDetails)
	}
	return got.Result.Value
}

func (b *browser) until(what, expression string) {
	b.t.Helper()
	eventually(b.t, what, func() bool { return b.eval(expression) == true })
}

// picture takes a screenshot, and keeps it where LATCHKEY_PICTURES says.
func (b *browser) picture(name string) image.Image {
	b.t.Helper()
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", object{"format": "png"}, &shot)
	raw, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if dir := os.Getenv("LATCHKEY_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), raw, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	img, err := png.Decode(strings.NewReader(string(raw)))
	if err != nil {
		b.t.Fatal(err)
	}
	return img
}

// complaints are what the browser had to say about the page: exceptions, blocked
// content, dialogs.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, e := range b.events {
		switch e.Method {
		case "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening":
			text, _ := json.Marshal(e.Params)
			out = append(out, fmt.Sprintf("%s: %s", e.Method, text))
		}
	}
	return out
}
