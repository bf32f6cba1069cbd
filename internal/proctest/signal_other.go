//go:build !unix

package proctest

import (
	"errors"
	"os"
)

func freeze(*os.Process) error {
	return errors.New("processes cannot be frozen on this system")
}

func thaw(*os.Process) error { return nil }

func terminate(p *os.Process) error { return p.Kill() }
