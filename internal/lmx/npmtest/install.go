// Package npmtest tests a broker with the npm package live-mutex as it is published: its clients, through what it
// exports, and its command-line tools. The programs that do so are JavaScript, in testdata/npm.
//
// What is not a test file here is for other tests that want the real package or its broker: [Install] brings it,
// [StartBroker] runs it. Nothing that is built for use imports this package.
package npmtest

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed testdata/npm
var programs embed.FS

// ErrMissing says that this machine has no node or no npm.
var ErrMissing = errors.New("not installed")

// Install puts the test programs and the package, in the version and with the hashes that the lock file names, into
// dir. No script of any package is run. It takes about a second when npm has the packages in its cache.
func Install(ctx context.Context, dir string) error {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s: %w: apt-get install nodejs npm, or scripts/tools", program, ErrMissing)
		}
	}
	const root = "testdata/npm"
	files, err := programs.ReadDir(root)
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := programs.ReadFile(root + "/" + f.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name()), text, 0o600); err != nil {
			return err
		}
	}
	ci := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund")
	ci.Dir = dir
	if text, err := ci.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, text)
	}
	return nil
}

// FreePort returns a port of loopback that nobody listens on. The package takes none above 49151, and one that the
// system may give to a client in the meantime would be no use: it is below those.
func FreePort() (int, error) {
	var last error
	for range 100 {
		port := 20000 + rand.IntN(12000)
		ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			return port, ln.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}

// Broker is the package's own broker, in a process of its own.
type Broker struct {
	// Addr is where it listens.
	Addr string
	cmd  *exec.Cmd
	in   io.Closer
}

// StartBroker runs the broker of the package that was installed in dir, on a free port and, when a path is given, on a
// unix socket too. It ends with Close, or with this process.
func StartBroker(dir, unix string) (*Broker, error) {
	var last error
	for range 5 { // somebody else may be quicker to take the port
		b, err := startBroker(dir, unix)
		if err == nil {
			return b, nil
		}
		last = err
	}
	return nil, last
}

func startBroker(dir, unix string) (*Broker, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	b := &Broker{Addr: "127.0.0.1:" + strconv.Itoa(port)}
	b.cmd = exec.Command("node", filepath.Join(dir, "broker.js"), strconv.Itoa(port), unix)
	// It prints for every connection and every lock that it forgets: nobody wants to wait for that.
	b.cmd.Stderr = nil
	if b.in, err = b.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the npm broker did not say that it listens on %s: %w", b.Addr, err), b.Close())
		}
		if strings.TrimSpace(line) == "listening" {
			break
		}
	}
	return b, nil
}

// Close kills the broker.
func (b *Broker) Close() error {
	b.in.Close()
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait() // says that it was killed
	return nil
}
