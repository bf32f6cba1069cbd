package crashfs

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
)

// survivor works out what a crash leaves.
type survivor struct {
	rnd    *rand.Rand
	mode   Mode
	copies map[*inode]*inode
}

// names fills the new disk g from the crashed one, in an order that depends on
// names and the seed alone.
func (s *survivor) names(f, g *FS) {
	left := maps.Clone(f.durable)
	for _, c := range f.pending {
		if s.mode == Kill || s.mode == Tear && s.rnd.IntN(2) == 0 {
			c.apply(left)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		g.cached[name] = s.inode(left[name])
	}
	if s.mode != Kill {
		g.durable = maps.Clone(g.cached)
		return
	}
	// The system lives on: what was not synced still is not.
	for _, name := range slices.Sorted(maps.Keys(f.durable)) {
		g.durable[name] = s.inode(f.durable[name])
	}
	for _, c := range f.pending {
		sets := map[string]*inode{}
		for name, node := range c.sets {
			sets[name] = nil
			if node != nil {
				sets[name] = s.inode(node)
			}
		}
		g.pending = append(g.pending, change{dir: c.dir, sets: sets})
	}
}

// inode returns what is left of a file, the same for each of its names.
func (s *survivor) inode(n *inode) *inode {
	if c, ok := s.copies[n]; ok {
		return c
	}
	c := &inode{durable: slices.Clone(n.durable)}
	switch s.mode {
	case Kill:
		c.data = slices.Clone(n.data)
		c.pending = slices.Clone(n.pending)
	case Tear:
		c.durable = s.tear(n)
		c.data = slices.Clone(c.durable)
	case Lose:
		c.data = slices.Clone(n.durable)
	}
	s.copies[n] = c
	return c
}

// tear takes the length as of one moment since the last sync, and each sector
// that was written as of a moment of its own.
func (s *survivor) tear(n *inode) []byte {
	versions := make([][]byte, 0, len(n.pending)+1)
	versions = append(versions, n.durable)
	data := n.durable
	touched := map[int64]bool{}
	for _, e := range n.pending {
		data = e.apply(slices.Clone(data))
		versions = append(versions, data)
		if e.p != nil {
			for at := e.off / sector; at*sector < e.off+int64(len(e.p)); at++ {
				touched[at] = true
			}
		}
	}
	out := slices.Clone(versions[s.rnd.IntN(len(versions))])
	for _, at := range slices.Sorted(maps.Keys(touched)) {
		v := versions[s.rnd.IntN(len(versions))]
		lo, hi := at*sector, min((at+1)*sector, int64(len(out)))
		if lo >= hi {
			continue
		}
		clear(out[lo:hi])
		if lo < int64(len(v)) {
			copy(out[lo:hi], v[lo:])
		}
	}
	return out
}

// Names returns the paths of the files in dir as a program sees them, sorted.
func (f *FS) Names(dir string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := f.namesLocked(dir)
	for i, n := range names {
		names[i] = filepath.Join(dir, n)
	}
	return names
}

func (f *FS) namesLocked(dir string) []string {
	var names []string
	for _, path := range slices.Sorted(maps.Keys(f.cached)) {
		if filepath.Dir(path) == filepath.Clean(dir) {
			names = append(names, filepath.Base(path))
		}
	}
	return names
}

// ReadFile returns a copy of a file as a program sees it, without counting a call.
func (f *FS) ReadFile(path string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := f.cached[path]
	if node == nil {
		return nil, fmt.Errorf("read %s: %w", path, fs.ErrNotExist)
	}
	return slices.Clone(node.data), nil
}

// WriteFile puts a file on the disk, durable, without counting a call: for
// planting damage.
func (f *FS) WriteFile(path string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := &inode{data: slices.Clone(data), durable: slices.Clone(data)}
	f.cached[path], f.durable[path] = node, node
}

// Delete takes a file off the disk, durably, without counting a call.
func (f *FS) Delete(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.cached, path)
	delete(f.durable, path)
}
