package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

const (
	diskFile  = 16 << 20
	diskBlock = 4 << 10
)

// disk overwrites block after block of a file that is already there, each with
// an fdatasync: the least that a durable change costs on this disk.
type disk struct {
	f     *os.File
	block []byte
	n     uint64 // blocks written
}

// openDisk makes the file, written once so that its blocks exist.
func (e *env) openDisk() (*disk, error) {
	f, err := os.CreateTemp(e.dir, "disk-")
	if err != nil {
		return nil, err
	}
	e.later(f.Close)
	d := &disk{f: f, block: bytes.Repeat([]byte("x"), diskBlock)}
	for at := 0; at < diskFile; at += diskBlock {
		if _, err := f.WriteAt(d.block, int64(at)); err != nil {
			return nil, fmt.Errorf("disk: %w", err)
		}
	}
	return d, f.Sync()
}

// write makes one block durable.
func (d *disk) write() error {
	d.n++
	binary.BigEndian.PutUint64(d.block, d.n)
	if _, err := d.f.WriteAt(d.block, int64(d.n*diskBlock%diskFile)); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	if err := unix.Fdatasync(int(d.f.Fd())); err != nil {
		return fmt.Errorf("disk: fdatasync: %w", err)
	}
	return nil
}

// arm makes an arm whose operation is so many durable writes.
func (d *disk) arm(name string, writes int) rounds.Arm {
	return rounds.Arm{
		Name:    name,
		Setting: fmt.Sprintf("%d B overwritten in a preallocated file, fdatasync", diskBlock),
		Run: func(ctx context.Context, length time.Duration) (rounds.Sample, error) {
			return rounds.Callers(ctx, 1, length, func(context.Context, int) error {
				for range writes {
					if err := d.write(); err != nil {
						return err
					}
				}
				return nil
			})
		},
		Check: func(context.Context, *rounds.Sample) error {
			got := make([]byte, diskBlock)
			if _, err := d.f.ReadAt(got, int64(d.n*diskBlock%diskFile)); err != nil {
				return fmt.Errorf("disk: %w", err)
			}
			if !bytes.Equal(got, d.block) {
				return rounds.Wrong("block %d reads back differently", d.n)
			}
			return nil
		},
	}
}
